//! The examples of tool/docs/data.md, run as they stand there.

use crate::common::{Place, path_with_jostle, root};
use std::fs;
use std::process::Command;

/// The blocks of the page, each with its language.
fn blocks() -> Vec<(String, String)> {
    let page = fs::read_to_string(root().join("tool/docs/data.md")).unwrap();
    let parts: Vec<&str> = page.split("```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    let blocks = inside.map(|block| block.split_once('\n').unwrap());
    blocks
        .map(|(language, text)| (language.to_owned(), text.to_owned()))
        .collect()
}

/// The program that runs a language, and reads a program from standard input.
fn interpreter(language: &str) -> Command {
    let python = root().join("target/readers/bin/python");
    match language {
        "sh" => {
            let mut shell = Command::new("sh");
            shell.arg("-e").env("PATH", path_with_jostle());
            shell
        }
        "python" => {
            let install = "tool/cli/tests/install-readers.sh";
            assert!(python.exists(), "pandas is not installed: run {install}");
            let mut command = Command::new(python);
            command.arg("-");
            command
        }
        "r" => {
            let mut command = Command::new("Rscript");
            command.args(["--vanilla", "-"]);
            command
        }
        "gnuplot" => Command::new("gnuplot"),
        other => panic!("nothing runs {other}"),
    }
}

#[test]
fn every_example_runs_as_it_stands() {
    let place = Place::new();
    fs::copy(
        root().join("lab/record/default.jsonl"),
        place.file("locks.jsonl"),
    )
    .unwrap();
    let blocks = blocks();
    let languages: Vec<&str> = blocks
        .iter()
        .map(|(language, _)| language.as_str())
        .collect();
    assert_eq!(languages, ["sh", "python", "r", "python", "gnuplot"]);
    let mut printed = Vec::new();
    for (language, text) in &blocks {
        fs::write(place.file("example"), text).unwrap();
        let input = fs::File::open(place.file("example")).unwrap();
        let mut command = interpreter(language);
        let done = command.current_dir(place.file(".")).stdin(input).output();
        let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(done.status.success(), "{language}:\n{text}\n{out}{err}");
        printed.push(out.into_owned());
    }
    // The points of the record: two targets with 10 and 1000 workers.
    for out in &printed[1..4] {
        for word in ["flock", "sysv", "10", "1000"] {
            assert!(out.contains(word), "{word}: {out}");
        }
    }
    let svg = fs::read_to_string(place.file("throughput.svg")).unwrap();
    assert!(svg.contains(">flock<") && svg.contains(">sysv<"), "{svg}");
}
