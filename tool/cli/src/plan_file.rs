//! Plan files: TOML with one `[[experiment]]` table for each experiment, in the
//! words of the command line's long options. A result file serves as well: the
//! plans of its experiment records are run again.

use crate::Failure;
use anyhow::{Context, Result, anyhow, bail};
use jostle_model::options::OPTIONS;
use jostle_model::plan::Plan;
use jostle_model::record::Record;
use jostle_model::serial::{NotAPlan, NotARecord, plans_from_toml, record_from_json};
use jostle_model::text::{one_line, quoted};
use jostle_report::{MOST_LINE_BYTES, lines};
use jostle_targets::Spec;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The plans of `tool/plans/` by name, which every jostle has in itself.
pub(crate) const BUILT_IN: [(&str, &str); 7] = [
    ("cern", include_str!("../../plans/cern.toml")),
    ("connections", include_str!("../../plans/connections.toml")),
    ("lockscale", include_str!("../../plans/lockscale.toml")),
    ("old", include_str!("../../plans/old.toml")),
    ("scope", include_str!("../../plans/scope.toml")),
    ("scope-lan", include_str!("../../plans/scope-lan.toml")),
    ("services", include_str!("../../plans/services.toml")),
];

/// The text of the built-in plan that is meant by `lockscale`, `lockscale.toml` or
/// `plans/lockscale.toml`.
///
/// # Errors
/// For the user: that there is no such file, and the names of the plans that are built in.
fn built_in(typed: &Path) -> Result<&'static str> {
    let nothing = || format!("{}: No such file", cannot_read(typed));
    let name = typed.strip_prefix("plans").unwrap_or(typed).to_str();
    let stem = name.map(|name| name.strip_suffix(".toml").unwrap_or(name));
    // Other paths name a place of the user's own.
    let Some(stem) = stem.filter(|stem| !stem.contains(['/', '.'])) else {
        bail!(nothing());
    };
    let found = BUILT_IN.iter().find(|(name, _)| *name == stem);
    found.map(|(_, text)| *text).with_context(|| {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        format!(
            "{} here; jostle brings these: {}",
            nothing(),
            names.join(", ")
        )
    })
}

/// A file's plans.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Each plan with its place for later error messages:
    /// `plans/x.toml, line 7, experiment 2: `.
    pub plans: Vec<(Plan, String)>,
    /// Whether it is a result file, which may be somebody else's.
    pub is_result: bool,
}

/// The plans of a file, else of the built-in plan of this name.
///
/// # Errors
/// Where the file cannot be read, and as [`read`].
pub(crate) fn load(path: &Path) -> Result<Asked, Failure> {
    if !path.exists() {
        return read(path, &mut built_in(path)?.as_bytes());
    }
    let file = File::open(path).with_context(|| cannot_read(path))?;
    read(path, &mut BufReader::new(file))
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the plan {}", path.display())
}

/// The plans in a text.
///
/// # Errors
/// File, line, experiment and field, and what is wrong there; a text that cannot be read.
pub(crate) fn read(path: &Path, input: &mut dyn BufRead) -> Result<Asked, Failure> {
    let name = path.display().to_string();
    let head = input.fill_buf().with_context(|| cannot_read(path))?;
    let is_result = head.trim_ascii_start().starts_with(b"{");
    let plans = match is_result {
        true => of_result(input, &name)?,
        false => of_plan(&whole(path, input)?),
    };
    let plans = plans.map_err(|wrong| Failure::Usage(format!("{name}, {wrong}")))?;
    if plans.is_empty() {
        return Err(Failure::Usage(format!(
            "{name} holds no experiment; a plan has [[experiment]] tables"
        )));
    }
    let numbered = plans.into_iter().zip(1..);
    let plans = numbered
        .map(|((plan, line), nth)| (plan, format!("{name}, line {line}, experiment {nth}: ")))
        .collect();
    Ok(Asked { plans, is_result })
}

/// The text of a plan.
fn whole(path: &Path, input: &mut dyn BufRead) -> Result<String> {
    let mut text = String::new();
    let read = input.take(MOST_LINE_BYTES + 1).read_to_string(&mut text);
    let read = read.with_context(|| cannot_read(path))?;
    match read as u64 > MOST_LINE_BYTES {
        true => Err(anyhow!(
            "{}: it is longer than {} MiB, too long for a plan",
            cannot_read(path),
            MOST_LINE_BYTES >> 20
        )),
        false => Ok(text),
    }
}

/// The programs that a plan starts and the libraries that it loads because it names them, as
/// typed. The servers that jostle launches by itself are not among them.
pub(crate) fn named_code(plan: &Plan) -> Vec<String> {
    let runs = |target: &String| Spec::parse(target).is_ok_and(|spec| spec.entry.runs_argument());
    let typed = |text: &String| one_line(&quoted(text)).into_owned();
    let targets = plan.targets.iter().chain(&plan.optional).cloned();
    let targets = targets.filter(runs).map(|target| typed(&target));
    let options = OPTIONS.iter().filter_map(|option| {
        let value = option.get(plan)?;
        let code = match option.value_name {
            "COMMAND" => true,
            "TARGET" => runs(&value),
            _ => false,
        };
        code.then(|| format!("{} {}", option.flag(), typed(&value)))
    });
    targets.chain(options).collect()
}

/// Each experiment, and the line on which it begins, from 1.
fn of_plan(text: &str) -> Result<Vec<(Plan, usize)>, String> {
    let plans = plans_from_toml(text).map_err(|error| place_in_plan(error, text))?;
    let plans = plans.into_iter();
    Ok(plans.map(|(plan, at)| (plan, line_of(text, at))).collect())
}

/// Where in a plan file an error is, and what it is.
fn place_in_plan(NotAPlan { what, at }: NotAPlan, text: &str) -> String {
    let Some(at) = at else {
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
///
/// # Errors
/// A file that cannot be read.
fn of_result(input: &mut dyn BufRead, name: &str) -> Result<Result<Vec<(Plan, usize)>, String>> {
    let mut plans = Vec::new();
    for line in lines(input, name) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(&line);
        if !line.contains("\"experiment\"") {
            continue;
        }
        match record_from_json(&line) {
            Ok(Record::Experiment(experiment)) => plans.push((experiment.plan, number)),
            Ok(_) => {}
            Err(error) => {
                let (what, column) = match error {
                    NotARecord::Schema(found) => (format!("its format is {found}"), None),
                    NotARecord::Text { what, column } => (what, column),
                    NotARecord::Beyond(number) => (format!("{number} is out of range"), None),
                };
                let nth = plans.len() + 1;
                let column = column.map_or(String::new(), |at| format!(", column {at}"));
                return Ok(Err(format!(
                    "line {number}, experiment {nth}{column}: {what}"
                )));
            }
        }
    }
    Ok(Ok(plans))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> Result<Asked, Failure> {
        read(Path::new("p.toml"), &mut text.as_bytes())
    }

    fn refusal(text: &str) -> String {
        match of_text(text) {
            Err(Failure::Usage(said)) => said,
            Err(Failure::Failed(error)) => error.to_string(),
            Ok(asked) => panic!("{asked:?}"),
        }
    }

    /// Every target that takes a command or a library, and every option that takes one.
    #[test]
    fn code_that_a_plan_names_is_found_wherever_it_stands() {
        let plan = |rest: &str| {
            let text = format!("[[experiment]]\nworkload = \"stream\"\n{rest}\n");
            of_text(&text).unwrap().plans.remove(0).0
        };
        let table = [
            (
                r#"targets = ["lockd", "redis", "echo_pipe", "flock:/x"]"#,
                "",
            ),
            (r#"targets = ["exec:ls /"]"#, "'exec:ls /'"),
            (
                r#"optional = ["pipe:./a", "lib:./b.so?c"]"#,
                "pipe:./a, 'lib:./b.so?c'",
            ),
            (r#"prepare = "a\nb""#, r"--prepare 'a\u000ab'"),
            (r#"during = "perf record""#, "--during 'perf record'"),
            (r#"null = "exec:true""#, "--null exec:true"),
            (r#"null = "none""#, ""),
        ];
        for (rest, found) in table {
            assert_eq!(named_code(&plan(rest)).join(", "), found, "{rest}");
        }
    }

    #[test]
    fn what_does_not_end_is_no_plan() {
        for head in ["", "{"] {
            let mut endless = BufReader::new(head.as_bytes().chain(std::io::repeat(0)));
            let Err(Failure::Failed(error)) = read(Path::new("zero"), &mut endless) else {
                panic!("{head}");
            };
            let error = format!("{error:#}");
            assert!(
                error.contains("zero") && error.contains("longer than 64 MiB"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plan_is_found_here_first_and_then_among_those_built_in() {
        let experiments = |typed: &Path| load(typed).map(|asked| asked.plans.len());
        for typed in ["lockscale", "lockscale.toml", "plans/lockscale.toml"] {
            assert_eq!(experiments(Path::new(typed)).unwrap(), 2, "{typed}");
        }
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("lockscale.toml");
        let own_text = "[[experiment]]\nworkload = \"contend\"\ntargets = [\"flock\"]\n";
        std::fs::write(&own, own_text).unwrap();
        assert_eq!(experiments(&own).unwrap(), 1);
        let missing = |typed: &str| match experiments(Path::new(typed)) {
            Err(Failure::Failed(error)) => error.to_string(),
            other => panic!("{typed}: {:?}", other.is_ok()),
        };
        let text = missing("plans/lokscale.toml");
        assert!(
            text.contains("brings these: cern, connections, lock"),
            "{text}"
        );
        assert_eq!(
            missing("/nowhere/lockscale.toml"),
            "cannot read the plan /nowhere/lockscale.toml: No such file"
        );
    }

    #[test]
    fn every_plan_of_the_repository_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, BUILT_IN.map(|(name, _)| name));
    }

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
        let written = jostle_model::serial::plans_to_toml(std::slice::from_ref(&plans[0].0));
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
            let error = refusal(&text);
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
        let asked = of_text(text).unwrap();
        let places: Vec<&str> = asked
            .plans
            .iter()
            .map(|(_, place)| place.as_str())
            .collect();
        assert_eq!(
            places,
            [
                "p.toml, line 1, experiment 1: ",
                "p.toml, line 3, experiment 2: "
            ]
        );
    }
}
