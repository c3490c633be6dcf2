//! Plan files: TOML with one `[[experiment]]` table for each experiment, in the
//! words of the command line's long options. A result file serves as well: the
//! plans of its experiment records are run again.

use anyhow::{Context, Result, bail};
use jostle_model::plan::Plan;
use jostle_model::record::Record;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    experiment: Vec<Plan>,
}

/// The text of a plan.
///
/// # Errors
/// Where the file cannot be read.
pub fn load(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the plan {}", path.display()))
}

/// The plans in the text of a file.
///
/// # Errors
/// Which line is wrong and why.
pub fn read(path: &Path, text: &str) -> Result<Vec<Plan>> {
    let plans = match text.trim_start().starts_with('{') {
        true => of_result(text),
        false => of_plan(text),
    };
    let plans = plans.with_context(|| format!("{} is not a plan", path.display()))?;
    if plans.is_empty() {
        bail!(
            "{} holds no experiment; a plan has [[experiment]] tables",
            path.display()
        );
    }
    Ok(plans)
}

fn of_plan(text: &str) -> Result<Vec<Plan>> {
    Ok(toml::from_str::<PlanFile>(text)?.experiment)
}

fn of_result(text: &str) -> Result<Vec<Plan>> {
    let experiments = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("\"experiment\""));
    experiments
        .filter_map(|(at, line)| match serde_json::from_str(line) {
            Ok(Record::Experiment(experiment)) => Some(Ok(experiment.plan)),
            Ok(_) => None,
            Err(error) => Some(Err(error).with_context(|| format!("line {}", at + 1))),
        })
        .collect()
}

/// Plans as a plan file.
///
/// # Errors
/// None in practice; TOML has no place for a few things that plans do not hold.
pub fn write(plans: &[Plan]) -> Result<String> {
    Ok(toml::to_string(&PlanFile {
        experiment: plans.to_vec(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_file_speaks_the_command_line_s_words() {
        let plans = of_plan(
            r#"
            [[experiment]]
            workload = "contend"
            targets = ["flock", "sysv"]
            workers = "10:20"
            hold = "-250us"
            as = "threads"
            duration = "5s"
            "#,
        )
        .unwrap();
        assert_eq!(plans[0].workers.as_ref().unwrap().0, [10, 20]);
        assert_eq!(of_plan(&write(&plans).unwrap()).unwrap(), plans);
    }

    #[test]
    fn a_slip_of_the_pen_is_named() {
        for (text, says) in [
            (
                "[[experiment]]\nworkload = \"contend\"\nworker = 3",
                "worker",
            ),
            ("[[experiment]]\nworkload = \"contned\"", "contned"),
            (
                "[[experiment]]\nworkload = \"contend\"\nhold = \"1000\"",
                "its unit",
            ),
            ("[[experiments]]\nworkload = \"contend\"", "experiments"),
        ] {
            let error = format!("{:#}", of_plan(text).unwrap_err());
            assert!(error.contains(says), "{error:?} does not name {says:?}");
        }
    }
}
