//! Figures that checks look at. They are printed of INVALID points too.

use super::figures::{CsvColumn, Over};
use jostle_model::open_loop::OpenLoop;
use jostle_model::record::{Accounts, Anchor, Exclusion, Run};

/// All of them.
pub(super) fn evidence() -> Vec<CsvColumn> {
    let mut all = counts();
    all.extend(circumstances());
    all
}

fn count(stem: &str, of: fn(&Run) -> Option<u64>) -> CsvColumn {
    CsvColumn::new(stem, "", Over::Sum, move |run| of(run).map(|n| n as f64)).evidence()
}

fn figure(stem: &str, unit: &'static str, over: Over, of: fn(&Run) -> Option<f64>) -> CsvColumn {
    CsvColumn::new(stem, unit, over, of).evidence()
}

fn witness(stem: &str, of: fn(&Exclusion) -> u64) -> CsvColumn {
    CsvColumn::new(stem, "", Over::Sum, move |run| {
        run.exclusion.as_ref().map(|seen| of(seen) as f64)
    })
    .evidence()
}

fn ledger(stem: &str, of: fn(&OpenLoop) -> u64) -> CsvColumn {
    CsvColumn::new(stem, "", Over::Sum, move |run| {
        run.open_loop.as_ref().map(|open| of(open) as f64)
    })
    .evidence()
}

fn accounts(stem: &str, of: fn(&Accounts) -> Option<f64>) -> CsvColumn {
    let of = move |run: &Run| of(run.around.accounts.as_ref()?);
    CsvColumn::new(stem, "s", Over::Sum, of).evidence()
}

fn anchor(stem: &str, of: fn(&Anchor) -> Option<f64>) -> CsvColumn {
    let of = move |run: &Run| of(run.around.anchor.as_ref()?);
    CsvColumn::new(stem, "ns", Over::Middle, of).evidence()
}

/// What went wrong, and what was counted.
fn counts() -> Vec<CsvColumn> {
    vec![
        count("errors", |run| Some(run.around.errors.values().sum())),
        count("deaths", |run| Some(run.around.deaths.len() as u64)),
        count("timeouts", |run| run.timeouts),
        witness("exclusion_checked", |seen| seen.checked),
        witness("exclusion_violations", |seen| seen.violations),
        witness("exclusion_holder_died", |seen| seen.holder_died),
        witness("exclusion_lost_updates", |seen| seen.lost_updates),
        count("server_counted", |run| run.server?.counted),
        figure("server_difference", "", Over::Sum, |run| {
            run.server?.difference.map(|n| n as f64)
        }),
        ledger("planned", |open| open.planned),
        ledger("done", |open| open.done),
        ledger("failed", |open| open.failed),
        ledger("dropped", |open| open.dropped),
        ledger("in_flight_at_end", |open| open.in_flight),
        count("leases_lapsed", |run| Some(run.kept.as_ref()?.lapsed)),
        count("renewals_late", |run| Some(run.kept.as_ref()?.late)),
        count("lost", |run| run.connections.as_ref()?.lost),
    ]
}

/// How busy the generators were, and what else used the machine.
fn circumstances() -> Vec<CsvColumn> {
    use Over::{Most, Sum};
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
        accounts("others_cpu", |of| of.others_s),
        accounts("server_cpu", |of| of.server_s),
        accounts("unexplained_cpu", |of| of.unexplained_s),
        accounts("waited", |of| of.waited_s),
        accounts("stolen", |of| of.stolen_s),
        figure("steal", "share", Most, |run| run.around.machine.steal_share),
        count("throttled_periods", |run| {
            run.around.machine.throttled_periods
        }),
        figure("start_spread", "ns", Most, |run| {
            Some(run.window.start_spread_ns as f64)
        }),
        anchor("anchor_step", |took| Some(took.step_ns)),
        anchor("anchor_call", |took| Some(took.call_ns)),
        anchor("anchor_wake", |took| Some(took.wake_ns)),
        anchor("anchor_line", |took| took.line_ns),
    ]
}
