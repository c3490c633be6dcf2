//! The highest offered load that meets an objective (`jostle rate --find`): from the steps so
//! far to the next one, or to what was found. Pure; the engine only makes the steps, and a
//! reader of the file follows them again.
//!
//! Bisection believes each answer, so that one noisy step sends it to the wrong half for good.
//! Here the load doubles until it misses twice, and one rung beyond is looked at, in case the
//! answer turns again. A number of looks that is fixed before then goes where the fit (`fit.rs`)
//! is least sure, and the lower end of its interval is looked at last, from below. After each
//! miss a base load runs until it is met, so that no step inherits the backlog of another.

mod fit;
mod judge;

pub use judge::{judge, requests, tail, window};

use fit::Fit;
use jostle_model::Plan;
use jostle_model::record::{BROKE_OFF, Interval, Run};

/// Looks around the limit, where the plan does not say.
pub const AROUND: u32 = 24;

/// Fewer leave the interval wider than what is to be found.
pub const FEWEST: u32 = 8;

/// Base loads after a miss, until the server counts as not recovered.
const RECOVERIES: u32 = 6;

/// Steps in a row that the generator, the machine or the slots decided, until they are the
/// answer.
const VOIDS: usize = 3;

/// Loads that are tried for the confirmation, each this much below the one before.
const ROUNDS: usize = 3;
const LOWER: f64 = 0.95;

/// The range of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The least load, with which the ladder begins.
    pub from: u64,
    /// The greatest.
    pub to: u64,
    /// Looks around the limit.
    pub around: u32,
}

/// The purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The load doubles.
    Ladder,
    /// A load at which the fit is least sure.
    Around,
    /// The load that is reported.
    Confirm,
    /// A load that was met, until the server has recovered.
    Base,
}

impl Role {
    /// As a table has it.
    pub fn word(self) -> &'static str {
        match self {
            Role::Ladder => "ladder",
            Role::Around => "around",
            Role::Confirm => "confirm",
            Role::Base => "recover",
        }
    }
}

/// Who kept a step from telling anything about the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Requests were sent late.
    Generator,
    /// A process that only sleeps woke up late, too.
    Machine,
    /// All `-w` slots were in flight, and the target answered each in time.
    Slots,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The objective was met.
    Met,
    /// It was missed, and by the target.
    Missed,
    /// It was missed, and who was late decided that.
    Void(Limit),
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Requests offered a second.
    pub rate: u64,
    /// Its result.
    pub outcome: Outcome,
}

/// The next action after the steps so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Another step at this load.
    Look(u64, Role),
    /// Nothing.
    Done(Conclusion),
}

/// The result of a search. Loads are requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conclusion {
    /// The objective is met up to this load (95 %), and was at `confirmed`: in `met` of `of`
    /// steps.
    Found {
        /// Where half of the steps meet it.
        per_s: Interval,
        /// A load that met it when it was tried last.
        confirmed: u64,
        /// Steps of the confirmation that met it.
        met: u32,
        /// All of them.
        of: u32,
    },
    /// The fit has a limit, but loads below it missed.
    Unconfirmed {
        /// The fit.
        per_s: Interval,
        /// The lowest load that was tried for it.
        missed: u64,
    },
    /// The greatest load meets it, too.
    Each(u64),
    /// The least load misses it.
    None(u64),
    /// From this load on it was somebody else who decided.
    Limited {
        /// Who.
        by: Limit,
        /// At this load.
        at: u64,
        /// The highest load that was met.
        held: Option<u64>,
    },
    /// A load misses it three times, and a higher one meets it twice.
    Turns {
        /// The load that misses it.
        missed: u64,
        /// The higher one.
        met: u64,
    },
    /// After this load the server did not meet the base load again.
    NotRecovered {
        /// The load that was missed.
        after: u64,
        /// The base load.
        base: u64,
    },
    /// The search was ended before: by the budget or the user.
    Unfinished {
        /// The highest load that was met.
        held: Option<u64>,
        /// The lowest beyond it that was missed.
        missed: Option<u64>,
        /// As far as it is known.
        per_s: Option<Interval>,
    },
}

impl Conclusion {
    /// Whether it answers the question.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Conclusion::Found { .. } | Conclusion::Each(_) | Conclusion::None(_)
        )
    }
}

/// The state of a search after some steps.
#[derive(Debug, Default)]
struct State {
    search: Search,
    ladder: Vec<(u64, bool)>,
    around: Vec<(u64, bool)>,
    confirm: Vec<(u64, bool)>,
    /// Loads of the ladder that others decided.
    void: Vec<u64>,
    /// Who decided the last steps, all at one load.
    row: Vec<(u64, Limit)>,
    recovers: Option<Recovers>,
    /// Whether only roles are asked for, which do not depend on the fit.
    replays: bool,
}

/// The server is to meet the base load again.
#[derive(Clone, Copy, Debug)]
struct Recovers {
    /// The load before.
    after: u64,
    /// Base loads so far.
    tries: u32,
    /// Who decided the last of them.
    by: Option<Limit>,
}

impl Recovers {
    fn after(rate: u64) -> Option<Recovers> {
        Some(Recovers {
            after: rate,
            tries: 0,
            by: None,
        })
    }
}

/// Where the ladder ended.
enum Ladder {
    Look(u64),
    Done(Conclusion),
    /// The last rung that was met, and the first that was missed.
    Between(u64, u64),
}

impl State {
    fn new(search: Search) -> State {
        State {
            search,
            replays: true,
            ..State::default()
        }
    }

    fn take(&mut self, step: Step, role: Role) {
        let rate = step.rate;
        let met = match step.outcome {
            Outcome::Void(by) if role != Role::Base => {
                self.row.retain(|(other, _)| *other == rate);
                self.row.push((rate, by));
                if role == Role::Ladder {
                    self.void.push(rate);
                }
                // Whoever was late, the requests were sent in the end.
                self.recovers = Recovers::after(rate);
                return;
            }
            outcome => outcome == Outcome::Met,
        };
        match role {
            Role::Base => {
                let tried = |before: Recovers| Recovers {
                    tries: before.tries + 1,
                    by: match step.outcome {
                        Outcome::Void(by) => Some(by),
                        _ => None,
                    },
                    ..before
                };
                self.recovers = self.recovers.filter(|_| !met).map(tried);
                return;
            }
            Role::Ladder => self.ladder.push((rate, met)),
            Role::Around => self.around.push((rate, met)),
            Role::Confirm => self.confirm.push((rate, met)),
        }
        self.row.clear();
        self.recovers = Recovers::after(rate).filter(|_| !met);
    }

    fn next(&self) -> Next {
        let wanted = match self.row.last() {
            Some((at, by)) if self.row.len() >= VOIDS => Next::Done(Conclusion::Limited {
                by: *by,
                at: *at,
                held: self.held(),
            }),
            _ => self.wanted(),
        };
        match (wanted, self.recovers) {
            (Next::Look(..), Some(recovers)) => self.recover(recovers),
            _ => wanted,
        }
    }

    fn recover(&self, Recovers { after, tries, by }: Recovers) -> Next {
        let held = self.held();
        let base = (held.unwrap_or(self.search.from) / 2).max(1);
        let never = match (by, held) {
            (Some(by), _) => Conclusion::Limited { by, at: base, held },
            (None, Some(_)) => Conclusion::NotRecovered { after, base },
            // It does not meet half of the least load either.
            (None, None) => Conclusion::None(self.search.from),
        };
        Next::Look(base, Role::Base).until(tries >= RECOVERIES, never)
    }

    /// The highest load that more looks met than missed, all loads below it alike.
    fn held(&self) -> Option<u64> {
        let looks = || self.looks();
        let mut rates: Vec<u64> = looks().map(|(rate, _)| rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let holds = |rate: &u64| votes(looks(), *rate).is_gt();
        rates.into_iter().take_while(holds).last()
    }

    fn looks(&self) -> impl Iterator<Item = (u64, bool)> + Clone + '_ {
        let all = self.ladder.iter().chain(&self.around);
        all.chain(&self.confirm).copied()
    }

    fn wanted(&self) -> Next {
        let (low, high) = match self.climb() {
            Ladder::Look(rate) => return Next::Look(rate, Role::Ladder),
            Ladder::Done(found) => return Next::Done(found),
            Ladder::Between(low, high) => (low, high),
        };
        if self.around.len() < self.search.around as usize {
            // One look below the middle, one above, and so on.
            let q = [0.3, 0.7][self.around.len() % 2];
            let rate = self.on_grid(self.fit(low, high).quantile(q), f64::round);
            return Next::Look(rate.clamp(low, high), Role::Around);
        }
        self.confirmed(low, high)
    }

    fn confirmed(&self, low: u64, high: u64) -> Next {
        let Some((at, _)) = self.confirm.last().copied() else {
            let rate = self.on_grid(self.fit(low, high).quantile(0.025), f64::floor);
            return Next::Look(rate, Role::Confirm);
        };
        let per_s = self.fit(low, high).interval();
        let here = self.confirm.iter().filter(|(rate, _)| *rate == at);
        let (of, met) = here.fold((0, 0), |(of, met), (_, is)| (of + 1, met + u32::from(*is)));
        let mut rates: Vec<u64> = self.confirm.iter().map(|(rate, _)| *rate).collect();
        rates.dedup();
        let lower = self.on_grid(LOWER * at as f64, f64::floor);
        match (met, of - met) {
            (2.., 0) if of < 3 => Next::Look(at, Role::Confirm),
            (2.., _) => Next::Done(Conclusion::Found {
                per_s,
                confirmed: at,
                met,
                of,
            }),
            (_, 0 | 1) => Next::Look(at, Role::Confirm),
            _ => Next::Look(lower, Role::Confirm).until(
                rates.len() >= ROUNDS || lower < self.search.from,
                Conclusion::Unconfirmed { per_s, missed: at },
            ),
        }
    }

    /// The rungs, in order: each is left upwards when it was met, and when it was missed twice
    /// the ladder ends one rung beyond.
    fn climb(&self) -> Ladder {
        let mut below = None;
        let mut rung = self.search.from;
        loop {
            let of_rung = |is: bool| {
                let here = self.ladder.iter().filter(|look| **look == (rung, is));
                here.count()
            };
            let (met, missed) = (of_rung(true), of_rung(false));
            let next = rung.saturating_mul(2).min(self.search.to);
            if missed >= met + 2 {
                let again = missed < met + 3;
                return self.beyond(below, (rung, again), (next > rung).then_some(next));
            }
            if met <= missed || (next == rung && met < 2) {
                return Ladder::Look(rung);
            }
            if next == rung {
                return Ladder::Done(Conclusion::Each(rung));
            }
            (below, rung) = (Some(rung), next);
        }
    }

    /// The rung `missed` was missed twice; is the one beyond it met? Then `again` asks whether
    /// both were noise.
    fn beyond(
        &self,
        below: Option<u64>,
        (missed, again): (u64, bool),
        beyond: Option<u64>,
    ) -> Ladder {
        if let Some(rate) = beyond.filter(|rate| !self.void.contains(rate)) {
            let here = |is| {
                self.ladder
                    .iter()
                    .filter(|look| **look == (rate, is))
                    .count()
            };
            match (here(true), here(false)) {
                (0 | 1, 0) => return Ladder::Look(rate),
                (2.., 0) if again => return Ladder::Look(missed),
                (2.., 0) => return Ladder::Done(Conclusion::Turns { missed, met: rate }),
                _ => {}
            }
        }
        match below {
            Some(below) => Ladder::Between(below, missed),
            None => Ladder::Done(Conclusion::None(missed)),
        }
    }

    fn fit(&self, low: u64, high: u64) -> Fit {
        // The last rung may have been met by luck.
        let looks = self.looks().filter(|_| !self.replays);
        Fit::new(looks, (low / 2).max(self.search.from), high)
    }

    /// The nearest load of a grid of 2 %, so that looks repeat each other.
    fn on_grid(&self, rate: f64, rounded: fn(f64) -> f64) -> u64 {
        const STEP: f64 = 1.02;
        let from = self.search.from as f64;
        // A load of the grid is rounded to itself.
        let steps = rounded((rate / from).ln() / STEP.ln() + 1e-3);
        (from * STEP.powf(steps)).round().max(1.0) as u64
    }

    fn unfinished(&self) -> Conclusion {
        let held = self.held();
        let beyond = |rate: &u64| Some(*rate) > held;
        let missed = self.looks().filter(|(_, met)| !met).map(|(rate, _)| rate);
        let per_s = match self.climb() {
            Ladder::Between(low, high) if !self.around.is_empty() => {
                Some(self.fit(low, high).interval())
            }
            _ => None,
        };
        Conclusion::Unfinished {
            held,
            missed: missed.filter(beyond).min(),
            per_s,
        }
    }
}

impl Next {
    fn until(self, ended: bool, found: Conclusion) -> Next {
        if ended { Next::Done(found) } else { self }
    }
}

/// Whether more looks at this load met it than missed it.
fn votes(looks: impl Iterator<Item = (u64, bool)>, rate: u64) -> std::cmp::Ordering {
    let here = looks.filter(|(other, _)| *other == rate);
    let all = here.map(|(_, met)| if met { 1 } else { -1 });
    all.sum::<i64>().cmp(&0)
}

/// The purpose of each step, the next action, and the result so far.
pub fn follow(
    search: Search,
    steps: impl IntoIterator<Item = Step>,
) -> (Vec<Role>, Next, Conclusion) {
    let mut state = State::new(search);
    let mut roles = Vec::new();
    for step in steps {
        let Next::Look(_, role) = state.next() else {
            break;
        };
        state.take(step, role);
        roles.push(role);
    }
    state.replays = false;
    let next = state.next();
    let found = match next {
        Next::Done(found) => found,
        Next::Look(..) => state.unfinished(),
    };
    (roles, next, found)
}

/// The search of one target with so many slots.
#[derive(Debug)]
pub struct Searched<'a> {
    /// As typed.
    pub target: &'a str,
    /// Slots.
    pub workers: u64,
    /// The steps, in their order.
    pub steps: Vec<(&'a Run, Role, Outcome)>,
    /// The next action.
    pub next: Next,
    /// The result so far.
    pub found: Conclusion,
}

/// The searches of a resolved plan with what was made of them, in their order; none where it
/// finds no load.
pub fn searched<'a>(plan: &'a Plan, runs: &[&'a Run]) -> Vec<Searched<'a>> {
    let (Some(objective), Some(rates)) = (&plan.find, &plan.rate) else {
        return Vec::new();
    };
    let search = Search {
        from: rates.0.iter().min().copied().unwrap_or(1),
        to: rates.0.iter().max().copied().unwrap_or(1),
        around: plan.runs.unwrap_or(AROUND),
    };
    let workers = plan.workers.as_ref().map_or(&[][..], |list| &list.0);
    let places = plan.targets.iter();
    let places = places.flat_map(|target| workers.iter().map(move |workers| (target, *workers)));
    let one = |(target, workers): (&'a String, u64)| {
        let whole = |run: &&&Run| !run.around.errors.contains_key(BROKE_OFF);
        let here = |run: &&&Run| run.target == *target && run.at.workers == Some(workers);
        let mut here: Vec<&Run> = runs.iter().filter(here).filter(whole).copied().collect();
        here.sort_by_key(|run| run.block);
        let mut idle_ns = None;
        let seen = here.into_iter().filter_map(|run| {
            let outcome = judge(objective, run, idle_ns)?;
            if outcome == Outcome::Met && idle_ns.is_none() {
                idle_ns = judge::service_p50(run);
            }
            let rate = run.at.rate?;
            Some((run, Step { rate, outcome }))
        });
        let seen: Vec<(&Run, Step)> = seen.collect();
        let (roles, next, found) = follow(search, seen.iter().map(|(_, step)| *step));
        let steps = seen.into_iter().zip(roles);
        Searched {
            target,
            workers,
            steps: steps
                .map(|((run, step), role)| (run, role, step.outcome))
                .collect(),
            next,
            found,
        }
    };
    places.map(one).collect()
}

#[cfg(test)]
mod tests;
