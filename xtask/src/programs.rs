//! The test programs of the workspace, built by one cargo and run here, so that those
//! which mostly wait do not wait for one another.
//!
//! Three parts, of which the first two run at the same time:
//! - jostle as users start it, as far as its tests run beside others;
//! - all other programs, one after the other and with less weight on the CPUs;
//! - the tests of jostle that have the machine to themselves ([`ALONE`]).

use anyhow::{Context, bail};
use jostle_testbed::shell;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What stands in the names of tests that have the machine to themselves: the module that
/// they are in.
const ALONE: &str = "::alone::";

/// The directory of the package, and the name of the program, of the first and third part.
const STARTS_JOSTLE: (&str, &str) = ("crates/cli", "cli");

/// A program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    name: String,
    file: PathBuf,
    /// The package's directory, in which cargo runs its tests.
    package: PathBuf,
    starts_jostle: bool,
}

/// Builds all test programs and runs them, then the examples in the documentation.
pub fn run() -> anyhow::Result<()> {
    let built = shell::output(&mut shell::cargo(&[
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    let (first, others): (Vec<Program>, Vec<Program>) = programs(&built)?
        .into_iter()
        .partition(|program| program.starts_jostle);
    let [first] = &first[..] else {
        bail!("cargo built no test program, or several, that start jostle: {first:?}");
    };
    std::thread::scope(|scope| {
        let rest = scope.spawn(|| run_others(&others));
        let beside = shell::run(command(first).args(["--skip", ALONE]));
        let (said, rest) = rest.join().expect("no panic");
        println!("{said}");
        beside.and(rest)
    })?;
    shell::run(command(first).arg(ALONE))?;
    shell::run(&mut shell::cargo(&["test", "--workspace", "--doc"]))
}

/// What they printed, and the first failure.
fn run_others(programs: &[Program]) -> (String, anyhow::Result<()>) {
    let mut said = String::new();
    for program in programs {
        let mut run = Command::new("nice");
        run.args(["-n", "10"]).arg(&program.file);
        let ended = placed(&mut run, program)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", program.file.display()));
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return (said, Err(error)),
        };
        said += &format!("\n     Running {}\n", program.name);
        said += &String::from_utf8_lossy(&ended.stdout);
        said += &String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() {
            let error = anyhow::anyhow!("the tests of {} failed: {}", program.name, ended.status);
            return (said, Err(error));
        }
    }
    (said, Ok(()))
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.file);
    placed(&mut command, program);
    command
}

/// As cargo would run it.
fn placed<'a>(command: &'a mut Command, program: &Program) -> &'a mut Command {
    command
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
}

/// Those that cargo's messages name, in their order: one JSON object in each line.
fn programs(messages: &str) -> anyhow::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)
            .with_context(|| format!("cargo printed no message: {line}"))?;
        let is_test = message["profile"]["test"] == true;
        let (Some(file), true) = (message["executable"].as_str(), is_test) else {
            continue;
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let target = &message["target"];
        let (Some(name), Some(manifest), Some(source)) = (
            text(&target["name"]),
            text(&message["manifest_path"]).map(PathBuf::from),
            text(&target["src_path"]),
        ) else {
            bail!("cargo's message has no name, manifest or source: {line}");
        };
        let package = manifest.parent().context("a manifest has a directory")?;
        let kind = &target["kind"][0];
        let short = source.strip_prefix(&format!("{}/", shell::root().display()));
        programs.push(Program {
            starts_jostle: kind == "test"
                && name == STARTS_JOSTLE.1
                && package.ends_with(STARTS_JOSTLE.0),
            name: short.unwrap_or(&source).to_owned(),
            file: PathBuf::from(file),
            package: package.to_owned(),
        });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_cargo_s_messages_those_of_test_programs_are_taken() {
        let message = |kind: &str, name: &str, is_test: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/r/crates/cli/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{name}\",\"src_path\":\"/r/{name}.rs\"}},\
                 \"profile\":{{\"test\":{is_test}}},\"executable\":\"/t/{name}-1\"}}\n"
            )
        };
        let messages = message("test", "cli", true)
            + &message("bin", "jostle", false)
            + &message("lib", "jostle_cli", true)
            + "{\"reason\":\"build-finished\",\"success\":true}\n";
        let found = programs(&messages).unwrap();
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["/r/cli.rs", "/r/jostle_cli.rs"]);
        let starts: Vec<bool> = found.iter().map(|program| program.starts_jostle).collect();
        assert_eq!(starts, [true, false]);
        assert_eq!(found[0].package, PathBuf::from("/r/crates/cli"));
        assert!(programs("warning: no message").is_err());
    }
}
