//! `cargo xtask ci`: everything that must hold before a change goes in, the
//! same for people and machines. The first failure ends it.

use crate::{dist, docs, test_runs};
use anyhow::Context;
use jostle_testbed::{packages, shell};
use std::process::Command;
use std::time::{Duration, Instant};

/// A name, and what must succeed.
type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Installs the Redis clients that jostled is tested with.
const CLIENTS: &str = "jostled/server/tests/install-clients.sh";

/// Installs what the examples of tool/docs/data.md read results with.
const READERS: &str = "tool/cli/tests/install-readers.sh";

/// In the order in which a mistake is found soonest.
const STEPS: &[Step] = &[
    ("packages", packages::ensure_all),
    ("clients", || {
        shell::run(&mut Command::new(shell::root().join(CLIENTS)))
    }),
    ("readers", || {
        shell::run(&mut Command::new(shell::root().join(READERS)))
    }),
    ("format", format),
    ("lints", || {
        let lint = [&["clippy"][..], &shell::EVERYTHING, &["--all-targets"]].concat();
        cargo(&[&lint[..], &["--", "-D", "warnings"]].concat())?;
        // What a newcomer compiles: without the clients of services.
        cargo(&["clippy", "--", "-D", "warnings"])
    }),
    ("tests", test_runs::run),
    // It packs the programs that the tests have just built.
    ("packaging", dist::check_packaging),
    ("documentation", || {
        let mut doc = shell::cargo(&[&["doc", "--no-deps"][..], &shell::EVERYTHING].concat());
        shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("generated pages", || docs::run(true)),
];

/// `cargo fmt` follows `mod` lines; the modules of targets and checks are declared by the macros
/// of their tables, which it cannot see.
fn format() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--", "--check"])?;
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]);
    for sources in ["tool/targets/src", "tool/stats/src/checks"] {
        for entry in std::fs::read_dir(shell::root().join(sources))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                rustfmt.arg(path);
            }
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
    let at = STEPS.iter().position(|(step, _)| *step == name);
    let names = || STEPS.iter().map(|(step, _)| *step).collect::<Vec<_>>();
    let at = at.with_context(|| format!("no step {name}; there are: {}", names().join(", ")))?;
    Ok(&STEPS[at..])
}

fn all(steps: &[Step]) -> anyhow::Result<String> {
    let mut times = Vec::new();
    for (name, run) in steps {
        println!("== {name}");
        let start = Instant::now();
        run().with_context(|| format!("ci failed at: {name}"))?;
        times.push((*name, start.elapsed()));
        println!("== {name}: {:.1} s\n", start.elapsed().as_secs_f64());
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
        let first = |name| steps_from(name).map(|steps| steps[0].0);
        assert_eq!(first(None).unwrap(), "packages");
        assert_eq!(first(Some("documentation")).unwrap(), "documentation");
        let error = first(Some("nonsense")).unwrap_err().to_string();
        assert!(error.contains("generated pages"), "{error}");
    }

    #[test]
    fn the_first_failure_ends_it_and_names_the_step() {
        let steps: [Step; 3] = [
            ("good", || Ok(())),
            ("bad", || anyhow::bail!("no")),
            ("never", || panic!("ran after a failure")),
        ];
        let error = all(&steps).unwrap_err();
        assert_eq!(error.to_string(), "ci failed at: bad");
        assert_eq!(error.root_cause().to_string(), "no");
    }
}
