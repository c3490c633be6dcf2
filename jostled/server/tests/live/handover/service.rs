//! The surroundings of the daemon: tokens on disk, systemd, signals.

use std::process::Command;

use super::{Installed, assert_handed_over};
use crate::common::{Daemon, Manager, eventually};

#[test]
fn tokens_go_on_without_a_gap_and_their_file_stays_locked() {
    let installed = Installed::new();
    let data = installed.path("data");
    let flags = ["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let start = || Daemon::from_command(Command::new(installed.program()).args(flags));
    let daemon = start();
    let mut client = daemon.client();
    for times in 1..=3 {
        assert_eq!(client.token("LOCK a"), times);
        assert_handed_over(&daemon, times);
        assert_eq!(client.say("UNLOCK a"), "1");
        let second = Command::new(installed.program())
            .args(flags)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(text.contains("in use by another jostled"), "{text}");
        assert_eq!(client.info("token_reservation_failures"), 0);
    }
    let token = client.token("LOCK a");
    daemon.signal("-KILL");
    daemon.finish();
    let daemon = start();
    assert!(daemon.client().token("LOCK a") > token);
}

#[test]
fn another_data_directory_needs_a_restart() {
    let installed = Installed::new();
    let config = installed.path("config");
    let (one, other) = (installed.path("one"), installed.path("other"));
    let name = |data: &std::path::Path| {
        std::fs::write(
            &config,
            format!("data = {data:?}\nlisten = [\"127.0.0.1:0\"]\n"),
        )
        .unwrap();
    };
    name(&one);
    let flags = ["--config", config.to_str().unwrap()];
    let daemon = Daemon::from_command(Command::new(installed.program()).args(flags));
    name(&other);
    let answer = super::hand_over(&daemon);
    assert!(
        answer.contains("the data directory is another one"),
        "{answer}"
    );
    assert!(!other.exists());
    assert_eq!(daemon.client().token("LOCK a"), 1);
}

#[test]
fn systemd_sees_a_reload_of_the_same_process() {
    let installed = Installed::new();
    let path = installed.path("notify");
    let manager = Manager::at(&path);
    // At once: the queue of such a socket has room for ten, and the daemon never waits.
    let queue = manager.socket.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut heard: Vec<String> = Vec::new();
        while heard.last().is_none_or(|last| last != "STOPPING=1") {
            heard.push(manager.hear());
        }
        heard
    });
    let flags = ["--data", "none", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(installed.program());
    let daemon = Daemon::from_command(command.args(flags).env("NOTIFY_SOCKET", &path));
    let mut client = daemon.client();
    assert_eq!(client.say("LOCK a"), "1");
    // Signals that come in the middle reach one of the two programs, and end neither.
    for times in 1..=3 {
        for signal in ["-USR2", "-HUP", "-HUP"] {
            daemon.signal(signal);
        }
        daemon.await_info("handovers", times);
        eventually("all is heard", || {
            rustix::io::ioctl_fionread(&queue).unwrap() == 0
        });
    }
    daemon.signal("-USR2");
    daemon.await_info("handovers", 4);
    assert_eq!(client.say("UNLOCK a"), "1");
    assert_eq!(client.info("process_id"), u64::from(daemon.child.id()));
    daemon.signal("-TERM");
    assert_eq!(daemon.finish().0, Some(0));
    let heard = heard.join().unwrap();
    let (states, ends) = heard[1..].as_chunks::<2>();
    assert_eq!(
        (&*heard[0], ends),
        ("READY=1", &["STOPPING=1".to_owned()][..])
    );
    assert!(states.len() >= 4, "{heard:?}");
    for pair in states {
        assert!(
            pair[0].starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{heard:?}"
        );
        assert_eq!(pair[1], "READY=1");
    }
}
