//! The test programs of the workspace, as cargo compiles them, and how one of them is run.
//!
//! There are three rings of tests. *Pure* ones judge planted records and pass time in: unit
//! tests, and programs below `tests/` that start nothing. *Live* ones start real processes
//! and servers: the programs whose names begin with `live`, and the modules `live_tests`
//! beside the code. *Figures* are judged by tests in modules `figures` of the live programs;
//! they are ignored, and counted by `cargo xtask validate figures`.

use crate::shell;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The part of the names of unit tests that are live.
pub const LIVE_TESTS: &str = "live_tests::";

/// The part of the names of tests that judge figures.
pub const FIGURES: &str = "::figures::";

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub struct TestProgram {
    name: String,
    /// The folder of its package, which cargo starts it in.
    package: PathBuf,
    path: PathBuf,
}

impl TestProgram {
    /// The program that cargo says it has made, if the message is about one.
    /// <https://doc.rust-lang.org/cargo/reference/external-tools.html#json-messages>
    fn from_message(message: &Value) -> Option<TestProgram> {
        let is_test = message["profile"]["test"].as_bool()?;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        Some(TestProgram {
            name: message["target"]["name"].as_str()?.to_owned(),
            package: manifest.parent()?.to_owned(),
            path: path.into(),
        })
    }

    /// Whether all its tests are live.
    pub fn is_live(&self) -> bool {
        self.name.starts_with("live")
    }

    /// A call of it as cargo makes one.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.package);
        command.env("CARGO_MANIFEST_DIR", &self.package);
        command
    }

    /// The names of its tests that fit these arguments of libtest.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn list(&self, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut command = self.command(&[&["--list", "--format", "terse"], arguments].concat());
        let text = shell::output(&mut command)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }
}

/// Its package and its name: `cli/live`.
impl fmt::Display for TestProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = self.package.file_name().unwrap_or_default();
        write!(f, "{}/{}", package.to_string_lossy(), self.name)
    }
}

/// Compiles the tests of these packages of the workspace, by options of cargo, and names the
/// test programs.
///
/// # Errors
/// What does not compile.
pub fn build(packages: &[&str]) -> anyhow::Result<Vec<TestProgram>> {
    let mut cargo = shell::cargo(&[&["test", "--no-run"], packages].concat());
    cargo.arg("--message-format=json-render-diagnostics");
    let mut cargo = cargo.stdout(Stdio::piped()).spawn()?;
    let mut programs = Vec::new();
    for line in BufReader::new(cargo.stdout.take().context("no output of cargo")?).lines() {
        programs.extend(TestProgram::from_message(&serde_json::from_str(&line?)?));
    }
    let status = cargo.wait()?;
    ensure!(status.success(), "`cargo test --no-run` failed: {status}");
    Ok(programs)
}

/// Keeps the list for [`kept`].
///
/// # Errors
/// The file cannot be written.
pub fn keep(programs: &[TestProgram]) -> anyhow::Result<()> {
    let line = |program: &TestProgram| {
        let fields = [Path::new(&program.name), &program.package, &program.path];
        fields.map(|field| field.display().to_string()).join("\t") + "\n"
    };
    let lines: String = programs.iter().map(line).collect();
    Ok(std::fs::write(list(), lines)?)
}

/// The test programs that were compiled last and kept: another user may run them who can
/// compile nothing.
///
/// # Errors
/// There is no such list, or it is none.
pub fn kept() -> anyhow::Result<Vec<TestProgram>> {
    let list = list();
    let lines = std::fs::read_to_string(&list)
        .with_context(|| format!("cannot read {}: compile the tests first", list.display()))?;
    let program = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().context("a line with too few fields");
        Ok(TestProgram {
            name: next()?,
            package: next()?.into(),
            path: next()?.into(),
        })
    };
    lines.lines().map(program).collect()
}

fn list() -> PathBuf {
    shell::target_directory().join("test-programs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_test_program_is_told_from_what_it_tests() {
        let mut message = json!({
            "reason": "compiler-artifact",
            "manifest_path": "/j/tool/model/Cargo.toml",
            "target": {"name": "results", "kind": ["test"]},
            "profile": {"test": true},
            "executable": "/j/target/debug/deps/results-1",
        });
        let found = TestProgram::from_message(&message).unwrap();
        assert_eq!(found.to_string(), "model/results");
        assert_eq!(found.path, Path::new("/j/target/debug/deps/results-1"));
        assert!(!found.is_live());
        message["target"]["name"] = json!("live_across");
        assert!(TestProgram::from_message(&message).unwrap().is_live());
        message["profile"]["test"] = json!(false);
        assert_eq!(TestProgram::from_message(&message), None);
        let library = json!({"reason": "compiler-artifact", "executable": null});
        assert_eq!(TestProgram::from_message(&library), None);
        assert_eq!(
            TestProgram::from_message(&json!({"reason": "build-finished"})),
            None
        );
    }
}
