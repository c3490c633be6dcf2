//! Options, exit codes, and what is left behind: nothing.

mod figures;

use std::io::Write;
use std::process::Stdio;

use crate::common::{Daemon, Running, both_parts, eventually, lock_at, text};

#[test]
fn it_exits_as_its_command_does_and_leaves_nothing_behind() {
    let daemon = Daemon::start();
    for (words, code, part) in [
        ("a -- true", 0, ""),
        ("a -c false", 1, ""),
        ("-s a -- env", 0, "JOSTLE_LOCK_TOKEN="),
        ("a b c -- env", 0, "JOSTLE_LOCK_TOKEN="),
        ("--places 2 p -- env", 0, "JOSTLE_LOCK_TOKEN="),
        ("--verbose a -- true", 0, "executing true"),
        ("a -- no-such-program", 127, "no-such-program: No such file"),
        ("a -- /etc/passwd", 126, "/etc/passwd: Permission denied"),
        ("a make all", 64, "jostle-lock a -- make all"),
        ("9", 64, "a descriptor cannot hold"),
        ("-x -s a -- true", 64, "cannot be used with"),
        ("--help", 0, "Usage: jostle-lock"),
        (
            "--url redis://no.invalid a -- true",
            68,
            "there is no host no.invalid",
        ),
        (
            "--url redis://127.0.0.1:1 a -- true",
            69,
            "cannot reach jostled",
        ),
        ("--url nonsense a -- true", 64, "the address is none of"),
        (
            "--password-file /nowhere a -- true",
            66,
            "/nowhere: No such file",
        ),
    ] {
        let output = daemon.lock(words).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
        daemon.await_nothing();
    }
    let long = format!("{} -- true", "x".repeat(513));
    let output = daemon.lock(&long).output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
    daemon.await_nothing();
    // Killed, by itself.
    let mut command = daemon.lock("a -c");
    let output = command.arg("kill -9 $$").output().unwrap();
    assert_eq!(output.status.code(), Some(137));
    daemon.await_nothing();
}

#[test]
fn it_waits_for_the_lock_and_says_who_holds_it() {
    let daemon = Daemon::start();
    let holder = Running::start(
        daemon
            .lock("--label nightly job -- sleep 1000")
            .env("LOGNAME", "ann"),
    );
    daemon.await_held();
    for (words, code) in [
        ("-n job -- true", 1),
        ("-w 0 -E 0 job -- true", 0),
        ("-w 0.1 -E 9 job -- true", 9),
    ] {
        let output = daemon.lock(words).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output).as_str()),
            (Some(code), ""),
            "{words}"
        );
    }
    let output = daemon.lock("--verbose -n job -- true").output().unwrap();
    assert!(text(&output).contains("\"job\" is taken"));
    // Signals of one who waits end it, and its session.
    let waiter = Running::start(&mut daemon.lock("job -- true"));
    eventually("it waits", || {
        daemon.ask("INFO locks").contains("waiters:1\r\n")
    });
    signal(waiter.pid(), "TERM");
    assert_eq!(waiter.finish().0, None, "ended by the signal");
    eventually("one session is left", || {
        daemon.ask("INFO locks").contains("sessions:1\r\n")
    });
    let waiter = Running::start(&mut daemon.lock("free job -- true"));
    eventually("it waits", || {
        daemon.ask("INFO locks").contains("waiters:2\r\n")
    });
    // It has said so before it can have the lock.
    eventually("it has looked", || {
        !daemon.ask("INFO commands").contains("cmd_place:0\r\n")
    });
    eventually("it has its answer", || {
        daemon.ask("INFO commands").contains("cmd_holder:2\r\n")
    });
    let (_, command) = both_parts(holder.pid());
    signal(holder.pid(), "TERM");
    let (code, _) = holder.finish();
    assert_eq!(code, Some(143), "passed on to {command}");
    let (code, said) = waiter.finish();
    assert_eq!(code, Some(0), "{said}");
    let expected = "waits for \"job\", place 1 in line: held by ann@";
    assert!(
        said.contains(expected) && said.contains(" nightly since "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    daemon.await_nothing();
}

fn signal(pid: u32, name: &str) {
    let kill = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
}

#[test]
fn background_processes_of_the_command_keep_the_lock_unless_they_shall_not() {
    let daemon = Daemon::start();
    let holder = Running::start(daemon.lock("job -c").arg("sleep 1000 & exit 3"));
    daemon.await_held();
    let pid = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.pid()));
    // The shell is gone, and what it has started came to the wrapper.
    eventually("the sleep is the wrapper's", || {
        let pids = pid().unwrap_or_default();
        let comm = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        pids.split(' ')
            .any(|pid| comm(pid).is_ok_and(|comm| comm == "sleep\n"))
    });
    let output = daemon.lock("-n job -- true").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    signal(holder.pid(), "TERM");
    assert_eq!(holder.finish().0, Some(3));
    let output = daemon
        .lock("-o job -c")
        .arg("sleep 1 > /dev/null 2>&1 & exit 4")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    daemon.await_nothing();
}

#[test]
fn passwords_come_from_a_file_and_wrong_ones_are_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right", "secret\n"), file("wrong", "no\n"));
    let daemon = Daemon::start_with(&right);
    for (words, code, part) in [
        (format!("--password-file {right} a -- true"), 0, ""),
        ("a -- true".to_owned(), 77, "give --password-file"),
        (
            format!("--password-file {wrong} a -- true"),
            77,
            "wrong password for user default",
        ),
    ] {
        let output = daemon.lock(&words).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(
            said.contains(part) && said.lines().count() == usize::from(code != 0),
            "{said}"
        );
    }
    let url = format!("redis://:secret@127.0.0.1:{}", daemon.port);
    assert_eq!(lock_at(&url, "a -- true").status().unwrap().code(), Some(0));
}

#[test]
fn a_local_lock_is_a_file_that_stays() {
    let home = tempfile::tempdir().unwrap();
    let local = |words: &str| {
        let mut command = lock_at("redis://127.0.0.1:1", &format!("--local {words}"));
        command.env("XDG_STATE_HOME", home.path());
        command
    };
    let mut holder = local("job -- cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let file = || {
        std::fs::read_dir(home.path().join("jostle-lock"))
            .map(Iterator::count)
            .unwrap_or(0)
    };
    eventually("it has the lock", || {
        file() == 1 && local("-n job -- true").status().unwrap().code() == Some(1)
    });
    for (words, code) in [
        ("-w 0.1 -E 5 job -- true", 5),
        ("-n other -- true", 0),
        ("-n -s other -- false", 1),
    ] {
        assert_eq!(local(words).status().unwrap().code(), Some(code), "{words}");
    }
    let waiter = Running::start(&mut local("-w 1000 -o job -- true"));
    let _ = holder.stdin.take().unwrap().write_all(b"over\n");
    assert!(holder.wait().unwrap().success());
    assert_eq!(waiter.finish().0, Some(0));
    assert_eq!(file(), 2);
    let output = local("a b -- true").output().unwrap();
    assert!(
        output.status.code() == Some(64) && text(&output).contains("cannot have several names")
    );
}

/// `read` from the terminal stops a process that is not in its foreground.
#[test]
fn the_command_has_the_terminal() {
    let daemon = Daemon::start();
    let line = format!(
        "{} job -- sh -c 'read line; echo got $line; kill -TSTP $$; echo on'",
        crate::common::JOSTLE_LOCK
    );
    let mut script = std::process::Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("JOSTLE_LOCK_URL", daemon.url());
    let mut running = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    running
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"hello\n")
        .unwrap();
    let output = running.wait_with_output().unwrap();
    let said = text(&output);
    assert!(
        said.contains("got hello") && said.contains("on\r\n"),
        "{said}"
    );
    assert!(
        said.contains("a job that is stopped would lose the lock"),
        "{said}"
    );
    daemon.await_nothing();
}
