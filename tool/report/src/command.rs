//! A plan as the command that asks for it, with defaults left out; and a plan with an
//! option changed as it is typed.

use jostle_model::options::{OPTIONS, Opt, ValueKind};
use jostle_model::text::quoted;
use jostle_model::{Plan, defaults};

/// The whole command, ready for a shell.
pub fn command(plan: &Plan) -> String {
    let verb = format!("jostle {}", plan.workload);
    let targets = plan.targets.iter().map(|target| quoted(target));
    let words = std::iter::once(verb)
        .chain(targets)
        .chain(options(plan, &[]));
    words.collect::<Vec<_>>().join(" ")
}

/// The plan with one option more, as typed: `-t` and `11`. None where no plan has the
/// option, or where it does not take the value.
pub(crate) fn with(plan: &Plan, option: &str, value: &str) -> Option<Plan> {
    let mut plan = plan.clone();
    Opt::typed_as(option)?.set(&mut plan, value).ok()?;
    Some(plan)
}

/// The plan with an option left out; None where no plan has it.
pub(crate) fn without(plan: &Plan, option: &str) -> Option<Plan> {
    let mut plan = plan.clone();
    Opt::typed_as(option)?.clear(&mut plan);
    Some(plan)
}

/// The options that are not at their default, but for those of these fields.
pub(crate) fn options(plan: &Plan, without: &[&str]) -> Vec<String> {
    let mut defaults = defaults::options(plan.workload);
    defaults.fill_from(defaults::requests(plan.workload));
    let printed = OPTIONS.iter().filter(|opt| !without.contains(&opt.word));
    printed
        .filter_map(|opt| {
            let value = opt.get(plan)?;
            (opt.get(&defaults).as_ref() != Some(&value)).then(|| typed(opt, &value))
        })
        .collect()
}

/// An option with its value as one types it.
fn typed(opt: &Opt, value: &str) -> String {
    let flag = opt.flag();
    match (opt.kind, value) {
        (ValueKind::Flag, "true") => flag,
        (ValueKind::Flag, _) => format!("{flag}={value}"),
        _ => format!("{flag} {}", quoted(brief(opt, value))),
    }
}

/// Without the unit that a bare number has anyway.
fn brief<'a>(opt: &Opt, value: &'a str) -> &'a str {
    match value.strip_suffix('s') {
        Some("0") => "0",
        Some(number) if opt.word == "duration" && number.parse::<u64>().is_ok() => number,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::plan::{Carrier, Place, Workload};
    use jostle_model::{Busy, List, Nanos};

    #[test]
    fn defaults_are_left_out() {
        let mut plan = made::plan();
        assert_eq!(
            command(&plan),
            "jostle contend flock sysv -w 10:1000 -t 5 --runs 6 --seed 42"
        );
        (plan.duration, plan.runs, plan.seed) = (None, None, None);
        assert_eq!(command(&plan), "jostle contend flock sysv -w 10:1000");
        assert_eq!(command(&Plan::of(Workload::Contend)), "jostle contend");
    }

    #[test]
    fn what_was_asked_for_is_said() {
        let plan = Plan {
            targets: vec!["flock:/mnt/my disk".to_owned()],
            hold: Some(Busy::Spin(Nanos::from_micros(250))),
            carrier: Some(Carrier::Threads),
            place: Some(Place::Cpus(vec![0, 2])),
            shared: Some(0.8),
            try_only: Some(true),
            over: Some(vec![Nanos::from_millis(1), Nanos::from_millis(1000)]),
            ..made::plan()
        };
        assert_eq!(
            command(&plan),
            "jostle contend 'flock:/mnt/my disk' -w 10:1000 -b -250us -t 5 --runs 6 --as threads \
             --place cpus:0,2 --shared 0.8 --try --over 1ms:1s --seed 42"
        );
        assert_eq!(
            options(&plan, &["workers", "hold", "duration", "runs"]).len(),
            6
        );
    }

    #[test]
    fn an_option_is_applied_as_it_is_typed() {
        let plan = Plan::of(Workload::Contend);
        let with = |option, value| with(&plan, option, value);
        let plan = |option, value| with(option, value).unwrap();
        assert_eq!(plan("-t", "11").duration, Some(Nanos::from_millis(11_000)));
        assert_eq!(plan("-w", "10:1000").workers, Some(List(vec![10, 1000])));
        let hold = Some(Busy::Sleep(Nanos::from_millis(1)));
        assert_eq!(plan("-b", "1ms").hold, hold);
        assert_eq!(plan("--runs", "12").runs, Some(12));
        assert_eq!(
            plan("--warmup", "2s").warmup,
            Some(Nanos::from_millis(2000))
        );
        assert_eq!(plan("--place", "same").place, Some(Place::Same));
        assert_eq!(plan("--rate", "500").rate, Some(List(vec![500])));
        assert_eq!(plan("--generator-cpu", "0.5").generator_cpu, Some(0.5));
        assert_eq!(with("--nonsense", "1"), None);
        assert_eq!(with("--place", "nowhere"), None);
    }

    #[test]
    fn an_option_can_be_left_out() {
        let mut plan = Plan::of(Workload::Connect);
        plan.during = Some("perf record".to_owned());
        assert_eq!(without(&plan, "--during").unwrap().during, None);
    }

    #[test]
    fn a_quote_in_a_path_stays_one_word() {
        assert_eq!(quoted("lockfile:/tmp/it's"), r"'lockfile:/tmp/it'\''s'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
        assert_eq!(quoted("flock:/mnt/a-b_c.d"), "flock:/mnt/a-b_c.d");
    }
}
