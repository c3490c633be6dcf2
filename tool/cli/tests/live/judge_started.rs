//! `judge` where the server is started for the run: by the command itself, as in CI, or apart
//! (`--start-server`).

use crate::common::processes::Signal;
use crate::common::{Place, in_some_try, must_have};
use jostle_model::judged::{Side, StartedBy, Watched};
use jostle_model::record::Record;
use jostle_testbed::ports::free_port;
use std::net::TcpStream;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/trials/cases");

/// The runs of a result file.
fn runs(place: &Place) -> Vec<Watched> {
    let text = place.read("found.jsonl");
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let runs = records.filter_map(|record| match record {
        Record::Judged(watched) => Some(*watched),
        _ => None,
    });
    runs.collect()
}

/// A server that answers 5 ms later, and a script that starts it, loads it and ends it.
fn script(port: u16) -> [String; 2] {
    must_have("python3", "python3");
    let server = format!("python3 {CASES}/serve.py {port} wait 5");
    let script = format!(
        "{server} & server=$!
        until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'
        do sleep 0.1; done 2>/dev/null
        python3 {CASES}/client.py threads {port} 6 3; kill $server; wait $server"
    );
    [server, script]
}

#[test]
fn a_server_that_the_command_starts_and_ends_is_the_server_and_no_early_end() {
    let place = Place::beside_others();
    let port = free_port().unwrap();
    let [_, script] = script(port);
    let judge = |options: &str| {
        let line = format!("judge {options} -o found.jsonl --overwrite -- sh -c");
        place.jostle(&line).word(&script).run_cleanly()
    };
    in_some_try("a server and its load", || {
        judge("");
        let run = runs(&place).remove(0);
        let server = run.server.as_ref()?;
        let pids = |side: &Side| side.busiest.iter().map(|of| of.pid).collect::<Vec<_>>();
        let is_apart = !pids(&run.generator)
            .iter()
            .any(|pid| pids(server).contains(pid));
        let reasons = run.finding.reasons.join(" ");
        assert_eq!(server.started_by, Some(StartedBy::Command));
        assert!(!reasons.contains("had ended"), "{reasons}");
        assert_eq!(run.server_at, Some(format!(":{port}")));
        (is_apart && run.exit == Some(143) && reasons.contains("exit code 143 may be"))
            .then_some(())
    });
    in_some_try("copies that are refused", || {
        let done = judge("--copies 2").exits(1);
        done.stderr
            .contains("the command starts its own server")
            .then_some(())
    });
}

#[test]
fn a_server_is_started_anew_for_each_run_and_nothing_of_it_is_left() {
    let place = Place::beside_others();
    let port = free_port().unwrap();
    let [server, _] = script(port);
    let options = "--double --repeat 1 -o found.jsonl --overwrite";
    in_some_try("a server in both runs", || {
        let line = format!("judge {options} --start-server");
        let load = format!("-- python3 {CASES}/client.py threads {port} {{4}} 3");
        let run = place.jostle(&line).word(&server);
        let done = load
            .split(' ')
            .fold(run, |run, word| run.word(word))
            .run_cleanly();
        assert!(done.stderr.contains("x "), "{}", done.stderr);
        let runs = runs(&place);
        let pid = |run: &Watched| Some(run.server.as_ref()?.largest.as_ref()?.pid);
        let server = runs[0].server.as_ref()?;
        assert_eq!(server.started_by, Some(StartedBy::Judge));
        (pid(&runs[0])? != pid(&runs[1])?).then_some(())
    });
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(!listens());
    // Killed at once.
    let line = format!("judge --server :{port} --start-server");
    let run = place.jostle(&line).word(&server).word("--").word("sleep");
    let mut run = run.word("1000").in_background();
    run.until("a server", |_| listens().then_some(()));
    run.signal(Signal::KILL);
    run.end().exits(137).leaves_nothing();
    assert!(!listens());
}

#[test]
fn a_server_that_cannot_be_started_is_told_and_no_command_runs() {
    let place = Place::beside_others();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--server {}", taken.local_addr().unwrap());
    let taken = taken.replace("127.0.0.1", "");
    for (options, server, code, text) in [
        (
            "",
            "sh -c 'exit 3'",
            1,
            "ended before it listened (exit code 3)",
        ),
        ("", "no-such-server", 1, "cannot start no-such-server"),
        ("", "", 2, "give the command that starts the server"),
        ("", "a 'b", 2, "give the command that starts the server"),
        ("--server pid:1", "true", 2, "name its :PORT or unix:PATH"),
        (&taken, "true", 2, "somebody listens there before"),
    ] {
        let run = place.jostle(&format!("judge {options} --start-server"));
        let run = run.word(server).word("--").word("touch").word("ran");
        run.run_cleanly().exits(code).says(text);
    }
    assert!(!place.file("ran").exists());
}
