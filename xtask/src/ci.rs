//! `cargo xtask ci`: everything that must hold before a change goes in, the
//! same for people and machines. The first failure ends it.

use crate::{dist, docs, test_runs};
use anyhow::Context;
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

/// In the order in which a mistake is found soonest.
const STEPS: &[Step] = &[
    Step {
        name: "packages",
        run: packages::ensure_all,
    },
    Step {
        name: "clients",
        run: || shell::run(&mut Command::new(shell::root().join(CLIENTS))),
    },
    Step {
        name: "readers",
        run: || shell::run(&mut Command::new(shell::root().join(READERS))),
    },
    Step {
        name: "format",
        run: format,
    },
    Step {
        name: "lints",
        run: || {
            let lint = [&["clippy"][..], &shell::EVERYTHING, &["--all-targets"]].concat();
            cargo(&[&lint[..], &["--", "-D", "warnings"]].concat())?;
            // What a newcomer compiles: without the clients of services.
            cargo(&["clippy", "--", "-D", "warnings"])
        },
    },
    Step {
        name: "tests",
        run: test_runs::run,
    },
    // It packs the programs that the tests have just built.
    Step {
        name: "packaging",
        run: dist::check_packaging,
    },
    Step {
        name: "documentation",
        run: || {
            let mut doc = shell::cargo(&[&["doc", "--no-deps"][..], &shell::EVERYTHING].concat());
            shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
        },
    },
    Step {
        name: "generated pages",
        run: || docs::run(true),
    },
];

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

/// Runs every step, or those from this one on, and says at the end what held.
pub(crate) fn run(from: Option<&str>) -> anyhow::Result<()> {
    println!("{}", all(steps_from(from)?)?);
    Ok(())
}

fn steps_from(name: Option<&str>) -> anyhow::Result<&'static [Step]> {
    let Some(name) = name else {
        return Ok(STEPS);
    };
    let at = STEPS.iter().position(|step| step.name == name);
    let names = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>();
    let at = at.with_context(|| format!("no step {name}; there are: {}", names().join(", ")))?;
    Ok(&STEPS[at..])
}

fn all(steps: &[Step]) -> anyhow::Result<String> {
    let mut times = Vec::new();
    for step in steps {
        println!("== {}", step.name);
        let start = Instant::now();
        (step.run)().with_context(|| format!("ci failed at: {}", step.name))?;
        times.push((step.name, start.elapsed()));
        println!("== {}: {:.1} s\n", step.name, start.elapsed().as_secs_f64());
    }
    Ok(summary(&times))
}

fn summary(times: &[(&str, Duration)]) -> String {
    let width = times.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, time) in times {
        text += &format!("{name:<width$}  {:>6.1} s\n", time.as_secs_f64());
    }
    let sum: Duration = times.iter().map(|(_, time)| *time).sum();
    text + &format!(
        "ci: all {} steps passed in {:.0} s",
        times.len(),
        sum.as_secs_f64()
    )
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
        assert_eq!(summary(&times), expected);
    }

    #[test]
    fn it_begins_with_the_step_that_is_named() {
        let first = |name| steps_from(name).map(|steps| steps[0].name);
        assert_eq!(first(None).unwrap(), "packages");
        assert_eq!(first(Some("documentation")).unwrap(), "documentation");
        let error = first(Some("nonsense")).unwrap_err().to_string();
        assert!(error.contains("generated pages"), "{error}");
    }

    #[test]
    fn the_first_failure_ends_it_and_names_the_step() {
        let steps = [
            Step {
                name: "good",
                run: || Ok(()),
            },
            Step {
                name: "bad",
                run: || anyhow::bail!("no"),
            },
            Step {
                name: "never",
                run: || panic!("ran after a failure"),
            },
        ];
        let error = all(&steps).unwrap_err();
        assert_eq!(error.to_string(), "ci failed at: bad");
        assert_eq!(error.root_cause().to_string(), "no");
    }
}
