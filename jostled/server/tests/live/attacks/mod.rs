//! Attempts of a client without rights, and what holds for the others meanwhile.

mod figures;
mod rows;

use std::io::Write;
use std::net::TcpStream;

use jostle_resp::Value;
use jostle_resp::request::encode;

use crate::common::{Client, Daemon, at_once, eventually, figure, short};
use rows::{ATTACKS, Attack, ELSEWHERE};

type Tcp = Client<TcpStream>;

const USERS: &str = "user boss on >b ~* +@admin\nuser app on >a ~app:* +@lock\n\
                     user low on >l ~low:* +@lock max-ttl=600\n";

/// The most commands before one of another user that came at the same time: a turn, the
/// last client of which may have sent 64 KB of the shortest commands.
const TURN: u64 = 4096 + (64 << 10) / 6;
/// Likewise commands whose replies may be long.
const LONG: u64 = 16;

fn daemon(max_connections: &str) -> (Daemon, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, USERS).unwrap();
    let users = users.to_str().unwrap();
    let flags = ["--users-file", users, "--max-connections", max_connections];
    let bounds = ["--max-sessions", "100", "--max-waiters", "100"];
    (Daemon::start(&[flags, bounds].concat()), directory)
}

fn log_in(daemon: &Daemon, user: &str) -> Tcp {
    let mut client = daemon.client();
    assert_eq!(client.say(&format!("AUTH {user}")), "OK", "{user}");
    client
}

impl Attack {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in self.sends {
            match line.ends_with("\r\n") {
                true => bytes.extend_from_slice(line.as_bytes()),
                false => encode(
                    &mut bytes,
                    &line.split(' ').map(str::as_bytes).collect::<Vec<_>>(),
                ),
            }
        }
        bytes.repeat(self.times)
    }

    /// Attacks, and checks what each attack leaves to others.
    fn play(&self, daemon: &Daemon, app: &mut Tcp, boss: &mut Tcp) {
        let before = boss.ask("INFO");
        let mut clients: Vec<Tcp> = (0..self.connections)
            .map(|_| match self.user {
                "" => daemon.client(),
                user => log_in(daemon, user),
            })
            .collect();
        let token = app.token("LOCK app:lease TTL 600000");
        let bytes = self.bytes();
        at_once(daemon, || {
            for client in &mut clients {
                // Those that have made room for newcomers are closed.
                let _ = client.stream.write_all(&bytes);
            }
            app.send(&format!("RENEW app:lease {token} TTL 600000"));
            app.send("TRYLOCK app:free");
            boss.send("INFO");
        });
        assert_eq!(short(&app.read()), "1");
        assert!(app.read().as_integer().is_some());
        assert_eq!(app.say("UNLOCK app:free"), "1");
        let info = boss.read();
        let more = |name: &str| figure(&info, name) - figure(&before, name);
        assert!(more("total_commands_processed") <= TURN);
        let long = [
            "info", "command", "config", "client", "acl", "holder", "place",
        ];
        let long: u64 = long.iter().map(|name| more(&format!("cmd_{name}"))).sum();
        // Refused ones count, too, and take no time.
        assert!(
            long <= LONG || self.sends[0] == "MULTI" || self.reply == "NOPERM",
            "{long}"
        );
        if !self.reply.is_empty() {
            let replies = self.sends.len() * self.times;
            let last = (0..replies)
                .map_while(|_| clients[0].try_read().ok())
                .last();
            assert!(
                fits(&last.expect("a reply"), self.reply),
                "{:?}",
                self.sends
            );
        }
        if !self.counted.is_empty() {
            let was = figure(&before, self.counted);
            eventually(self.counted, || boss.info(self.counted) > was);
        }
        let mut newcomers = Vec::new();
        for (who, asks, told) in self.then {
            let client = match *who {
                "app" => &mut *app,
                "boss" => &mut *boss,
                _ => {
                    newcomers.push(daemon.client());
                    newcomers.last_mut().unwrap()
                }
            };
            let reply = client.ask(asks);
            assert!(fits(&reply, told), "{asks}: {reply:?}");
        }
        log_in(daemon, "boss b");
        assert_eq!(app.say(&format!("UNLOCK app:lease {token}")), "1");
        drop((clients, newcomers));
        daemon.await_info_as(boss, "connected_clients", 2);
    }
}

fn fits(reply: &Value, expected: &str) -> bool {
    match expected {
        "?" => !matches!(reply, Value::Error(_)),
        expected => short(reply) == expected,
    }
}

/// With 400 connections that asked for INFO in transactions, another one's TRYLOCK took
/// 5.3 s.
#[test]
fn no_attack_keeps_others_from_their_locks() {
    let (daemon, _directory) = daemon("200");
    let (mut app, mut boss) = (log_in(&daemon, "app a"), log_in(&daemon, "boss b"));
    app.token("LOCK app:held");
    for attack in ATTACKS {
        attack.play(&daemon, &mut app, &mut boss);
    }
    assert_eq!(app.say("UNLOCK app:held"), "1");
}

#[test]
fn each_command_and_each_unasked_end_has_an_attack() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let Value::Array(commands) = client.ask("COMMAND LIST") else {
        panic!("no commands");
    };
    let sent = ATTACKS.iter().flat_map(|attack| attack.sends);
    let sent: Vec<String> = sent
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_lowercase)
        .collect();
    for command in commands.iter().map(short) {
        assert!(sent.contains(&command), "no attack sends {command}");
    }
    let info = client.ask("INFO");
    for line in info.as_text().unwrap().lines() {
        let name = line.split(':').next().unwrap();
        if name.starts_with("closed_") || name.starts_with("rejected_") {
            let mut counted = ATTACKS.iter().map(|attack| attack.counted);
            let known = ELSEWHERE.contains(&name) || counted.any(|other| other == name);
            assert!(known, "no attack is counted as {name}");
        }
    }
}

/// 8 guessers kept the right password out for 20 s, and 10,658 passwords a second were tried.
#[test]
fn a_right_password_is_checked_soon_behind_many_guesses_that_are_not() {
    let (daemon, _directory) = daemon("200");
    let mut guessers: Vec<Tcp> = (0..150).map(|_| daemon.client()).collect();
    let mut right = daemon.client();
    at_once(&daemon, || {
        guessers
            .iter_mut()
            .for_each(|client| client.send("AUTH app wrong"));
        right.send("AUTH boss b");
        right.send("INFO");
    });
    assert_eq!(short(&right.read()), "OK");
    let info = right.read();
    let failures = figure(&info, "auth_failures");
    // As many as go at once, again if the daemon stood still, and two turns.
    assert!((10..=22).contains(&failures), "{failures}");
    assert!(figure(&info, "auth_waiting") >= 100);
    // The others have their turns, and replies, too.
    assert_eq!(short(&guessers[149].read()), "WRONGPASS");
}
