//! The closing sentences of `contend`: whether throughput holds, the order of service, and
//! the CPU cost of waiting.

use crate::checks::CHECKS;
use crate::closing::targets;
use crate::fairness::{DispersionTest, dispersion_test};
use crate::intervals::median;
use crate::numbers::{self, significant, time};
use crate::ratio::{Outcome, Ratio, by_block};
use crate::summary::PointSummary;
use jostle_model::Plan;
use jostle_model::plan::Range;
use jostle_model::record::{PerWorker, Point, Reason, Waits};

/// Probability under which a lottery is ruled out.
const P: f64 = 0.01;

/// Rotations below which there is no clause about the order of service: in so short a
/// window even a queue leaves some workers without a turn, because it is cut at both edges.
const LEAST_ROTATIONS: f64 = 2.0;

/// Most over fewest acquisitions up to which workers are served evenly, and from
/// which some are favoured, where the counts are too many for chance.
const EVEN_RATIO: f64 = 1.1;
const FAVOURED_RATIO: f64 = 1.5;

/// A dispersion below this is clearly lower than a lottery's, and one above [`FAVOURED`]
/// clearly higher. Between them are barging queues and lotteries with a little memory:
/// statistically different from 1, but not of interest to a reader.
const EVEN: f64 = 0.5;
const FAVOURED: f64 = 2.0;

/// Widest spread of counts that still is a queue: the window's two edges, and
/// one newcomer that overtook.
const QUEUE_SPREAD: u64 = 3;

/// Degrees of freedom from which on "not distinguishable from a lottery" means
/// something: the dispersion's relative standard error, sqrt(2 / degrees), is
/// then a quarter.
const LOTTERY_DEGREES: f64 = 30.0;

/// Growth of the CPU per lock that is worth a word.
const CPU_GROWTH: f64 = 2.0;

/// One sentence for each target of such an experiment.
pub(crate) fn sentences(plan: &Plan, points: &[PointSummary<'_>]) -> Vec<(String, String)> {
    targets(points)
        .into_iter()
        .filter_map(|target| {
            let of_target = points.iter().filter(|point| point.target == target);
            let mut of_target: Vec<&PointSummary<'_>> = of_target
                .filter(|point| point.at.workers.is_some())
                .collect();
            of_target.sort_by_key(|point| point.at.workers);
            let text = sentence(plan, &of_target)?;
            Some((target.to_string(), text))
        })
        .collect()
}

/// Whether a clause is favourable, which decides between "and" and "but" before the next
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Good,
    Bad,
    Neutral,
}

struct Clause {
    text: String,
    tone: Tone,
}

impl Clause {
    fn new(tone: Tone, text: String) -> Clause {
        Clause { text, tone }
    }
}

/// `points` are one target's, by number of workers.
fn sentence(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let (few, many) = (*points.first()?, *points.last()?);
    if let Some(text) = invalid(points) {
        return Some(text);
    }
    let workers = many.at.workers?;
    if workers == 1 {
        return Some("one worker alone does not contend (-w 1:10:100).".to_string());
    }
    let first = if few.at == many.at {
        of_ideal(many, workers)
    } else {
        throughput(few, many)
    };
    let order = order_of_service(plan, many).or_else(|| failed(many));
    let mut text = match (first, order) {
        (Some(first), Some(order)) => join(&first, &order),
        (Some(only), None) | (None, Some(only)) => only.text,
        (None, None) => return readers_and_writers(many).map(|text| format!("{text}.")),
    };
    if let Some(growth) = cpu_growth(few, many) {
        text.push_str("; ");
        text.push_str(&growth);
    }
    for clause in [readers_and_writers(many), waiting(many)]
        .into_iter()
        .flatten()
    {
        text.push_str("; ");
        text.push_str(&clause);
    }
    text.push('.');
    Some(text)
}

/// Rotations from which on a wait is starvation. In a queue each other worker is served at
/// most once before it ends, which takes one.
const STARVES: f64 = 3.0;

/// `writers starve: half of them wait 2.1 s or longer, readers 12 us`. The medians over the
/// runs of each mode's median wait, or of the least that it can be.
fn readers_and_writers(point: &PointSummary<'_>) -> Option<String> {
    let wait_ns = |mode: fn(&Point) -> Option<&Waits>| {
        let waits = point.timed.iter().filter_map(|run| mode(run));
        let each = waits.map(|waits| {
            let known = waits.kaplan_meier.get("p50");
            known
                .or_else(|| waits.at_least.get("p50"))
                .map(|ns| *ns as f64)
        });
        median(&each.flatten().collect::<Vec<_>>())
    };
    let readers = wait_ns(|run| run.reader_wait_ns.as_deref())?;
    let writers = wait_ns(|run| run.writer_wait_ns.as_deref())?;
    let rotation_ns = point.at.workers? as f64 * 1e9 / point.throughput_per_s?.median;
    let starve = |ns: f64, other: f64| ns > STARVES * rotation_ns && other <= STARVES * rotation_ns;
    let [read, write] = [readers, writers].map(time);
    Some(if starve(writers, readers) {
        format!("writers starve: half of them wait {write} or longer, readers {read}")
    } else if starve(readers, writers) {
        format!("readers starve: half of them wait {read} or longer, writers {write}")
    } else {
        format!("readers wait {read} and writers {write} in the median")
    })
}

/// `a waiting lock costs 12.0 round trips and 240 us of server CPU a minute (with 999
/// waiting)`, where hardly anything else happened.
fn waiting(point: &PointSummary<'_>) -> Option<String> {
    let over_runs = |figure: fn(&Point) -> Option<f64>| {
        let values: Vec<f64> = point.runs.iter().filter_map(|run| figure(run)).collect();
        median(&values)
    };
    let workers = over_runs(Point::waiting)?;
    let asked = over_runs(Point::waiting_round_trips_per_minute);
    let asked = asked.map(|times| format!("{} round trips", significant(times, 3)));
    let used = over_runs(Point::waiting_server_cpu_us_per_minute);
    let used = used.map(|us| format!("{} of server CPU", time(us * 1e3)));
    let costs: Vec<String> = asked.into_iter().chain(used).collect();
    (!costs.is_empty()).then(|| {
        format!(
            "a waiting lock costs {} a minute (with {workers:.0} waiting)",
            costs.join(" and ")
        )
    })
}

fn join(first: &Clause, second: &Clause) -> String {
    let word = match (first.tone, second.tone) {
        (Tone::Neutral, _) | (_, Tone::Neutral) => ";",
        (a, b) if a == b => ", and",
        _ => ", but",
    };
    format!("{}{word} {}", first.text, second.text)
}

/// The only sentence about figures that must not be used: the gravest reason, the point
/// it stands for, and which other points are INVALID too.
fn invalid(points: &[&PointSummary<'_>]) -> Option<String> {
    let mut bad: Vec<(usize, u64, &str)> = points
        .iter()
        .filter_map(|point| {
            let reason = point.verdict.why_invalid()?;
            Some((gravity(reason), point.at.workers?, reason.text.as_str()))
        })
        .collect();
    // Stable: of equally grave ones the fewest workers stay first.
    bad.sort_by_key(|(gravity, ..)| *gravity);
    let ((_, workers, text), others) = bad.split_first()?;
    let mut said = format!("INVALID with {}: {text}", numbers::workers(*workers));
    let others: Vec<String> = others.iter().map(|(_, n, _)| n.to_string()).collect();
    if !others.is_empty() {
        said.push_str(&format!("; INVALID with {} too", others.join(", ")));
    }
    said.push('.');
    Some(said)
}

/// The place of a reason's check among all of them, the gravest first.
fn gravity(reason: &Reason) -> usize {
    CHECKS
        .iter()
        .position(|check| check.name == reason.check)
        .unwrap_or(CHECKS.len())
}

fn of_ideal(point: &PointSummary<'_>, workers: u64) -> Option<Clause> {
    let share = point.of_ideal?.median;
    let text = format!(
        "reaches {:.0} % of the ideal with {}",
        100.0 * share,
        numbers::workers(workers)
    );
    Some(Clause::new(Tone::Neutral, text))
}

/// From the fewest workers to the most. Whether it holds is decided by runs of
/// the same blocks; the figure quoted is the quotient of the printed medians.
fn throughput(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<Clause> {
    let ratio = by_block(few, many, -1.0, |run| Some(run.throughput_per_s))?;
    let printed = many.throughput_per_s?.median / few.throughput_per_s?.median;
    let workers = numbers::workers(many.at.workers?);
    let moved = format!("{:.0} %", 100.0 * printed);
    let (tone, text) = match ratio.outcome {
        Outcome::Same => (Tone::Good, format!("throughput holds to {workers}")),
        Outcome::Differs if printed < 1.0 && ratio.ratio < 1.0 => (
            Tone::Bad,
            format!("throughput falls to {moved} with {workers}"),
        ),
        Outcome::Differs if printed > 1.0 && ratio.ratio > 1.0 => (
            Tone::Good,
            format!("throughput rises to {moved} with {workers}"),
        ),
        _ => (
            Tone::Neutral,
            format!(
                "throughput with {workers} is {moved} of that with {} ({})",
                few.at.workers?,
                why_undecided(&ratio)
            ),
        ),
    };
    Some(Clause::new(tone, text))
}

fn why_undecided(ratio: &Ratio) -> String {
    match (ratio.interval, ratio.blocks) {
        (true, _) => "undecided".to_string(),
        (false, 1) => "one run, untested".to_string(),
        (false, runs) => format!("{runs} runs, untested"),
    }
}

/// The distribution of acquisitions among workers at the largest number of workers. The
/// dispersion of all runs decides; the figures are those of the printed run.
///
/// None with too few rotations, too few degrees of freedom, or a plan under
/// which the order is not the lock's doing.
fn order_of_service(plan: &Plan, point: &PointSummary<'_>) -> Option<Clause> {
    let shares = point.per_worker?;
    let workers = point.at.workers?;
    if !order_is_the_lock_s(plan) || shares.rotations < LEAST_ROTATIONS {
        return None;
    }
    // Who gives up leaves the queue, and comes again at its end.
    if failed(point).is_some() {
        return None;
    }
    let runs: Vec<(u64, f64)> = point
        .timed
        .iter()
        .filter_map(|run| Some((workers, run.per_worker?.dispersion)))
        .collect();
    let test = dispersion_test(&runs)?;
    let each = format!("{} to {} each", shares.min, shares.max);
    let (tone, text) = match service(&test, &shares)? {
        Service::Queue => (Tone::Good, format!("waiters are served in order ({each})")),
        Service::Even => (Tone::Good, format!("waiters are served evenly ({each})")),
        _ if shares.none > 0 => (
            Tone::Bad,
            format!(
                "waiters are not served in order: {} got nothing",
                how_many(shares.none, workers)
            ),
        ),
        Service::Lottery => (
            Tone::Bad,
            format!("waiters are served as by a lottery ({each})"),
        ),
        Service::Uneven => (
            Tone::Neutral,
            format!("some waiters are served more than others ({each})"),
        ),
        Service::Favour => (
            Tone::Bad,
            format!("some waiters are served far more than others ({each})"),
        ),
    };
    Some(Clause::new(tone, text))
}

/// `48 of 128 attempts ended without the lock (after 1.0 s in the median)`, over all runs.
fn failed(point: &PointSummary<'_>) -> Option<Clause> {
    let sum = |count: fn(&Point) -> u64| point.runs.iter().map(|run| count(run)).sum::<u64>();
    let failed = sum(|run| run.timeouts.unwrap_or(0));
    let all = failed + sum(|run| run.operations);
    let after_ns =
        |run: &&&Point| Some(*run.failed_try_ns.as_ref()?.percentiles.get("p50")? as f64);
    let after: Vec<f64> = point.runs.iter().filter_map(|run| after_ns(&run)).collect();
    let after = median(&after).map_or_else(String::new, |ns| {
        format!(" (after {} in the median)", time(ns))
    });
    (failed > 0).then(|| {
        let [failed, all] = [failed, all].map(numbers::grouped);
        let text = format!("{failed} of {all} attempts ended without the lock{after}");
        Clause::new(Tone::Bad, text)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Queue,
    Even,
    Lottery,
    Uneven,
    Favour,
}

fn service(test: &DispersionTest, shares: &PerWorker) -> Option<Service> {
    let spread = shares.max.saturating_sub(shares.min);
    if test.dispersion < EVEN && test.lower_p < P {
        Some(if spread <= QUEUE_SPREAD {
            Service::Queue
        } else {
            Service::Even
        })
    } else if test.dispersion > FAVOURED && test.upper_p < P {
        // Millions of counts make a difference of a hundredth significant;
        // whether it matters is another question.
        Some(match shares.max as f64 / shares.min as f64 {
            ratio if ratio <= EVEN_RATIO => Service::Even,
            ratio if ratio < FAVOURED_RATIO => Service::Uneven,
            _ => Service::Favour,
        })
    } else {
        (test.degrees >= LOTTERY_DEGREES).then_some(Service::Lottery)
    }
}

/// Whether the lock determines the order. It does not with several keys, where chance picks
/// the queue; with readers, which do not queue; with tries, which never wait; and with
/// different ranges, which are different locks.
fn order_is_the_lock_s(plan: &Plan) -> bool {
    plan.key_count() == 1
        && plan.shared() == 0.0
        && !plan.try_only()
        && matches!(plan.range, None | Some(Range::Same))
}

fn cpu_growth(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<String> {
    let growth = many.cpu_us_per_operation?.median / few.cpu_us_per_operation?.median;
    let paired = by_block(few, many, 1.0, |run| run.cpu_us_per_operation)?;
    let digits = if growth < 3.0 { 1 } else { 0 };
    (growth.is_finite() && growth >= CPU_GROWTH && paired.low > 1.0)
        .then(|| format!("CPU per lock grows ~{growth:.digits$}x"))
}

/// `about one in ten`, or `9 of 1000` where that would be vague.
fn how_many(part: u64, whole: u64) -> String {
    const WORDS: [&str; 11] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    ];
    let one_in = (whole as f64 / part as f64).round() as usize;
    match one_in.checked_sub(2).and_then(|at| WORDS.get(at)) {
        Some(word) if part >= 10 => format!("about one in {word}"),
        _ => format!("{part} of {whole}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, made, queue};
    use crate::rng::Rng;
    use crate::summary::summarize;
    use jostle_model::List;

    fn lottery(workers: usize, mean: u64, seed: u32) -> Vec<u64> {
        let mut rng = Rng::new(u64::from(seed));
        let mut counts = vec![0; workers];
        for _ in 0..workers as u64 * mean {
            counts[rng.below(workers as u64) as usize] += 1;
        }
        counts
    }

    /// A tenth of the workers gets nothing, the others a lottery.
    fn starving(workers: usize, mean: u64, seed: u32) -> Vec<u64> {
        let mut counts = lottery(workers - workers / 10, mean, seed);
        counts.iter_mut().for_each(|n| *n += 1);
        counts.resize(workers, 0);
        counts
    }

    #[test]
    fn what_a_waiting_lock_costs_is_told_where_little_else_happened() {
        use jostle_model::record::{Distribution, Server, ServerTraffic};
        let said = |held_ns: f64| {
            let mut made = made(6).with("etcd", 2.0, 40.0, &queue(1_001, 1));
            for point in &mut made.points {
                point.hold_ns = Some(Distribution {
                    mean: held_ns,
                    ..Distribution::default()
                });
                point.server = Some(Server {
                    cpu_us_per_operation: Some(5_000.0),
                    ..Server::default()
                });
                point.traffic = Some(ServerTraffic {
                    grants: 120,
                    round_trips: 60_000,
                    ..ServerTraffic::default()
                });
            }
            made.says("etcd")
        };
        let text = said(5e8);
        assert!(
            text.contains("; a waiting lock costs 60.")
                && text.contains("round trips and 60")
                && text.contains("us of server CPU a minute (with 1000 waiting)."),
            "{text}"
        );
        // So long a hold of so many locks: hardly anybody waited.
        let text = said(4e11);
        assert!(!text.contains("waiting lock"), "{text}");
    }

    /// `--shared 0.9`: writers waited 300 times as long, without a word.
    #[test]
    fn it_is_said_who_starves_readers_or_writers() {
        use jostle_model::record::Percentiles;
        // Ten workers, 1,000 locks a second: a rotation takes 10 ms.
        let said = |readers_ns: u64, writers_ns: u64, reached: bool| {
            let mut made = made(6).with("flock", 1_000.0, 40.0, &queue(10, 500));
            for point in &mut made.points {
                let waits = |ns: u64, reached: bool| {
                    let p50 = Percentiles::from([("p50", ns)]);
                    let (kaplan_meier, at_least) = match reached {
                        true => (p50, Percentiles::default()),
                        false => (Percentiles::default(), p50),
                    };
                    Some(Box::new(Waits {
                        kaplan_meier,
                        at_least,
                        ..Waits::default()
                    }))
                };
                point.reader_wait_ns = waits(readers_ns, true);
                point.writer_wait_ns = waits(writers_ns, reached);
            }
            made.says("flock")
        };
        let waits = "; readers wait 7.0 ms and writers 20 ms in the median.";
        let text = said(7_000_000, 20_000_000, true);
        assert!(text.ends_with(waits), "{text}");
        let starve = "; writers starve: half of them wait 2.1 s or longer, readers 7.0 ms.";
        let text = said(7_000_000, 2_100_000_000, true);
        assert!(text.ends_with(starve), "{text}");
        // Most of them got nothing within the window.
        assert!(said(7_000_000, 2_100_000_000, false).ends_with(starve));
        let text = said(31_000_000, 9_000_000, true);
        assert!(
            text.contains("; readers starve: half of them wait 31 ms"),
            "{text}"
        );
    }

    #[test]
    fn a_queue_and_a_starving_lock_are_described_as_in_the_manual() {
        let made = made(6)
            .with("flock", 943.0, 40.0, &queue(10, 472))
            .varied("flock", 945.0, 210.0, |block| starving(1000, 4, block))
            .with("sysv", 945.0, 38.0, &queue(10, 472))
            .with("sysv", 930.0, 45.0, &queue(1000, 4));
        assert_eq!(
            made.says("flock"),
            "throughput holds to 1000 workers, but waiters are not served in order: \
             about one in ten got nothing; CPU per lock grows ~5x."
        );
        assert_eq!(
            made.says("sysv"),
            "throughput holds to 1000 workers, and waiters are served in order (4 to 5 each)."
        );
    }

    #[test]
    fn throughput_that_falls_or_rises_is_quoted_from_the_printed_medians() {
        let from = |to: f64| {
            made(6)
                .with("flock", 1000.0, 40.0, &queue(10, 472))
                .with("flock", to, 40.0, &queue(1000, 4))
                .says("flock")
        };
        assert_eq!(
            from(560.0),
            "throughput falls to 56 % with 1000 workers, but waiters are served in order \
             (4 to 5 each)."
        );
        assert_eq!(
            from(1800.0),
            "throughput rises to 180 % with 1000 workers, and waiters are served in order \
             (4 to 5 each)."
        );
        // 6 % is beyond 5 %, 4 % is within.
        assert!(from(935.0).starts_with("throughput falls to 94 %"));
        assert!(from(965.0).starts_with("throughput holds"));
    }

    #[test]
    fn what_six_blocks_cannot_decide_is_called_undecided() {
        let mut noisy = made(6).with("flock", 1000.0, 40.0, &queue(10, 472)).with(
            "flock",
            1000.0,
            40.0,
            &queue(1000, 4),
        );
        for point in &mut noisy.points[6..] {
            point.throughput_per_s *= if point.block % 2 == 0 { 0.8 } else { 1.2 };
        }
        let said = noisy.says("flock");
        assert!(
            said.contains("(undecided); waiters are served in order"),
            "{said}"
        );
    }

    #[test]
    fn one_run_is_reported_and_not_tested() {
        let said = made(1)
            .with("flock", 1000.0, 40.0, &queue(10, 472))
            .with("flock", 560.0, 40.0, &queue(1000, 4))
            .says("flock");
        assert_eq!(
            said,
            "throughput with 1000 workers is 56 % of that with 10 (one run, untested); \
             waiters are served in order (4 to 5 each)."
        );
    }

    #[test]
    fn each_way_of_serving_has_its_words() {
        let table: &[(Vec<u64>, &str)] = &[
            (
                queue(100, 47),
                "waiters are served in order (47 to 48 each)",
            ),
            // even, but wider than a queue: standard deviation 4 of 500
            (
                (0..100).map(|i| 494 + i % 13).collect(),
                "waiters are served evenly (494 to 506 each)",
            ),
            (lottery(100, 50, 3), "waiters are served as by a lottery ("),
            (
                (0..100).map(|i| if i < 50 { 20 } else { 80 }).collect(),
                "some waiters are served far more than others (20 to 80 each)",
            ),
            // significant, and of no account
            (
                (0..100).map(|i| 1_000_000 + 900 * i).collect(),
                "waiters are served evenly (1000000 to 1089100 each)",
            ),
            (
                (0..100).map(|i| 1_000_000 + 3_000 * i).collect(),
                "some waiters are served more than others (1000000 to 1297000 each)",
            ),
            (
                (0..100).map(|i| if i < 3 { 0 } else { 50 }).collect(),
                "waiters are not served in order: 3 of 100 got nothing",
            ),
        ];
        for (counts, words) in table {
            let said = made(6).with("flock", 900.0, 40.0, counts).says("flock");
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn under_two_rotations_nobody_is_called_unfair() {
        let made = made(6).with("flock", 943.0, 40.0, &queue(10, 472)).varied(
            "flock",
            945.0,
            40.0,
            |block| lottery(1000, 1, block),
        );
        assert_eq!(made.says("flock"), "throughput holds to 1000 workers.");
    }

    #[test]
    fn too_few_workers_and_runs_leave_the_order_open() {
        let said = made(1)
            .with("flock", 900.0, 40.0, &[470, 480])
            .says("flock");
        assert_eq!(said, "reaches 94 % of the ideal with 2 workers.");
        let said = made(6)
            .with("flock", 900.0, 40.0, &[475, 475])
            .says("flock");
        assert_eq!(
            said,
            "reaches 94 % of the ideal with 2 workers; waiters are served in order (475 to 475 each)."
        );
    }

    #[test]
    fn chance_that_the_plan_put_in_is_not_the_lock_s() {
        let mut experiment = fixtures::experiment();
        let points = made(6).varied("flock", 900.0, 40.0, |block| lottery(100, 50, block));
        for change in [
            |plan: &mut Plan| plan.keys = Some(List(vec![4])),
            |plan: &mut Plan| plan.shared = Some(0.5),
            |plan: &mut Plan| plan.try_only = Some(true),
            |plan: &mut Plan| plan.range = Some(Range::Overlap),
        ] {
            experiment.plan = fixtures::experiment().plan;
            change(&mut experiment.plan);
            let summaries = summarize(&experiment, &points.points);
            let (_, said) = sentences(&experiment.plan, &summaries).remove(0);
            assert!(!said.contains("served"), "{said}");
        }
    }

    #[test]
    fn cpu_that_does_not_double_is_not_mentioned() {
        let grown = |cpu_us| {
            made(6)
                .with("flock", 943.0, 40.0, &queue(10, 472))
                .with("flock", 945.0, cpu_us, &queue(1000, 4))
                .says("flock")
        };
        assert!(!grown(79.0).contains("CPU"));
        assert!(grown(81.0).contains("CPU per lock grows ~2.0x"));
        assert!(grown(400.0).contains("CPU per lock grows ~10x"));
    }

    #[test]
    fn cpu_that_doubles_in_some_runs_only_is_not_mentioned() {
        let mut made = made(6).with("flock", 943.0, 40.0, &queue(10, 472)).with(
            "flock",
            945.0,
            100.0,
            &queue(1000, 4),
        );
        assert!(made.says("flock").contains("CPU per lock grows ~2.5x"));
        made.points[6].cpu_us_per_operation = Some(30.0);
        assert!(!made.says("flock").contains("CPU"));
    }

    #[test]
    fn of_invalid_figures_nothing_good_is_said() {
        let mut made = made(6).with("flock", 943.0, 40.0, &queue(10, 472)).with(
            "flock",
            945.0,
            40.0,
            &queue(1000, 4),
        );
        made.points[9].exclusion.as_mut().unwrap().violations = 3;
        assert_eq!(
            made.says("flock"),
            "INVALID with 1000 workers: 3 of 28350 acquisitions found another owner inside: \
             this lock does not exclude."
        );
        made.points[0]
            .deaths
            .push("worker 3 was killed by SIGKILL".to_string());
        assert_eq!(
            made.says("flock"),
            "INVALID with 1000 workers: 3 of 28350 acquisitions found another owner inside: \
             this lock does not exclude; INVALID with 10 too."
        );
    }

    #[test]
    fn one_worker_is_told_what_would_contend() {
        let said = made(6).with("flock", 943.0, 40.0, &[4725]).says("flock");
        assert_eq!(said, "one worker alone does not contend (-w 1:10:100).");
    }

    #[test]
    fn parts_are_named_as_people_would() {
        let table = [
            (90, 1000, "about one in eleven"),
            (100, 1000, "about one in ten"),
            (340, 1000, "about one in three"),
            (9, 90, "9 of 90"),       // few enough to count
            (20, 1000, "20 of 1000"), // one in fifty says less
            (900, 1000, "900 of 1000"),
        ];
        for (part, whole, words) in table {
            assert_eq!(how_many(part, whole), words);
        }
    }
}
