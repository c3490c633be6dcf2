use super::*;
use crate::sysv::{self, Set, exists, random_key};

fn names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_sweep_removes_the_directory_and_what_was_recorded_and_no_more() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    assert_eq!(fs::metadata(ledger.path()).unwrap().mode() & 0o777, 0o700);
    fs::write(ledger.path().join("flock.0"), "").unwrap();

    let at = |name: &str| place.path().join(name);
    for (name, text) in [
        ("made", ""),
        ("grown", "data"),
        ("withdrawn", ""),
        ("other", ""),
    ] {
        ledger.record_file(&at(name)).unwrap();
        fs::write(at(name), text).unwrap();
    }
    ledger.record_file(&at("never made")).unwrap();
    ledger.withdraw_file(&at("withdrawn")).unwrap();
    ledger.withdraw_file(&at("other")).unwrap();
    assert!(ledger.has_file(&at("made")).unwrap());
    assert!(!ledger.has_file(&at("other")).unwrap());
    assert!(
        ledger
            .record_file(Path::new("/a\nfile /etc/passwd"))
            .is_err()
    );

    let problems = ledger.sweep().unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("grown"), "{problems:?}");
    let mut left = names(place.path());
    left.sort();
    assert_eq!(left, ["grown", "other", "withdrawn"]);
    assert_eq!(ledger.sweep(), Ok(()), "a second sweep finds nothing to do");
}

#[test]
fn a_sweep_removes_directories_of_servers_and_no_others() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let ours = ledger.make_directory().unwrap();
    let another = ledger.make_directory().unwrap();
    assert_ne!(ours, another);
    fs::create_dir(ours.join("data")).unwrap();
    fs::write(ours.join("data/file"), "x").unwrap();
    let foreign = place.path().join("somebody's");
    fs::create_dir(&foreign).unwrap();
    ledger
        .write("directory", foreign.as_os_str().as_bytes())
        .unwrap();
    let problems = ledger.sweep().unwrap_err();
    assert!(
        problems.len() == 1 && problems[0].contains("somebody's"),
        "{problems:?}"
    );
    assert!(!ours.exists() && !another.exists() && foreign.exists());
}

#[test]
fn a_cleared_ledger_serves_the_next_run() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    for _run in 0..2 {
        let file = place.path().join("lock");
        ledger.record_file(&file).unwrap();
        fs::write(&file, "").unwrap();
        fs::write(ledger.path().join("flock.0"), "").unwrap();
        assert_eq!(ledger.clear(), Ok(()));
        assert!(!file.exists());
        assert_eq!(names(ledger.path()), [LIST]);
        assert!(ledger.items().unwrap().is_empty() && ledger.is_of_these_namespaces());
    }
    // Where there is a usual place, that is where it is made.
    let usual = Ledger::create().unwrap();
    assert!(usual.path().starts_with("/dev/shm") || !Path::new("/dev/shm").exists());
    usual.sweep().unwrap();
}

#[test]
fn a_sweep_removes_semaphores_of_this_namespace_only() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let [ours, theirs, withdrawn] = [(); 3].map(|()| random_key().unwrap());
    ledger.record_semaphore(ours).unwrap();
    ledger
        .write("semaphore", format!("{theirs} ipc:[1]").as_bytes())
        .unwrap();
    ledger.record_semaphore(withdrawn).unwrap();
    ledger.withdraw_semaphore(withdrawn).unwrap();
    for key in [ours, theirs, withdrawn] {
        Set::create(key, 2, 1, false).unwrap();
    }
    let swept = ledger.sweep();
    let left = [ours, theirs, withdrawn].map(exists);
    for key in [ours, theirs, withdrawn] {
        sysv::remove(key).unwrap();
    }
    assert_eq!(swept, Ok(()));
    assert_eq!(left, [false, true, true]);
}

#[test]
fn only_ledgers_of_the_dead_are_swept() {
    let place = tempfile::tempdir().unwrap();
    let user = geteuid().as_raw();
    let alive = Ledger::create_in(place.path()).unwrap();
    let pid = std::process::id();
    let make = |name: String, line: &str| {
        let path = place.path().join(name);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        fs::write(path.join(LIST), line).unwrap();
        path
    };
    let here = format!("{NAMESPACES} {}\n", namespaces());
    let other_clock = format!("{NAMESPACES} {} time:[1]\n", namespace("pid"));
    let outside = place.path().join("lock");
    fs::write(&outside, "").unwrap();
    // Our own number with another start time: the number was used again.
    let line = format!("{here}file {}\nfile /torn", outside.display());
    make(format!("{PREFIX}{user}-{pid}-1-0"), &line);
    let dead = make(format!("{PREFIX}{user}-4194305-5-0"), "");
    let kept = [
        make(format!("{PREFIX}{}-4194305-5-0", user + 1), &here),
        make(
            format!("{PREFIX}{user}-4194305-5-1"),
            &format!("{NAMESPACES} pid:[1] {}\n", namespace("time")),
        ),
        make(format!("{PREFIX}{user}-4194305-5-2"), &other_clock),
        make(format!("{PREFIX}{user}-x-5-0"), &here),
        make("other-0-4194305-5-0".to_owned(), &here),
        alive.path().to_owned(),
    ];
    // A link to a ledger is not followed.
    let link = place.path().join(format!("{PREFIX}{user}-4194305-6-0"));
    std::os::unix::fs::symlink(alive.path(), &link).unwrap();

    assert_eq!(sweep_dead_in(place.path()), Ok(2));
    assert!(!dead.exists() && !outside.exists());
    for path in kept.iter().chain([&link]) {
        assert!(path.exists(), "{}", path.display());
    }
    assert_eq!(sweep_dead_in(Path::new("/nowhere")), Ok(0));
}

#[test]
fn another_process_sweeps_what_it_opens() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("lock");
    ledger.record_file(&file).unwrap();
    fs::write(&file, "").unwrap();
    Ledger::open(ledger.path()).unwrap().sweep().unwrap();
    assert_eq!(names(place.path()), [""; 0]);
    let open = place.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(Ledger::open(&open).is_err(), "others may write to it");
    assert!(Ledger::open(&file).is_err());
}
