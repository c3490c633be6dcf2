//! `cargo xtask mutants`: plants faults into a copy of jostled's lock table, of its gate and
//! of its store, one at a time, and requires that the simulator or their tests see each of
//! them. So the code itself has none of its tests.
//!
//! The copy is compiled once, with every fault behind a switch that a variable of the
//! environment chooses.

use anyhow::{Context, bail, ensure};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// The faults: a name, a file, a text there and what takes its place.
const MUTANTS: &str = include_str!("mutants.tsv");

/// The columns of each fault.
fn mutants() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = MUTANTS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

/// The switch, which the copy of the table gets.
const SWITCH: &str = "
/// Whether a planted fault is chosen.
pub(crate) fn mutant(number: usize) -> bool {
    static CHOSEN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
        std::env::var(\"MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
    });
    *CHOSEN == number
}
";

/// The tests that must see each fault.
const TESTS: [&str; 5] = [
    "no_random_world_sees_a_rule_broken",
    "served_in_parts",
    "store::tests",
    "gate::live_tests",
    "stories::adopted",
];

/// Makes the copy, compiles it, and runs its tests once for each fault.
pub(crate) fn run() -> anyhow::Result<()> {
    let copy = shell::root().join("target/mutants");
    copy_project(&copy)?;
    plant(&copy.join("jostled/server/src/table"))?;
    let tests = ["test", "-p", "jostle-lockd", "--lib", "--no-run"];
    let target = copy.join("target");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &target);
    shell::run(cargo.args(tests))?;
    let program = test_program(&target.join("debug/deps"))?;
    ensure!(
        passes(&copy, &program, usize::MAX)?,
        "the sound table fails"
    );
    for (number, mutant) in mutants().enumerate() {
        let name = mutant[0];
        ensure!(!passes(&copy, &program, number)?, "nobody sees that {name}");
        println!("seen: {name}");
    }
    Ok(())
}

/// Copies what git knows of the project.
fn copy_project(copy: &Path) -> anyhow::Result<()> {
    let script = "mkdir -p \"$0\" && git ls-files -z --cached --others --exclude-standard \
                  | xargs -0 cp --parents --preserve=timestamps --target-directory=\"$0\"";
    let mut shell = Command::new("sh");
    shell.current_dir(shell::root()).arg("-c").arg(script);
    shell::run(shell.arg(copy))
}

/// Plants every fault behind its switch.
fn plant(table: &Path) -> anyhow::Result<()> {
    for (number, mutant) in mutants().enumerate() {
        let [name, file, sound, faulty] = mutant[..] else {
            bail!("a fault has four columns: {mutant:?}");
        };
        let path = table.join(file);
        let text = std::fs::read_to_string(&path)?;
        let sound = &sound.replace("\\n", "\n");
        let times = text.matches(sound).count();
        ensure!(times == 1, "{name}: {file} has {times} times `{sound}`");
        let switch = format!("crate::table::mutant({number})");
        let planted = text.replace(sound, &faulty.replace("MUTANT", &switch));
        std::fs::write(&path, planted)?;
    }
    let path = table.join("mod.rs");
    let text = std::fs::read_to_string(&path)?;
    Ok(std::fs::write(&path, text + SWITCH)?)
}

/// The newest program with the table's tests.
fn test_program(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("jostle_lockd-") && path.extension().is_none() {
            found.push((path.metadata()?.modified()?, path));
        }
    }
    let newest = found.into_iter().max().context("no test program")?;
    Ok(newest.1)
}

/// Whether the tests pass with this fault. They keep the inputs that fail in the copy.
fn passes(copy: &Path, program: &Path, number: usize) -> anyhow::Result<bool> {
    let mut tests = Command::new(program);
    tests.current_dir(copy);
    let tests = tests.args(TESTS).env("MUTANT", number.to_string());
    let tests = tests.env("JOSTLE_PATIENCE", "10");
    Ok(tests.output()?.status.success())
}
