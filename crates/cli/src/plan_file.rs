//! Plan files: TOML with one `[[experiment]]` table for each experiment, in the
//! words of the command line's long options. A result file serves as well: the
//! plans of its experiment records are run again.

use anyhow::{Context, Result, anyhow, bail};
use jostle_model::plan::Plan;
use jostle_model::record::Record;
use serde::{Deserialize, Serialize};
use std::path::Path;
use toml::Spanned;

#[derive(Debug, Serialize)]
struct PlanFile {
    experiment: Vec<Plan>,
}

/// The text of a plan.
///
/// # Errors
/// Where the file cannot be read.
pub(crate) fn load(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the plan {}", path.display()))
}

/// The plans in the text of a file, each with its place for later error messages:
/// `plans/x.toml, line 7, experiment 2: `.
///
/// # Errors
/// File, line, experiment and field, and what is wrong there.
pub(crate) fn read(path: &Path, text: &str) -> Result<Vec<(Plan, String)>> {
    let name = path.display();
    let plans = match text.trim_start().starts_with('{') {
        true => of_result(text),
        false => of_plan(text),
    };
    let plans = plans.map_err(|wrong| anyhow!("{name}, {wrong}"))?;
    if plans.is_empty() {
        bail!("{name} holds no experiment; a plan has [[experiment]] tables");
    }
    let numbered = plans.into_iter().zip(1..);
    Ok(numbered
        .map(|((plan, line), nth)| (plan, format!("{name}, line {line}, experiment {nth}: ")))
        .collect())
}

/// Each experiment, and the line on which it begins, from 1.
fn of_plan(text: &str) -> Result<Vec<(Plan, usize)>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Spans {
        experiment: Vec<Spanned<Plan>>,
    }
    let file: Spans = toml::from_str(text).map_err(|error| place_in_plan(&error, text))?;
    let experiments = file.experiment.into_iter();
    Ok(experiments
        .map(|plan| (line_of(text, plan.span().start), plan))
        .map(|(line, plan)| (plan.into_inner(), line))
        .collect())
}

/// Where in a plan file an error is, and what it is.
fn place_in_plan(error: &toml::de::Error, text: &str) -> String {
    let what = error.message().trim().replace('\n', "; ");
    let Some(at) = error.span().map(|span| span.start) else {
        return format!("not a plan: {what}");
    };
    let number = line_of(text, at);
    let head = |line: &&str| line.trim_start().starts_with("[[experiment]]");
    let mut place = format!("line {number}");
    match text.lines().take(number).filter(head).count() {
        0 => {}
        nth => place += &format!(", experiment {nth}"),
    }
    let line = text.lines().nth(number - 1).unwrap_or("");
    if let Some((field, _)) = line
        .split_once('=')
        .filter(|_| !line.trim_start().starts_with('['))
    {
        place += &format!(", field `{}`", field.trim());
    }
    format!("{place}: {what}")
}

/// From 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// Each experiment record, and its line. Of one that is wrong the field is named.
fn of_result(text: &str) -> Result<Vec<(Plan, usize)>, String> {
    let lines = text.lines().enumerate();
    let experiments = lines.filter(|(_, line)| line.contains("\"experiment\""));
    let mut plans = Vec::new();
    for (at, line) in experiments {
        let number = at + 1;
        match serde_json::from_str(line) {
            Ok(Record::Experiment(experiment)) => plans.push((experiment.plan, number)),
            Ok(_) => {}
            Err(error) => {
                let nth = plans.len() + 1;
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or(&what);
                return Err(format!(
                    "line {number}, experiment {nth}, column {}: {what}",
                    error.column()
                ));
            }
        }
    }
    Ok(plans)
}

/// Plans as a plan file.
///
/// # Errors
/// None in practice; TOML has no place for a few things that plans do not hold.
pub(crate) fn write(plans: &[Plan]) -> Result<String> {
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
        assert_eq!(plans[0].0.workers.as_ref().unwrap().0, [10, 20]);
        assert_eq!(plans[0].1, 2, "the line");
        let written = write(std::slice::from_ref(&plans[0].0)).unwrap();
        assert_eq!(of_plan(&written).unwrap()[0].0, plans[0].0);
    }

    #[test]
    fn a_slip_of_the_pen_is_named_with_file_line_experiment_and_field() {
        let two = "# Two.\n[[experiment]]\nworkload = \"contend\"\n\n[[experiment]]\nworkload = ";
        for (text, says) in [
            (
                format!("{two}\"contend\"\nworkers = \"5..9\"\n"),
                "p.toml, line 7, experiment 2, field `workers`: `5..9` needs a step (+1000) or a \
                 factor (x10)",
            ),
            (
                format!("{two}\"contend\"\nworkers = true\n"),
                "p.toml, line 7, experiment 2, field `workers`: invalid type: boolean `true`, \
                 expected whole numbers: [10, 100], 10 or \"10:100:1000\"",
            ),
            (
                format!("{two}\"contend\"\nhold = \"1000\""),
                "p.toml, line 7, experiment 2, field `hold`: `1000` is not a time; write a number \
                 and its unit, such as 250us, 1ms or 10s",
            ),
            (
                format!("{two}\"contned\""),
                "p.toml, line 6, experiment 2, field `workload`: unknown variant `contned`",
            ),
            (
                format!("{two}\"contend\"\nworker = 3"),
                "p.toml, line 7, experiment 2, field `worker`: unknown field `worker`",
            ),
            (
                "[[experiments]]\nworkload = \"contend\"".to_owned(),
                "p.toml, line 1: unknown field `experiments`",
            ),
            (
                format!("{two}\n"),
                "p.toml, line 6, experiment 2, field `workload`: ",
            ),
            (String::new(), "p.toml, "),
        ] {
            let error = read(Path::new("p.toml"), &text).unwrap_err().to_string();
            assert!(
                error.starts_with(says),
                "{error}\ndoes not begin with\n{says}"
            );
            assert!(!error.contains("any variant"), "{error}");
        }
    }

    #[test]
    fn each_plan_knows_where_it_stands() {
        let text = "[[experiment]]\nworkload = \"hold\"\n[[experiment]]\nworkload = \"rate\"\n";
        let plans = read(Path::new("p.toml"), text).unwrap();
        let places: Vec<&str> = plans.iter().map(|(_, place)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "p.toml, line 1, experiment 1: ",
                "p.toml, line 3, experiment 2: "
            ]
        );
    }
}
