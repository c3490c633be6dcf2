//! `cargo xtask mutants`: plants faults into a copy of jostled's lock table, of its gate, its
//! store and its high availability, and of the checker of `jostle verify`, one at a time, and
//! requires that the simulators or their tests see each of them. So the code itself has none
//! of its tests.
//!
//! Each is compiled once, with every fault behind a switch that a variable of the
//! environment chooses.

use anyhow::{Context, bail, ensure};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// A part of the project that gets faults.
struct Subject {
    package: &'static str,
    /// Its folder, with a `mod.rs`, and that module.
    folder: &'static str,
    module: &'static str,
    /// The faults: a name, a file, a text there and what takes its place.
    faults: &'static str,
    /// The tests that must see each fault.
    tests: &'static [&'static str],
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        package: "jostle-stats",
        folder: "tool/stats/src/verify",
        module: "crate::verify",
        faults: include_str!("mutants/verify.tsv"),
        tests: &["verify::"],
    },
    Subject {
        package: "jostle-lockd",
        folder: "jostled/server/src/table",
        module: "crate::table",
        faults: include_str!("mutants.tsv"),
        tests: &[
            "no_random_world_sees_a_rule_broken",
            "served_in_parts",
            "store::tests",
            "gate::live_tests",
            "stories::adopted",
        ],
    },
    Subject {
        package: "jostle-lockd",
        folder: "jostled/server/src/ha",
        module: "crate::ha",
        faults: include_str!("mutants/ha.tsv"),
        tests: &["ha::"],
    },
];

impl Subject {
    /// The columns of each fault.
    fn mutants(&self) -> impl Iterator<Item = Vec<&'static str>> {
        let lines = self.faults.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split('\t').collect())
    }
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

/// Makes the copy, compiles it, and runs its tests once for each fault.
pub(crate) fn run() -> anyhow::Result<()> {
    let copy = shell::root().join("target/mutants");
    copy_project(&copy)?;
    // Faults of one package that were planted before keep their numbers.
    let mut first = 0;
    for subject in &SUBJECTS {
        plant(subject, first, &copy)?;
        let tests = ["test", "-p", subject.package, "--lib", "--no-run"];
        let target = copy.join("target");
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &target);
        shell::run(cargo.args(tests))?;
        let program = test_program(subject, &target.join("debug/deps"))?;
        let passes = |number| passes(subject, &copy, &program, number);
        ensure!(passes(usize::MAX)?, "sound {} fails", subject.package);
        for mutant in subject.mutants() {
            let (name, number) = (mutant[0], first);
            first += 1;
            ensure!(!passes(number)?, "nobody sees that {name}");
            println!("seen: {name}");
        }
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
fn plant(subject: &Subject, first: usize, copy: &Path) -> anyhow::Result<()> {
    let folder = copy.join(subject.folder);
    for (number, mutant) in (first..).zip(subject.mutants()) {
        let [name, file, sound, faulty] = mutant[..] else {
            bail!("a fault has four columns: {mutant:?}");
        };
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path)?;
        let sound = &sound.replace("\\n", "\n");
        let times = text.matches(sound).count();
        ensure!(times == 1, "{name}: {file} has {times} times `{sound}`");
        let switch = format!("{}::mutant({number})", subject.module);
        let planted = text.replace(sound, &faulty.replace("MUTANT", &switch));
        std::fs::write(&path, planted)?;
    }
    let path = folder.join("mod.rs");
    let text = std::fs::read_to_string(&path)?;
    Ok(std::fs::write(&path, text + SWITCH)?)
}

/// The newest program with its tests.
fn test_program(subject: &Subject, folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let prefix = subject.package.replace('-', "_") + "-";
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&prefix) && path.extension().is_none() {
            found.push((path.metadata()?.modified()?, path));
        }
    }
    let newest = found.into_iter().max().context("no test program")?;
    Ok(newest.1)
}

/// Whether the tests pass with this fault. They keep the inputs that fail in the copy.
fn passes(subject: &Subject, copy: &Path, program: &Path, number: usize) -> anyhow::Result<bool> {
    let mut tests = Command::new(program);
    tests.current_dir(copy);
    let tests = tests.args(subject.tests).env("MUTANT", number.to_string());
    let tests = tests.env("JOSTLE_PATIENCE", "10");
    Ok(tests.output()?.status.success())
}
