//! Running other programs: where the repository is, which cargo, and what a
//! failure says.

use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root, wherever the command was called.
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}

/// Where cargo puts what it builds.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// The variables by which `cargo run` tells the program that it starts of the program's own
/// package. A cargo that inherits these compiles again what asks for one of them, as ring does, and
/// with it most of the workspace.
const OF_THE_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The whole workspace, with what is left out of `cargo build` unless it is asked for.
pub const EVERYTHING: [&str; 3] = [
    "--workspace",
    "--features",
    "jostle/services,jostle-lock-command/services,jostle-lockd/services,jostle-mpi/mpi",
];

/// A call of the cargo that runs this program, in the repository's root.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = outside(cargo);
    command.args(arguments);
    command
}

/// A program in the repository's root, without what cargo tells those that it runs.
pub fn outside(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in inherited {
        if OF_THE_PACKAGE.iter().any(|begins| name.starts_with(begins)) {
            command.env_remove(name);
        }
    }
    command
}

/// Writes a script that can be executed at once. Another process does it: a file that any
/// process has open for writing cannot be executed (ETXTBSY), and whatever a thread of ours
/// starts meanwhile has our files open until it executes its own program.
///
/// # Errors
/// The shell cannot be run, or the file not be written.
pub fn write_script(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]);
    run(shell.arg(path).arg(text))
}

/// Builds the main package of a Go module as this file; nothing is done where that is its
/// build already.
///
/// # Errors
/// What `go build` says, or that it cannot be run.
pub fn go_build(module: &Path, to: &Path) -> anyhow::Result<()> {
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(to).arg(".");
    run(build.current_dir(module))
}

/// The command as one would type it.
pub fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs it with our own input and output.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", typed(command));
    }
    Ok(())
}

/// Runs a tool to its end, without input; what it wrote to stderr is the reason if it fails.
///
/// # Errors
/// That, or that it cannot be run.
pub fn quiet(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`", typed(command)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` failed: {}: {}",
        typed(command),
        output.status,
        said.trim()
    );
    Ok(())
}

/// Runs it and gives what it wrote to stdout; stderr stays ours.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    command.stderr(Stdio::inherit());
    let output = command
        .output()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", typed(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of `{}`", typed(command)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("tool/model/Cargo.toml").is_file());
    }

    /// `cargo test` after `cargo xtask` compiled for a minute, and so did the next one.
    #[test]
    fn cargo_is_not_told_of_the_package_that_calls_it() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo(&["build"]);
        let removed = |name| {
            cargo
                .get_envs()
                .any(|(other, value)| other == name && value.is_none())
        };
        assert!(removed("CARGO_MANIFEST_DIR"));
        assert!(!removed("CARGO"));
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_script_is_executed_at_once_while_others_start_programs() {
            let directory = tempfile::tempdir().unwrap();
            let done = AtomicBool::new(false);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !done.load(Relaxed) {
                        run(&mut Command::new("true")).unwrap();
                    }
                });
                let said = (0..200).map(|nth| {
                    let path = directory.path().join(nth.to_string());
                    write_script(&path, &format!("#!/bin/sh\necho '%s {nth}'\n"))?;
                    output(&mut Command::new(&path))
                });
                let said: anyhow::Result<Vec<String>> = said.collect();
                done.store(true, Relaxed);
                let expected: Vec<String> = (0..200).map(|nth| format!("%s {nth}\n")).collect();
                assert_eq!(said.unwrap(), expected);
            });
        }

        #[test]
        fn a_failure_names_the_command_and_its_status() {
            let error = run(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap_err();
            assert_eq!(error.to_string(), "`sh -c exit 7` failed: exit status: 7");
            let error = output(&mut Command::new("/no/such/program")).unwrap_err();
            assert_eq!(error.to_string(), "cannot run `program`");
            let text = output(Command::new("/bin/sh").args(["-c", "echo hello"]));
            assert_eq!(text.unwrap(), "hello\n");
        }
    }
}
