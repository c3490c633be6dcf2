use super::super::turns::how_many;
use super::*;
use crate::ResultSet;
use crate::closing::tests::{Says, line, said};
use jostle_model::List;
use jostle_model::plan::Range;
use jostle_stats::fixtures::{self, Made, made, queue};
use jostle_stats::rng::Rng;

/// flock with 10 and with 1,000 workers, at these rates and CPU times.
fn swept(runs: u32, per_s: [f64; 2], cpu_us: [f64; 2]) -> Made {
    made(runs)
        .with("flock", per_s[0], cpu_us[0], &queue(10, 472))
        .with("flock", per_s[1], cpu_us[1], &queue(1000, 4))
}

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
        for run in &mut made.runs {
            run.times.hold_ns = Some(Distribution {
                mean: held_ns,
                ..Distribution::default()
            });
            run.server = Some(Server {
                cpu_us_per_operation: Some(5_000.0),
                ..Server::default()
            });
            run.traffic = Some(ServerTraffic {
                grants: 120,
                round_trips: 60_000,
                ..ServerTraffic::default()
            });
        }
        made.says("CPU")
    };
    let text = said(5e8);
    assert!(
        text.contains(" A waiting lock costs 60.")
            && text.contains("round trips and 60")
            && text.contains("us of server CPU a minute (with 1000 waiting)."),
        "{text}"
    );
    // So long a hold of so many locks: hardly anybody waited.
    let text = said(4e11);
    assert!(!text.contains("waiting lock"), "{text}");
}

/// `sysv -w 4 --keys 8`, of which the first has one semaphore for all keys: holds of 2.1 ms, of
/// which 451 attempts waited, a third of them for their own key.
#[test]
fn names_that_wait_for_one_another_are_told() {
    use jostle_model::record::Buckets;
    let told = |keys: u64, late: u64, blocked: f64, queued_s: f64, hold_ns: f64| {
        let mut made = made(3).with("sysv", 451.0, 40.0, &queue(4, 112));
        for run in &mut made.runs {
            run.times.hold_ns.as_mut().unwrap().mean = hold_ns;
            run.blocked_share = Some(blocked);
            run.cpu.runqueue_wait_s = Some(queued_s);
            let waits = Buckets(vec![(2_000, 451 - late), (6_291_456, late)]);
            run.histograms.insert("acquire_ns".to_owned(), waits);
        }
        let mut experiment = fixtures::experiment();
        experiment.plan.keys = Some(List(vec![keys]));
        said(&experiment, &made.runs, "Throughput")
    };
    let text = told(8, 451, 0.33, 0.09, 2e6);
    let expected = " 47 % of the attempts waited although nobody held their lock: disjoint names \
                    wait for one another, by a lock or a stripe that they share.";
    assert!(text.ends_with(expected), "{text}");
    let is_told = |text: String| text.contains("nobody held their lock");
    // A semaphore for each; the run queue; one key; waits far shorter than a hold.
    assert!(!is_told(told(8, 91, 0.28, 0.0, 2e6)));
    assert!(!is_told(told(8, 451, 0.33, 0.4, 2e6)));
    assert!(!is_told(told(1, 451, 0.33, 0.0, 2e6)));
    assert!(!is_told(told(8, 451, 0.33, 0.0, 2e7)));
}

/// futex with two workers that only hold: each ran through in turn, and "0.2 % had to wait" was
/// all that was told.
#[test]
fn it_is_said_who_waits_while_another_runs_through() {
    let told = |grants: f64, time: f64| {
        let mut made = made(6).with("futex", 9_900.0, 40.0, &queue(2, 4_950));
        for run in &mut made.runs {
            (run.blocked_share, run.blocked_time_share) = (Some(grants), Some(time));
            let shares = run.per_worker.as_mut().unwrap();
            shares.longest_wait_ns = Some(627_900_000 + u64::from(run.run));
            shares.longest_wait_worker = Some(1);
            (shares.longest_streak, shares.owner_changes) = (Some(6_280), Some(12));
        }
        made.says("Wait")
    };
    let text = told(0.002, 0.49);
    let expected = " 0.20 % of the acquisitions waited, for 49 % of the workers' time: worker 1 for \
                    628 ms at the longest, while another took up to 6,280 turns in a row (12 changes \
                    of owner in 9,901 turns).";
    assert!(text.ends_with(expected), "{text}");
    for (grants, time) in [(0.02, 0.49), (0.002, 0.009)] {
        assert!(!told(grants, time).contains("turns in a row"));
    }
}

/// `--shared 0.9`: writers waited 300 times as long, without a word.
#[test]
fn it_is_said_who_starves_readers_or_writers() {
    use jostle_model::record::Percentiles;
    // Ten workers, 1,000 locks a second: a rotation takes 10 ms.
    let said = |readers_ns: u64, writers_ns: u64, reached: bool| {
        let mut made = made(6).with("flock", 1_000.0, 40.0, &queue(10, 500));
        for run in &mut made.runs {
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
            run.reader_wait_ns = waits(readers_ns, true);
            run.writer_wait_ns = waits(writers_ns, reached);
        }
        made.says("Wait")
    };
    let waits = "Readers wait 7.0 ms and writers 20 ms in the median.";
    let text = said(7_000_000, 20_000_000, true);
    assert!(text.ends_with(waits), "{text}");
    let starve = "Writers starve: half of them wait 2.1 s or longer, readers 7.0 ms.";
    let text = said(7_000_000, 2_100_000_000, true);
    assert!(text.ends_with(starve), "{text}");
    // Most of them got nothing within the window.
    assert!(said(7_000_000, 2_100_000_000, false).ends_with(starve));
    let text = said(31_000_000, 9_000_000, true);
    assert!(
        text.contains("Readers starve: half of them wait 31 ms"),
        "{text}"
    );
}

/// Twenty runs of two targets, of which the first lets a tenth of the workers wait in vain.
fn two() -> ResultSet {
    let made = made(6)
        .with("flock", 943.0, 40.0, &queue(10, 472))
        .varied("flock", 945.0, 210.0, |block| starving(1000, 4, block))
        .with("sysv", 945.0, 38.0, &queue(10, 472))
        .with("sysv", 930.0, 45.0, &queue(1000, 4));
    ResultSet::new(fixtures::experiment(), made.runs, None)
}

#[test]
fn a_queue_and_a_starving_lock_stand_side_by_side() {
    let fair = line(&two(), "Fairness");
    assert!(fair.contains("none for about one in ten)"), "{fair}");
    assert!(fair.contains("sysv 4 to 5 (in order)"), "{fair}");
    let cpu = line(&two(), "CPU");
    assert!(
        cpu.starts_with(
            "flock uses 4.7 times as much CPU per lock as sysv with 1,000 workers (sysv 45 us, \
             flock 210 us)."
        ),
        "{cpu}"
    );
    assert!(
        cpu.ends_with("From 10 to 1,000 workers CPU per lock grows by a factor of 5.2 (flock)."),
        "{cpu}"
    );
    let throughput = line(&two(), "Throughput");
    assert!(
        throughput.contains("stays the same, within 5 %."),
        "{throughput}"
    );
}

#[test]
fn throughput_that_falls_or_rises_is_quoted_from_the_printed_medians() {
    let from = |to: f64| swept(6, [1000.0, to], [40.0; 2]).says("Throughput");
    let moved = |to: f64, words: &str| {
        let said = from(to);
        let expected = format!(" From 10 to 1,000 workers it {words}.");
        assert!(said.ends_with(&expected), "{said}");
    };
    moved(560.0, "falls to 56 %");
    moved(1800.0, "rises to 180 %");
    // 6 % is beyond 5 %, 4 % is within.
    moved(935.0, "falls to 94 %");
    moved(965.0, "stays the same, within 5 %");
}

#[test]
fn what_the_blocks_do_not_decide_is_not_told() {
    let mut noisy = swept(6, [1000.0; 2], [40.0; 2]);
    for run in &mut noisy.runs[6..] {
        run.throughput_per_s *= if run.block % 2 == 0 { 0.8 } else { 1.2 };
    }
    assert!(!noisy.says("Throughput").contains("From 10"));
    let one = swept(1, [1000.0, 560.0], [40.0; 2]);
    assert!(!one.says("Throughput").contains("From 10"));
    assert!(
        one.says("Fairness")
            .starts_with("Turns per worker with 1,000 workers: 4 to 5 (in order)")
    );
}

#[test]
fn each_way_of_serving_has_its_words() {
    let table: &[(Vec<u64>, &str)] = &[
        (queue(100, 47), "47 to 48 (in order)"),
        // even, but wider than a queue: standard deviation 4 of 500
        (
            (0..100).map(|i| 494 + i % 13).collect(),
            "494 to 506 (evenly)",
        ),
        (lottery(100, 50, 3), " (varied as if drawn at random)"),
        (
            (0..100).map(|i| if i < 50 { 20 } else { 80 }).collect(),
            "20 to 80 (some had far more than others)",
        ),
        // significant, and of no account
        (
            (0..100).map(|i| 1_000_000 + 900 * i).collect(),
            "1,000,000 to 1,089,100 (evenly)",
        ),
        (
            (0..100).map(|i| 1_000_000 + 3_000 * i).collect(),
            "1,000,000 to 1,297,000 (some had more than others)",
        ),
        (
            (0..100).map(|i| if i < 3 { 0 } else { 50 }).collect(),
            "none for 3 of 100)",
        ),
    ];
    for (counts, words) in table {
        let said = made(6).with("flock", 900.0, 40.0, counts).says("Fairness");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn under_two_rotations_nobody_is_called_unfair() {
    let made = made(6).varied("flock", 945.0, 40.0, |block| lottery(1000, 1, block));
    assert_eq!(made.says("Fairness"), "");
}

#[test]
fn under_ten_rotations_what_is_told_is_an_impression() {
    let told = |turns: u64| {
        let said = made(6).with("flock", 945.0, 40.0, &queue(100, turns));
        said.says("Fairness")
            .contains("This is an impression: a worker of ")
    };
    assert_eq!([2, 9, 10].map(told), [true, true, false]);
}

#[test]
fn too_few_workers_and_runs_leave_the_order_open() {
    let said = made(1)
        .with("flock", 900.0, 40.0, &[470, 480])
        .says("Fairness");
    assert_eq!(said, "Turns per worker with 2 workers: 470 to 480.");
    let said = made(6)
        .with("flock", 900.0, 40.0, &[475, 475])
        .says("Fairness");
    assert_eq!(said, "Turns per worker with 2 workers: 475 (in order).");
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
        assert_eq!(said(&experiment, &points.runs, "Fairness"), "");
    }
}

#[test]
fn cpu_that_does_not_double_does_not_grow() {
    let grown = |cpu_us| swept(6, [943.0, 945.0], [40.0, cpu_us]).says("CPU");
    assert!(!grown(79.0).contains("grows"));
    assert!(grown(81.0).contains("CPU per lock grows by a factor of 2.0"));
    assert!(grown(400.0).contains("CPU per lock grows by a factor of 10"));
}

#[test]
fn cpu_that_doubles_in_some_runs_only_does_not_grow() {
    let mut made = swept(6, [943.0, 945.0], [40.0, 100.0]);
    assert!(
        made.says("CPU")
            .contains("CPU per lock grows by a factor of 2.5")
    );
    made.runs[6].cpu.cpu_us_per_operation = Some(30.0);
    assert!(!made.says("CPU").contains("grows"));
}

#[test]
fn a_lock_that_does_not_exclude_is_told_first_and_its_figures_are_not() {
    let mut made = swept(6, [943.0, 945.0], [40.0; 2]);
    made.runs[9].exclusion.as_mut().unwrap().violations = 3;
    assert_eq!(
        made.says("Safety"),
        "flock: 3 of 28350 acquisitions found another owner inside: this lock does not exclude."
    );
    assert!(
        made.says("Fairness")
            .starts_with("Turns per worker with 10 workers: ")
    );
}

#[test]
fn one_worker_is_told_what_would_contend() {
    let said = made(6).with("flock", 943.0, 40.0, &[4725]).says("Fairness");
    assert_eq!(said, "One worker alone does not contend (-w 1:10:100).");
}

/// 992 us against 39 us, and "Nothing is decided" was all that was told.
#[test]
fn a_single_run_tests_nothing_and_its_factor_is_told() {
    let of = |us: f64| {
        let made = made(1).with("futex", 900.0, 39.0, &queue(2, 450)).with(
            "mine",
            900.0,
            us,
            &queue(2, 450),
        );
        made.says("CPU")
    };
    assert_eq!(
        of(992.0),
        "mine used 25 times as much CPU per lock as futex with 2 workers (futex 39 us, mine \
         992 us; 1 run, not tested)."
    );
    assert!(of(45.0).starts_with("No difference in CPU time is shown with 2 workers ("));
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
