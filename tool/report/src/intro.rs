//! On what machine, and how it was measured.

use crate::ResultSet;
use crate::command::options;
use crate::format::{counted, range, time, trimmed};
use jostle_model::plan::{Place, Workload};
use jostle_model::record::{Experiment, Latencies};
use jostle_stats::summary::PointSummary;
use std::collections::{BTreeMap, BTreeSet};

/// `2 cores, Linux 6.18, tmpfs; 5 s per run, 6 runs of each; seed 42`, and the options that are
/// not at their default.
pub(crate) fn intro(set: &ResultSet, points: &[PointSummary<'_>]) -> String {
    let plan = &set.experiment.plan;
    let mut how = Vec::new();
    if plan.workload.has_window() {
        how.extend(windows(set));
    }
    how.extend(plan.in_flight.map(|n| format!("{n} in flight")));
    how.extend(runs(points));
    how.extend(set.resumed.iter().map(|resumed| {
        let (block, when) = (resumed.block, &resumed.started_at);
        format!("resumed with run {block} of each at {when}")
    }));
    let place = plan.place.as_ref().filter(|place| **place != Place::None);
    how.extend(place.map(|place| format!("placement: {place}")));
    let said_already = [
        "workers",
        "hold",
        "idle",
        "duration",
        "runs",
        "budget",
        "place",
        "over",
        "null",
        "seed",
        "in-flight",
    ];
    let in_the_table = [
        "operations",
        "keys",
        "open",
        "sources",
        "rate",
        "generators",
        "fault",
    ];
    let swept = plan.workload != Workload::Contend;
    let without = match swept {
        true => [&said_already[..], &in_the_table].concat(),
        false => said_already.to_vec(),
    };
    let others = options(plan, &without);
    let mut parts = vec![machine(&set.experiment)];
    parts.extend(servers(set));
    parts.push(how.join(", "));
    if !others.is_empty() {
        parts.push(others.join(" "));
    }
    parts.extend(plan.seed.map(|seed| format!("seed {seed}")));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn machine(experiment: &Experiment) -> String {
    let environment = &experiment.environment;
    let cores = counted(environment.cores, "core");
    let mut parts = vec![cores, environment.kernel.clone()];
    parts.extend(file_systems(experiment));
    parts.retain(|part| !part.is_empty());
    hosts(experiment) + &parts.join(", ")
}

/// The time that the machine itself adds to each sleep and each wake-up.
pub(crate) fn latencies(known: &Latencies) -> String {
    let late = time(known.sleep_late_p50_ns);
    let same = time(known.wake_same_cpu_ns);
    match known.wake_other_cpu_ns {
        Some(other) => format!(
            "Sleeps end {late} late, a wake-up takes {same} on the same CPU, {} on another.",
            time(other)
        ),
        None => format!("Sleeps end {late} late, a wake-up takes {same}."),
    }
}

/// The facts that follow it are known of rank 0's machine only.
fn hosts(experiment: &Experiment) -> String {
    let hosts = &experiment.environment.hosts;
    let Some(first) = hosts.first() else {
        return String::new();
    };
    let machines: BTreeSet<u64> = hosts.iter().map(|host| host.machine).collect();
    let all = counted(hosts.len() as u64, "host");
    match machines.len() {
        1 => format!("{all} on 1 machine, "),
        several => format!("{all} on {several} machines, {}: ", first.host),
    }
}

/// `servers: etcd 3.4.23, redis 7.0.15`, where their versions are known.
fn servers(set: &ResultSet) -> Option<String> {
    let mut named = Vec::new();
    // In the order of the targets, not of their runs.
    for target in &set.experiment.plan.targets {
        let of_it = set.runs.iter().filter(|point| point.target == *target);
        let versions: BTreeSet<_> = of_it.filter_map(|point| point.server_version()).collect();
        named.extend(versions.iter().map(|version| format!("{target} {version}")));
    }
    let word = if named.len() == 1 {
        "server"
    } else {
        "servers"
    };
    (!named.is_empty()).then(|| format!("{word}: {}", named.join(", ")))
}

/// `tmpfs`, or with several `tmpfs (flock), ext4 (flock:/var)`.
fn file_systems(experiment: &Experiment) -> Option<String> {
    let mut targets_on = BTreeMap::<&str, Vec<&str>>::new();
    for (target, name) in &experiment.environment.file_systems {
        targets_on.entry(name).or_default().push(target);
    }
    let named: Vec<String> = match targets_on.len() {
        1 => targets_on.keys().map(|name| (*name).to_owned()).collect(),
        _ => targets_on
            .iter()
            .map(|(name, targets)| format!("{name} ({})", targets.join(", ")))
            .collect(),
    };
    (!named.is_empty()).then(|| named.join(", "))
}

fn windows(set: &ResultSet) -> Option<String> {
    // One that broke off had none.
    let windows = || {
        let all = set.runs.iter().map(|run| run.window.window_s);
        all.filter(|s| *s > 0.0)
    };
    let shortest = trimmed(windows().reduce(f64::min)?, 3);
    let longest = trimmed(windows().reduce(f64::max)?, 3);
    Some(format!("{} s per run", range(shortest, &longest)))
}

fn runs(points: &[PointSummary<'_>]) -> Option<String> {
    let runs = || points.iter().map(|point| point.runs.len());
    Some(match (runs().min()?, runs().max()?) {
        (few, many) if few == many => format!("{} of each", counted(many as u64, "run")),
        (few, many) => format!("{few} to {many} runs of each"),
    })
}

#[cfg(test)]
mod tests {
    use super::{intro, latencies};
    use crate::{ResultSet, made};
    use jostle_model::plan::Carrier;
    use jostle_model::record::{Latencies, Resumed, SERVER_VERSION};
    use jostle_model::{Busy, List, Nanos};
    use jostle_stats::summary::summarize;

    fn intro_text(set: &ResultSet) -> String {
        intro(set, &summarize(&set.experiment, &set.runs))
    }

    #[test]
    fn a_break_stands_where_the_runs_do() {
        let mut set = made::set();
        set.resumed = vec![Resumed {
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            block: 3,
            left_out: 1,
        }];
        let says = "6 runs of each, resumed with run 3 of each at 2026-01-01T00:00:00Z;";
        assert!(intro_text(&set).contains(says), "{}", intro_text(&set));
    }

    #[test]
    fn it_names_the_machine_and_the_way() {
        assert_eq!(
            intro_text(&made::set()),
            "2 cores, Linux 6.18, tmpfs; 5 s per run, 6 runs of each; seed 42"
        );
        assert_eq!(
            intro_text(&made::counts_only()),
            "2 cores, Linux 6.18; 5 s per run, 1 run of each; --measure counts; seed 42"
        );
    }

    #[test]
    fn it_states_how_late_the_machine_itself_is() {
        let known = &Latencies {
            sleep_late_p50_ns: 41_300.0,
            sleep_late_p90_ns: 60_000.0,
            wake_same_cpu_ns: 5_840.0,
            wake_other_cpu_ns: Some(33_900.0),
            clock_step_ns: 10.0,
        };
        let one_cpu = Latencies {
            wake_other_cpu_ns: None,
            ..*known
        };
        assert_eq!(
            latencies(known),
            "Sleeps end 41 us late, a wake-up takes 5.8 us on the same CPU, 34 us on another."
        );
        assert_eq!(
            latencies(&one_cpu),
            "Sleeps end 41 us late, a wake-up takes 5.8 us."
        );
    }

    #[test]
    fn it_states_the_versions_of_servers() {
        let mut set = made::set();
        let version = |set: &mut ResultSet, target: &str, version: f64| {
            let runs = set.runs.iter_mut();
            for run in runs.filter(|run| run.target == target) {
                let name = SERVER_VERSION.to_owned();
                run.around.setup.insert(name, version);
            }
        };
        version(&mut set, "flock", 3.004023);
        assert!(intro_text(&set).contains(", tmpfs; server: flock 3.4.23; 5 s per run"));
        version(&mut set, "sysv", 7.000015);
        let text = intro_text(&set);
        let expected = "; servers: flock 3.4.23, sysv 7.0.15; 5 s";
        assert!(text.contains(expected), "{text}");
        // Where a server was renewed between two runs.
        set.runs[0]
            .around
            .setup
            .insert(SERVER_VERSION.to_owned(), 3.006);
        let text = intro_text(&set);
        assert!(
            text.contains("flock 3.6") && text.contains("flock 3.4.23"),
            "{text}"
        );
    }

    #[test]
    fn what_differs_between_points_is_a_range() {
        let mut set = made::set();
        set.runs[0].window.window_s = 0.25;
        set.runs.retain(|run| run.run <= 3 || run.target == "flock");
        assert!(intro_text(&set).contains("; 0.25 to 5 s per run, 3 to 6 runs of each; "));
    }

    #[test]
    fn hosts_are_counted_and_so_are_their_machines() {
        let mut set = made::hosts();
        assert!(intro_text(&set).starts_with("18 hosts on 1 machine, 2 cores, Linux 6.18; "));
        for (nth, host) in (0..).zip(&mut set.experiment.environment.hosts) {
            host.machine = nth / 2;
        }
        assert!(intro_text(&set).starts_with("18 hosts on 9 machines, h1: 2 cores, Linux 6.18; "));
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let mut set = made::set();
        set.experiment.plan.hold = Some(Busy::Spin(Nanos::from_micros(250)));
        set.experiment.plan.carrier = Some(Carrier::Threads);
        set.experiment.plan.keys = Some(List(vec![4]));
        let files = &mut set.experiment.environment.file_systems;
        files.insert("flock:/var".to_owned(), "ext4".to_owned());
        assert_eq!(
            intro_text(&set),
            "2 cores, Linux 6.18, ext4 (flock:/var), tmpfs (flock); 5 s per run, \
             6 runs of each; --as threads --keys 4; seed 42"
        );
    }
}
