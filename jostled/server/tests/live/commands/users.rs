//! Users: their rights, their quotas, and what changes when they are read again.

use std::path::{Path, PathBuf};

use jostle_resp::Value;

use super::admin::walk;
use crate::common::{Client, Daemon, eventually, short};

type Tcp = Client<std::net::TcpStream>;

/// A daemon with a users file that can be written again.
struct House {
    daemon: Daemon,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl House {
    fn new(users: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("users");
        std::fs::write(&file, users).unwrap();
        let mut all = vec!["--users-file", file.to_str().unwrap()];
        all.extend(flags);
        let daemon = Daemon::start(&all);
        Self {
            daemon,
            file,
            _directory: directory,
        }
    }

    fn login(&self, user: &str, password: &str) -> Tcp {
        // Again where the machine stood still until the daemon closed a silent client.
        for _ in 0..100 {
            let mut client = self.daemon.client();
            client.send(&format!("AUTH {user} {password}"));
            if let Ok(reply) = client.try_read() {
                assert_eq!(short(&reply), "OK", "{user}");
                return client;
            }
        }
        panic!("{user} is not answered");
    }

    /// In one step: a reload that was asked for before may be reading.
    fn write(&self, users: &str) {
        let draft = self.file.with_extension("new");
        std::fs::write(&draft, users).unwrap();
        std::fs::rename(&draft, &self.file).unwrap();
    }
}

#[track_caller]
fn rows(client: &mut Tcp, rows: &[(&str, &str)]) {
    for (line, expected) in rows {
        assert_eq!(client.say(line), *expected, "{line}");
    }
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        other => panic!("{other:?}"),
    }
}

const USERS: &str = "user app on >one >two ~job:* +@lock\n\
                     user watch on >w ~job:* +@admin\n\
                     user root on >r ~* +@all\n\
                     user away off >a ~* +@all\n";

#[test]
fn users_do_what_their_classes_and_patterns_allow() {
    let house = House::new(USERS, &[]);
    let mut stranger = house.daemon.client();
    rows(
        &mut stranger,
        &[("LOCK job:1", "NOAUTH"), ("ACL WHOAMI", "NOAUTH")],
    );
    let mut app = house.login("app", "one");
    house.login("app", "two");
    let mut root = house.login("root", "r");
    rows(
        &mut app,
        &[
            ("ACL WHOAMI", "app"),
            ("PING", "PONG"),
            ("CLIENT SETNAME x", "OK"),
            ("LOCK job:1", "1"),
            ("LOCK other", "NOPERM"),
            ("UNLOCK other", "NOPERM"),
            ("LOCKALL 2 job:2 job:3", "Array([Integer(2), Integer(3)])"),
            ("LOCKALL 2 job:4 other", "NOPERM"),
            ("LOCKALL many", "ERR"),
            ("LOCKALL many x", "ERR"),
            ("HOLDERS", "NOPERM"),
            ("WAITERS job:1", "NOPERM"),
            ("FORCEUNLOCK job:1", "NOPERM"),
            ("CLIENT LIST", "NOPERM"),
            ("CLIENT KILL 1", "NOPERM"),
            ("ACL LIST", "NOPERM"),
            ("ACL LOAD", "NOPERM"),
            ("NONSENSE", "ERR"),
        ],
    );
    root.token("LOCK secret");
    let mut watch = house.login("watch", "w");
    rows(
        &mut watch,
        &[
            ("LOCK job:9", "NOPERM"),
            ("WAITERS secret", "NOPERM"),
            ("FORCEUNLOCK secret", "NOPERM"),
            ("FORCEUNLOCK job:3", "1"),
            ("WAITERS job:1", "Array([])"),
        ],
    );
    // Lists hold what the user may see.
    assert_eq!(array(watch.ask("HOLDERS")).len(), 2);
    assert_eq!(array(root.ask("HOLDERS")).len(), 3);
    let page = array(watch.ask("HOLDERS CURSOR 0 COUNT 10"));
    assert_eq!(array(page[1].clone()).len(), 2);
    let list = array(root.ask("ACL LIST"));
    assert_eq!(list.len(), 5);
    assert!(short(&list[0]).starts_with("user default off"));
    assert!(!format!("{list:?}").contains("one"), "{list:?}");
    let mut away = house.daemon.client();
    assert_eq!(away.say("AUTH away a"), "WRONGPASS");
}

#[test]
fn rights_are_checked_when_queued_and_again_when_executed() {
    let house = House::new(USERS, &[]);
    let mut app = house.login("app", "one");
    let mut root = house.login("root", "r");
    rows(
        &mut app,
        &[
            ("MULTI", "OK"),
            ("LOCK other", "NOPERM"),
            ("EXEC", "EXECABORT"),
            ("MULTI", "OK"),
            ("LOCK job:1", "QUEUED"),
            ("PING", "QUEUED"),
        ],
    );
    house.write(&USERS.replace("~job:* +@lock", "~task:* +@lock"));
    rows(&mut root, &[("ACL LOAD", "OK")]);
    let replies = array(app.ask("EXEC"));
    let replies: Vec<String> = replies.iter().map(short).collect();
    assert_eq!(replies, ["NOPERM", "PONG"]);
    assert_eq!(app.say("LOCK task:1"), "1");
}

#[test]
fn users_are_read_again_whole_or_not_at_all_and_those_who_are_gone_keep_their_locks() {
    let house = House::new(USERS, &["--request-timeout", "1"]);
    let mut app = house.login("app", "one");
    let mut root = house.login("root", "r");
    app.token("LOCK job:1");
    app.token("LOCK job:2 TTL 600000");
    let session = app.say("SESSION OPEN TTL 600000");
    // A file that cannot be read changes nothing.
    for bad in ["user app on >other\nnonsense", "user app on\nuser app on"] {
        house.write(bad);
        assert_eq!(root.say("ACL LOAD"), "ERR");
        house.daemon.signal("-HUP");
        assert_eq!(app.say("PING"), "PONG");
        house.login("app", "two");
    }
    // The user of a waiting command is gone; what stands behind it is refused.
    root.token("LOCK job:3");
    app.send("LOCK job:3");
    app.send("UNLOCK job:3");
    eventually("it waits", || root.info("waiters") == 1);
    house.write("user root on >r ~* +@all\n");
    house.daemon.signal("-HUP");
    eventually("it was read", || array(root.ask("ACL LIST")).len() == 2);
    root.say("UNLOCK job:3");
    assert_eq!(short(&app.read()), "4");
    assert_eq!(short(&app.read()), "NOPERM");
    rows(
        &mut app,
        &[
            ("LOCK job:4", "NOPERM"),
            ("PING", "NOPERM"),
            ("AUTH app one", "WRONGPASS"),
        ],
    );
    // The late client is closed because it does not log in. The other one has logged
    // in, and stays.
    let mut late = house.daemon.client();
    late.set_timeout(std::time::Duration::from_secs(120));
    assert!(late.try_read().is_err(), "closed for want of a password");
    assert_eq!(app.say("PING"), "NOPERM");
    assert_eq!(root.info("holds"), 3);
    // Sessions are for the user that opened them.
    let renew = format!("SESSION RENEW {session}");
    assert_eq!(root.say(&renew), "NOSESSION");
    // Nor does it learn what the session holds.
    for command in ["LOCK", "TRYLOCK"] {
        let ask = format!("{command} job:1 SESSION {session}");
        assert_eq!(root.say(&ask), "NOSESSION");
    }
    house.write(USERS);
    assert_eq!(root.say("ACL LOAD"), "OK");
    assert_eq!(app.say("UNLOCK job:1"), "1");
    assert_eq!(app.say(&renew), "1");
    assert_eq!(house.login("app", "two").say(&renew), "1");
}

#[test]
fn a_user_has_as_much_as_its_quota_and_others_are_not_touched() {
    let users = "user app on >a ~* +@lock max-locks=3 max-waiters=1 max-connections=2\n\
                 user other on >o ~* +@all\n";
    let house = House::new(users, &[]);
    let (mut first, mut second) = (house.login("app", "a"), house.login("app", "a"));
    let mut third = house.daemon.client();
    assert_eq!(third.say("AUTH app a"), "QUOTA");
    assert_eq!(third.say("PING"), "NOAUTH");
    let mut other = house.login("other", "o");
    other.token("LOCK busy");
    first.token("LOCK a TTL 600000");
    first.token("LOCK b");
    second.send("LOCK busy");
    house.daemon.await_info_as(&mut other, "waiters", 1);
    for line in ["LOCK c", "TRYLOCK c", "LOCKALL 1 c"] {
        assert_eq!(first.say(line), "QUOTA", "{line}");
    }
    assert_eq!(first.say("UNLOCK b"), "1");
    assert_eq!(first.say("LOCK busy"), "QUOTA", "one waits already");
    assert_eq!(first.say("LOCK c"), "4");
    // A lease of a connection that is gone counts, until it ends.
    drop(first);
    let mut first = house.daemon.client();
    eventually("it is gone", || first.say("AUTH app a") == "OK");
    assert_eq!(first.say("LOCK d"), "5");
    assert_eq!(first.say("LOCK e"), "QUOTA");
    assert_eq!(first.say("UNLOCK a 2"), "1");
    assert_eq!(first.say("LOCK e"), "6");
    // So do the locks of sessions.
    first.say("UNLOCK e");
    let session = first.say("SESSION OPEN TTL 600000");
    first.token(&format!("LOCK f SESSION {session}"));
    assert_eq!(first.say("LOCK e"), "QUOTA");
    assert_eq!(other.say("LOCK e"), "8");
    // A new bound holds from then on.
    house.write(&users.replace("max-locks=3", "max-locks=4"));
    assert_eq!(other.say("ACL LOAD"), "OK");
    assert_eq!(first.say("LOCK g"), "9");
    assert_eq!(first.say("LOCK h"), "QUOTA");
}

#[test]
fn some_connections_are_for_administrators() {
    let flags = ["--max-connections", "4", "--reserve-connections", "2"];
    let house = House::new(
        "user app on >a ~* +@lock\nuser root on >r ~* +@all\n",
        &flags,
    );
    let _both = [house.login("app", "a"), house.login("app", "a")];
    let mut third = house.daemon.client();
    assert_eq!(short(&third.ask("PING")), "ERR");
    let refused = third.ask("AUTH app a");
    assert!(
        format!("{refused:?}").contains("max number of clients"),
        "{refused:?}"
    );
    assert!(third.try_read().is_err());
    let mut root = house.login("root", "r");
    assert_eq!(root.say("PING"), "PONG");
    let mut unknown = house.daemon.client();
    eventually("all places are taken", || {
        root.info("connected_clients") == 4
    });
    // Whoever has not logged in makes room.
    let _another = house.login("root", "r");
    assert!(unknown.try_read().is_err());
    let mut beyond = house.daemon.client();
    assert!(format!("{:?}", beyond.try_read()).contains("max number of clients"));
}

#[cfg(feature = "tls")]
#[test]
fn the_common_name_of_a_certificate_is_the_user() {
    use crate::common::{output, tool};
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // An authority, and what it signs; `other` is signed by nobody we know.
    let openssl = |line: &str| {
        let mut command = tool("openssl");
        output(command.args(line.split(' ')).current_dir(directory.path()));
    };
    std::fs::write(path("san"), "subjectAltName=IP:127.0.0.1").unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for (name, subject) in [("ca", "/CN=ca"), ("other", "/CN=app")] {
        openssl(&format!(
            "req -x509 {new} -days 2 -subj {subject} -keyout {name}.key -out {name}.pem"
        ));
    }
    for (name, subject) in [
        ("server", "/CN=localhost"),
        ("app", "/O=x/OU=y/CN=app"),
        ("nobody", "/CN=nobody"),
        ("noname", "/O=x"),
    ] {
        openssl(&format!(
            "req {new} -subj {subject} -keyout {name}.key -out {name}.csr"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile san -out {name}.pem"
        ));
    }
    let (cert, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let flags = [
        "--listen",
        "none",
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        &cert,
    ];
    let more = ["--tls-key", &key, "--tls-ca", &ca];
    std::fs::write(path("users"), USERS).unwrap();
    let users = path("users");
    let mut all = vec!["--data", "none", "--users-file", &users];
    all.extend(flags);
    all.extend(more);
    let daemon = Daemon::start_exactly(&all);
    let port = daemon.port.to_string();
    let ask = |shown: &[&str]| {
        let mut command = tool("redis-cli");
        command
            .args(["--tls", "--cacert", &ca, "-p", &port])
            .args(shown);
        let said = command.args(["ACL", "WHOAMI"]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text + &String::from_utf8_lossy(&said.stderr)
    };
    let shown = |name: &str| {
        let (cert, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
        ask(&["--cert", &cert, "--key", &key])
    };
    assert_eq!(shown("app"), "app\n");
    for unknown in [shown("nobody"), shown("noname"), ask(&[])] {
        assert!(unknown.starts_with("NOAUTH"), "{unknown}");
    }
    // One that our authority has not signed is not let in at all.
    let foreign = shown("other");
    assert!(
        !foreign.contains("app\n") && !foreign.contains("NOAUTH"),
        "{foreign}"
    );
    eventually("it is counted", || {
        let mut command = tool("redis-cli");
        command.args([
            "--tls", "--cacert", &ca, "-p", &port, "--user", "root", "--pass", "r",
        ]);
        let info = output(command.args(["--no-auth-warning", "INFO"]));
        !info.contains("closed_handshake:0")
    });
}

#[test]
fn the_users_file_that_settings_name_anew_is_the_one_that_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (first, second, config) = (file("first"), file("second"), file("config"));
    std::fs::write(&first, "user root on >r ~* +@all\n").unwrap();
    std::fs::write(&second, "user root on >s ~* +@all\n").unwrap();
    let name = |users: &Path| {
        std::fs::write(&config, format!("users-file = {users:?}\n")).unwrap();
    };
    name(&first);
    let daemon = Daemon::start(&["--config", config.to_str().unwrap()]);
    let mut root = daemon.client();
    assert_eq!(root.say("AUTH root r"), "OK");
    name(&second);
    daemon.signal("-HUP");
    eventually("the second file is in force", || {
        daemon.client().say("AUTH root s") == "OK"
    });
    assert_eq!(root.say("ACL LOAD"), "OK");
    assert_eq!(daemon.client().say("AUTH root s"), "OK");
    assert_eq!(root.say("PING"), "PONG");
}

/// The list of 60,000 users was longer than --max-output, and the administrator cut off.
#[test]
fn any_number_of_users_is_listed_in_pages() {
    let many = (0..60_000).map(|n| format!("user u{n} off\n"));
    let house = House::new(
        &("user boss on >b ~* +@admin\n".to_owned() + &many.collect::<String>()),
        &[],
    );
    let mut boss = house.login("boss", "b");
    let text = |value: &Value| value.as_text().unwrap().to_owned();
    let Value::Array(first) = boss.ask("ACL LIST") else {
        panic!("no list")
    };
    assert_eq!(first.len(), 1001);
    assert!(
        text(&first[1]).starts_with("user boss on #"),
        "{:?}",
        first[1]
    );
    assert_eq!(
        text(&first[1000]),
        "# 59002 more: walk with ACL LIST CURSOR 0"
    );
    let all = walk(&mut boss, "ACL LIST", " COUNT 1000");
    // And the default user.
    assert_eq!(all.len(), 60_002);
    assert_eq!(text(&all[60_001]), "user u59999 off -@lock -@admin");
    assert_eq!(walk(&mut boss, "ACL LIST", " MATCH u1?").len(), 10);
    for wrong in ["ACL LIST CURSOR x", "ACL LIST LIMIT 5", "ACL LOAD now"] {
        assert_eq!(boss.say(wrong), "ERR", "{wrong}");
    }
}
