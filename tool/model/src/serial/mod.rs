//! Records and plans as text and back: the one place that reads and writes them.
//!
//! serde's derives are generic over the format, so each crate that calls a format's own
//! functions on a record compiles the code of all records again. The functions here are
//! not generic. Every text is read by way of [`Value`], so that the code that makes
//! records from it exists once, whether the text is JSON or TOML.

mod fields;
mod range;

use self::fields::read;
use crate::calibrated::Calibrated;
use crate::options::{OPTIONS, Plan};
use crate::plan::Workload;
use crate::record::{At, Distribution, Environment, READS, Record, Run};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
pub use serde_json::Value;
use serde_json::{Error, Map};
use std::collections::BTreeMap;
use toml::Spanned;

/// Why a line is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotARecord {
    /// It names a version of the format that this build does not read.
    Schema(String),
    /// It is no JSON, or its fields are not those of a record.
    Text {
        /// The fault, in words for the user.
        what: String,
        /// From 1; None if it is not known.
        column: Option<usize>,
    },
    /// This number in it is nothing that can be measured.
    Beyond(String),
}

/// The record in a line of JSON.
///
/// # Errors
/// Another version's record, or what is wrong with the line.
pub fn record_from_json(line: &str) -> Result<Record, NotARecord> {
    // The parser that serde_json has compiled: optimised, as this crate need not be.
    let value: Value = line.parse().map_err(wrong)?;
    // Another version's record may not parse as ours.
    if let Some(schema) = value.get("schema").and_then(Value::as_str)
        && !READS.contains(&schema)
    {
        return Err(NotARecord::Schema(schema.to_owned()));
    }
    let beyond = range::beyond_measure(&value);
    let record = record(value).map_err(wrong)?;
    // A machine's limits may be very large numbers.
    match (beyond, &record) {
        (None, _)
        | (
            _,
            Record::Experiment(_)
            | Record::Scheduled(_)
            | Record::Calibrated(_)
            | Record::Judged(_),
        ) => Ok(record),
        (Some(number), _) => Err(NotARecord::Beyond(number)),
    }
}

/// A record as a line of JSON, without the end of the line.
pub fn record_to_json(record: &Record) -> String {
    json(record)
}

fn wrong(error: Error) -> NotARecord {
    let text = error.to_string();
    // serde_json's line number counts within the given line.
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    NotARecord::Text {
        what,
        // 0 stands for an error that was found after the text was read.
        column: Some(error.column()).filter(|column| *column > 0),
    }
}

fn record(value: Value) -> Result<Record, Error> {
    fn boxed<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<Box<T>, Error> {
        read(Value::Object(fields)).map(Box::new)
    }
    let refused = |what: &str| <Error as serde::de::Error>::custom(what);
    let Value::Object(mut fields) = value else {
        return Err(refused("no fields in braces"));
    };
    let kind = match fields.remove("record") {
        Some(Value::String(kind)) => kind,
        Some(other) => return Err(refused(&format!("`record` is {other}, not a kind"))),
        None => return Err(refused("missing field `record`")),
    };
    Ok(match kind.as_str() {
        "experiment" => Record::Experiment(boxed(fields)?),
        "scheduled" => Record::Scheduled(boxed(fields)?),
        "resumed" => Record::Resumed(boxed(fields)?),
        // Its name before `jostle/3` was `point`.
        "run" | "point" => Record::Run(boxed(fields)?),
        "closing" => Record::Closing(boxed(fields)?),
        "fit" => Record::Fit(boxed(fields)?),
        "verdict" => Record::Verdict(boxed(fields)?),
        "end" => Record::End(*boxed(fields)?),
        "calibrated" => Record::Calibrated(boxed(fields)?),
        "judged" => Record::Judged(boxed(fields)?),
        "doubled" => Record::Doubled(boxed(fields)?),
        other => return Err(refused(&format!("unknown kind of record `{other}`"))),
    })
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        record(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A calibration as its file in the user's cache holds it.
pub fn calibrated_to_json(calibrated: &Calibrated) -> String {
    json(calibrated)
}

/// The calibration in such a file; None if that is not what it holds.
pub fn calibrated_from_json(text: &[u8]) -> Option<Calibrated> {
    read(std::str::from_utf8(text).ok()?.parse().ok()?).ok()
}

/// A plan as its fields.
pub fn plan_fields(plan: &Plan) -> Map<String, Value> {
    fields(&json(plan))
}

/// An environment as its fields.
pub fn environment_fields(environment: &Environment) -> Map<String, Value> {
    fields(&json(environment))
}

/// The swept values of a point that are numbers, by name.
pub fn sizes(at: At) -> BTreeMap<String, f64> {
    let fields = fields(&json(&at)).into_iter();
    fields
        .filter_map(|(name, value)| Some((name, value.as_f64()?)))
        .collect()
}

/// Every distribution of a run that has values, by its name in the record. They are found
/// by their form (a field in nanoseconds that counts its values), so that those of later
/// workloads are included. Waits are more than a distribution, and are left out.
pub fn distributions(run: &Run) -> BTreeMap<String, Distribution> {
    let lean = Run {
        histograms: BTreeMap::new(),
        workers: None,
        ..run.clone()
    };
    let of_times = |(name, value): (String, Value)| {
        let is_one = name.ends_with("_ns") && value.get("count").is_some();
        let is_one = is_one && value.get("kaplan_meier").is_none();
        let found: Distribution = read(value).ok().filter(|_| is_one)?;
        (found.count > 0).then_some((name, found))
    };
    let fields = fields(&json(&Record::Run(Box::new(lean)))).into_iter();
    fields.filter_map(of_times).collect()
}

/// Why a text is no plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAPlan {
    /// The fault, in words for the user.
    pub what: String,
    /// The byte at which it is wrong, from 0; None if no place can be named.
    pub at: Option<usize>,
}

/// The plans in the text of a plan file (TOML with `[[experiment]]` tables), and the byte at
/// which each begins.
///
/// # Errors
/// What is wrong with the text, and where.
pub fn plans_from_toml(text: &str) -> Result<Vec<(Plan, usize)>, NotAPlan> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        experiment: Vec<Spanned<BTreeMap<Spanned<String>, Value>>>,
    }
    let file: File = toml::from_str(text).map_err(|error| NotAPlan {
        what: error.message().trim().replace('\n', "; "),
        at: error.span().map(|span| span.start),
    })?;
    let experiments = file.experiment.into_iter();
    experiments
        .map(|table| {
            let at = table.span().start;
            plan(table.into_inner(), at).map(|plan| (plan, at))
        })
        .collect()
}

/// The plan in one table that begins at byte `at`.
fn plan(table: BTreeMap<Spanned<String>, Value>, at: usize) -> Result<Plan, NotAPlan> {
    let fields = table.iter();
    let fields = fields.map(|(name, value)| (name.get_ref().clone(), value.clone()));
    read(Value::Object(fields.collect())).map_err(|error| {
        // The error does not tell which field is wrong: the first that is wrong by itself.
        let refusal = |(name, value): (Spanned<String>, Value)| {
            let mut alone = Map::new();
            alone.insert("workload".to_owned(), Workload::Contend.as_str().into());
            alone.insert(name.get_ref().clone(), value);
            let error = read::<Plan>(Value::Object(alone)).err()?;
            Some((name.span().start, error))
        };
        let refusals = table.into_iter().filter_map(refusal);
        let (at, error) = refusals.min_by_key(|(at, _)| *at).unwrap_or((at, error));
        NotAPlan {
            what: error.to_string(),
            at: Some(at),
        }
    })
}

/// Plans as the text of a plan file.
pub fn plans_to_toml(plans: &[Plan]) -> String {
    let heads = ["workload", "targets", "optional"];
    let words = OPTIONS.iter().map(|option| option.word);
    let words: Vec<&str> = heads.into_iter().chain(words).collect();
    let table = |plan: &Plan| {
        let fields = plan_fields(plan);
        let lines = words.iter().filter_map(|word| {
            let value = toml::Value::try_from(fields.get(*word)?).ok()?;
            Some(format!("{word} = {value}\n"))
        });
        format!("[[experiment]]\n{}", lines.collect::<String>())
    };
    plans.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Plain data with text keys, which always can be written.
fn json(data: &impl Serialize) -> String {
    serde_json::to_string(data).unwrap_or_default()
}

fn fields(json: &str) -> Map<String, Value> {
    match json.parse() {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Circumstances, Cpu, End, Window};

    #[test]
    fn every_kind_of_record_that_is_written_is_read() {
        let records = [
            Record::Scheduled(Box::default()),
            Record::Resumed(Box::default()),
            Record::Run(Box::default()),
            Record::Closing(Box::default()),
            Record::Fit(Box::default()),
            Record::Verdict(Box::default()),
            Record::End(End {
                exit: 1,
                error: None,
                elapsed_s: 0.1 + 0.2,
            }),
            Record::Calibrated(Box::new(Calibrated {
                schema: READS[0].to_owned(),
                ..Calibrated::default()
            })),
            Record::Doubled(Box::default()),
        ];
        for record in records {
            let line = record_to_json(&record);
            assert_eq!(record_from_json(&line), Ok(record), "{line}");
        }
    }

    #[test]
    fn a_run_is_written_flat_and_read_by_its_old_name_too() {
        let mut run = Run {
            target: "flock".to_owned(),
            window: Window {
                window_s: 0.25,
                ..Window::default()
            },
            cpu: Cpu {
                cpu_s: Some(0.125),
                ..Cpu::default()
            },
            around: Circumstances {
                messages: vec!["late".to_owned()],
                ..Circumstances::default()
            },
            ..Run::default()
        };
        // The greatest count that a line may hold.
        run.around.errors.insert("EIO".to_owned(), 1 << 53);
        run.around.machine.ticks = 7;
        let record = Record::Run(Box::new(run));
        let line = record_to_json(&record);
        let Some(behind) = line.strip_prefix("{\"record\":\"run\",") else {
            panic!("{line}");
        };
        let fields = fields(&line);
        for (name, value) in [("window_s", 0.25), ("cpu_s", 0.125)] {
            assert_eq!(fields[name].as_f64(), Some(value), "{line}");
        }
        assert_eq!(fields["machine"]["ticks"], 7);
        assert_eq!(fields["messages"][0], "late");
        let old = format!("{{\"record\":\"point\",{behind}");
        for text in [&line, &old] {
            assert_eq!(record_from_json(text), Ok(record.clone()), "{text}");
        }
    }

    #[test]
    fn a_line_that_is_no_record_is_refused_with_what_is_wrong() {
        let table = [
            ("[1]", "no fields in braces"),
            ("{\"exit\":1}", "missing field `record`"),
            ("{\"record\":5}", "`record` is 5, not a kind"),
            ("{\"record\":\"x\"}", "unknown kind of record `x`"),
            ("{\"record\":\"end\"}", "missing field `exit`"),
            (
                "{\"record\":\"end\",\"exit\":\"1\",\"elapsed_s\":1}",
                "invalid type: string \"1\", expected u8",
            ),
            (
                "{\"record\":\"verdict\",\"target\":\"x\",\"at\":[7]}",
                "invalid type: sequence, expected struct At",
            ),
            ("{\"record\":", "EOF while parsing a value"),
        ];
        for (line, expected) in table {
            match record_from_json(line) {
                Err(NotARecord::Text { what, column }) => {
                    assert_eq!(what, expected, "{line}");
                    assert_eq!(column.is_some(), what.starts_with("EOF"), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        let other = record_from_json("{\"record\":\"experiment\",\"schema\":\"jostle/9\"}");
        assert_eq!(other, Err(NotARecord::Schema("jostle/9".to_owned())));
    }

    #[test]
    fn a_wrong_field_of_a_plan_is_found_where_it_stands() {
        let text = "[[experiment]]\nworkload = \"contend\"\nworkers = 3\nruns = -1\nhold = \"x\"\n";
        let refused = plans_from_toml(text).unwrap_err();
        assert_eq!(refused.at, text.find("runs"), "{}", refused.what);
        let text = "# One.\n[[experiment]]\nruns = 2\n";
        let refused = plans_from_toml(text).unwrap_err();
        assert_eq!(refused.at, text.find("[["), "{}", refused.what);
        assert_eq!(refused.what, "missing field `workload`");
    }

    #[test]
    fn a_plan_that_is_written_is_read_with_every_option() {
        let mut plan = Plan::of(Workload::Contend);
        plan.targets = vec!["flock:/a \"b\"\n".to_owned(), "sysv".to_owned()];
        plan.optional = vec!["redis".to_owned()];
        for option in OPTIONS {
            option.set(&mut plan, option.example).unwrap();
        }
        let plans = [plan.clone(), Plan::of(Workload::Hold)];
        let text = plans_to_toml(&plans);
        let read = plans_from_toml(&text).unwrap();
        let read: Vec<Plan> = read.into_iter().map(|(plan, _)| plan).collect();
        assert_eq!(read, plans, "{text}");
        assert!(text.starts_with("[[experiment]]\nworkload = \"contend\"\ntargets = ["));
    }
}
