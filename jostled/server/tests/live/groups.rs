//! `--ha-name`: jostleds that take over from each other, with a real etcd of three members.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use jostle_etcd::fake::Etcds;
use jostle_resp::Value;

use crate::JOSTLED;
use crate::common::{Client, Daemon, eventually, output, tool};

/// An etcd, and a directory for data.
struct Ground {
    etcds: Etcds,
    directory: tempfile::TempDir,
}

impl Ground {
    /// With the keys of the group `g`.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let etcds = Etcds::launch(directory.path());
        let ground = Self { etcds, directory };
        // The members have to find each other first.
        eventually("a leader", || ground.init("g", "first").0);
        ground
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn command(&self, group: &str, data: &str, more: &[&str]) -> Command {
        let (data, urls) = (self.path(data), self.etcds.urls.join(","));
        let mut command = Command::new(JOSTLED);
        command.args(["--ha-name", group, "--ha-etcd", &urls, "--data", &data]);
        command.args(more);
        command
    }

    /// Makes a group; whether that was possible, and the log.
    fn init(&self, group: &str, data: &str) -> (bool, String) {
        let done = self.command(group, data, &["--ha-init"]).output().unwrap();
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.success(), log)
    }

    /// A member that waits for its turn.
    fn member(&self, data: &str, more: &[&str]) -> Daemon {
        // It listens later, so that the port has to be known.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        drop(taken);
        let listen = format!("127.0.0.1:{port}");
        let mut command = self.command("g", data, more);
        let mut daemon = Daemon::launched(command.args(["--listen", &listen]));
        daemon.await_log("standby of the group");
        daemon.port = port;
        daemon
    }

    /// Stops members of etcd, or lets them go on.
    fn signal(&self, signal: &str, members: std::ops::Range<usize>) {
        for member in &self.etcds.members[members] {
            output(Command::new("kill").args([signal, &member.id().to_string()]));
        }
    }
}

fn status(client: &mut Client<TcpStream>, name: &str) -> String {
    let Value::Array(fields) = client.ask("HA STATUS") else {
        panic!("no status");
    };
    let texts: Vec<&str> = fields.iter().filter_map(Value::as_text).collect();
    let at = texts.iter().position(|text| *text == name).unwrap();
    texts[at + 1].to_owned()
}

#[test]
fn what_is_held_stays_held_however_the_primary_ends_and_tokens_grow() {
    let ground = Ground::new();
    let mut primary = ground.member("0", &[]);
    eventually("it serves", || serves(&primary));
    let mut last = 0;
    for (round, end) in ["-KILL", "-TERM", "failover", "-STOP"]
        .into_iter()
        .enumerate()
    {
        let mut client = primary.client();
        let lease = client.token("LOCK lease TTL 600000");
        let session = client.say("SESSION OPEN TTL 600000");
        let kept = client.token(&format!("LOCK kept SESSION {session}"));
        let own = client.token("LOCK own");
        client.ask("LOCKALL 2 one two TTL 600000");
        let gone = client.token("LOCK gone TTL 600000");
        assert_eq!(client.say(&format!("UNLOCK gone {gone}")), "1");
        assert!(lease > last, "{end}");
        // Two members wait; one of them takes over.
        let [data, other] = [1, 2].map(|nth| format!("{round}-{nth}"));
        let (one, two) = (ground.member(&data, &[]), ground.member(&other, &[]));
        if end == "failover" {
            eventually("a standby is known", || client.say("HA FAILOVER") == "OK");
        } else {
            primary.signal(end);
        }
        let (next, idle) = first_ready(one, two);
        let mut client = next.client();
        // What was ended is free, and the rest is not.
        last = client.token("LOCK gone TTL 600000");
        assert!(last > own && last > lease && last > kept, "{end}");
        for name in ["lease", "kept", "own", "one", "two"] {
            assert_eq!(
                client.say(&format!("TRYLOCK {name}")),
                "nil",
                "{end} {name}"
            );
        }
        assert_eq!(client.say(&format!("RENEW lease {lease} TTL 600000")), "1");
        assert_eq!(client.say(&format!("SESSION RENEW {session}")), "1");
        // A client of ours takes its connection's hold up again within the orphan time.
        assert_eq!(client.say(&format!("RENEW own {own} TTL 600000")), "1");
        let epoch: usize = status(&mut client, "epoch").parse().unwrap();
        assert!(epoch >= round + 2, "{end}");
        for (name, token) in [
            ("lease", lease),
            ("kept", kept),
            ("own", own),
            ("gone", last),
        ] {
            assert_eq!(
                client.say(&format!("UNLOCK {name} {token}")),
                "1",
                "{end} {name}"
            );
        }
        for name in ["one", "two"] {
            assert_eq!(client.say(&format!("FORCEUNLOCK {name}")), "1");
        }
        drop(idle);
        if end == "-STOP" {
            // It wakes, finds that it was replaced, and ends before it answers anything.
            let mut late = Client::new(TcpStream::connect(("127.0.0.1", primary.port)).unwrap());
            late.send("LOCK free");
            primary.signal("-CONT");
            assert!(late.try_read().is_err());
        }
        let (code, log) = std::mem::replace(&mut primary, next).finish();
        match end {
            "-KILL" => assert_eq!(code, None),
            "-STOP" => {
                assert_eq!(code, Some(1));
                assert!(log.contains("another jostled has taken over"), "{log}");
            }
            _ => assert_eq!(code, Some(0), "{log}"),
        }
    }
}

/// Whether it takes clients.
fn serves(daemon: &Daemon) -> bool {
    TcpStream::connect(("127.0.0.1", daemon.port)).is_ok()
}

/// The one of these that serves, and the other one.
fn first_ready(one: Daemon, two: Daemon) -> (Daemon, Daemon) {
    eventually("one takes over", || serves(&one) || serves(&two));
    assert!(!(serves(&one) && serves(&two)));
    match serves(&one) {
        true => (one, two),
        false => (two, one),
    }
}

#[test]
fn a_short_loss_of_etcd_delays_replies_and_a_long_one_ends_the_primary() {
    let ground = Ground::new();
    let primary = ground.member("0", &[]);
    eventually("it serves", || serves(&primary));
    let mut client = primary.client();
    let token = client.token("LOCK job TTL 600000");
    // Without a majority nothing is told, not even what is read.
    ground.signal("-STOP", 1..3);
    let mut other = primary.client();
    client.send("LOCK second TTL 600000");
    other.send("PING");
    other.set_timeout(std::time::Duration::from_millis(300));
    assert!(other.try_read().is_err());
    other.set_timeout(std::time::Duration::from_secs(60));
    ground.signal("-CONT", 1..3);
    assert_eq!(client.read().as_integer().unwrap() as u64, token + 1);
    assert_eq!(other.read().as_text(), Some("PONG"));
    // Its locks go to a member that waits, once etcd is back.
    let standby = ground.member("1", &[]);
    ground.signal("-STOP", 0..3);
    client.send("LOCK third TTL 600000");
    assert!(client.try_read().is_err());
    let (code, log) = primary.finish();
    assert_eq!(code, Some(1));
    assert!(log.contains("etcd took no write for 10000 ms"), "{log}");
    assert!(!serves(&standby));
    ground.signal("-CONT", 0..3);
    eventually("it takes over", || serves(&standby));
    let mut client = standby.client();
    assert_eq!(client.say("TRYLOCK job"), "nil");
    assert_eq!(client.say("TRYLOCK second"), "nil");
    assert_eq!(client.say(&format!("RENEW job {token} TTL 600000")), "1");
}

#[test]
fn a_member_with_a_wrong_password_says_so_and_one_whose_login_died_goes_on() {
    let ground = Ground::new();
    let etcdctl = |words: &[&str]| {
        let mut command = tool("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(&ground.etcds.urls[0]);
        output(command.args(words))
    };
    for words in [
        &["user", "add", "root:top"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &[
            "role",
            "grant-permission",
            "--prefix",
            "locks",
            "readwrite",
            "/jostled/g/",
        ],
        &["user", "add", "jostled:secret"],
        &["user", "grant-role", "jostled", "locks"],
        &["auth", "enable"],
    ] {
        etcdctl(words);
    }
    let [right, wrong] = [("right", "secret"), ("wrong", "guess")].map(|(name, password)| {
        std::fs::write(ground.path(name), password).unwrap();
        ground.path(name)
    });
    let flags = |file| {
        [
            "--ha-compact",
            "no",
            "--ha-user",
            "jostled",
            "--ha-password-file",
            file,
        ]
    };
    let mut stranger = ground.member("0", &flags(&wrong));
    stranger.await_log("authentication failed");
    let primary = ground.member("1", &flags(&right));
    eventually("it serves", || serves(&primary));
    assert!(!serves(&stranger));
    // Logins die with the members of etcd. Should the primary give up meanwhile, the one that
    // waits needs a new login too.
    let second = ground.member("2", &flags(&right));
    let token = primary.client().token("LOCK job TTL 600000");
    let mut ground = ground;
    ground.etcds.restart();
    let renewed = |daemon: &Daemon| {
        let stream = TcpStream::connect(("127.0.0.1", daemon.port)).ok()?;
        let mut client = Client::new(stream);
        client.send(&format!("RENEW job {token} TTL 600000"));
        client.try_read().ok()?.as_integer()
    };
    eventually("etcd is back", || {
        renewed(&primary) == Some(1) || renewed(&second) == Some(1)
    });
}

#[test]
fn what_belongs_to_another_group_is_refused() {
    let ground = Ground::new();
    let (made, log) = ground.init("g", "second");
    assert!(!made && log.contains("the group g exists already"), "{log}");
    let primary = ground.member("0", &[]);
    eventually("it serves", || serves(&primary));
    let mut client = primary.client();
    client.token("LOCK job TTL 600000");
    assert_eq!(client.say("HA FAILOVER"), "ERR", "nobody else runs");
    assert_eq!(client.say("HANDOVER"), "ERR");
    // The data directory is in use, and its locks are in etcd.
    let refused = |flags: &[&str]| {
        let mut command = Command::new(JOSTLED);
        let done = command
            .args(["--listen", "127.0.0.1:0"])
            .args(flags)
            .output()
            .unwrap();
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let data = ground.path("0");
    assert!(refused(&["--data", &data]).contains("in use by another jostled"));
    let cluster = Path::new(&data).join("cluster");
    eventually("it is noted", || cluster.exists());
    primary.signal("-TERM");
    assert_eq!(primary.finish().0, Some(0));
    assert!(refused(&["--data", &data]).contains("belongs to a group of jostleds"));
    // An etcd that knows nothing of it, or has another cluster.
    let other = Ground::new();
    let own = ["--listen", "127.0.0.1:0"];
    let mut stranger = Command::new(JOSTLED);
    stranger.args(["--ha-name", "g", "--ha-etcd", &other.etcds.urls.join(",")]);
    let mut stranger = Daemon::launched(stranger.args(["--data", &data]).args(own));
    stranger.await_log("the data directory is that of");
    let mut early = Daemon::launched(&mut other.command("h", "3", &own));
    early.await_log("`jostled --ha-init` makes it, once");
}

#[test]
fn an_etcd_from_a_backup_is_taken_only_when_told_and_then_without_its_locks() {
    let mut ground = Ground::new();
    let [now, backup] = ["", "backup"].map(|place| ground.path(place));
    let copy = |from: &str, to: &str| {
        let each = format!("rm -rf {to}/$m && cp -a {from}/$m {to}");
        let all = format!("mkdir -p {to}; for m in m0 m1 m2; do {each} || exit; done");
        output(tool("sh").args(["-c", &all]));
    };
    let primary = ground.member("0", &[]);
    eventually("it serves", || serves(&primary));
    let kept = primary.client().token("LOCK kept TTL 600000");
    ground.etcds.end();
    copy(&now, &backup);
    ground.etcds.restart();
    let mut last = 0;
    eventually("etcd is back", || {
        let stream = TcpStream::connect(("127.0.0.1", primary.port));
        let mut client = Client::new(stream.unwrap());
        client.send("LOCK later TTL 600000");
        let token = client.try_read().ok().and_then(|value| value.as_integer());
        last = token.unwrap_or(0) as u64;
        last > kept
    });
    primary.signal("-TERM");
    assert_eq!(primary.finish().0, Some(0));
    // This one notes at once what etcd has now.
    let second = ground.member("1", &[]);
    let noted = Path::new(&ground.path("1")).join("cluster");
    eventually("it is noted", || noted.exists());
    drop(second);
    ground.etcds.end();
    copy(&backup, &now);
    ground.etcds.restart();
    let mut second = ground.member("1", &[]);
    second.await_log("--restored accepts it");
    assert!(!serves(&second));
    drop(second);
    let second = ground.member("1", &["--restored", "--max-ttl", "1"]);
    eventually("it serves", || serves(&second));
    let mut client = second.client();
    for (name, old) in [("kept", kept), ("later", last)] {
        let token = client.token(&format!("LOCK {name} TTL 1000"));
        assert!(token > last + (1 << 40), "{name}: {token}");
        let lost = client.say(&format!("RENEW {name} {old} TTL 1000"));
        assert_eq!(lost, "NOTOWNER", "{name}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn an_etcd_that_wants_certificates_is_reached_with_them() {
    use crate::common::{ELLIPTIC, certificate};
    let directory = tempfile::tempdir().unwrap();
    // Whoever trusts the file trusts this server, and no authority.
    let kind = [ELLIPTIC, &["-addext", "basicConstraints=critical,CA:FALSE"]].concat();
    let [cert, key] = certificate(directory.path(), &kind);
    let options = [
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={cert}"),
        format!("--cert-file={cert}"),
        format!("--key-file={key}"),
    ];
    let etcds = Etcds::launch_with(directory.path(), "https", &options);
    let ground = Ground { etcds, directory };
    let other = tempfile::tempdir().unwrap();
    let [stranger, _] = certificate(other.path(), &kind);
    let shown = ["--ha-cert", &cert, "--ha-key", &key];
    let words = |ca| [&["--ha-ca", ca][..], &shown].concat();
    let init = |data: &str, more: &[&str]| {
        let mut command = ground.command("g", data, more);
        command
            .arg("--ha-init")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let said = |init: Child| {
        let log = init.wait_with_output().unwrap().stderr;
        String::from_utf8_lossy(&log).into_owned()
    };
    eventually("a leader", || {
        said(init("first", &words(&cert))).contains("is made")
    });
    let refused = [
        init("stranger", &words(&stranger)),
        init("no-key", &["--ha-ca", &cert]),
        init("nothing", &[]),
    ];
    let reasons = ["peer certificate", "client certificate", "needs --ha-ca"];
    for (log, because) in refused.map(said).iter().zip(reasons) {
        assert!(log.contains(because), "{log}");
    }
    let primary = ground.member("0", &words(&cert));
    eventually("it serves", || serves(&primary));
    assert!(primary.client().token("LOCK job TTL 600000") > 0);
}
