//! The first line of a result: what was done, for a reader who did not type it.

use crate::format::{counted, exact, grouped};
use crate::requests::short;
use crate::workloads::shown;
use jostle_model::plan::{Carrier, Fault, Names, Plan, Range};
use jostle_model::{Busy, List, Nanos};
use jostle_stats::requested::{makes_requests, noun};

/// Targets and values that the line names, at most; more are counted, or told by their ends.
const NAMED: usize = 4;

/// `jostle contend flock sysv: 10 and 200 processes compete for one lock; each holds it for 1 ms,
/// then pauses for 10 us.`
pub(crate) fn what(plan: &Plan) -> String {
    let targets = match plan.targets.len() {
        few if few <= NAMED => {
            let named = plan.targets.iter().map(|target| short(target));
            named.collect::<Vec<_>>().join(" ")
        }
        many => format!("({many} targets)"),
    };
    let did = (shown(plan.workload).what)(plan);
    format!("jostle {} {targets}: {did}.", plan.workload)
}

pub(crate) fn contend(plan: &Plan) -> String {
    let who = workers(plan);
    let for_what = match (plan.key_count(), plan.range()) {
        (1, Range::Same) => "one lock".to_owned(),
        (1, Range::Overlap) => "byte ranges that overlap".to_owned(),
        (1, Range::Disjoint) => "byte ranges of their own".to_owned(),
        (keys, _) => format!("{} locks", grouped(keys)),
    };
    let how = match plan.try_only() {
        true => verb(plan, "try") + " to take",
        false => verb(plan, "compete") + " for",
    };
    let read = match plan.shared() {
        0.0 => String::new(),
        share => format!(", {:.0} % of the time to read", 100.0 * share),
    };
    let hold = match plan.hold() {
        Busy::Sleep(Nanos::ZERO) | Busy::Spin(Nanos::ZERO) => "releases it at once".to_owned(),
        hold => format!("holds it for {}", busy(hold)),
    };
    let idle = match plan.idle() {
        Busy::Sleep(Nanos::ZERO) | Busy::Spin(Nanos::ZERO) => {
            "comes again without a pause".to_owned()
        }
        idle => format!("pauses for {}", busy(idle)),
    };
    format!("{who} {how} {for_what}{read}; each {hold}, then {idle}")
}

fn busy(busy: Busy) -> String {
    match busy {
        Busy::Sleep(span) => exact(span),
        Busy::Spin(span) => format!("{} (spinning)", exact(span)),
    }
}

pub(crate) fn stream(plan: &Plan) -> String {
    let each = listed(&plan.operations);
    let which = match plan.names() {
        Names::One => "one lock for all",
        Names::Own => "a lock of its own",
    };
    let who = workers(plan);
    match makes_requests(plan) {
        true => format!(
            "{who} {} {each} {}s each, back to back",
            verb(plan, "make"),
            noun(plan)
        ),
        false => format!(
            "{who} {} and {} {which}, {each} times each, back to back",
            verb(plan, "acquire"),
            verb(plan, "release")
        ),
    }
}

pub(crate) fn churn(plan: &Plan) -> String {
    let each = listed(&plan.operations);
    format!(
        "{} {} a lock {each} times each, every time in a session that is opened and closed for it",
        workers(plan),
        verb(plan, "take")
    )
}

pub(crate) fn hold(plan: &Plan) -> String {
    let kept = match plan.keep() {
        Nanos::ZERO => String::new(),
        keep => format!(", {} them for {}", verb(plan, "keep"), exact(keep)),
    };
    let keys = listed(&plan.keys);
    let (takes, releases) = (verb(plan, "acquire"), verb(plan, "release"));
    format!(
        "{} {takes} {keys} locks each{kept} and {releases} them",
        workers(plan)
    )
}

pub(crate) fn connect(plan: &Plan) -> String {
    let open = listed(&plan.open);
    let sources = match &plan.sources {
        Some(List(sources)) if *sources != [1] => {
            format!(", from {} source addresses", listed(&plan.sources))
        }
        _ => String::new(),
    };
    match plan.only {
        Some(_) => format!("{open} sockets are bound and stay open{sources}"),
        None => {
            format!("{open} connections are opened, one after the other, and stay open{sources}")
        }
    }
}

pub(crate) fn rate(plan: &Plan) -> String {
    let rates = listed(&plan.rate);
    match &plan.find {
        Some(objective) => {
            format!("the highest rate is searched, from {rates} requests/s, that meets {objective}")
        }
        None => format!(
            "{rates} requests/s are due at fixed times, whether or not those before were answered"
        ),
    }
}

pub(crate) fn spread(plan: &Plan) -> String {
    let in_flight = plan.in_flight.map_or_else(|| "some".to_owned(), grouped);
    let generators = listed(&plan.generators);
    format!("{generators} generators keep {in_flight} requests in flight together")
}

pub(crate) fn recover(plan: &Plan) -> String {
    let waiters = counted(plan.waiters(), "process");
    let waiters = waiters.replace("processs", "processes");
    let lease = match plan.lease() {
        Nanos::ZERO => String::new(),
        lease => format!("; leases last {}", exact(lease)),
    };
    let verb = if plan.waiters() == 1 { "waits" } else { "wait" };
    let faults = plan.fault.as_deref().unwrap_or(Fault::ALL);
    let server = match faults.iter().any(|fault| fault.is_of_server()) {
        true => " or its server",
        false => "",
    };
    format!("a fault strikes the owner of a lock{server} while {waiters} {verb} for it{lease}")
}

/// `6 clients lock and release 3 locks for 60 s while faults strike at random`.
pub(crate) fn verify(plan: &Plan) -> String {
    let clients = plan
        .workers
        .as_ref()
        .and_then(|list| list.0.first())
        .copied();
    format!(
        "{} lock and release {} for {} while faults strike at random",
        counted(clients.unwrap_or(1), "client"),
        counted(plan.key_count(), "lock"),
        exact(plan.keep()),
    )
}

/// As many workers do it: `acquire`, `acquires`, `tries`.
fn verb(plan: &Plan, verb: &str) -> String {
    let is_one = plan.workers.as_ref().is_some_and(|list| list.0 == [1]);
    match (is_one, verb.strip_suffix('y')) {
        (false, _) => verb.to_owned(),
        (true, Some(stem)) => format!("{stem}ies"),
        (true, None) => format!("{verb}s"),
    }
}

/// `10 and 200 processes`.
fn workers(plan: &Plan) -> String {
    let noun = match plan.carrier() {
        Carrier::Processes => ["process", "processes"],
        Carrier::Threads => ["thread", "threads"],
        Carrier::Tasks => ["task", "tasks"],
    };
    let is_one = plan.workers.as_ref().is_some_and(|list| list.0 == [1]);
    format!("{} {}", listed(&plan.workers), noun[usize::from(!is_one)])
}

/// `1, 10 and 100`; of many the least and the greatest.
fn listed(list: &Option<List>) -> String {
    let values = list.as_ref().map_or(&[][..], |list| &list.0);
    let named: Vec<String> = values.iter().copied().map(grouped).collect();
    match &named[..] {
        [] => "some".to_owned(),
        [one] => one.clone(),
        [most @ .., last] if named.len() <= NAMED => format!("{} and {last}", most.join(", ")),
        _ => {
            let ends =
                [values.iter().min(), values.iter().max()].map(|end| end.copied().unwrap_or(0));
            format!("{} to {}", grouped(ends[0]), grouped(ends[1]))
        }
    }
}
