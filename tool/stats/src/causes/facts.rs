//! Evidence from the looks of one host at one run, as the tests of the table ask for it.

use jostle_model::record::{Came, Look, LookedAt, Process, Sign, When, sign};

/// A clock that moved by less was not set.
const SET_MS: i64 = 500;

/// Clients that are named; more are counted.
const NAMED: usize = 3;

/// The looks, in the order of their times.
#[derive(Debug)]
pub struct Facts<'a>(Vec<&'a Look>);

impl<'a> Facts<'a> {
    /// Those of one host at one run.
    pub fn new(looks: &'a [Look]) -> Facts<'a> {
        let mut looks: Vec<&Look> = looks.iter().collect();
        looks.sort_by_key(|look| look.asked_ns);
        Facts(looks)
    }

    /// The answered looks of a kind.
    fn looks(&self, at: LookedAt, when: When) -> impl DoubleEndedIterator<Item = &'a Look> {
        self.came(at, when)
            .filter(|look| look.came == Came::Answered)
    }

    fn came(&self, at: LookedAt, when: When) -> impl DoubleEndedIterator<Item = &'a Look> {
        let of_kind = move |look: &&'a Look| look.at == at && look.when == when;
        self.0.iter().copied().filter(of_kind)
    }

    /// A sign from the last look of a kind.
    fn last(&self, at: LookedAt, when: When, name: &str) -> Option<&'a Sign> {
        self.looks(at, when).next_back()?.signs.get(name)
    }

    /// A sign before the first worker and after the last, from the server or from its control
    /// group.
    fn both(&self, name: &str) -> Option<[&'a Sign; 2]> {
        let of = |when| {
            let said = self.last(LookedAt::Server, when, name);
            said.or_else(|| self.last(LookedAt::Group, when, name))
        };
        Some([of(When::Before)?, of(When::After)?])
    }

    /// Whether a value of the server is another one.
    pub(super) fn changed(&self, name: &str) -> Option<bool> {
        self.both(name).map(|[before, after]| before != after)
    }

    /// By how much a count of the server grew.
    pub(super) fn growth(&self, name: &str) -> Option<i64> {
        let [before, after] = self.both(name)?;
        Some(number(after)? - number(before)?)
    }

    pub(super) fn grew(&self, name: &str) -> Option<bool> {
        self.growth(name).map(|by| by > 0)
    }

    /// A flag of the server.
    pub(super) fn is(&self, when: When, name: &str) -> Option<bool> {
        flag(self.last(LookedAt::Server, when, name)?)
    }

    /// A list of the server's.
    pub(super) fn texts(&self, when: When, name: &str) -> Option<&'a [String]> {
        match self.last(LookedAt::Server, when, name)? {
            Sign::Texts(list) => Some(list),
            _ => None,
        }
    }

    /// A number that the latest look at a standstill showed; None if that look is missing, beside
    /// which it was looked who stood still.
    pub(super) fn still_number(&self, at: LookedAt, name: &str) -> Option<i64> {
        const BESIDE_NS: u64 = 300_000_000;
        let look = self.looks(at, When::Still).next_back()?;
        let halted = self.came(LookedAt::Halted, When::Still).next_back()?;
        let is_beside = look.asked_ns.abs_diff(halted.asked_ns) < BESIDE_NS;
        number(look.signs.get(name)?).filter(|_| is_beside)
    }

    /// Whether any look at a standstill showed a number above zero.
    pub(super) fn stood_some(&self, at: LookedAt, name: &str) -> Option<bool> {
        let looks = self.looks(at, When::Still);
        let each: Vec<Option<bool>> = looks
            .map(|look| look.signs.get(name).and_then(number).map(|some| some > 0))
            .collect();
        any(&each).filter(|_| !each.is_empty())
    }

    /// By how much a number grew between the first and the last look at a standstill.
    pub(super) fn still_growth(&self, at: LookedAt, name: &str) -> Option<i64> {
        let looks: Vec<&Look> = self.looks(at, When::Still).collect();
        let [first, .., last] = &looks[..] else {
            return None;
        };
        let of = |look: &Look| look.signs.get(name).and_then(number);
        Some(of(last)? - of(first)?)
    }

    /// Whether the server answered any question about holders while nothing was granted.
    pub(super) fn answered_meanwhile(&self) -> Option<bool> {
        let looks: Vec<Came> = self
            .came(LookedAt::Holders, When::Still)
            .map(|look| look.came)
            .collect();
        let has = |came| looks.contains(&came);
        match has(Came::Answered) || has(Came::Refused) {
            true => Some(true),
            false => (!looks.is_empty() && !has(Came::NotAsked)).then_some(false),
        }
    }

    /// Whether somebody else had the lock after the first failure.
    pub(super) fn held_when_failed(&self) -> Option<bool> {
        let holders = self.last(LookedAt::Holders, When::Failed, sign::HOLDERS)?;
        Some(!processes(holders).is_empty())
    }

    /// Whether the server refused the question about holders in such words, after the first
    /// failure.
    pub(super) fn refused_when_failed(&self, with: &str) -> Option<bool> {
        let look = self.came(LookedAt::Holders, When::Failed).next_back()?;
        let words = look.words.as_ref().filter(|_| look.came == Came::Refused);
        (look.came != Came::NotAsked).then(|| words.is_some_and(|words| words.contains(with)))
    }

    /// Whether nobody took a connection after the run, and the system refused it.
    pub(super) fn was_refused(&self) -> Option<bool> {
        let look = self.came(LookedAt::Server, When::After).next_back()?;
        let is = |words: &String| words.contains("Connection refused");
        let refused = look.came == Came::Silent && look.words.as_ref().is_some_and(is);
        (look.came != Came::NotAsked).then_some(refused)
    }

    /// Whether the server's process still listened after the run.
    pub(super) fn listens(&self) -> Option<bool> {
        flag(self.last(LookedAt::Path, When::After, sign::LISTENS)?)
    }

    /// Whether the server that was there before the run answers after it.
    pub(super) fn lives_on(&self) -> Option<bool> {
        let same = self.changed(sign::LIFE).map(|is| !is);
        let old = || self.started_within().map(|is| !is);
        match self.was_silent(When::After)? {
            true => Some(false),
            false => same.or_else(old),
        }
    }

    /// A number of the server, after the run.
    pub(super) fn server(&self, name: &str) -> Option<i64> {
        number(self.last(LookedAt::Server, When::After, name)?)
    }

    /// A sign from the worker whose call failed first.
    pub(super) fn worker(&self, name: &str) -> Option<&'a Sign> {
        self.last(LookedAt::Worker, When::Failed, name)
    }

    pub(super) fn worker_ms(&self, name: &str) -> Option<i64> {
        number(self.worker(name)?)
    }

    pub(super) fn worker_is(&self, name: &str) -> Option<bool> {
        flag(self.worker(name)?)
    }

    /// A sign from the record of the run.
    pub(super) fn run(&self, name: &str) -> Option<&'a Sign> {
        self.last(LookedAt::Run, When::After, name)
    }

    pub(super) fn run_number(&self, name: &str) -> Option<i64> {
        number(self.run(name)?)
    }

    pub(super) fn run_is(&self, name: &str) -> Option<bool> {
        flag(self.run(name)?)
    }

    /// Whether nobody answered; None where nobody was asked.
    pub(super) fn was_silent(&self, when: When) -> Option<bool> {
        let look = self.came(LookedAt::Server, when).next_back()?;
        (look.came != Came::NotAsked).then_some(look.came == Came::Silent)
    }

    /// Whether the server that answered last started after it was asked first. None where its
    /// seconds leave both open.
    pub(super) fn started_within(&self) -> Option<bool> {
        let first = self.looks(LookedAt::Server, When::Before).next_back()?;
        let last = self.looks(LookedAt::Server, When::After).next_back()?;
        let uptime_ms = 1_000 * self.server(sign::UPTIME_S)?;
        let between_ms = |from: u64, to: u64| (to.saturating_sub(from) / 1_000_000) as i64;
        // It counts whole seconds that have passed, and may round them.
        if uptime_ms + 1_000 <= between_ms(first.answered_ns?, last.asked_ns) {
            Some(true)
        } else if uptime_ms - 1_000 >= between_ms(first.asked_ns, last.answered_ns?) {
            Some(false)
        } else {
            None
        }
    }

    /// By how many milliseconds the server's wall clock was set, at least; 0 where delays of
    /// the answers explain what it showed.
    pub(super) fn set_by_ms(&self) -> Option<i64> {
        let [Sign::Range([low, high]), Sign::Range([least, most])] =
            self.both(sign::WALL_CLOCK_MS)?
        else {
            return None;
        };
        let by = (least - high).max(0) + (most - low).min(0);
        Some(if by.abs() > SET_MS { by } else { 0 })
    }

    /// Calls that deleted keys beyond those of our own releases.
    pub(super) fn deleted_beyond(&self) -> Option<i64> {
        let own = self.server(sign::DELETED_EACH)? * self.worker_ms(sign::GRANTS)?;
        Some(self.growth(sign::DELETED)? - own)
    }

    /// Whether any look during the latest standstill showed something in a list.
    pub(super) fn stood(&self, at: LookedAt, name: &str) -> Option<bool> {
        any(&self
            .looks(at, When::Still)
            .map(|look| has(look, name))
            .collect::<Vec<_>>())
        .filter(|_| self.looks(at, When::Still).next().is_some())
    }

    /// Whether what the looks showed was gone when the standstill ended. None without a look at
    /// its end.
    pub(super) fn stood_no_longer(&self, at: LookedAt, name: &str) -> Option<bool> {
        let looks: Vec<&Look> = self.came(at, When::Still).collect();
        let [_, .., last] = &looks[..] else {
            return None;
        };
        let at_the_end = has(last, name).filter(|_| last.came == Came::Answered)?;
        Some(self.stood(at, name)? && !at_the_end)
    }

    /// Whether the first call failed a second or more after the last look at a standstill.
    pub(super) fn failed_after_still(&self) -> Option<bool> {
        let failed = self.looks(LookedAt::Worker, When::Failed).next_back()?;
        let still = self.looks(LookedAt::Halted, When::Still).next_back()?;
        Some(failed.asked_ns > still.asked_ns + 1_000_000_000)
    }

    /// The processes that the first of these looks with any shows.
    fn stood_there(&self, at: LookedAt, name: &str) -> &'a [Process] {
        let looks = self.looks(at, When::Still);
        let lists = looks.filter_map(|look| Some(processes(look.signs.get(name)?)));
        let mut lists = lists.filter(|list| !list.is_empty());
        lists.next().unwrap_or_default()
    }

    /// Whether any owner that was seen holds bytes that workers want. None where that is not
    /// known of one.
    pub(super) fn owner_wants_the_same(&self) -> Option<bool> {
        let wanted = self.last(LookedAt::Owners, When::Still, sign::WANTED_BYTES)?;
        let Sign::Range([first, last]) = wanted else {
            return None;
        };
        let meets = |owner: &Process| {
            let [from, to] = owner.bytes?;
            Some(from <= *last as u64 && *first as u64 <= to)
        };
        let owners = self.stood_there(LookedAt::Owners, sign::OWNERS).iter();
        let each: Vec<Option<bool>> = owners.map(meets).collect();
        any(&each)
    }

    /// Whether an owner that was seen excludes what workers want.
    pub(super) fn owner_excludes(&self, at: LookedAt, name: &str) -> Option<bool> {
        let shared = self.last(at, When::Still, sign::WANTED_SHARED)?;
        let owners = self.stood_there(at, name).iter();
        match flag(shared)? {
            false => Some(true),
            true => any(&owners.map(|owner| Some(!owner.shared?)).collect::<Vec<_>>()),
        }
    }

    /// Whether the witness saw a worker that stood still inside the lock.
    pub(super) fn owner_stood(&self) -> Option<bool> {
        flag(self.last(LookedAt::Halted, When::Still, sign::OWNER_HALTED)?)
    }

    pub(super) fn has_clients(&self) -> Option<bool> {
        let clients = self.last(LookedAt::Clients, When::After, sign::CLIENTS)?;
        Some(matches!(clients, Sign::Texts(list) if !list.is_empty()))
    }

    /// A clause with the values of its signs.
    pub(super) fn fill(&self, clause: &str) -> String {
        let mut text = String::new();
        let mut parts = clause.split(['{', '}']);
        while let Some(plain) = parts.next() {
            text += plain;
            text += &parts
                .next()
                .map_or_else(String::new, |name| self.value(name));
        }
        text
    }

    /// A value as clauses have it: of the latest look that has any.
    fn value(&self, name: &str) -> String {
        let known = match name {
            sign::WALL_CLOCK_MS => self.set_by_ms().map(|by| format!("{by:+} ms")),
            sign::DELETED => self.deleted_beyond().map(|by| by.to_string()),
            "words" => self.0.iter().rev().find_map(|look| look.words.clone()),
            _ => match name.split_at(1) {
                ("+", name) => self.growth(name).map(|by| plain(name, &Sign::Number(by))),
                ("~", name) => self
                    .both(name)
                    .map(|both| both.map(|sign| plain(name, sign)).join(", then ")),
                _ => {
                    let looks = self.0.iter().rev();
                    let mut values = looks.filter_map(|look| look.signs.get(name));
                    let is_there = |sign: &&Sign| **sign != Sign::Processes(Vec::new());
                    values.find(is_there).map(|sign| plain(name, sign))
                }
            },
        };
        known.unwrap_or_else(|| "?".to_owned())
    }
}

/// Whether one is so; None where none is, and one is unknown.
fn any(each: &[Option<bool>]) -> Option<bool> {
    match each.contains(&Some(true)) {
        true => Some(true),
        false if each.contains(&None) => None,
        false => Some(false),
    }
}

/// Whether a list that a look showed has something in it.
fn has(look: &Look, name: &str) -> Option<bool> {
    look.signs.get(name).map(|sign| !processes(sign).is_empty())
}

fn number(sign: &Sign) -> Option<i64> {
    match sign {
        Sign::Number(number) => Some(*number),
        _ => None,
    }
}

fn flag(sign: &Sign) -> Option<bool> {
    match sign {
        Sign::Flag(is) => Some(*is),
        _ => None,
    }
}

fn processes(sign: &Sign) -> &[Process] {
    match sign {
        Sign::Processes(list) => list,
        _ => &[],
    }
}

fn plain(name: &str, sign: &Sign) -> String {
    match sign {
        Sign::Number(ms) if name.ends_with("_ms") => crate::numbers::time(1e6 * *ms as f64),
        Sign::Number(milli) if name.ends_with("_milli") => format!("{:.2}", *milli as f64 / 1e3),
        Sign::Number(number) => number.to_string(),
        Sign::Flag(is) => is.to_string(),
        Sign::Range([least, most]) => format!("{least} to {most}"),
        Sign::Text(text) => text.clone(),
        Sign::Texts(list) => in_brief(list),
        Sign::Processes(list) => {
            let name = |process: &Process| match (process.pid, &process.state) {
                (0, _) => process.name.clone(),
                (pid, None) => format!("{} ({pid})", process.name),
                (pid, Some(state)) => format!("{} ({pid}, {state})", process.name),
            };
            in_brief(&list.iter().map(name).collect::<Vec<_>>())
        }
    }
}

fn in_brief(list: &[String]) -> String {
    let more = match list.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", list[..list.len().min(NAMED)].join(", "))
}
