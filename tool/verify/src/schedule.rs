//! Which faults strike, when, and for how long: a pure function of the seed. First one after the
//! other, so that a cause can be named; in the last third of the time two at once.

use jostle_model::plan::Fault;
use jostle_stats::rng::Rng;

/// The stream of the seed that the schedule is drawn from; clients have those below.
const STREAM: u64 = 1 << 40;

/// The unit of what has no lease.
const UNIT_NS: u64 = 500_000_000;
/// From this share of the time on, two at once.
const SINGLE: f64 = 2.0 / 3.0;
/// A server is started again after at most so long.
const DOWN_NS: u64 = 500_000_000;
/// Lengths of faults, in leases.
const LEASES: (f64, f64) = (0.2, 2.5);
/// Without leases, in nanoseconds.
const LENGTHS: (f64, f64) = (2e8, 2e9);

/// A fault that is to strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// From the start of the run, if no fault before it takes longer than planned.
    pub at_ns: u64,
    pub fault: Fault,
    /// Until it is over; `kill`: 0.
    pub lasts_ns: u64,
    /// Whether it strikes while the one before it lasts.
    pub is_second: bool,
    /// Decides whom it strikes, and how far a clock is set.
    pub draw: u64,
}

/// The schedule for a run that lasts so long.
pub(crate) fn schedule(
    seed: u64,
    lasts_ns: u64,
    lease_ns: Option<u64>,
    faults: &[Fault],
) -> Vec<Planned> {
    let mut rng = Rng::stream(seed, STREAM);
    // Short runs have short pauses, too.
    let unit = lease_ns.unwrap_or(UNIT_NS).min(lasts_ns / 20).max(1);
    let mut planned = Vec::new();
    if faults.is_empty() {
        return planned;
    }
    let mut round = Round {
        kinds: faults.to_vec(),
        left: Vec::new(),
    };
    let mut at_ns = pause(&mut rng, unit);
    while at_ns < lasts_ns {
        let mut end_ns = at_ns;
        let mut add = |rng: &mut Rng, at_ns, fault, is_second| {
            let lasts_ns = length(rng, fault, lease_ns);
            end_ns = end_ns.max(at_ns + lasts_ns);
            let draw = rng.next_u64();
            planned.push(Planned {
                at_ns,
                fault,
                lasts_ns,
                is_second,
                draw,
            });
            lasts_ns
        };
        let first = round.next(&mut rng, |_| true);
        let lasted = first.map(|first| add(&mut rng, at_ns, first, false));
        let is_pair = at_ns as f64 >= SINGLE * lasts_ns as f64;
        let second = first.filter(|_| is_pair);
        let second = second.and_then(|first| round.next(&mut rng, |fault| may_meet(first, fault)));
        if let Some(second) = second {
            let after = 1 + rng.below(lasted.unwrap_or(0).max(unit / 4));
            add(&mut rng, at_ns + after, second, true);
        }
        at_ns = end_ns + pause(&mut rng, unit);
    }
    planned.retain(|planned| planned.at_ns < lasts_ns);
    planned
}

/// Each kind in turn, in a new order each time.
struct Round {
    kinds: Vec<Fault>,
    left: Vec<Fault>,
}

impl Round {
    fn next(&mut self, rng: &mut Rng, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        if !self.left.iter().any(|fault| fits(*fault)) {
            let mut more = self.kinds.clone();
            rng.shuffle(&mut more);
            self.left.extend(more);
        }
        let nth = self.left.iter().position(|fault| fits(*fault))?;
        Some(self.left.remove(nth))
    }
}

/// Whether two faults may overlap: a socket has one filter, and a service that is down can neither
/// be killed nor stopped.
fn may_meet(one: Fault, other: Fault) -> bool {
    let group = |fault: Fault| match fault {
        Fault::Cut | Fault::CutTo | Fault::CutFrom | Fault::IdleCut => 1,
        Fault::Kill => 3,
        Fault::Stop => 4,
        Fault::Clock => 5,
        // A cluster that has lost one server does not survive the loss of another.
        _ => 2,
    };
    group(one) != group(other)
}

fn pause(rng: &mut Rng, unit: u64) -> u64 {
    unit * 6 / 10 + rng.below(unit * 4 / 10 + 1)
}

fn length(rng: &mut Rng, fault: Fault, lease_ns: Option<u64>) -> u64 {
    match fault {
        Fault::Kill => 0,
        Fault::ServerKill | Fault::ServerWipe | Fault::MemberKill => rng.below(DOWN_NS),
        _ => {
            let (least, most) = match lease_ns {
                Some(lease) => (LEASES.0 * lease as f64, LEASES.1 * lease as f64),
                None => LENGTHS,
            };
            between(rng, least, most)
        }
    }
}

/// A number between these, each order of magnitude as likely as another.
pub(crate) fn between(rng: &mut Rng, least: f64, most: f64) -> u64 {
    (least * (most / least).powf(rng.unit_f64())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fault::*;
    use std::collections::BTreeMap;

    const MINUTE: u64 = 60_000_000_000;
    const LEASE: Option<u64> = Some(2_000_000_000);
    const SIX: [Fault; 6] = [Kill, Stop, Cut, ServerKill, ServerStop, ServerWipe];
    const ALL: [Fault; 9] = [
        Kill, Stop, Cut, CutTo, CutFrom, ServerKill, ServerStop, ServerWipe, Clock,
    ];

    #[test]
    fn a_seed_repeats_its_schedule_and_another_has_another() {
        let of = |seed| schedule(seed, MINUTE, LEASE, &ALL);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert_eq!(schedule(7, MINUTE, None, &[]), []);
    }

    #[test]
    fn in_a_minute_each_of_six_kinds_strikes_three_times() {
        for seed in 0..200 {
            let mut counts = BTreeMap::new();
            for planned in schedule(seed, MINUTE, LEASE, &SIX) {
                *counts.entry(planned.fault).or_insert(0) += 1;
            }
            assert!(
                counts.len() == 6 && counts.values().all(|n| *n >= 3),
                "{seed}: {counts:?}"
            );
        }
    }

    #[test]
    fn one_follows_the_other_and_two_meet_at_the_end_only() {
        for seed in 0..200 {
            let planned = schedule(seed, MINUTE, LEASE, &ALL);
            let mut over = 0;
            for (nth, now) in planned.iter().enumerate() {
                let length = (now.lasts_ns as f64) / 2e9;
                let is_short = matches!(now.fault, Kill | ServerKill | ServerWipe);
                assert!(
                    is_short && length <= 0.25 || (0.2..=2.5).contains(&length),
                    "{now:?}"
                );
                match now.is_second {
                    false => assert!(now.at_ns > over, "{seed}: {now:?}"),
                    true => {
                        let first = &planned[nth - 1];
                        assert!(first.at_ns >= 2 * MINUTE / 3 && may_meet(first.fault, now.fault));
                        assert!(now.at_ns > first.at_ns && now.at_ns < over + LEASE.unwrap());
                    }
                }
                over = over.max(now.at_ns + now.lasts_ns);
            }
            assert!(planned.iter().any(|planned| planned.is_second));
            assert!(planned.iter().all(|planned| planned.at_ns < MINUTE));
        }
    }

    #[test]
    fn a_short_run_has_faults_too() {
        let planned = schedule(3, 2_000_000_000, LEASE, &[Kill]);
        assert!(planned.len() > 10, "{}", planned.len());
    }
}
