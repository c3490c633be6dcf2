//! New programs that cannot take over, and times at which a handover is refused.

use std::process::Command;

use super::{
    Installed, assert_handed_over, await_no_process, await_waiters, hand_over, is_running,
};
use crate::common::{eventually, short};

#[test]
fn whatever_the_new_program_is_the_old_one_goes_on_with_all_locks() {
    let installed = Installed::new();
    let daemon = installed.start(&["--handover-timeout", "120"]);
    let hasty = installed.start(&["--handover-timeout", "5"]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK a"), "1");
    let mut waiter = daemon.client();
    waiter.send("LOCK a");
    await_waiters(&daemon, 1);
    let sleep = format!("sleep 7{}", std::process::id());
    // It reads another version: it gets a state whose version is another one.
    let other_version = format!(
        "#!/bin/sh\n(head -c 8 /dev/stdin; printf '\\377\\0\\0\\0'; tail -c +13 /dev/stdin) \
         > \"$0.state\"\nexec {} \"$@\" < \"$0.state\"\n",
        crate::JOSTLED
    );
    let half = format!(
        "#!/bin/sh\nhead -c -1 /dev/stdin > \"$0.state\"\nexec {} \"$@\" < \"$0.state\"\n",
        crate::JOSTLED
    );
    let bad = [
        (
            "#!/bin/sh\nexit 0\n",
            "700",
            "does not answer as jostled does",
        ),
        (
            "#!/bin/sh\necho no >&2; exit 3\n",
            "700",
            "(exit status: 3): no",
        ),
        ("#!/bin/sh\nkill -9 $$\n", "700", "signal: 9"),
        ("#!/bin/sh\n:\n", "600", "Permission denied"),
        ("\u{7f}ELF, but not really", "700", "cannot start"),
        (
            &other_version,
            "700",
            "the state has version 255, and this program",
        ),
        (&half, "700", "it is not whole"),
    ];
    for (text, mode, why) in bad {
        installed.put(text, mode);
        let answer = hand_over(&daemon);
        assert!(answer.contains(why), "{text}: {answer}");
        assert!(
            answer.starts_with("ERR no handover, the daemon goes on"),
            "{answer}"
        );
        assert_eq!(holder.say("LOCK a"), "ALREADYHELD");
    }
    // Only what never answers meets the limit: the others are late on a busy machine.
    installed.put(&format!("#!/bin/sh\n{sleep}\n"), "700");
    let answer = hand_over(&hasty);
    assert!(answer.contains("within 5 s"), "{answer}");
    assert!(
        answer.starts_with("ERR no handover, the daemon goes on"),
        "{answer}"
    );
    await_no_process(&sleep);
    installed.remove();
    let answer = hand_over(&daemon);
    assert!(answer.contains("No such file"), "{answer}");

    installed.put_jostled();
    assert_handed_over(&daemon, 1);
    assert_eq!(daemon.info("handover_failures"), bad.len() as u64 + 1);
    assert_eq!(holder.say("UNLOCK a"), "1");
    assert_eq!(short(&waiter.read()), "2");
    daemon.signal("-TERM");
    let (code, log) = daemon.finish();
    assert_eq!(code, Some(0));
    for (_, _, why) in bad {
        assert!(log.contains(why), "{why}: {log}");
    }
}

#[test]
fn a_daemon_that_ends_meanwhile_ends_the_new_program_too() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let sleep = format!("sleep 8{}", std::process::id());
    installed.put(&format!("#!/bin/sh\n{sleep}\n"), "700");
    let mut client = daemon.client();
    client.send("HANDOVER");
    eventually("it is asked", || is_running(&sleep));
    // There is one at a time, and others are served.
    assert_eq!(daemon.client().say("HANDOVER"), "ERR");
    assert_eq!(daemon.client().say("LOCK a"), "1");
    daemon.signal("-TERM");
    assert!(client.try_read().is_err());
    assert_eq!(daemon.finish().0, Some(0));
    await_no_process(&sleep);
}

#[test]
fn a_drain_that_begins_meanwhile_is_not_forgotten() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let sleep = format!("sleep 9{}", std::process::id());
    installed.put(&format!("#!/bin/sh\n{sleep}\n"), "700");
    let (mut asker, mut holder) = (daemon.client(), daemon.client());
    assert_eq!(holder.say("LOCK a"), "1");
    asker.send("HANDOVER");
    eventually("it is asked", || is_running(&sleep));
    assert_eq!(holder.say("SHUTDOWN DRAIN 600s"), "OK");
    let answer = format!("{:?}", asker.read());
    assert!(answer.contains("the daemon is ending"), "{answer}");
    await_no_process(&sleep);
    assert_eq!(asker.say("LOCK b"), "SHUTDOWN");
    assert_eq!(holder.say("SHUTDOWN ABORT"), "OK");
    installed.put_jostled();
    assert_handed_over(&daemon, 1);
    assert_eq!(holder.say("UNLOCK a"), "1");
}

#[test]
fn the_check_is_of_the_state_as_it_is_at_the_end() {
    // Good once, and then no longer: the second look is the one that counts.
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK a"), "1");
    let once = format!(
        "#!/bin/sh\n[ -e \"$0.once\" ] && {{ echo changed my mind >&2; exit 1; }}\n\
         touch \"$0.once\"\nexec {} \"$@\"\n",
        crate::JOSTLED
    );
    installed.put(&once, "700");
    let answer = hand_over(&daemon);
    assert!(answer.contains("changed my mind"), "{answer}");
    assert_eq!(holder.say("UNLOCK a"), "1");
    // The store of the tokens, the loop and the signals work as before.
    assert_eq!(holder.say("LOCK a"), "2");
    installed.put_jostled();
    assert_handed_over(&daemon, 1);
}

#[test]
fn only_administrators_hand_over_and_not_at_any_time() {
    let installed = Installed::new();
    let users = installed.path("users");
    let text = "user default on nopass ~* +@lock\nuser root on >r ~* +@all\n";
    std::fs::write(&users, text).unwrap();
    let daemon = installed.start(&["--users-file", users.to_str().unwrap()]);
    let mut client = daemon.client();
    assert_eq!(client.say("HANDOVER"), "NOPERM");
    assert_eq!(client.say("AUTH root r"), "OK");
    assert_eq!(client.say("LOCK a"), "1");
    assert_eq!(client.say("MULTI"), "OK");
    assert_eq!(client.say("HANDOVER"), "ERR");
    assert_eq!(client.say("EXEC"), "EXECABORT");
    assert_eq!(client.say("SHUTDOWN DRAIN 60s"), "OK");
    assert_eq!(client.say("HANDOVER"), "ERR");
    assert_eq!(client.say("SHUTDOWN ABORT"), "OK");
    assert_eq!(client.say("HANDOVER"), "OK");
    // The client's login is kept, and so is everybody else's.
    assert_eq!(client.say("ACL WHOAMI"), "root");
    assert_eq!(daemon.client().say("HANDOVER"), "NOPERM");
    // A handover reads settings again: a user that is gone by then can do nothing more.
    std::fs::write(&users, "user default on nopass ~* +@lock\n").unwrap();
    assert_eq!(client.say("HANDOVER"), "OK");
    assert_eq!(client.say("LOCK b"), "NOPERM");
    assert_eq!(daemon.client().say("TRYLOCK a"), "nil");
    // A handover with invalid settings is refused.
    std::fs::write(&users, "user default on nonsense\n").unwrap();
    daemon.signal("-USR2");
    daemon.await_info("handover_failures", 1);
    daemon.signal("-TERM");
    let (_, log) = daemon.finish();
    assert!(log.contains("audit: handover user=\"root\""), "{log}");
    assert!(log.contains("audit: handover by=\"signal\""), "{log}");
    assert!(log.contains("refuses (exit status: 2)"), "{log}");
}

#[test]
fn what_stands_in_standard_input_must_be_a_state() {
    for (flag, why) in [
        ("--check-state", "this is no state of jostled"),
        ("--take-over", "cannot take over"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("state");
        std::fs::write(&file, "something else that is long enough for a head").unwrap();
        let mut command = Command::new(crate::JOSTLED);
        command.args([flag, "--data", "none"]);
        let output = command
            .stdin(std::fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(why),
            "{flag}: {text}"
        );
    }
}
