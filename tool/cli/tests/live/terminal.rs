//! The display of a terminal while jostle works, and what must not reach it.

use crate::common::{Place, beside, jostle, must_have};
use std::collections::BTreeSet;
use std::fs;

/// Whether a terminal that shows this text is steered by it.
fn steers(text: &str) -> bool {
    text.chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
}

#[test]
fn nothing_that_came_from_outside_steers_the_terminal() {
    let _beside = beside();
    let place = Place::new();
    let evil = "\u{1b}[31m\u{1b}]0;owned\u{7}";
    let name = place.jostle("contend").word(&format!("flock{evil}")).run();
    assert!(!steers(&(name.stdout + &name.stderr)));
    // A word that clap itself complains of.
    let word = place.jostle("contend").word(&format!("--{evil}")).exits(2);
    assert!(!steers(&word.stderr), "{}", word.stderr);
    // A server that answers each command with an error.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while std::io::Read::read(&mut stream, &mut bytes).is_ok_and(|n| n > 0) {
                    let answer = "-ERR \u{1b}]0;owned\u{7} no\r\n";
                    let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
                }
            });
        }
    });
    let line = format!("stream redis://127.0.0.1:{port} -n 5 -w 1 --runs 1 -t 5");
    let done = place.jostle(&line).run();
    let said = done.stdout + &done.stderr;
    assert!(!steers(&said) && said.contains("\\u001b]0;owned"), "{said}");
    // A result file that somebody sends.
    let line = "contend flock null -w 2:4 -b 500us -t 100ms --runs 2 -o x.jsonl";
    place.jostle(line).measures();
    let json_evil = serde_json::to_string(&format!("null{evil}\nVALID")).unwrap();
    let text = place.read("x.jsonl").replace("\"null\"", &json_evil);
    fs::write(place.file("evil.jsonl"), text).unwrap();
    for format in jostle_report::FORMATS {
        let line = format!("report evil.jsonl --format {}", format.name);
        let done = place.jostle(&line).exits(0);
        assert!(!steers(&(done.stdout + &done.stderr)), "{}", format.name);
    }
}

#[test]
fn progress_is_for_terminals_and_quiet_is_quiet() {
    must_have("script", "bsdutils");
    let _beside = beside();
    let line = "contend null -w 2 -b 1ms -t 300ms --runs 2";
    let in_terminal = r#"exec script -qec "$*" /dev/null"#;
    let watched = |options: &str| {
        jostle(&format!("{line} {options}"))
            .after(in_terminal)
            .measures()
            .stdout
    };
    let progress = "point 1 of 1, run 1 of 2, ";
    let note = "2 runs, about";
    assert!(watched("").contains(progress) && watched("").contains(note));
    assert!(
        !watched("--no-progress").contains(progress) && watched("--no-progress").contains(note)
    );
    assert!(!watched("--quiet").contains(progress) && !watched("--quiet").contains(note));
    let logged = jostle(line).measures().says(note).does_not_say(progress);
    let mut others = logged.stderr.lines().filter(|said| !said.contains(note));
    let of_the_machine = |said: &str| {
        let busy = ["busy now: ", "other programs use "];
        said.contains("jostle calibrate") || busy.iter().any(|begin| said.starts_with(begin))
    };
    assert!(others.all(of_the_machine), "{}", logged.transcript());
    jostle(&format!("{line} --quiet"))
        .measures()
        .says_nothing()
        .prints("null");
}

/// It stood still for as long as a run took.
#[test]
fn progress_moves_within_a_run() {
    must_have("script", "bsdutils");
    let _beside = beside();
    let mut run = jostle("contend null -w 1 -b 1ms -t 100 --runs 1")
        .after(r#"exec script -qec "$*" /dev/null"#)
        .in_background();
    run.until("three states of one run", |run| {
        let shown = run.printed();
        let frames = shown
            .split('\r')
            .filter(|frame| frame.contains("point 1 of 1, run 1 of 1, "));
        let frames: BTreeSet<&str> = frames.map(str::trim_end).collect();
        (frames.len() >= 3).then_some(())
    });
}
