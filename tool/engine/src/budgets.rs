//! Whether the generators of a run and its server can take CPU time from each other:
//! pure.
//!
//! The bottleneck can be identified only where they cannot (`attribution` of the stats).

use crate::order::Sides;
use jostle_model::plan::Place;

/// Whether they are apart, and how that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budgets {
    /// Whether they are apart; None where that is not known.
    pub disjoint: Option<bool>,
    /// How that is known, or why not.
    pub text: String,
    /// It rests on the server's address alone.
    pub by_address: bool,
}

/// The answer for all machines with generators. One machine on which they are not apart
/// decides it; otherwise one about which it is not known leaves it open.
pub(crate) fn budgets(machines: &[Sides]) -> Budgets {
    let each = machines.iter().map(of_machine);
    let doubt = |budgets: &Budgets| match budgets.disjoint {
        Some(false) => 0,
        None => 1,
        // What is looked at says more than an address.
        Some(true) => 2 + u8::from(!budgets.by_address),
    };
    each.min_by_key(doubt).unwrap_or_default()
}

fn of_machine(sides: &Sides) -> Budgets {
    let found = |disjoint, text: String| Budgets {
        disjoint,
        text,
        by_address: false,
    };
    if !sides.remote {
        let text = "the target works within the generators themselves";
        return found(Some(false), text.to_owned());
    }
    let Some(server) = &sides.server_cpus else {
        return match sides.elsewhere {
            true => Budgets {
                disjoint: Some(true),
                text: "by address: the server's is of another machine".to_owned(),
                by_address: true,
            },
            false => found(
                None,
                "the server's process is not known here; name its control group \
                 (--server cgroup:PATH)"
                    .to_owned(),
            ),
        };
    };
    let [ours, theirs] = [&sides.generator_cpus, server].map(|cpus| list(cpus));
    if sides.generator_cpus.iter().all(|cpu| !server.contains(cpu)) {
        let text = format!("by placement: generators on CPU {ours}, the server on CPU {theirs}");
        return found(Some(true), text);
    }
    let mut both = [&sides.generator_cpus[..], server].concat();
    both.sort_unstable();
    both.dedup();
    match sides.generator_quota.zip(sides.server_quota) {
        Some((ours, theirs)) if ours + theirs <= both.len() as f64 => found(
            Some(true),
            format!(
                "by control groups: generators {ours:.2} CPUs together, the server {theirs:.2}, of {}",
                both.len()
            ),
        ),
        _ => found(
            Some(false),
            format!(
                "generators may use CPU {ours} and the server CPU {theirs}; place them apart \
                 (--place cpus:..., taskset -a -p)"
            ),
        ),
    }
}

fn list(cpus: &[usize]) -> String {
    let text = Place::Cpus(cpus.to_vec()).to_string();
    text.trim_start_matches("cpus:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_apart_by_placement_or_by_quotas_that_fit_beside_each_other() {
        let both = Sides {
            remote: true,
            generator_cpus: vec![0, 1],
            server_cpus: Some(vec![0, 1]),
            ..Sides::default()
        };
        let quotas = |ours, theirs| Sides {
            generator_quota: ours,
            server_quota: theirs,
            ..both.clone()
        };
        let placed = Sides {
            generator_cpus: vec![0],
            server_cpus: Some(vec![1]),
            ..both.clone()
        };
        let table = [
            (
                placed,
                Some(true),
                "by placement: generators on CPU 0, the server on CPU 1",
            ),
            (both.clone(), Some(false), "generators may use CPU 0,1"),
            (quotas(Some(0.6), None), Some(false), "place them apart"),
            (
                quotas(Some(0.6), Some(1.5)),
                Some(false),
                "place them apart",
            ),
            (
                quotas(Some(0.6), Some(1.4)),
                Some(true),
                "by control groups",
            ),
            (
                Sides {
                    server_cpus: None,
                    ..both.clone()
                },
                None,
                "not known here",
            ),
            (
                Sides {
                    server_cpus: None,
                    elsewhere: true,
                    ..both.clone()
                },
                Some(true),
                "by address",
            ),
            (
                // It was found all the same.
                Sides {
                    elsewhere: true,
                    ..both.clone()
                },
                Some(false),
                "place them apart",
            ),
            (
                Sides {
                    remote: false,
                    ..both
                },
                Some(false),
                "within the generators",
            ),
        ];
        for (sides, disjoint, text) in table {
            let found = budgets(std::slice::from_ref(&sides));
            assert_eq!(found.disjoint, disjoint, "{sides:?}");
            assert!(found.text.contains(text), "{}", found.text);
            assert_eq!(found.by_address, text.starts_with("by address"));
        }
    }

    #[test]
    fn nothing_is_apart_that_is_not_on_every_machine() {
        let apart = Sides {
            remote: true,
            elsewhere: true,
            ..Sides::default()
        };
        let unknown = Sides {
            elsewhere: false,
            ..apart.clone()
        };
        let shared = Sides {
            generator_cpus: vec![0],
            server_cpus: Some(vec![0]),
            ..apart.clone()
        };
        for (one, other, all) in [
            (&apart, &apart, Some(true)),
            (&apart, &shared, Some(false)),
            (&unknown, &shared, Some(false)),
            (&apart, &unknown, None),
        ] {
            let found = budgets(&[one.clone(), other.clone()]);
            assert_eq!(found.disjoint, all, "{one:?} {other:?}");
        }
    }
}
