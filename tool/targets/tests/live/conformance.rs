//! The duties of every target in the table, by the capabilities that it declares; the specimens
//! that are broken on purpose must fail.
//!
//! Workers are threads or plain handles here. What takes real processes (the
//! locks of POSIX between workers, the death of an owner) is tested where
//! processes are made, in the engine.

use crate::common::{
    Bench, GRANTED, REFUSED, block, contends_in_one_process, needs_argument, prepared_here,
    with_ledger,
};
use jostle_model::plan::Range;
use jostle_sys::clock::monotonic;
use jostle_targets::table::Family;
use jostle_targets::{Entry, Locks, Mode, Spec, TABLE, Target, Visitor, Wait, visit};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use Mode::{Exclusive, Shared};

/// The targets for which `which` holds; never none, or the test would be empty.
fn those(which: impl Fn(&Entry) -> bool) -> Vec<&'static Entry> {
    let found: Vec<_> = prepared_here().filter(|e| which(e)).collect();
    assert!(!found.is_empty());
    found
}

/// Lets others in, as if each were alone.
fn is_broken(entry: &Entry) -> bool {
    ["busted", "echo", "echo+unix", "echo+pipe"].contains(&entry.name)
}

/// The argument with which a target does so as seldom.
fn breaking(entry: &Entry, probability: &'static str) -> Option<&'static str> {
    (entry.name == "busted").then_some(probability)
}

#[test]
fn names_are_unique_and_typable() {
    let mut seen = BTreeSet::new();
    for entry in TABLE {
        for name in std::iter::once(&entry.name).chain(entry.aliases) {
            assert!(seen.insert(*name), "{name} stands twice");
            let typable =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+".contains(c);
            assert!(!name.is_empty() && name.chars().all(typable), "{name}");
            let parsed = match needs_argument(entry) {
                true => Spec::parse(&format!("{name}:x")).unwrap(),
                // A scheme that means TLS stands before an address only.
                false => Spec::parse(name)
                    .or_else(|_| Spec::parse(&format!("{name}://localhost:1")))
                    .or_else(|_| Spec::parse(&format!("{name}://group@localhost:1")))
                    .unwrap(),
            };
            assert!(std::ptr::eq(parsed.entry, *entry), "{name}");
        }
    }
}

#[test]
fn a_lock_of_the_kernel_or_in_memory_has_a_loop_of_its_own_and_a_service_has_not() {
    struct Name;
    impl Visitor for Name {
        type Out = &'static str;
        fn visit<T: Target>(self) -> &'static str {
            T::ENTRY.name
        }
    }
    for entry in TABLE {
        let visited = visit(entry, Name).ok();
        assert!(
            visited.is_none_or(|name| name == entry.name),
            "{}",
            entry.name
        );
        match entry.family {
            Family::File | Family::Semaphore | Family::Memory => {
                assert!(
                    visited.is_some(),
                    "{} is called through an object",
                    entry.name
                );
            }
            _ if entry.lock.remote || entry.lock.starts > 0 => {
                assert_eq!(visited, None, "add `as dyn` to its line");
            }
            _ => {}
        }
    }
}

#[test]
fn texts_are_there_and_of_one_form() {
    for entry in TABLE {
        let name = entry.name;
        // A summary stands in a column, a reason within a sentence; details
        // are sentences.
        let fragments = [Some(entry.summary), entry.no_threads, entry.argument];
        for text in fragments.into_iter().flatten() {
            assert!(!text.is_empty() && !text.ends_with('.'), "{name}: {text}");
            assert!(
                !text.contains("  ") && !text.contains('\n'),
                "{name}: {text}"
            );
        }
        assert!(entry.summary.len() <= 90, "{name}: {}", entry.summary.len());
        assert!(entry.details.ends_with('.'), "{name}: {}", entry.details);
        assert!(!entry.details.contains("  "), "{name}: {}", entry.details);
    }
}

#[test]
fn arguments_are_checked_before_anything_starts() {
    for entry in TABLE {
        let bare = (entry.check_argument)(None);
        assert_eq!(bare.is_err(), needs_argument(entry), "{}", entry.name);
        let error = (entry.check_argument)(Some("")).unwrap_err();
        assert!(!error.is_empty(), "{}", entry.name);
        match entry.argument {
            None => assert!(
                (entry.check_argument)(Some("/tmp")).is_err(),
                "{}",
                entry.name
            ),
            Some("PATH" | "PATH.so[?ARGS]" | "COMMAND") => {
                assert_eq!((entry.check_argument)(Some("/tmp")), Ok(()))
            }
            Some(_) => assert!(
                (entry.check_argument)(Some("/tmp")).is_err(),
                "{}",
                entry.name
            ),
        }
    }
}

#[test]
fn a_lock_can_be_taken_and_given_up_again_and_again() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            for open_each in [false, true] {
                if open_each && !entry.lock.open_each {
                    continue;
                }
                let target = Bench {
                    open_each,
                    ..Bench::new(ledger)
                }
                .locks(entry);
                let mut lock = target.join(0).unwrap();
                for wait in [Wait::Try, block(), Wait::Try] {
                    assert_eq!(lock.acquire(0, Exclusive, wait), GRANTED, "{name} {wait:?}");
                    assert_eq!(lock.release(0, Exclusive), Ok(()), "{name}");
                }
            }
        });
    };
    prepared_here().for_each(check);
}

#[test]
fn an_owner_keeps_the_others_out_until_it_releases() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            for open_each in [false, true] {
                if open_each && !entry.lock.open_each {
                    continue;
                }
                let argument = breaking(entry, "0");
                let target = Bench {
                    open_each,
                    argument,
                    ..Bench::new(ledger)
                }
                .locks(entry);
                let mut owner = target.join(0).unwrap();
                let mut other = target.join(1).unwrap();
                assert_eq!(owner.acquire(0, Exclusive, block()), GRANTED, "{name}");
                std::thread::scope(|scope| {
                    // A mutex belongs to a thread, so that the other needs its own.
                    scope.spawn(|| {
                        let mut third = target.join(2).unwrap();
                        for _ in 0..3 {
                            assert_eq!(third.acquire(0, Exclusive, Wait::Try), REFUSED, "{name}");
                        }
                    });
                });
                owner.release(0, Exclusive).unwrap();
                assert_eq!(other.acquire(0, Exclusive, Wait::Try), GRANTED, "{name}");
                other.release(0, Exclusive).unwrap();
            }
        });
    };
    those(contends_in_one_process).into_iter().for_each(check);
}

#[test]
fn a_specimen_that_excludes_nobody_excludes_nobody() {
    let check = |entry: &'static Entry| {
        with_ledger(|ledger, _| {
            let target = Bench::new(ledger).locks(entry);
            let mut one = target.join(0).unwrap();
            let mut two = target.join(1).unwrap();
            assert_eq!(one.acquire(0, Exclusive, Wait::Try), GRANTED);
            assert_eq!(two.acquire(0, Exclusive, Wait::Try), GRANTED);
        });
    };
    those(|entry| !entry.lock.excludes)
        .into_iter()
        .for_each(check);
}

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            let argument = breaking(entry, "0");
            let target = Bench {
                argument,
                ..Bench::new(ledger)
            }
            .locks(entry);
            let [mut one, mut two, mut writer] = [0, 1, 2].map(|w| target.join(w).unwrap());
            assert_eq!(one.acquire(0, Shared, block()), GRANTED, "{name}");
            assert_eq!(two.acquire(0, Shared, block()), GRANTED, "{name}");
            assert_eq!(writer.acquire(0, Exclusive, Wait::Try), REFUSED, "{name}");
            one.release(0, Shared).unwrap();
            assert_eq!(writer.acquire(0, Exclusive, Wait::Try), REFUSED, "{name}");
            two.release(0, Shared).unwrap();
            assert_eq!(writer.acquire(0, Exclusive, Wait::Try), GRANTED, "{name}");
            assert_eq!(one.acquire(0, Shared, Wait::Try), REFUSED, "{name}");
            writer.release(0, Exclusive).unwrap();
            assert_eq!(one.acquire(0, Shared, Wait::Try), GRANTED, "{name}");
            one.release(0, Shared).unwrap();
        });
    };
    those(|entry| entry.lock.shared && contends_in_one_process(entry))
        .into_iter()
        .for_each(check);
}

#[test]
fn a_timeout_is_kept() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            let argument = breaking(entry, "0");
            let target = Bench {
                argument,
                ..Bench::new(ledger)
            }
            .locks(entry);
            let mut owner = target.join(0).unwrap();
            owner.acquire(0, Exclusive, block()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut waiter = target.join(1).unwrap();
                    for nanos in [0, 20_000_000] {
                        let until = monotonic() + nanos;
                        assert_eq!(
                            waiter.acquire(0, Exclusive, Wait::Until(until)),
                            REFUSED,
                            "{name}"
                        );
                        let late = monotonic().checked_sub(until);
                        // Not before, and within a minute on any machine.
                        assert!(
                            late.is_some_and(|late| late < 60_000_000_000),
                            "{name}: {late:?}"
                        );
                    }
                });
            });
            owner.release(0, Exclusive).unwrap();
            let mut waiter = target.join(2).unwrap();
            let until = Wait::Until(monotonic() + 120_000_000_000);
            assert_eq!(waiter.acquire(0, Exclusive, until), GRANTED, "{name}");
            waiter.release(0, Exclusive).unwrap();
        });
    };
    those(|entry| entry.lock.timeout && contends_in_one_process(entry))
        .into_iter()
        .for_each(check);
}

#[test]
fn a_lock_without_timeout_refuses_one() {
    let check = |entry: &'static Entry| {
        with_ledger(|ledger, _| {
            let target = Bench::new(ledger).locks(entry);
            let error = target
                .join(0)
                .unwrap()
                .acquire(0, Exclusive, Wait::Until(0))
                .unwrap_err();
            assert!(error.to_string().contains("not supported"), "{error}");
        });
    };
    those(|entry| !entry.lock.timeout)
        .into_iter()
        .for_each(check);
}

#[test]
fn keys_are_locks_of_their_own() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            let argument = breaking(entry, "0");
            let target = Bench {
                keys: 3,
                argument,
                ..Bench::new(ledger)
            }
            .locks(entry);
            let collisions = target.facts().get("collisions").copied();
            assert!(
                collisions.is_none_or(|n| n == 0.0),
                "three keys in 64 slots"
            );
            let [mut one, mut two, mut three] = [0, 1, 2].map(|w| target.join(w).unwrap());
            assert_eq!(one.acquire(0, Exclusive, Wait::Try), GRANTED, "{name}");
            assert_eq!(two.acquire(2, Exclusive, Wait::Try), GRANTED, "{name}");
            if contends_in_one_process(entry) {
                // Two handles of one thread do for all but the mutexes that
                // know their thread, and those say so.
                assert_ne!(three.acquire(2, Exclusive, Wait::Try), GRANTED, "{name}");
            }
            assert_eq!(three.acquire(1, Exclusive, Wait::Try), GRANTED, "{name}");
            one.release(0, Exclusive).unwrap();
            two.release(2, Exclusive).unwrap();
            three.release(1, Exclusive).unwrap();
        });
    };
    prepared_here().for_each(check);
}

#[test]
fn byte_ranges_exclude_where_they_meet() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        with_ledger(|ledger, _| {
            for (range, neighbour, beyond) in [
                (Range::Same, REFUSED, REFUSED),
                (Range::Overlap, REFUSED, GRANTED),
                (Range::Disjoint, GRANTED, GRANTED),
            ] {
                let target = Bench {
                    range,
                    ..Bench::new(ledger)
                }
                .locks(entry);
                let [mut zero, mut one, mut two] = [0, 1, 2].map(|w| target.join(w).unwrap());
                assert_eq!(
                    zero.acquire(0, Exclusive, Wait::Try),
                    GRANTED,
                    "{name} {range}"
                );
                assert_eq!(
                    one.acquire(0, Exclusive, Wait::Try),
                    neighbour,
                    "{name} {range}"
                );
                if neighbour == GRANTED {
                    one.release(0, Exclusive).unwrap();
                }
                assert_eq!(
                    two.acquire(0, Exclusive, Wait::Try),
                    beyond,
                    "{name} {range}"
                );
                if beyond == GRANTED {
                    two.release(0, Exclusive).unwrap();
                }
                zero.release(0, Exclusive).unwrap();
                assert_eq!(
                    one.acquire(0, Exclusive, Wait::Try),
                    GRANTED,
                    "{name} {range}"
                );
                one.release(0, Exclusive).unwrap();
            }
        });
    };
    those(|entry| entry.lock.ranges && contends_in_one_process(entry))
        .into_iter()
        .for_each(check);
}

const THREADS: usize = 4;
const EACH: u64 = 2000;

/// Four threads each add one to a counter 2000 times, in two steps that an
/// overlap of owners tears apart, with a `pause` between them that lets the
/// others come in, where the lock does. Returns what got lost.
fn lost_updates(entry: &Entry, target: &dyn Locks, pause: fn(u64)) -> u64 {
    // What another program's server grants takes up to 100 ms (`postgres-try`, `etcd`).
    let each = match entry.program {
        Some(_) => 25,
        None => EACH,
    };
    let counter = AtomicU64::new(0);
    let all_there = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for worker in 0..THREADS {
            let (counter, all_there) = (&counter, &all_there);
            scope.spawn(move || {
                all_there.wait();
                let mut lock = target.join(worker).unwrap();
                for turn in 0..each {
                    assert_eq!(
                        lock.acquire(0, Exclusive, block()),
                        GRANTED,
                        "{}",
                        entry.name
                    );
                    let seen = counter.load(Relaxed);
                    pause(turn);
                    counter.store(seen + 1, Relaxed);
                    lock.release(0, Exclusive).unwrap();
                }
            });
        }
    });
    THREADS as u64 * each - counter.load(Relaxed)
}

#[test]
fn no_update_is_lost_under_a_lock_that_excludes() {
    let check = |entry: &'static Entry| {
        with_ledger(|ledger, _| {
            // Other CPUs come in within 2 us; now and then another thread of
            // this one does. (Not each time: those that spin then take whole
            // time slices.)
            let pause = |turn: u64| {
                let end = monotonic() + 2_000;
                while monotonic() < end {
                    std::hint::spin_loop();
                }
                if turn.is_multiple_of(100) {
                    std::thread::yield_now();
                }
            };
            let target = Bench::new(ledger).locks(entry);
            assert_eq!(lost_updates(entry, &*target, pause), 0, "{}", entry.name);
        });
    };
    those(|entry| contends_in_one_process(entry) && !is_broken(entry))
        .into_iter()
        .for_each(check);
}

#[test]
fn updates_are_lost_under_specimens_that_are_broken_on_purpose() {
    let check = |entry: &'static Entry| {
        with_ledger(|ledger, _| {
            let argument = breaking(entry, "0.2");
            let target = Bench {
                argument,
                ..Bench::new(ledger)
            }
            .locks(entry);
            // A sleep, so that overlaps need no second CPU.
            let pause = |_| std::thread::sleep(Duration::from_micros(20));
            assert!(lost_updates(entry, &*target, pause) > 0, "{}", entry.name);
            if let Some(planted) = target.truth().get("planted").copied() {
                // At most a fifth of the 8000, and four standard deviations.
                assert!(planted > 0.0 && planted < 1750.0, "{planted}");
            }
        });
    };
    those(|entry| is_broken(entry) || entry.name == "null")
        .into_iter()
        .for_each(check);
}

#[test]
fn nothing_is_left_when_the_ledger_has_been_swept() {
    let check = |entry: &'static Entry| {
        let name = entry.name;
        let place = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let path = elsewhere.path().join("lock").display().to_string();
        let takes_path = entry.family == Family::File;
        for argument in [None, Some(path.as_str()), elsewhere.path().to_str()] {
            if argument.is_some() && !takes_path {
                continue;
            }
            let ledger = jostle_sys::ledger::Ledger::create_in(place.path()).unwrap();
            let target = Bench {
                argument,
                keys: 2,
                ..Bench::new(&ledger)
            }
            .locks(entry);
            let mut lock = target.join(0).unwrap();
            // An owner that never releases leaves nothing either.
            assert_eq!(lock.acquire(1, Exclusive, Wait::Try), GRANTED, "{name}");
            ledger.sweep().unwrap();
            let left = |of: &tempfile::TempDir| std::fs::read_dir(of.path()).unwrap().count();
            assert_eq!(
                (left(&place), left(&elsewhere)),
                (0, 0),
                "{name} {argument:?}"
            );
            if name.starts_with("sysv") {
                let gone = lock.release(1, Exclusive).unwrap_err();
                let text = gone.to_string();
                assert!(
                    text.contains("Invalid argument") || text.contains("removed"),
                    "{text}"
                );
            }
        }
    };
    prepared_here().for_each(check);
}
