//! `jostle judge --server-host`: generator and server on two hosts, each with processes, clock and
//! sshd of its own, so that a watcher that looks at its own machine sees nothing.
//!
//! Needs root (namespaces, control groups), openssh-server, redis-server and redis-tools.

use crate::common::cgroup::Cgroup;
use crate::common::left::entries;
use crate::common::loops::Loops;
use crate::common::{alone, in_some_try, must_be_root, must_have, until};
use jostle_model::judged::{Limit, Watched};
use jostle_model::record::Record;
use jostle_testbed::hosts::{Hosts, SERVER};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const LOAD: &str = "timeout 4 redis-benchmark -h srv -c 10 -n 100000000 -t get --csv; true";
const JOSTLE: &str = env!("CARGO_BIN_EXE_jostle");

/// A Redis server on srv; `ssh` on h1 reaches it, and finds `jostle` there.
struct Ground {
    _server: Loops,
    hosts: Hosts,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Ground {
    /// `before`: what the server's shell does first.
    fn new(before: &str) -> Ground {
        must_be_root("make hosts");
        must_have("redis-benchmark", "redis-tools");
        let alone = alone();
        let hosts = Hosts::for_test(1).unwrap();
        let redis = "redis-server --bind 0.0.0.0 --protected-mode no --save ''";
        let mut shell = hosts.on(SERVER, "sh");
        shell.args(["-c", &format!("{before} exec {redis}")]);
        let server = Loops::new(vec![shell.stdout(Stdio::null()).spawn().unwrap()]);
        let ground = Ground {
            _server: server,
            hosts,
            _alone: alone,
        };
        fs::create_dir(ground.file("client")).unwrap();
        let config = ground.file("ssh_config");
        let ssh = format!("exec /usr/bin/ssh -F {} \"$@\"", config.display());
        ground.script("client/ssh", &ssh);
        symlink(JOSTLE, ground.file("bin/jostle")).unwrap();
        until("a Redis server", LIMIT, || ground.clients().map(|_| ()));
        ground
    }

    fn file(&self, name: &str) -> PathBuf {
        self.hosts.directory().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        fs::write(self.file(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(self.file(name), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Clients that the server has.
    fn clients(&self) -> Option<usize> {
        let mut cli = self.hosts.on("h1", "redis-cli");
        let list = cli.args(["-h", SERVER, "client", "list"]).output().unwrap();
        let lines = list.stdout.iter().filter(|byte| **byte == b'\n').count();
        list.status
            .success()
            .then_some(lines)
            .filter(|lines| *lines > 0)
    }

    /// `jostle judge` on h1.
    fn judge(&self, words: &str, load: &str) -> Command {
        let mut judge = self.hosts.on("h1", JOSTLE);
        let path = std::env::var("PATH").unwrap();
        judge.env("PATH", format!("{}:{path}", self.file("client").display()));
        judge
            .arg("judge")
            .args(words.split(' '))
            .args(["--", "sh", "-c", load]);
        judge
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        judge
    }

    #[track_caller]
    fn judged(&self, words: &str, load: &str) -> (String, Watched) {
        let file = self.file("found.jsonl");
        let words = format!("--overwrite -o {} {words}", file.display());
        let text = said(&self.judge(&words, load).output().unwrap());
        let lines = fs::read_to_string(file).unwrap();
        match lines.lines().next().map(serde_json::from_str) {
            Some(Ok(Record::Judged(watched))) => (text, *watched),
            other => panic!("{other:?}: {text}"),
        }
    }

    /// It starts nothing, and says this.
    #[track_caller]
    fn refuses(&self, words: &str, because: &str) {
        let output = self.judge(words, "echo started").output().unwrap();
        let text = said(&output);
        assert!(
            output.stdout.is_empty() && text.contains(because),
            "{words}: {text}"
        );
    }

    /// Processes of srv beside its sshd and its server.
    fn left(&self) -> Vec<(u32, String)> {
        let mut all = self.hosts.processes(SERVER).unwrap();
        all.retain(|(_, command)| !command.contains("redis-server"));
        all
    }
}

/// In one line.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_limit_is_found_on_either_host_and_their_clocks_are_aligned() {
    let group = Cgroup::with("cpu");
    let ground = Ground::new(&format!("{};", group.enter()));
    let shift = |name| ground.hosts.member(name).unwrap().shift_ns as f64 / 1e9;
    let ahead_s = shift(SERVER) - shift("h1");
    let run = |limit: Limit, because: &str| {
        // Other programs may leave too little of a run.
        let (text, watched) = in_some_try(because, || {
            let found = ground.judged("--server-host srv", LOAD);
            (found.1.finding.limit == limit).then_some(found)
        });
        assert!(text.contains(because), "{text}");
        let host = watched.server_host.unwrap();
        let off_s = (host.ahead_s.unwrap() - ahead_s).abs();
        assert!(off_s < 0.3, "{off_s} s off: {host:?}");
        assert_eq!(host.aligned_by.as_deref(), Some("connections"));
        let server = watched.server.unwrap().largest.unwrap();
        assert!(server.name.starts_with("redis-server"), "{server:?}");
        assert_eq!(ground.left(), []);
    };
    group.set(
        &[("cpu.cfs_quota_us", "5000")],
        &[("cpu.max", "5000 100000")],
    );
    run(Limit::Server, "kept the server from running");
    group.set(&[("cpu.cfs_quota_us", "-1")], &[("cpu.max", "max 100000")]);
    ground.hosts.cpu("h1", Some(0.2)).unwrap();
    run(Limit::Generator, "kept the generator from running");
    ground.hosts.cpu("h1", None).unwrap();
    // Three programs on the server's CPU, which h1 does not see.
    let hog = |_| {
        let mut hog = ground.hosts.on(SERVER, "taskset");
        hog.args(["-c", "1", "sh", "-c", "while :; do :; done"])
            .spawn()
            .unwrap()
    };
    let pin = "for p in $(pidof redis-server); do taskset -acp 1 $p; done >/dev/null";
    let pinned = ground
        .hosts
        .on(SERVER, "sh")
        .args(["-c", pin])
        .status()
        .unwrap();
    assert!(pinned.success());
    let _hogs = Loops::new((0..3).map(hog).collect());
    let (text, _) = in_some_try("the machine", || {
        let found = ground.judged("--server-host srv", LOAD);
        (found.1.finding.limit == Limit::Machine).then_some(found)
    });
    assert!(text.contains("the server's busiest thread"), "{text}");
    assert!(text.contains("without running on srv"), "{text}");
}

#[test]
fn without_a_watcher_of_this_build_nothing_is_started_and_nothing_is_left() {
    let ground = Ground::new("");
    // Without a look there, the answer tells how to take one.
    let (text, watched) = ground.judged("--every 100ms", LOAD);
    let advised = text.contains("Next: jostle judge --server-host 198.18.1.1 -- sh");
    let limit = watched.finding.limit;
    assert!(advised || limit == Limit::Generator, "{text}");
    ground.refuses(
        "--server-host=-oProxyCommand=true",
        "it does not begin with -",
    );
    ground.refuses(
        "--server-host 198.18.1.77",
        "ssh does not reach 198.18.1.77",
    );
    fs::remove_file(ground.file("bin/jostle")).unwrap();
    ground.refuses(
        "--server-host srv",
        "no jostle on srv in the PATH of ssh's commands",
    );
    let hello = r#"{"Hello":{"protocol":1,"build":"jostle 0.0.9","nonce":""}}"#;
    ground.script("bin/jostle", &format!("echo '{hello}'"));
    ground.refuses(
        "--server-host srv",
        "on srv is jostle 0.0.9; this is jostle 0.1.0",
    );
    ground.script("bin/jostle", "echo 'unexpected argument' >&2; exit 2");
    ground.refuses(
        "--server-host srv",
        "of this build (exit code 2): unexpected argument",
    );
    // A copy is removed after a run, and after one whose watcher was killed.
    let copies = || {
        let mut all = entries(Path::new("/tmp"));
        all.retain(|name| name.starts_with("/tmp/jostle."));
        all
    };
    let before = copies();
    let (text, watched) = ground.judged("--server-host srv --copy-binary", LOAD);
    assert!(watched.server.is_some(), "{text}");
    assert_eq!((copies(), ground.left()), (before.clone(), Vec::new()));
    let judge = ground.judge("--server-host root@srv --copy-binary", LOAD);
    let judge = { judge }.spawn().unwrap();
    until("traffic", LIMIT, || {
        ground.clients().filter(|clients| *clients > 10)
    });
    let mut watchers = ground.left();
    watchers.retain(|(_, command)| command.starts_with("/tmp/jostle."));
    watchers
        .iter()
        .for_each(|(pid, _)| jostle_sys::process::kill(*pid));
    let text = said(&judge.wait_with_output().unwrap());
    let lost = "the server was not seen on srv: its watcher was lost during the run: it ended";
    assert!(text.contains(lost), "{watchers:?}: {text}");
    assert_eq!((copies(), ground.left()), (before, Vec::new()));
}

#[test]
fn a_watcher_that_listens_serves_one_client_who_knows_the_token() {
    const AT: &str = "198.18.1.1:4711";
    let ground = Ground::new("");
    let token = |name: &str, text: &str| {
        fs::write(ground.file(name), text).unwrap();
        fs::set_permissions(ground.file(name), PermissionsExt::from_mode(0o600)).unwrap();
        ground.file(name).display().to_string()
    };
    let right = token("right", "0123456789abcdef0123456789abcdef");
    let wrong = token("wrong", "0123456789abcdef0123456789abcdee");
    let watch = |words: &[&str]| {
        let mut watcher = ground.hosts.on(SERVER, JOSTLE);
        watcher.args(["judge", "--watch-server", AT]).args(words);
        watcher.stderr(Stdio::piped());
        watcher
    };
    let open = watch(&[]).output().unwrap();
    assert!(open.status.code() == Some(2) && said(&open).contains("add --token-file FILE"));
    let watcher = watch(&["--token-file", &right]).spawn().unwrap();
    let _watcher = Loops::new(vec![watcher]);
    let reach = |token: &str| format!("--server-host tcp:{AT} --token-file {token}");
    until("a watcher", LIMIT, || {
        let text = said(&ground.judge(&reach(&wrong), "echo").output().unwrap());
        text.contains("the client has another token").then_some(())
    });
    ground.refuses(
        &format!("--server-host tcp:{AT}"),
        "the client has another token, or none",
    );
    ground.refuses(
        "--server-host tcp:198.18.1.1:4712",
        "cannot connect to 198.18.1.1:4712",
    );
    let started = ground.file("started");
    let mut first = ground.judge(
        &reach(&right),
        &format!("touch {}; read x", started.display()),
    );
    let first = Loops::new(vec![first.stdin(Stdio::piped()).spawn().unwrap()]);
    until("a session", LIMIT, || started.exists().then_some(()));
    ground.refuses(&reach(&right), "it is in another session");
    // The session ends with its client, killed or not.
    drop(first);
    let found = until("the next session", LIMIT, || {
        let free = said(&ground.judge(&reach(&right), "echo").output().unwrap());
        (!free.contains("it is in another session")).then(|| ground.judged(&reach(&right), LOAD))
    });
    let by = found.1.server_host.and_then(|host| host.aligned_by);
    assert_eq!(by.as_deref(), Some("connections"), "{}", found.0);
}
