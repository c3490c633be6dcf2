//! `--format gnuplot`: lockscale's output format, for scripts written for it.
//!
//! For each target a header, `# flock 1000 10 120` (algorithm, busy us,
//! negative where it spins, idle us, duration s), and for each number of
//! workers one line of nine columns: workers, measured duration in s, user CPU
//! in s, system CPU in s, acquisitions, fewest and most of one worker, mean and
//! sample standard deviation over the workers. Two empty lines between targets
//! are gnuplot's `index`.
//!
//! Each line is one real run, the one of median throughput. What was not
//! measured is `nan`; of an INVALID point there is only a comment.

use crate::ResultSet;
use crate::rate;
use crate::recover;
use jostle_model::plan::Shape;
use jostle_model::record::{PerWorker, Run, Status};
use jostle_model::{Busy, Plan};
use jostle_stats::summary::{PointSummary, summarize};

/// One block for each target of each experiment.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let blocks: Vec<String> = sets.iter().flat_map(blocks).collect();
    blocks.join("\n\n")
}

fn blocks(set: &ResultSet) -> Vec<String> {
    let points = summarize(&set.experiment, &set.runs);
    points
        .chunk_by(|one, other| one.target == other.target)
        .map(|of_target| {
            if rate::are(of_target) {
                return of_others(of_target, rate::GNUPLOT_HEADER, rate::line);
            }
            if of_target.iter().any(|point| point.at.fault.is_some()) {
                return of_others(of_target, recover::GNUPLOT_HEADER, recover::line);
            }
            let lines: String = of_target.iter().map(line).collect();
            header(&set.experiment.plan, of_target) + &lines
        })
        .collect()
}

/// A table of what lockscale did not have: the rates of an open loop, the faults of `recover`.
fn of_others(
    points: &[PointSummary<'_>],
    header: &str,
    of: fn(&PointSummary<'_>) -> String,
) -> String {
    let target = points.first().map_or("", |point| point.target);
    let lines = points.iter().map(|point| match point.verdict.is {
        Status::Invalid => line(point),
        _ => of(point),
    });
    format!("# {target}: {header}\n{}", lines.collect::<String>())
}

fn header(plan: &Plan, points: &[PointSummary<'_>]) -> String {
    let target = points.first().map_or("", |point| point.target);
    format!(
        "# {} {} {} {}\n",
        algorithm(target),
        micros(plan.hold),
        micros(plan.idle),
        duration_s(plan, points)
    )
}

/// The target's name without its argument, under lockscale's name for it.
fn algorithm(target: &str) -> &str {
    match target.split(':').next().unwrap_or(target) {
        "ofd" => "fcntl",
        name => name,
    }
}

fn micros(time: Option<Busy>) -> i64 {
    let rounded = |nanos: u64| (nanos as f64 / 1e3).round() as i64;
    match time {
        Some(Busy::Sleep(span)) => rounded(span.0),
        Some(Busy::Spin(span)) => -rounded(span.0),
        None => 0,
    }
}

/// The requested duration, or the longest window if pilots decided. As in lockscale, whole
/// seconds and at least one.
fn duration_s(plan: &Plan, points: &[PointSummary<'_>]) -> u64 {
    let runs = points.iter().flat_map(|point| &point.runs);
    let windows = runs.map(|run| run.window.window_s);
    let seconds = match plan.duration {
        Some(duration) => duration.as_secs_f64(),
        None => windows.fold(0.0, f64::max),
    };
    (seconds.round() as u64).max(1)
}

fn line(point: &PointSummary<'_>) -> String {
    if point.verdict.is_invalid() {
        let why = point.verdict.why_invalid();
        let why = why.map_or("", |reason| reason.text.as_str());
        let fault = point.at.fault.map(|fault| fault.to_string());
        let place = fault.unwrap_or_else(|| swept(point).to_string());
        return format!("# {place} INVALID: {why}\n");
    }
    let run = point.median_run();
    run.map_or_else(String::new, |run| {
        let shares = run.per_worker.filter(|_| point.is_timed(run));
        nine_columns(swept(point), run, shares)
    })
}

/// The value in the first column.
fn swept(point: &PointSummary<'_>) -> u64 {
    let value = match point.workload.shape() {
        Shape::Contend | Shape::Stream | Shape::Hold => point.at.workers,
        Shape::Connect => point.at.open,
        Shape::Rate => point.at.rate,
        Shape::Spread => point.at.generators,
        // The lines of `recover` begin with the fault.
        Shape::Recover | Shape::Verify => None,
    };
    value.unwrap_or(0)
}

/// lockscale's `%d %.3e %.3e %.3e %ld %ld %ld %.1f %.1f`.
fn nine_columns(swept: u64, run: &Run, shares: Option<PerWorker>) -> String {
    let seconds = |value: Option<f64>| value.map_or("nan".to_owned(), exponent);
    let shares = match shares {
        Some(s) => format!("{} {} {:.1} {:.1}", s.min, s.max, s.mean, s.stddev),
        None => "nan nan nan nan".to_owned(),
    };
    format!(
        "{swept} {} {} {} {} {shares}\n",
        exponent(run.window.window_s),
        seconds(run.cpu.cpu_user_s),
        seconds(run.cpu.cpu_system_s),
        run.operations,
    )
}

/// As C prints `%.3e`: the exponent has a sign and at least two digits.
fn exponent(value: f64) -> String {
    let text = format!("{value:.3e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(rest) => ('-', rest),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::record::{Cpu, Window};
    use jostle_model::{List, Nanos};

    #[test]
    fn a_line_is_what_lockscale_s_printf_prints() {
        // The sample line of lockscale's documentation.
        let run = Run {
            window: Window {
                window_s: 120.2,
                ..Window::default()
            },
            cpu: Cpu {
                cpu_user_s: Some(1.03),
                cpu_system_s: Some(166.5),
                ..Cpu::default()
            },
            operations: 107_432,
            per_worker: Some(PerWorker {
                min: 79,
                max: 139,
                mean: 107.432,
                stddev: 9.94,
                ..PerWorker::default()
            }),
            ..Run::default()
        };
        assert_eq!(
            nine_columns(1000, &run, run.per_worker),
            "1000 1.202e+02 1.030e+00 1.665e+02 107432 79 139 107.4 9.9\n"
        );
        let bare = Run {
            cpu: Cpu {
                cpu_user_s: None,
                cpu_system_s: None,
                ..run.cpu
            },
            per_worker: None,
            ..run
        };
        assert_eq!(
            nine_columns(1000, &bare, bare.per_worker),
            "1000 1.202e+02 nan nan 107432 nan nan nan nan\n"
        );
    }

    #[test]
    fn exponents_are_printed_as_c_does() {
        // Each as glibc's printf("%.3e") gives it; ties go to the even digit.
        for (value, text) in [
            (10_005.0, "1.000e+04"),
            (10_015.0, "1.002e+04"),
            (0.0, "0.000e+00"),
            (1e-5, "1.000e-05"),
            (999.95, "1.000e+03"),
            (9.9995, "9.999e+00"),
            (0.00025, "2.500e-04"),
            (1e100, "1.000e+100"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(exponent(value), text);
        }
    }

    #[test]
    fn targets_are_separated_by_two_empty_lines() {
        insta::assert_snapshot!(render(&[made::set()]), @r"
        # flock 1000 10 5
        10 5.000e+00 4.725e-02 1.417e-01 4725 472 473 472.5 0.5
        1000 5.000e+00 2.100e-01 6.300e-01 4000 0 13 4.0 3.4


        # sysv 1000 10 5
        10 5.000e+00 4.489e-02 1.347e-01 4725 472 473 472.5 0.5
        1000 5.000e+00 5.063e-02 1.519e-01 4500 4 5 4.5 0.5
        ");
    }

    #[test]
    fn the_header_speaks_lockscale_s_words() {
        let table = [
            ("ofd", "# fcntl 1000 10 5\n"),
            ("fcntl", "# fcntl 1000 10 5\n"),
            ("ofd:/mnt/x", "# fcntl 1000 10 5\n"),
            ("sysv-undo", "# sysv-undo 1000 10 5\n"),
        ];
        let point = made::point("x", 1, 900.0, 40.0, &[1, 2]);
        for (target, header) in table {
            let mut set = made::set();
            set.experiment.plan.targets = vec![target.to_owned()];
            set.experiment.plan.workers = Some(List(vec![2]));
            set.runs = vec![Run {
                target: target.to_owned(),
                ..point.clone()
            }];
            let text = render(&[set]);
            assert!(text.starts_with(header), "{text}");
        }
    }

    #[test]
    fn a_spinning_owner_has_a_negative_hold_and_a_pilot_s_window_is_rounded() {
        let mut set = made::set();
        set.experiment.plan.hold = Some(Busy::Spin(Nanos::from_micros(250)));
        set.experiment.plan.duration = None;
        for (window_s, header) in [(0.25, "# flock -250 10 1\n"), (3.7, "# flock -250 10 4\n")] {
            set.runs
                .iter_mut()
                .for_each(|run| run.window.window_s = window_s);
            assert!(render(&[set.clone()]).starts_with(header));
        }
    }

    #[test]
    fn a_line_is_one_real_run_and_that_of_median_throughput() {
        let mut set = made::set();
        set.runs
            .retain(|point| point.target == "flock" && point.at.workers == Some(10));
        let rates = [950.0, 10.0, 940.0, 990.0, 930.0, 945.0];
        for (point, rate) in set.runs.iter_mut().zip(rates) {
            point.throughput_per_s = rate;
            point.operations = 1000 + u64::from(point.run);
        }
        // 10 930 940 | 945 950 990: 940 is that of run 3.
        assert!(render(&[set]).contains("\n10 5.000e+00 4.725e-02 1.417e-01 1003 "));
    }

    #[test]
    fn an_invalid_point_has_no_line_to_plot() {
        let text = render(&[made::broken()]);
        let expected = "# busted 1000 10 5\n# 10 INVALID: 6 of 28350 acquisitions found another \
                        owner inside: this lock does not exclude";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#')));
    }
}
