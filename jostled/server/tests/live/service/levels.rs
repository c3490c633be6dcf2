//! The lines in the log at each level, as text and as JSON.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::JOSTLED;
use crate::common::{Client, Manager};

/// Levels, from the one that lets least pass.
const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// The lines that a daemon logs in the course of [`tell`]: the level, and a part of the line.
const STORY: [(&str, &str); 12] = [
    ("info", "listening on "),
    ("warn", "no data directory: "),
    ("info", "ready"),
    ("debug", " from unix"),
    ("audit", "forceunlock"),
    ("debug", " is gone"),
    ("info", "settings read again: "),
    ("error", "settings not taken over, "),
    ("debug", " from unix"),
    ("audit", "shutdown"),
    ("debug", " is gone"),
    ("info", "ended"),
];

/// A daemon on a Unix socket, and the manager that is told its state: the log does not
/// report at every level that the daemon is ready.
struct Service {
    directory: tempfile::TempDir,
    manager: Manager,
    child: Child,
}

impl Service {
    /// Starts it with a settings file and these flags, and waits until it is ready.
    fn start(settings: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let manager = Manager::at(&path("notify"));
        std::fs::write(path("settings"), settings).unwrap();
        let child = Command::new(JOSTLED)
            .args(["--data", "none", "--listen", "none"])
            // Otherwise a low limit of open files would log a warning.
            .args(["--max-connections", "10"])
            .args([Path::new("--unix"), &path("socket")])
            .args([Path::new("--config"), &path("settings")])
            .args(flags)
            .env("NOTIFY_SOCKET", path("notify"))
            .env_remove("JOSTLED_PASSWORD")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let service = Self {
            directory,
            manager,
            child,
        };
        service.await_readiness();
        service
    }

    fn await_readiness(&self) {
        while self.manager.hear() != "READY=1" {}
    }

    /// Lets it read other settings.
    fn reload(&self, settings: &str) {
        std::fs::write(self.directory.path().join("settings"), settings).unwrap();
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &pid]).status();
        assert!(sent.unwrap().success());
        self.await_readiness();
    }

    fn client(&self) -> Client<UnixStream> {
        Client::new(UnixStream::connect(self.directory.path().join("socket")).unwrap())
    }

    /// Ends it; the lines of its log.
    fn end(self) -> Vec<String> {
        let mut client = self.client();
        client.send("SHUTDOWN");
        while client.try_read().is_ok() {}
        let output = self.child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let log = String::from_utf8(output.stderr).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

/// Makes a daemon log everything in [`STORY`]; returns its log.
fn tell(settings: &str, flags: &[&str]) -> Vec<String> {
    let service = Service::start(settings, flags);
    let mut client = service.client();
    client.token("LOCK a\nb");
    assert_eq!(client.say("FORCEUNLOCK a\nb"), "1");
    client.send("QUIT");
    while client.try_read().is_ok() {}
    service.reload(settings);
    service.reload("max-name = 0");
    service.end()
}

/// The part of the story that a level lets pass.
fn story_at(level: &str) -> Vec<(&'static str, &'static str)> {
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
    let passes = |of: &str| of == "audit" || rank(of) <= rank(level);
    let lines = STORY.into_iter().filter(|(of, _)| passes(of));
    lines.collect()
}

/// A line of text, by its level and the rest.
fn of_text(line: &str) -> (&str, &str) {
    let line = line.strip_prefix("jostled: ").unwrap();
    let starts = [
        ("error: ", "error"),
        ("warning: ", "warn"),
        ("debug: ", "debug"),
        ("audit: ", "audit"),
    ];
    let found = starts
        .iter()
        .find_map(|(start, level)| Some((*level, line.strip_prefix(start)?)));
    found.unwrap_or(("info", line))
}

#[test]
fn a_level_lets_pass_its_own_lines_and_graver_ones_and_no_others() {
    let cases = LEVELS.map(|level| (level, format!("log-level = '{level}'")));
    let default = ("info", String::new());
    for (level, settings) in cases.into_iter().chain([default]) {
        let log = tell(&settings, &[]);
        let found: Vec<_> = log.iter().map(|line| of_text(line)).collect();
        let expected = story_at(level);
        assert_eq!(found.len(), expected.len(), "{level}: {log:#?}");
        for ((found, text), (level, part)) in found.into_iter().zip(expected) {
            assert_eq!(found, level, "{log:#?}");
            assert!(text.contains(part), "{part}: {log:#?}");
        }
    }
}

#[test]
fn json_is_an_object_a_line_with_the_documented_fields() {
    let seconds = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_secs_f64()
    };
    for level in LEVELS {
        let start = seconds();
        let log = tell("", &["--log-level", level, "--log-format", "json"]);
        let times = start - 0.001..=seconds();
        let expected = story_at(level);
        assert_eq!(log.len(), expected.len(), "{level}: {log:#?}");
        for (line, (level, part)) in log.iter().zip(expected) {
            let Ok(Value::Object(object)) = serde_json::from_str(line) else {
                panic!("no object: {line}")
            };
            assert_eq!(object["level"], level, "{line}");
            let message = object["message"].as_str().unwrap();
            assert!(message.contains(part), "{part}: {line}");
            // The level has a field of its own.
            assert_eq!(of_text(&format!("jostled: {message}")).0, "info", "{line}");
            let time = object["time"].as_f64().unwrap();
            assert!(times.contains(&time), "{times:?}: {line}");
            let mut fields: Vec<_> = object.keys().map(String::as_str).collect();
            fields.sort_unstable();
            let expected: &[&str] = match part {
                "forceunlock" => &[
                    "address", "client", "holders", "level", "lock", "message", "time", "user",
                ],
                "shutdown" => &["address", "client", "level", "message", "time", "user"],
                _ => &["level", "message", "time"],
            };
            assert_eq!(fields, expected, "{line}");
            if part == "forceunlock" {
                assert_eq!(object["lock"], "a\nb", "{line}");
                assert_eq!(object["address"], "unix", "{line}");
            }
        }
    }
}

#[test]
fn sighup_changes_the_level_and_the_format() {
    let service = Service::start("log-level = 'error'", &[]);
    service.reload("log-level = 'debug'\nlog-format = 'json'");
    // These settings are refused, and those before them stay.
    service.reload("log-level = 'loud'\nlog-format = 'text'");
    let log = service.end();
    let of_json = |line: &String| {
        let object: Value = serde_json::from_str(line).unwrap();
        object["level"].as_str().unwrap().to_owned()
    };
    let levels: Vec<_> = log.iter().map(of_json).collect();
    let expected = ["info", "error", "debug", "audit", "debug", "info"];
    assert_eq!(levels, expected, "{log:#?}");
}

/// Starts a daemon that must fail to start, at the level that lets least pass; returns its log.
fn refusal(flags: &[&str], code: i32) -> String {
    let output = Command::new(JOSTLED)
        .args(["--data", "none", "--log-level", "error"])
        .args(flags)
        .env_remove("JOSTLED_PASSWORD")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{flags:?}: {log}");
    assert_eq!(log.lines().count(), 1, "{flags:?}: {log}");
    log
}

#[test]
fn why_it_does_not_start_stands_in_the_log_in_its_format() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("settings");
    // The format, too, may stand in the file.
    std::fs::write(&wrong, "log-format = 'json'\nmax-name = 0").unwrap();
    let wrong = wrong.to_str().unwrap();
    for (flags, code, part) in [
        (["--listen", &taken], 1, "cannot listen on "),
        (["--listen", "nonsense"], 2, "`nonsense` is not an address"),
        (["--listen", "none"], 2, "nothing to listen on"),
        (["--config", "/nowhere"], 2, "/nowhere: No such file"),
        (["--config", wrong], 2, "--max-name 0"),
    ] {
        let text = refusal(&[&flags[..], &["--log-format", "text"]].concat(), code);
        let (level, line) = of_text(&text);
        assert!(level == "error" && line.contains(part), "{text}");
        let flags = match flags[1] == wrong {
            true => flags.to_vec(),
            false => [&flags[..], &["--log-format", "json"]].concat(),
        };
        let json = refusal(&flags, code);
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["level"], "error", "{json}");
        assert!(object["message"].as_str().unwrap().contains(part), "{json}");
    }
}

/// More often than the sockets by which the reading thread rings have room for.
#[test]
fn settings_are_read_again_as_often_as_that_is_asked_for() {
    let service = Service::start("", &["--log-level", "error"]);
    for _ in 0..300 {
        service.reload("");
    }
    let log = service.end();
    assert!(log.len() == 1 && log[0].contains("shutdown"), "{log:?}");
}
