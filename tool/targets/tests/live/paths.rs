//! The files that locks on files use: what exists is left as it is, what is
//! made is removed, and what cannot be is said with its remedy.

use crate::common::{Bench, GRANTED, REFUSED, with_ledger};
use jostle_sys::ledger::Ledger;
use jostle_targets::flock::Flock;
use jostle_targets::lockfile::Lockfile;
use jostle_targets::ofd::Ofd;
use jostle_targets::posix::Posix;
use jostle_targets::{Lock, Mode, Target, Wait};
use std::path::Path;

fn bench<'a>(ledger: &'a Ledger, path: &'a Path, keys: usize) -> Bench<'a> {
    Bench {
        argument: path.to_str(),
        keys,
        ..Bench::new(ledger)
    }
}

fn problem<T: Target>(bench: &Bench<'_>) -> String {
    let error = bench.try_prepare::<T>().err();
    error
        .unwrap_or_else(|| panic!("{} is content", T::ENTRY.name))
        .0
}

#[test]
fn an_existing_file_is_locked_and_left_as_it_is() {
    fn check<T: Target>() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        std::fs::write(&path, "precious").unwrap();
        with_ledger(|ledger, _| {
            let target: T = bench(ledger, &path, 1).prepare();
            let mut lock = target.join(0).unwrap();
            assert_eq!(lock.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
            lock.release(0, Mode::Exclusive).unwrap();
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
    check::<Flock>();
    check::<Ofd>();
    check::<Posix>();
}

/// The second directory is the first by another name, as a second mount would be.
#[test]
fn a_worker_s_number_in_a_path_leads_each_worker_to_its_own_directory() {
    fn check<T: Target>() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("0")).unwrap();
        std::os::unix::fs::symlink("0", place.path().join("1")).unwrap();
        std::fs::create_dir(place.path().join("2")).unwrap();
        let path = place.path().join("{worker}/f");
        with_ledger(|ledger, _| {
            let target: T = Bench {
                workers: 3,
                ..bench(ledger, &path, 1)
            }
            .prepare();
            let [mut first, mut second, mut third] = [0, 1, 2].map(|n| target.join(n).unwrap());
            assert_eq!(first.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
            assert_eq!(second.acquire(0, Mode::Exclusive, Wait::Try), REFUSED);
            assert_eq!(third.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
        });
        assert!(!place.path().join("0/f").exists());
    }
    check::<Flock>();
    check::<Ofd>();
}

#[test]
fn a_path_is_one_lock_for_all_who_use_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new");
    with_ledger(|ledger, _| {
        let one: Flock = bench(ledger, &path, 1).prepare();
        let two: Flock = bench(ledger, &path, 1).prepare();
        let (mut one, mut two) = (one.join(0).unwrap(), two.join(0).unwrap());
        assert_eq!(one.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
        assert_eq!(two.acquire(0, Mode::Exclusive, Wait::Try), REFUSED);
    });
    assert!(!path.exists(), "it was made, so it is removed");
}

#[test]
fn several_keys_take_numbered_files_of_which_only_the_made_ones_go() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("lock.1"), "").unwrap();
    with_ledger(|ledger, _| {
        let _target: Ofd = bench(ledger, &at("lock"), 3).prepare();
        assert!(at("lock.0").exists() && at("lock.2").exists() && !at("lock").exists());
    });
    assert!(at("lock.1").exists(), "it was there before");
    assert!(!at("lock.0").exists() && !at("lock.2").exists());
}

#[test]
fn two_runs_in_one_directory_do_not_meet() {
    let place = tempfile::tempdir().unwrap();
    with_ledger(|ledger, _| {
        with_ledger(|other, _| {
            let one: Lockfile = bench(ledger, place.path(), 1).prepare();
            let two: Lockfile = bench(other, place.path(), 1).prepare();
            let (mut one, mut two) = (one.join(0).unwrap(), two.join(0).unwrap());
            assert_eq!(one.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
            assert_eq!(two.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
        });
    });
}

#[test]
fn the_lock_file_of_a_killed_owner_is_removed_before_the_next_run() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pid");
    with_ledger(|ledger, _| {
        for _run in 0..2 {
            let target: Lockfile = bench(ledger, &path, 1).prepare();
            let mut lock = target.join(0).unwrap();
            assert_eq!(lock.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
            // No release: as if killed.
        }
    });
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_locked_is_said_with_its_remedy() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink(at("nothing"), at("dangling")).unwrap();
    let held = std::fs::File::open(at("file")).unwrap();
    jostle_sys::files::flock(&held, jostle_sys::files::LockKind::Shared, true).unwrap();
    with_ledger(|ledger, _| {
        let problem_at = |path: &Path| problem::<Flock>(&bench(ledger, path, 1));
        let table = [
            (
                at("no/such/file"),
                "No such file or directory",
                "make its directory first",
            ),
            (at("file/below"), "Not a directory", "give another path"),
            (at("dangling"), "File exists", "a link to nothing"),
            (
                at("file"),
                "cannot lock",
                "or give another path (held by pid ",
            ),
            (
                "/dev/null".into(),
                "neither a file nor a directory",
                "give one of these",
            ),
        ];
        for (path, what, remedy) in table {
            let problem = problem_at(&path);
            assert!(problem.contains(path.to_str().unwrap()), "{problem}");
            assert!(
                problem.contains(what) && problem.contains(remedy),
                "{problem}"
            );
        }
        let taken = problem::<Lockfile>(&bench(ledger, &at("file"), 1));
        assert!(taken.contains("somebody holds the lock"), "{taken}");
        let many = problem::<Flock>(&Bench {
            keys: 1 << 40,
            ..Bench::new(ledger)
        });
        assert!(many.contains("ulimit -n"), "{many}");
    });
    assert!(at("file").exists() && at("dangling").symlink_metadata().is_ok());
}

#[test]
fn flock_locks_what_it_may_only_read_and_record_locks_say_why_not() {
    // Nobody, root neither, may write to a program that runs.
    let program = std::env::current_exe().unwrap();
    with_ledger(|ledger, _| {
        for open_each in [false, true] {
            let target: Flock = Bench {
                open_each,
                ..bench(ledger, &program, 1)
            }
            .prepare();
            let mut lock = target.join(0).unwrap();
            assert_eq!(lock.acquire(0, Mode::Exclusive, Wait::Try), GRANTED);
            lock.release(0, Mode::Exclusive).unwrap();
        }
        for problem in [
            problem::<Ofd>(&bench(ledger, &program, 1)),
            problem::<Posix>(&bench(ledger, &program, 1)),
        ] {
            assert!(problem.starts_with("cannot open"), "{problem}");
        }
    });
}
