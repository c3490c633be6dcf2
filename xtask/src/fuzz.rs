//! `cargo xtask fuzz`: feeds the targets of `fuzz/` with inputs that libFuzzer makes up. The
//! tests of that crate give each target its seeds, so that targets and oracles cannot rot.
//!
//! It needs neither cargo-fuzz nor a nightly compiler: the pass of LLVM that
//! tells libFuzzer which edges an input took is reached by stable flags. Without
//! nightly there is no AddressSanitizer, which code without `unsafe` can spare.

use anyhow::{Context, bail};
use jostle_testbed::{packages, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What cargo-fuzz passes too: counters for edges, and compared values, from
/// which libFuzzer learns the constants of a protocol.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // In one piece the counters of a crate stay together.
    "-Ccodegen-units=1",
];

/// Targets that need the whole program, which compiles for minutes with these flags.
const OF_THE_PROGRAM: [&str; 3] = ["commands", "plans", "results"];

/// An input that takes longer than this counts as a hang.
const HANG_S: u32 = 10;

/// Where things are.
struct Room {
    /// The workspace of the targets.
    fuzz: PathBuf,
    /// Built targets.
    programs: PathBuf,
}

/// Fuzzes one target, or all one after the other, for so many seconds each.
pub(crate) fn run(only: Option<&str>, seconds: u32) -> anyhow::Result<()> {
    let room = Room::build(only.is_none_or(|name| OF_THE_PROGRAM.contains(&name)))?;
    for name in chosen(room.targets()?, only)? {
        println!("== {name}: {seconds} s");
        let artifacts = room.fuzz.join("artifacts").join(&name);
        std::fs::create_dir_all(&artifacts)?;
        let before = files(&artifacts)?;
        let mut fuzzer = room.fuzzer(&name);
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(format!("-timeout={HANG_S}"))
            .args([
                "-use_value_profile=1",
                "-print_final_stats=1",
                "-verbosity=0",
            ])
            .arg(room.corpus(&name));
        // Its report ends in a dictionary of no use here: shown only on a fault.
        let output = fuzzer.output().with_context(|| shell::typed(&fuzzer))?;
        let report = String::from_utf8_lossy(&output.stderr);
        let mut found = files(&artifacts)?;
        found.retain(|file| !before.contains(file));
        if !output.status.success() || !found.is_empty() {
            eprintln!("{report}");
            let program = room.programs.join(&name);
            for file in &found {
                eprintln!("the input lies in {}", file.display());
                eprintln!("again: {} {}", program.display(), file.display());
            }
            bail!(
                "fuzzing `{name}` found a fault ({}); mend it, and keep the input as \
                 lab/fuzz/corpus/{name}/seed-WHAT",
                output.status
            );
        }
        println!(
            "   nothing found in {} inputs; {} worth keeping in {}",
            executed(&report).context("libFuzzer reports no number of inputs")?,
            files(&room.corpus(&name))?.len(),
            room.corpus(&name).display()
        );
    }
    Ok(())
}

/// Builds the targets that do not need the whole program, and gives each its corpus once,
/// with what fuzzing has found on this machine.
pub(crate) fn replay() -> anyhow::Result<()> {
    let room = Room::build(false)?;
    let mut targets = room.targets()?;
    targets.retain(|name| !OF_THE_PROGRAM.contains(&name.as_str()));
    for name in targets {
        let seeds = files(&room.corpus(&name))?;
        if seeds.is_empty() {
            bail!("lab/fuzz/corpus/{name} holds no seed: give the target at least one input");
        }
        // Named one by one, each is run once and nothing is mutated.
        let mut fuzzer = room.fuzzer(&name);
        let output = fuzzer.args(&seeds).output()?;
        if !output.status.success() {
            let report = String::from_utf8_lossy(&output.stderr);
            let last = report.rfind("Running: ").unwrap_or(0);
            bail!(
                "`{name}` fails on an input that it has passed before\n{}",
                &report[last..]
            );
        }
        println!("{name}: {} inputs pass", seeds.len());
    }
    Ok(())
}

impl Room {
    fn build(program: bool) -> anyhow::Result<Room> {
        packages::ensure(&["g++"])?;
        let fuzz = shell::root().join("lab/fuzz");
        let target = shell::target_directory().join("fuzz");
        let triple = host()?;
        let mut build = shell::cargo(&["build", "--quiet", "--profile=fuzz", "--target", &triple]);
        // The flags must not reach build scripts, which have no libFuzzer in
        // them: cargo keeps the two apart when a target is named.
        build
            .arg("--manifest-path")
            .arg(fuzz.join("Cargo.toml"))
            .args(["--bins", "--no-default-features", "--features=libfuzzer"])
            .args(program.then_some("--features=program"))
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\x1f"));
        shell::run(&mut build)?;
        Ok(Room {
            fuzz,
            programs: target.join(triple).join("fuzz"),
        })
    }

    /// The names of all targets, in order.
    fn targets(&self) -> anyhow::Result<Vec<String>> {
        let sources = files(&self.fuzz.join("fuzz_targets"))?;
        let stems = sources.iter().filter_map(|source| source.file_stem());
        Ok(stems
            .map(|stem| stem.to_string_lossy().into_owned())
            .collect())
    }

    /// Seeds, which git keeps, and what fuzzing found to be interesting.
    fn corpus(&self, name: &str) -> PathBuf {
        self.fuzz.join("corpus").join(name)
    }

    fn fuzzer(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }
}

/// The compiler's own platform.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = shell::output(Command::new(rustc).arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("`rustc -vV` names no host")
}

fn chosen(targets: Vec<String>, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    match only {
        None => Ok(targets),
        Some(name) if targets.iter().any(|target| target == name) => Ok(vec![name.to_owned()]),
        Some(name) => bail!("no fuzz target `{name}`; there are: {}", targets.join(", ")),
    }
}

/// How many inputs libFuzzer has tried.
fn executed(report: &str) -> Option<u64> {
    let line = |line: &str| {
        line.strip_prefix("stat::number_of_executed_units:")?
            .trim()
            .parse()
            .ok()
    };
    report.lines().find_map(line)
}

/// The files of a directory by name; none where it does not exist.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_chosen_by_its_name_and_a_wrong_one_is_told_the_right_ones() {
        let targets = || vec!["reply".to_owned(), "table".to_owned()];
        assert_eq!(chosen(targets(), None).unwrap(), targets());
        assert_eq!(chosen(targets(), Some("table")).unwrap(), ["table"]);
        let error = chosen(targets(), Some("tab")).unwrap_err().to_string();
        assert_eq!(error, "no fuzz target `tab`; there are: reply, table");
    }

    #[test]
    fn every_target_has_its_program_and_its_seeds() {
        let fuzz = shell::root().join("lab/fuzz");
        let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        let room = Room {
            programs: fuzz.clone(),
            fuzz,
        };
        let targets = room.targets().unwrap();
        assert!(!targets.is_empty());
        for name in targets {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            let seeds = files(&room.corpus(&name)).unwrap();
            let kept = |seed: &PathBuf| {
                seed.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("seed-")
            };
            assert!(seeds.iter().any(kept), "{name}: git keeps seed-* alone");
        }
    }

    #[test]
    fn the_number_of_inputs_is_found_in_the_report() {
        let report = "Done 7 runs\nstat::number_of_executed_units: 331825\nstat::peak_rss_mb: 32\n";
        assert_eq!(executed(report), Some(331_825));
        assert_eq!(executed("Done 7 runs\n"), None);
    }

    mod live_tests {
        use super::*;

        #[test]
        fn the_host_is_a_triple() {
            assert!(host().unwrap().contains("-linux-"));
        }
    }
}
