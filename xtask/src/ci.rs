//! `cargo xtask ci`: everything that must hold before a change goes in, the
//! same for people and machines. The first failure ends it.

use crate::{dist, docs, test_runs};
use anyhow::{Context, ensure};
use jostle_testbed::{packages, shell};
use std::process::Command;
use std::time::{Duration, Instant};

/// A name, and what must succeed.
struct Step {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
}

/// Installs the Redis clients that jostled is tested with.
const CLIENTS: &str = "jostled/server/tests/install-clients.sh";

/// Installs what the examples of tool/docs/data.md read results with.
const READERS: &str = "tool/cli/tests/install-readers.sh";

/// In the order in which a mistake is found soonest. Those of one row run side by side: tests
/// leave half of two CPUs to what lints and documentation compile.
const STEPS: &[&[Step]] = &[
    &[Step {
        name: "packages",
        run: packages::ensure_all,
    }],
    &[Step {
        name: "clients",
        run: || shell::run(&mut Command::new(shell::root().join(CLIENTS))),
    }],
    &[Step {
        name: "readers",
        run: || shell::run(&mut Command::new(shell::root().join(READERS))),
    }],
    &[Step {
        name: "format",
        run: format,
    }],
    &[Step {
        name: "compilation",
        run: test_runs::compile,
    }],
    &[
        Step {
            name: "tests",
            run: test_runs::run,
        },
        Step {
            name: "lints",
            run: lints,
        },
        // They wait for each other's compilations, not for the tests.
        Step {
            name: "documentation",
            run: || {
                let mut doc =
                    shell::cargo(&[&["doc", "--no-deps"][..], &shell::EVERYTHING].concat());
                shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
            },
        },
    ],
    // It packs the programs that were built for the tests.
    &[Step {
        name: "packaging",
        run: dist::check_packaging,
    }],
    &[Step {
        name: "generated pages",
        run: || docs::run(true),
    }],
];

fn lints() -> anyhow::Result<()> {
    let lint = [&["clippy"][..], &shell::EVERYTHING, &["--all-targets"]].concat();
    cargo(&[&lint[..], &["--", "-D", "warnings"]].concat())?;
    // What a newcomer compiles: without the clients of services.
    cargo(&["clippy", "--", "-D", "warnings"])
}

/// `cargo fmt` follows `mod` lines; the modules of the targets are declared by
/// the table's macro, which it cannot see.
fn format() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--", "--check"])?;
    let sources = shell::root().join("tool/targets/src");
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]);
    for entry in std::fs::read_dir(&sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            rustfmt.arg(path);
        }
    }
    shell::run(&mut rustfmt)
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    shell::run(&mut shell::cargo(arguments))
}

/// Runs every step, or those from the row of this one on, and says at the end what held.
pub(crate) fn run(from: Option<&str>) -> anyhow::Result<()> {
    println!("{}", all(steps_from(from)?)?);
    Ok(())
}

fn steps_from(name: Option<&str>) -> anyhow::Result<&'static [&'static [Step]]> {
    let Some(name) = name else {
        return Ok(STEPS);
    };
    let has_it = |row: &&[Step]| row.iter().any(|step| step.name == name);
    let names = || {
        STEPS
            .iter()
            .flat_map(|row| row.iter().map(|step| step.name))
    };
    let at = STEPS.iter().position(has_it).with_context(|| {
        let names: Vec<_> = names().collect();
        format!("no step {name}; there are: {}", names.join(", "))
    })?;
    Ok(&STEPS[at..])
}

/// All steps of a row end whatever fails, so that one run tells of every failure.
fn all(rows: &[&[Step]]) -> anyhow::Result<String> {
    let start = Instant::now();
    let mut times = Vec::new();
    for row in rows {
        let outcomes = std::thread::scope(|scope| {
            let threads: Vec<_> = row.iter().map(|step| scope.spawn(|| timed(step))).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .map(|outcome| outcome.expect("a thread of a step"))
                .collect::<Vec<_>>()
        });
        let (held, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
        let failed: Vec<_> = failed.iter().map(|error| format!("{error:#}")).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
        times.extend(held.into_iter().flatten());
    }
    Ok(summary(&times, start.elapsed()))
}

fn timed(step: &Step) -> anyhow::Result<(&'static str, Duration)> {
    println!("== {}", step.name);
    let start = Instant::now();
    (step.run)().with_context(|| format!("ci failed at: {}", step.name))?;
    let took = start.elapsed();
    println!("== {}: {:.1} s\n", step.name, took.as_secs_f64());
    Ok((step.name, took))
}

fn summary(times: &[(&str, Duration)], all: Duration) -> String {
    let width = times.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, time) in times {
        text += &format!("{name:<width$}  {:>6.1} s\n", time.as_secs_f64());
    }
    let steps = times.len();
    text + &format!("ci: all {steps} steps passed in {:.0} s", all.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lists_every_step_with_its_time() {
        let times = [
            ("format", Duration::from_millis(1250)),
            ("tests", Duration::from_secs(60)),
        ];
        let expected = "format     1.2 s\ntests     60.0 s\nci: all 2 steps passed in 61 s";
        assert_eq!(summary(&times, Duration::from_secs(61)), expected);
    }

    #[test]
    fn it_begins_with_the_row_of_the_step_that_is_named() {
        let first = |name| steps_from(name).map(|rows| rows[0][0].name);
        assert_eq!(first(None).unwrap(), "packages");
        assert_eq!(first(Some("documentation")).unwrap(), "tests");
        let error = first(Some("nonsense")).unwrap_err().to_string();
        assert!(error.contains("generated pages"), "{error}");
    }

    #[test]
    fn a_row_that_fails_names_its_failures_and_is_the_last() {
        let step = |name, run| Step { name, run };
        let bad = || anyhow::bail!("no");
        let rows: [&[Step]; 3] = [
            &[step("good", || Ok(()))],
            &[
                step("bad", bad),
                step("beside", || Ok(())),
                step("worse", bad),
            ],
            &[step("never", || panic!("ran after a failure"))],
        ];
        let error = all(&rows).unwrap_err().to_string();
        assert_eq!(error, "ci failed at: bad: no\n\nci failed at: worse: no");
    }
}
