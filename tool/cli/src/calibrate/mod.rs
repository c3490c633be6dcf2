//! `jostle calibrate`: measures specimens with a known truth in the normal way, and
//! compares the findings with what the specimens recorded.
//!
//! [`rows::ROWS`] has the rows, one file each, with two functions per file. One measures,
//! by command lines that a user could type. The other judges records only, so that tests
//! can give it false ones. A row uses no information that an ordinary measurement lacks.

mod bench;
mod disturb;
mod group;
mod rows;
mod trial;

pub(crate) use disturb::disturb;

use crate::args::Calibrate;
use crate::{COMMIT, Failure, VERSION, complain, measure, messages, print};
use anyhow::anyhow;
use bench::{Attempt, Bench, Stop};
use jostle_engine::environment::environment;
use jostle_engine::proven;
use jostle_model::calibrated::{Calibrated, Finding, Outcome};
use jostle_model::record::{Record, SCHEMA};
use jostle_report::Writer;
use jostle_report::calibrated::render;
use jostle_stats::binomial::bounds;
use rows::{ROWS, Row};
use std::time::Instant;
use trial::{Agreement, Trial};

/// A row fails if the whole 95 % interval of its share of wrong trials lies above this;
/// inconclusive trials do not count (tool/docs/calibrate.md).
const WRONG_AT_MOST: f64 = 0.02;

/// Tries the rows and returns the exit code.
///
/// # Errors
/// What failed; a row that fails is no error.
pub(crate) fn calibrate(asked: &Calibrate) -> Result<u8, Failure> {
    let rows = chosen(asked)?;
    let trials = if asked.full { asked.trials } else { 1 };
    let writer = match &asked.output {
        Some(path) => Some(Writer::create(path, asked.overwrite).map_err(anyhow::Error::from)?),
        None => None,
    };
    let started = Instant::now();
    let started_at = measure::rfc3339(std::time::SystemTime::now());
    messages::hold();
    let mut bench = Bench::set_up(writer, asked)?;
    let mut findings: Vec<Tally> = rows.into_iter().flat_map(Tally::all_of).collect();
    let ended = try_all(&mut bench, &mut findings, trials)?;
    let calibrated = Calibrated {
        schema: SCHEMA.to_owned(),
        place: proven::place(&environment(bench.machine(), VERSION, COMMIT)),
        started_at,
        elapsed_s: started.elapsed().as_secs_f64(),
        trials,
        rows: findings
            .into_iter()
            .filter(Tally::was_tried)
            .map(Tally::finding)
            .collect(),
    };
    if let Some(code) = ended {
        complain("interrupted; nothing is kept of this calibration");
        return Ok(code);
    }
    let written = bench.write(&Record::Calibrated(Box::new(calibrated.clone())));
    drop(bench);
    // Before it is printed or an error is returned: a full disk must not cost the
    // calibration.
    let kept = keep(asked, &calibrated);
    let printed = print(&render(&asked.format, &calibrated));
    if let Some(why) = kept {
        complain(&why);
    }
    if let (Err(_), Err(error)) = (&written, &printed) {
        complain(&format!("{error:#}"));
    }
    written.and(printed)?;
    Ok(code_of(&calibrated))
}

/// A calibration that could try nothing shows nothing, and so fails as one that is wrong.
fn code_of(calibrated: &Calibrated) -> u8 {
    u8::from(calibrated.tried_none() || calibrated.has_failed())
}

/// Keeps the calibration for later results, where it is a whole one. Returns what the user
/// has to know.
fn keep(asked: &Calibrate, calibrated: &Calibrated) -> Option<String> {
    if calibrated.tried_none() {
        return Some("no row could be tried: this calibration fails and is not kept".to_owned());
    }
    // Part of the rows is no proof of the tool.
    if asked.rows.is_some() {
        return None;
    }
    let error = proven::store(calibrated).err()?;
    Some(format!(
        "later results will not know of it: cannot keep it: {error}"
    ))
}

fn chosen(asked: &Calibrate) -> Result<Vec<(u64, &'static Row)>, Failure> {
    let Some(list) = &asked.rows else {
        return Ok(numbered().collect());
    };
    let known = |number: &u64| (1..=ROWS.len() as u64).contains(number);
    if let Some(number) = list.0.iter().find(|number| !known(number)) {
        return Err(Failure::Usage(format!(
            "there is no row {number}; tool/docs/calibrate.md lists them"
        )));
    }
    let is_chosen = |(number, _): &(u64, _)| list.0.contains(number);
    Ok(numbered().filter(is_chosen).collect())
}

fn numbered() -> impl Iterator<Item = (u64, &'static Row)> {
    (1..).zip(ROWS)
}

/// Tries all rows in each round. Returns the exit code if the user stops it.
fn try_all(bench: &mut Bench, findings: &mut [Tally], trials: u64) -> Result<Option<u8>, Failure> {
    for nth in 1..=trials {
        for tally in findings.iter_mut() {
            let start = Instant::now();
            bench.show(&tally.finding, nth, trials);
            match bench.attempt(tally.attempt) {
                Ok(trial) => tally.add(trial),
                Err(Stop::Ended(code)) => return Ok(Some(code)),
                Err(Stop::Failed(error)) => return Err(Failure::Failed(anyhow!(error))),
                Err(Stop::CannotTell(why)) => tally.add(Trial::cannot_tell(why)),
            }
            tally.finding.took_s += start.elapsed().as_secs_f64();
        }
    }
    Ok(None)
}

/// A case of a row and how its trials came out.
struct Tally {
    attempt: Attempt,
    finding: Finding,
    differed: Option<String>,
    untold: Option<String>,
}

impl Tally {
    /// One for each case of the row.
    fn all_of((number, row): (u64, &Row)) -> impl Iterator<Item = Tally> {
        row.cases.iter().map(move |(planted, attempt)| Tally {
            attempt: *attempt,
            finding: Finding {
                row: number,
                name: row.name.to_owned(),
                planted: (*planted).to_owned(),
                ..Finding::default()
            },
            differed: None,
            untold: None,
        })
    }

    fn was_tried(&self) -> bool {
        self.finding.passed + self.finding.failed + self.finding.untold > 0
    }

    fn add(&mut self, trial: Trial) {
        let finding = &mut self.finding;
        let counter = match &trial.said {
            Agreement::Agrees => &mut finding.passed,
            Agreement::Differs(_) => &mut finding.failed,
            Agreement::CannotTell(_) => &mut finding.untold,
        };
        *counter += 1;
        // Printed are the figures of the last conclusive trial; a wrong one takes
        // precedence over right ones.
        let told = !matches!(trial.said, Agreement::CannotTell(_));
        let wrong = matches!(trial.said, Agreement::Differs(_));
        let nothing_yet = finding.passed + finding.failed <= u64::from(told);
        if nothing_yet || wrong || (told && self.differed.is_none()) {
            (finding.truth, finding.found) = (trial.truth, trial.found);
            finding.control = trial.control;
        }
        match trial.said {
            Agreement::Agrees => {}
            Agreement::Differs(why) => self.differed = Some(why),
            Agreement::CannotTell(why) => self.untold = Some(why),
        }
    }

    fn finding(mut self) -> Finding {
        let (passed, failed) = (self.finding.passed, self.finding.failed);
        let told = passed + failed;
        let surely_wrong = match told {
            0 => 0.0,
            1 => failed as f64,
            _ => bounds(failed, told)[0],
        };
        self.finding.right_share = (told > 1).then(|| bounds(passed, told));
        self.finding.outcome = match told {
            0 => Outcome::CannotTell,
            _ if surely_wrong > WRONG_AT_MOST => Outcome::Fail,
            _ => Outcome::Pass,
        };
        self.finding.why = self.differed.or(match told {
            0 => self.untold,
            _ => None,
        });
        self.finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(said: Agreement) -> Trial {
        Trial {
            truth: format!("truth of {said:?}"),
            said,
            ..Trial::default()
        }
    }

    fn after(saids: &[Agreement]) -> Finding {
        let mut tally = Tally::all_of((1, &ROWS[0])).next().unwrap();
        saids
            .iter()
            .cloned()
            .for_each(|said| tally.add(trial(said)));
        tally.finding()
    }

    fn differs() -> Agreement {
        Agreement::Differs("it lied".to_owned())
    }

    fn untold() -> Agreement {
        Agreement::CannotTell("one CPU".to_owned())
    }

    #[test]
    fn one_trial_is_what_it_says() {
        assert_eq!(after(&[Agreement::Agrees]).outcome, Outcome::Pass);
        let failed = after(&[differs()]);
        assert_eq!(
            (failed.outcome, failed.why.as_deref()),
            (Outcome::Fail, Some("it lied"))
        );
        let untold = after(&[untold()]);
        let expected = (Outcome::CannotTell, Some("one CPU"));
        assert_eq!((untold.outcome, untold.why.as_deref()), expected);
        assert_eq!(untold.right_share, None);
    }

    #[test]
    fn of_many_trials_a_few_may_be_wrong_and_the_bounds_are_of_those_that_told() {
        let mut saids = vec![Agreement::Agrees; 58];
        saids.extend([differs(), untold()]);
        let found = after(&saids);
        assert_eq!(found.outcome, Outcome::Pass);
        assert_eq!((found.passed, found.failed, found.untold), (58, 1, 1));
        assert!(
            found.truth.contains("it lied"),
            "the wrong one is shown: {found:?}"
        );
        let [low, high] = found.right_share.unwrap();
        assert!((0.90..0.92).contains(&low) && high > 0.999, "{found:?}");
        // Three of 60: surely more than 1 %, not surely more than 2 %... five are.
        let wrong = |count| {
            let mut saids = vec![Agreement::Agrees; 60 - count];
            saids.extend(vec![differs(); count]);
            after(&saids).outcome
        };
        assert_eq!(wrong(3), Outcome::Pass);
        assert_eq!(wrong(5), Outcome::Fail);
    }

    #[test]
    fn a_calibration_fails_if_a_row_did_or_none_could_be_tried() {
        let code = |saids: &[&[Agreement]]| {
            code_of(&Calibrated {
                rows: saids.iter().map(|saids| after(saids)).collect(),
                ..Calibrated::default()
            })
        };
        assert_eq!(code(&[&[Agreement::Agrees], &[untold()]]), 0);
        assert_eq!(code(&[&[Agreement::Agrees], &[differs()]]), 1);
        assert_eq!(code(&[&[untold()], &[untold()]]), 1);
        assert_eq!(code(&[]), 1);
    }

    #[test]
    fn what_was_never_tried_is_not_listed() {
        assert!(!Tally::all_of((1, &ROWS[0])).any(|tally| tally.was_tried()));
    }
}
