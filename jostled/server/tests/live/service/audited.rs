//! The lines of `--audit`.

use crate::common::{Client, Daemon};

type Tcp = Client<std::net::TcpStream>;

fn login(daemon: &Daemon, words: &str) -> Tcp {
    let mut client = daemon.client();
    assert_eq!(client.say(&format!("AUTH {words}")), "OK");
    client
}

/// The life of locks in one life of a daemon, told with an administrator's help.
fn tell(daemon: &Daemon, users: &std::path::Path) {
    let mut boss = login(daemon, "boss b");
    let mut app = login(daemon, "app a");
    let mut other = login(daemon, "app a");
    // Handed on, and released over another connection.
    app.token("LOCK a");
    other.send("LOCK a TTL 600000");
    daemon.await_info_as(&mut boss, "waiters", 1);
    assert_eq!(app.say("UNLOCK a"), "1");
    assert_eq!(other.read().as_integer(), Some(2));
    assert_eq!(app.say("UNLOCK a 2"), "1");
    app.token("LOCK b OF 2");
    assert_eq!(boss.say("FORCEUNLOCK b"), "1");
    app.token("LOCK l\n\"é TTL 1");
    daemon.await_info_as(&mut boss, "holds", 0);
    let session = app.say("SESSION OPEN TTL 600000");
    app.token(&format!("LOCK s SESSION {session}"));
    assert_eq!(app.say(&format!("SESSION CLOSE {session}")), "1");
    // A lease outlives its connection, and is still its user's.
    other.token("LOCK g TTL 600000");
    drop(other);
    daemon.await_info_as(&mut boss, "connected_clients", 2);
    assert_eq!(boss.say("FORCEUNLOCK g"), "1");
    // The next program goes on with the same settings.
    assert_eq!(boss.say("HANDOVER"), "OK");
    app.token("LOCK d");
    drop(app);
    daemon.await_info_as(&mut boss, "holds", 0);
    let changed = "user boss on >b ~* +@admin max-connections=1\nuser app on >c ~d:* +@lock\n\
                   user new off\n";
    std::fs::write(users, changed).unwrap();
    assert_eq!(boss.say("ACL LOAD"), "OK");
    assert_eq!(daemon.client().say("AUTH boss b"), "QUOTA");
    assert_eq!(boss.say("SHUTDOWN"), "OK");
}

const TOLD: &str = r##"
login user="boss" client="1" address by="password"
login user="app" client="2" address by="password"
login user="app" client="3" address by="password"
granted user="app" client="2" address lock="a" token="1" mode="exclusive"
ended user="app" client="2" address lock="a" token="1" cause="unlock"
granted user="app" client="3" address lock="a" token="2" mode="exclusive" ttl_ms="600000"
ended user="app" client="3" address lock="a" token="2" cause="unlock" by="2"
granted user="app" client="2" address lock="b" token="3" mode="place" of="2"
ended user="app" client="2" address lock="b" token="3" cause="forceunlock"
granted user="app" client="2" address lock="l\n\"\xc3\xa9" token="4" mode="exclusive" ttl_ms="1"
ended user="app" client="2" address lock="l\n\"\xc3\xa9" token="4" cause="expired"
granted user="app" client="4" lock="s" token="5" mode="exclusive"
ended user="app" client="4" lock="s" token="5" cause="session ended"
granted user="app" client="3" address lock="g" token="6" mode="exclusive" ttl_ms="600000"
ended user="app" client="3" lock="g" token="6" cause="forceunlock"
granted user="app" client="2" address lock="d" token="7" mode="exclusive"
ended user="app" client="2" address lock="d" token="7" cause="disconnected"
user changed user="boss" client="1" address changed="boss" without="" with="max-connections=1"
user changed user="boss" client="1" address changed="app" without="#password ~*" with="#password ~d:*"
user added user="boss" client="1" address changed="new" without="" with="off -@lock -@admin"
user removed user="boss" client="1" address changed="old" without="off -@lock -@admin" with=""
"##;

#[test]
fn the_audit_has_each_grant_and_end_each_login_and_changed_rules() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    let text = "user boss on >b ~* +@admin\nuser app on >a ~* +@lock\nuser old off\n";
    std::fs::write(&users, text).unwrap();
    let file = users.to_str().unwrap();
    let daemon = Daemon::start(&["--users-file", file, "--audit", "locks,logins,acl"]);
    tell(&daemon, &users);
    let (code, log) = daemon.finish();
    assert_eq!(code, Some(0));
    // The addresses have ports that the system chose.
    let plain = |line: &str| {
        let words = line.split(' ').map(|word| match word.split_once('=') {
            Some(("address", address)) if address.starts_with("\"127.0.0.1:") => "address",
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ")
    };
    // Lines that are always there have another queue.
    let always = [
        "forceunlock ",
        "shutdown ",
        "authentication failed ",
        "handover ",
    ];
    let lines = log
        .lines()
        .filter_map(|line| line.strip_prefix("jostled: audit: "));
    let (others, told): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| always.iter().any(|start| line.starts_with(start)));
    let told: Vec<String> = told.into_iter().map(plain).collect();
    assert_eq!(told, TOLD.trim().lines().collect::<Vec<_>>());
    let refused = r#" as="boss" why="max-connections""#;
    assert!(others.iter().any(|line| line.ends_with(refused)), "{log}");
}
