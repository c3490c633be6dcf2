//! Until when a hold certainly entitles its owner, by the promise; and by what it ends.

use super::history::{Facts, Struck};
use super::holds::{Hold, NEVER};
use jostle_model::plan::Fault;
use jostle_model::record::{Belongs, Promise};
use std::collections::HashMap;

/// Clocks of client and service may drift apart by so many millionths within a lease.
const DRIFT: f64 = 200e-6;

/// What a fault does to the holds of whom it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// The owner is dead.
    Kills,
    /// They end, since the promise leaves this fault out.
    Ends,
    /// Nobody knows.
    Unsettles,
}

impl Does {
    fn of(fault: Fault, promise: &Promise) -> Option<Does> {
        match (fault, promise.belongs) {
            (Fault::Kill, _) => Some(Does::Kills),
            (_, Belongs::Unknown) => Some(Does::Unsettles),
            (_, Belongs::Process) => None,
            (Fault::ServerWipe, _) => Some(Does::Ends),
            (Fault::ServerKill, _) => (!promise.restart).then_some(Does::Ends),
            (Fault::Cut | Fault::CutTo | Fault::CutFrom | Fault::IdleCut, Belongs::Connection) => {
                Some(Does::Ends)
            }
            (fault, _) if fault.is_of_member() => (!promise.failover).then_some(Does::Ends),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Effect {
    does: Does,
    from: u64,
    struck: u64,
    /// What is asked for from then on is not affected.
    until: u64,
    /// A server that is stopped or parted from the others may still grant, until it is back.
    grants_on: bool,
}

impl Effect {
    fn of(struck: &Struck, promise: &Promise) -> Option<Effect> {
        let does = Does::of(struck.fault, promise)?;
        let grants_on = matches!(
            struck.fault,
            Fault::LeaderStop | Fault::PartitionMinority | Fault::PartitionMajority
        );
        let of_service = struck.client.is_none() && !grants_on;
        let at_once = does != Does::Unsettles && (of_service || does == Does::Kills);
        Some(Effect {
            does,
            from: struck.from_ns,
            struck: struck.struck_ns,
            until: match at_once {
                true => struck.struck_ns,
                false => struck.over_ns.unwrap_or(NEVER),
            },
            grants_on,
        })
    }
}

/// In the order of time, each with the latest `until` so far.
#[derive(Debug, Default)]
struct Effects(Vec<(Effect, u64)>);

impl Effects {
    fn push(&mut self, effect: Effect) {
        let latest = self.0.last().map_or(0, |(_, latest)| *latest);
        self.0.push((effect, latest.max(effect.until)));
    }

    /// Those that strike before `end` what was asked for at `asked`.
    fn touching(&self, asked: u64, end: u64) -> impl Iterator<Item = &Effect> {
        let before = self.0.partition_point(|(effect, _)| effect.from < end);
        let near = self.0[..before].iter().rev();
        near.take_while(move |(_, latest)| *latest > asked)
            .map(|(effect, _)| effect)
            .filter(move |effect| effect.until > asked)
    }
}

/// The ends of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// It is certain until then.
    pub sure: u64,
    /// It is over at the latest, by release, lease or death.
    pub hard: u64,
    /// A fault outside of the promise has ended it.
    outside: u64,
    /// From then on nobody knows.
    unsettled: u64,
}

/// What an overlap is, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Undecided,
    Outside,
    Violation,
}

impl Ends {
    /// What it would be if another owned at this time; None: nothing.
    pub(super) fn class(&self, at: u64) -> Option<Class> {
        if at < self.sure {
            Some(Class::Violation)
        } else if at >= self.hard {
            None
        } else if self.outside <= at && at < self.unsettled {
            Some(Class::Outside)
        } else {
            Some(Class::Undecided)
        }
    }
}

/// The facts of a run, for questions about single holds.
pub(super) struct Judge<'a> {
    pub facts: &'a Facts,
    /// Faults in the order of time.
    pub struck: Vec<&'a Struck>,
    service: Effects,
    clients: HashMap<u32, Effects>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(facts: &'a Facts) -> Judge<'a> {
        let mut struck: Vec<&Struck> = facts.struck.iter().collect();
        struck.sort_by_key(|struck| struck.from_ns);
        let mut service = Effects::default();
        let mut clients: HashMap<u32, Effects> = HashMap::new();
        for fault in &struck {
            if let Some(effect) = Effect::of(fault, &facts.promise) {
                match fault.client {
                    Some(client) => clients.entry(client).or_default().push(effect),
                    None => service.push(effect),
                }
            }
        }
        Judge {
            facts,
            struck,
            service,
            clients,
        }
    }

    /// Just before and just after this client was killed.
    pub(super) fn killed(&self, client: u32) -> Option<(u64, u64)> {
        let mut effects = self.clients.get(&client)?.0.iter();
        let (kill, _) = effects.find(|(effect, _)| effect.does == Does::Kills)?;
        Some((kill.from, kill.struck))
    }

    /// The earliest end of a lease that was asked for then; without a lease there is none.
    pub(super) fn lease_end(&self, asked: u64) -> u64 {
        let Some(lease) = self.facts.promise.lease_ns else {
            return NEVER;
        };
        let step = self.facts.promise.lease_step_ns.unwrap_or(0);
        let least = ((lease as f64 * (1.0 - DRIFT)) as u64).saturating_sub(step);
        asked.saturating_add(least)
    }

    /// The longest time for which the service may go on with a lease; without one: for ever.
    pub(super) fn longest_lease(&self) -> u64 {
        let lag = self.facts.promise.lease_lag_ns.unwrap_or(0);
        self.facts.promise.lease_ns.map_or(NEVER, |lease| {
            ((lease as f64 * (1.0 + DRIFT)).ceil() as u64).saturating_add(lag)
        })
    }

    /// Until when it lasts if nothing strikes and its owner does not release it.
    pub(super) fn unreleased(&self, hold: &Hold) -> u64 {
        hold.told.min(self.lease_end(hold.renewed))
    }

    /// Until when it lasts if nothing strikes.
    pub(super) fn undisturbed(&self, hold: &Hold) -> u64 {
        self.unreleased(hold).min(hold.sent)
    }

    pub(super) fn ends(&self, hold: &Hold) -> Ends {
        let own = self.undisturbed(hold);
        let mut ends = Ends {
            sure: own.min(hold.missing),
            hard: own,
            outside: NEVER,
            unsettled: hold.missing,
        };
        let of_client = self.clients.get(&hold.ask.client).into_iter();
        let effects = of_client.chain([&self.service]);
        for effect in effects.flat_map(|effects| effects.touching(hold.tried(), own)) {
            ends.sure = ends.sure.min(effect.from);
            let (end, at) = match effect.does {
                Does::Kills => (&mut ends.hard, effect.struck),
                Does::Ends if effect.grants_on || hold.granted <= effect.from => {
                    (&mut ends.outside, effect.struck.max(hold.granted))
                }
                // What ends holds may have struck before the grant, or after it.
                Does::Ends | Does::Unsettles => (&mut ends.unsettled, effect.from),
            };
            *end = at.min(*end);
        }
        ends
    }

    /// How many faults of the service, which may end its tokens, are over by then.
    pub(super) fn faults_over(&self, asked: u64) -> usize {
        self.service
            .0
            .partition_point(|(_, latest)| *latest <= asked)
    }

    /// How many have begun.
    pub(super) fn faults_begun(&self, granted: u64) -> usize {
        let begun = |(effect, _): &(Effect, u64)| effect.from < granted;
        self.service.0.partition_point(begun)
    }
}
