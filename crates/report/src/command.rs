//! A plan as the command that asks for it, with defaults left out; and a plan with an
//! option changed as it is typed.

use jostle_model::text::quoted;
use jostle_model::{Plan, defaults};
use serde_json::Value;

/// One option of the command line.
struct Opt {
    /// The plan's field.
    field: &'static str,
    /// As typed.
    option: &'static str,
}

const fn opt(field: &'static str, option: &'static str) -> Opt {
    Opt { field, option }
}

/// In the order in which they are printed.
static OPTIONS: &[Opt] = &[
    opt("workers", "-w"),
    opt("hold", "-b"),
    opt("idle", "-i"),
    opt("duration", "-t"),
    opt("runs", "--runs"),
    opt("warmup", "--warmup"),
    opt("budget", "--budget"),
    opt("as", "--as"),
    opt("generator-threads", "--generator-threads"),
    opt("place", "--place"),
    opt("measure", "--measure"),
    opt("keys", "--keys"),
    opt("operations", "-n"),
    opt("names", "--names"),
    opt("pipeline", "--pipeline"),
    opt("shared", "--shared"),
    opt("range", "--range"),
    opt("try", "--try"),
    opt("acquire-timeout", "--acquire-timeout"),
    opt("open-each", "--open-each"),
    opt("slots", "--slots"),
    opt("timer-slack", "--timer-slack"),
    opt("over", "--over"),
    opt("open", "--open"),
    opt("listeners", "--listeners"),
    opt("sources", "--sources"),
    opt("ports", "--ports"),
    opt("acceptors", "--acceptors"),
    opt("accept", "--accept"),
    opt("bind-no-port", "--bind-no-port"),
    opt("port-range", "--port-range"),
    opt("close", "--close"),
    opt("rate", "--rate"),
    opt("sndbuf", "--sndbuf"),
    opt("rcvbuf", "--rcvbuf"),
    opt("only", "--only"),
    opt("during", "--during"),
    opt("expect", "--expect"),
    opt("call-timeout", "--call-timeout"),
    opt("command-output", "--command-output"),
    opt("null", "--null"),
    opt("numbers", "--numbers"),
    opt("arrivals", "--arrivals"),
    opt("drop-after", "--drop-after"),
    opt("in-flight", "--in-flight"),
    opt("generators", "--generators"),
    opt("generator-cpu", "--generator-cpu"),
    opt("connection", "--connection"),
    opt("credentials", "--credentials"),
    opt("server-log", "--server-log"),
    opt("server", "--server"),
    opt("seed", "--seed"),
];

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
pub fn with(plan: &Plan, option: &str, value: &str) -> Option<Plan> {
    let number = value.parse::<u64>().ok().map(Value::from);
    let share = value.parse::<f64>().ok().map(Value::from);
    // Some fields take numbers alone, others text alone; a bare time is in seconds.
    let seconds = (option == "-t").then(|| Value::from(format!("{value}s")));
    let typed = [seconds, Some(Value::from(value)), number, share];
    let mut plans = typed.into_iter().flatten();
    plans.find_map(|value| set(plan, option, Some(value)))
}

/// The plan with an option left out; None where no plan has it.
pub fn without(plan: &Plan, option: &str) -> Option<Plan> {
    set(plan, option, None)
}

fn set(plan: &Plan, option: &str, value: Option<Value>) -> Option<Plan> {
    let field = OPTIONS.iter().find(|opt| opt.option == option)?.field;
    let Ok(Value::Object(mut fields)) = serde_json::to_value(plan) else {
        return None;
    };
    match value {
        Some(value) => drop(fields.insert(field.to_owned(), value)),
        None => drop(fields.remove(field)),
    }
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The options that are not at their default, but for those of these fields.
pub fn options(plan: &Plan, without: &[&str]) -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(plan) else {
        return Vec::new();
    };
    let mut defaults = defaults::options(plan.workload);
    defaults.fill_from(defaults::requests(plan.workload));
    let defaults = serde_json::to_value(defaults).unwrap_or_default();
    OPTIONS
        .iter()
        .filter(|opt| !without.contains(&opt.field))
        .filter_map(|opt| {
            let value = fields.get(opt.field)?;
            match typed(value).as_str() {
                _ if defaults.get(opt.field) == Some(value) => None,
                "true" => Some(opt.option.to_owned()),
                "false" => Some(format!("{}=false", opt.option)),
                value => Some(format!("{} {}", opt.option, quoted(brief(opt, value)))),
            }
        })
        .collect()
}

/// A value as one types it.
fn typed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(typed).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}

/// Without the unit that a bare number has anyway.
fn brief<'a>(opt: &Opt, value: &'a str) -> &'a str {
    match value.strip_suffix('s') {
        Some("0") => "0",
        Some(number) if opt.option == "-t" && number.parse::<u64>().is_ok() => number,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::connect::{Accept, Close, Only};
    use jostle_model::plan::{Arrivals, Carrier, Connection, Names, Place, Workload};
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
    fn every_field_of_a_plan_is_an_option() {
        let full = Plan {
            warmup: Some(Nanos(1)),
            acquire_timeout: Some(Nanos(1)),
            over: Some(vec![Nanos(1)]),
            operations: Some(List(vec![1])),
            names: Some(Names::Own),
            pipeline: Some(2),
            open: Some(List(vec![1])),
            listeners: Some(List(vec![1])),
            sources: Some(List(vec![1])),
            ports: Some(2),
            acceptors: Some(2),
            accept: Some(Accept::ReusePort),
            bind_no_port: Some(false),
            port_range: "1-2".parse().ok(),
            close: Some(Close::Rst),
            rate: Some(List(vec![1])),
            sndbuf: Some(1),
            rcvbuf: Some(1),
            only: Some(Only::Bind),
            during: Some("true".to_owned()),
            expect: Some(List(vec![3])),
            call_timeout: Some(Nanos(1)),
            command_output: Some("x".to_owned()),
            null: Some("none".to_owned()),
            numbers: Some(2),
            arrivals: Some(Arrivals::Poisson),
            drop_after: Some(Nanos(1)),
            in_flight: Some(2),
            generators: Some(List(vec![1])),
            generator_cpu: Some(0.5),
            connection: Some(Connection::Keep),
            credentials: Some("x".to_owned()),
            server_log: Some("x".to_owned()),
            server: "pid:7".parse().ok(),
            generator_threads: Some(2),
            ..made::plan()
        };
        let Value::Object(fields) = serde_json::to_value(full).unwrap() else {
            panic!("a plan is an object");
        };
        for field in fields.keys() {
            let positional = ["workload", "targets"].contains(&field.as_str());
            let known = OPTIONS.iter().any(|opt| opt.field == field);
            assert!(known || positional, "{field} has no option");
        }
        // And none is invented. All fields are filled in.
        assert_eq!(fields.len(), OPTIONS.len() + 2);
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
