//! etcd in two versions: Debian's, which is old, and a current one, which the Go module
//! `lab/trials/reference/etcd-server` is built into. Programs find either as the first `etcd` in
//! `PATH`, and so do the tests of Debian's when they run again with the current one.

use crate::{packages, shell};
use anyhow::{Context, anyhow};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the module is, and what it requires.
const MODULE: &str = "lab/trials/reference/etcd-server";
const REQUIRED: &str = "go.etcd.io/etcd/server/v3 v";

/// Names the version that tests run again with.
const EXPECTED: &str = "JOSTLE_TEST_ETCD";

/// The version that the module names.
///
/// # Errors
/// Where it names none.
pub fn current_version() -> anyhow::Result<String> {
    let module = shell::root().join(MODULE).join("go.mod");
    let text = std::fs::read_to_string(&module)?;
    let named = required(&text).map(str::to_owned);
    named.with_context(|| format!("{} requires no etcd", module.display()))
}

fn required(module: &str) -> Option<&str> {
    let mut lines = module.lines();
    let rest = lines.find_map(|line| line.split_once(REQUIRED));
    rest?.1.split_whitespace().next()
}

/// Builds a current etcd where it is not built yet: the directory that has it under its
/// usual name, to stand first in `PATH`.
///
/// # Errors
/// What `go build` said.
pub fn current() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow!(error))
}

fn build() -> anyhow::Result<PathBuf> {
    packages::ensure(&["golang-go"])?;
    let directory = shell::target_directory().join("peers/etcd-server");
    std::fs::create_dir_all(&directory)?;
    shell::go_build(&shell::root().join(MODULE), &directory.join("etcd"))?;
    Ok(directory)
}

/// `PATH` with this directory before all others.
///
/// # Errors
/// Where the directory has a colon in its name.
pub(crate) fn path_with(directory: &Path) -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(all)?)
}

/// The version of the first `etcd` in `PATH`.
///
/// # Errors
/// Where there is none, or it does not tell.
pub fn version_in_path() -> anyhow::Result<String> {
    let told = shell::output(Command::new("etcd").arg("--version"))?;
    let mut lines = told.lines();
    let version = lines.find_map(|line| line.strip_prefix("etcd Version: "));
    Ok(version.context("it does not tell its version")?.to_owned())
}

/// The version of the etcd that tests are to see launched.
///
/// # Errors
/// As of [`version_in_path`].
pub fn expected_version() -> anyhow::Result<String> {
    std::env::var(EXPECTED).or_else(|_| version_in_path())
}

/// Runs these tests of the calling test program again, where `etcd` is the current one.
///
/// # Panics
/// If one of them fails, or there is none of that name.
pub fn current_passes(tests: &[&str]) {
    let output = again(tests).unwrap_or_else(|error| panic!("{error:#}"));
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let passed = format!("test result: ok. {} passed; 0 failed", tests.len());
    assert!(text.contains(&passed), "{text}{errors}");
}

fn again(tests: &[&str]) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "--include-ignored"]).args(tests);
    command.env("PATH", path_with(&current()?)?);
    command.env(EXPECTED, current_version()?);
    Ok(command.output()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_required_module() {
        let module = "module x\n\nrequire go.etcd.io/etcd/server/v3 v3.6.5\n\nrequire (\n\
                      \tgo.etcd.io/etcd/api/v3 v3.6.4 // indirect\n)\n";
        assert_eq!(required(module), Some("3.6.5"));
        let several = module.replace("require go", "require (\n\tgo");
        assert_eq!(required(&several), Some("3.6.5"));
        assert_eq!(required("module x\n"), None);
        assert!(current_version().unwrap().starts_with("3."));
    }

    #[test]
    fn a_directory_comes_first_in_the_path() {
        let path = path_with(Path::new("/own")).unwrap();
        assert_eq!(
            std::env::split_paths(&path).next(),
            Some(PathBuf::from("/own"))
        );
        assert!(path_with(Path::new("/a:b")).is_err());
    }
}
