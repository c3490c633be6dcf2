//! The share of the acquisitions that waited longer than each time of `--over`.

use crate::format::{exact, percent};
use crate::grid::{Heading, Titled};
use crate::requests::named_once;
use jostle_model::Nanos;
use jostle_model::plan::Workload;
use jostle_model::record::{Distribution, Run};
use jostle_stats::summary::PointSummary;

const TITLE: &str = "Share of the acquisitions that waited longer:";

/// One row for each point, one column for each time; None where no time was
/// asked for or no wait was measured.
pub(crate) fn over(times: &[Nanos], points: &[PointSummary<'_>]) -> Option<Titled> {
    let measured = |point: &PointSummary<'_>| times.iter().any(|t| share(point, *t).is_some());
    // Those of generators stand among their own tables.
    let workload = points.iter().find(|point| measured(point))?.workload;
    let swept = match workload {
        Workload::Spread => return None,
        Workload::Rate => "offered/s",
        _ => "workers",
    };
    let mut columns = vec![
        Heading::left("target").key(),
        Heading::right("", swept).key(),
    ];
    columns.extend(times.iter().map(over_time));
    let rows = named_once(points).map(|(name, point)| {
        let value = match point.workload {
            Workload::Rate => point.at.rate,
            _ => point.at.workers,
        };
        let value = value.map_or("-".to_owned(), |n| n.to_string());
        let share = |time: &Nanos| share(point, *time).filter(|_| point.is_usable());
        let shares = times.iter().map(share);
        let shares = shares.map(|share| share.map_or("-".to_owned(), percent));
        [name.to_owned(), value].into_iter().chain(shares).collect()
    });
    let rows = rows.collect();
    Some(Titled::new(TITLE, columns, rows))
}

/// The heading of the shares above a time.
pub(crate) fn over_time(time: &Nanos) -> Heading {
    Heading::right("over", &exact(*time))
}

fn share(point: &PointSummary<'_>, time: Nanos) -> Option<f64> {
    pooled(point, time, |run| {
        let granted = run.acquire_ns.as_ref().map(|waits| &waits.granted);
        let response = run.times.response_ns.as_ref();
        let response = response.filter(|_| point.workload == Workload::Rate);
        granted.or(response).or(run.times.service_ns.as_ref())
    })
}

/// The share of a distribution above this time, over all runs together, each weighed by its
/// values.
pub(crate) fn pooled(
    point: &PointSummary<'_>,
    time: Nanos,
    of: impl Fn(&Run) -> Option<&Distribution>,
) -> Option<f64> {
    let of_run = |run: &&Run| {
        let values = of(run)?;
        let share = values.over.get(&time.to_string())?;
        Some((share * values.count as f64, values.count as f64))
    };
    let runs = point.timed.iter().filter_map(of_run);
    let (above, all) = runs.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    (all > 0.0).then(|| above / all)
}

#[cfg(test)]
mod tests {
    use super::over;
    use crate::made;
    use jostle_model::Nanos;
    use jostle_stats::summary::summarize;

    const TIMES: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_millis(1000)];

    #[test]
    fn shares_are_pooled_over_the_runs_in_the_order_asked() {
        let mut set = made::set();
        for run in &mut set.runs {
            let granted = &mut run.acquire_ns.as_mut().unwrap().granted;
            // One run of twice the acquisitions, and 3 % instead of 0.
            granted.count = if run.run == 1 { 8000 } else { 4000 };
            let share = if run.run == 1 { 0.035 } else { 0.0 };
            granted.over = [("100ms".to_owned(), share), ("1s".to_owned(), 0.0)].into();
        }
        let summaries = summarize(&set.experiment, &set.runs);
        insta::assert_snapshot!(over(&TIMES, &summaries).unwrap().grid.fitted(80), @r"
                           over  over
        target  workers  100 ms   1 s
        flock        10   1.0 %   0 %
                   1000   1.0 %   0 %
        sysv         10   1.0 %   0 %
                   1000   1.0 %   0 %
        ");
    }

    #[test]
    fn nothing_is_shown_that_was_not_asked_for_or_not_measured() {
        for set in [made::set(), made::counts_only()] {
            let summaries = summarize(&set.experiment, &set.runs);
            assert_eq!(over(&[], &summaries), None);
            assert_eq!(over(&TIMES, &summaries), None);
        }
    }

    #[test]
    fn an_invalid_point_shows_none() {
        let mut set = made::broken();
        for run in &mut set.runs {
            let granted = &mut run.acquire_ns.as_mut().unwrap().granted;
            granted.over = [("1s".to_owned(), 0.5)].into();
        }
        let summaries = summarize(&set.experiment, &set.runs);
        let grid = over(&TIMES[1..], &summaries).unwrap().grid;
        assert_eq!(grid.rows, [["busted", "10", "-"]]);
    }
}
