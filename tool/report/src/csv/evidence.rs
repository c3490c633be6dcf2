//! Figures that checks look at. They are printed of INVALID points too.

use super::figures::{Figure, Over};
use jostle_model::record::Run;

/// All of them.
pub(super) fn evidence() -> Vec<Figure> {
    let mut all = counts();
    all.extend(circumstances());
    all
}

fn count(stem: &str, of: fn(&Run) -> Option<u64>) -> Figure {
    Figure::new(stem, "", Over::Sum, move |run| of(run).map(|n| n as f64)).evidence()
}

fn figure(stem: &str, unit: &'static str, over: Over, of: fn(&Run) -> Option<f64>) -> Figure {
    Figure::new(stem, unit, over, of).evidence()
}

/// What went wrong, and what was counted.
fn counts() -> Vec<Figure> {
    vec![
        count("errors", |run| Some(run.around.errors.values().sum())),
        count("deaths", |run| Some(run.around.deaths.len() as u64)),
        count("timeouts", |run| run.timeouts),
        count("exclusion_checked", |run| {
            run.exclusion.as_ref().map(|e| e.checked)
        }),
        count("exclusion_violations", |run| {
            run.exclusion.as_ref().map(|e| e.violations)
        }),
        count("exclusion_holder_died", |run| {
            run.exclusion.as_ref().map(|e| e.holder_died)
        }),
        count("exclusion_lost_updates", |run| {
            run.exclusion.as_ref().map(|e| e.lost_updates)
        }),
        count("server_counted", |run| run.server?.counted),
        figure("server_difference", "", Over::Sum, |run| {
            run.server?.difference.map(|n| n as f64)
        }),
        count("planned", |run| run.open_loop.as_ref().map(|o| o.planned)),
        count("done", |run| run.open_loop.as_ref().map(|o| o.done)),
        count("failed", |run| run.open_loop.as_ref().map(|o| o.failed)),
        count("dropped", |run| run.open_loop.as_ref().map(|o| o.dropped)),
        count("in_flight_at_end", |run| {
            run.open_loop.as_ref().map(|o| o.in_flight)
        }),
        count("leases_lapsed", |run| Some(run.kept.as_ref()?.lapsed)),
        count("renewals_late", |run| Some(run.kept.as_ref()?.late)),
        count("lost", |run| run.connections.as_ref()?.lost),
    ]
}

/// How busy the generators were, and what else used the machine.
fn circumstances() -> Vec<Figure> {
    use Over::{Middle, Most, Sum};
    vec![
        figure("generators_busiest", "share", Most, |run| {
            let shares = run.thread_loads.iter().map(|g| g.busy_share);
            shares.reduce(f64::max)
        }),
        figure("generators_still", "share", Most, |run| {
            let generators = run.thread_loads.iter();
            let shares = generators.filter_map(|g| Some(g.process?.still_share));
            shares.reduce(f64::max)
        }),
        figure("runqueue_wait", "s", Sum, |run| run.cpu.runqueue_wait_s),
        figure("others_cpu", "s", Sum, |run| {
            run.around.accounts.as_ref()?.others_s
        }),
        figure("server_cpu", "s", Sum, |run| {
            run.around.accounts.as_ref()?.server_s
        }),
        figure("unexplained_cpu", "s", Sum, |run| {
            run.around.accounts.as_ref()?.unexplained_s
        }),
        figure("waited", "s", Sum, |run| {
            run.around.accounts.as_ref()?.waited_s
        }),
        figure("stolen", "s", Sum, |run| {
            run.around.accounts.as_ref()?.stolen_s
        }),
        figure("steal", "share", Most, |run| run.around.machine.steal_share),
        count("throttled_periods", |run| {
            run.around.machine.throttled_periods
        }),
        figure("start_spread", "ns", Most, |run| {
            Some(run.window.start_spread_ns as f64)
        }),
        figure("anchor_step", "ns", Middle, |run| {
            run.around.anchor.map(|a| a.step_ns)
        }),
        figure("anchor_call", "ns", Middle, |run| {
            run.around.anchor.map(|a| a.call_ns)
        }),
        figure("anchor_wake", "ns", Middle, |run| {
            run.around.anchor.map(|a| a.wake_ns)
        }),
        figure("anchor_line", "ns", Middle, |run| {
            run.around.anchor?.line_ns
        }),
    ]
}
