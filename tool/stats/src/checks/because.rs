//! The causes that the table shows stand behind the reasons that they explain. A cause never
//! lifts a verdict.

use super::{Evidence, named, with_text};
use crate::causes;
use jostle_model::record::{Causes, Reason};

/// The reasons with what explains them in the runs that they are about.
pub(super) fn attribute(reasons: Vec<Reason>, evidence: &Evidence<'_>) -> Vec<Reason> {
    let explained = |mut reason: Reason| {
        let all = explanation(&reason.check, evidence);
        if all == Causes::default() {
            return reason;
        }
        reason.causes = Some(Box::new(all));
        with_text(reason)
    };
    reasons.into_iter().map(explained).collect()
}

/// That of the runs which the check reports by themselves.
fn explanation(check: &str, evidence: &Evidence<'_>) -> Causes {
    let mut all = Causes::default();
    let mut causes = causes::CAUSES.iter();
    if !causes.any(|row| row.explains.contains(&check)) {
        return all;
    }
    for run in evidence.runs {
        let alone = Evidence {
            runs: &[run],
            ..*evidence
        };
        let is_about = named(check).is_some_and(|check| (check.judge)(&alone).is_some());
        if is_about {
            all.add(&causes::of_run(check, run, evidence));
        }
    }
    all
}

/// The clause about causes that follows the sentence of a reason.
pub(super) fn clause(causes: Option<&Causes>) -> String {
    let Some(causes) = causes else {
        return String::new();
    };
    let list = |before: &str, list: &[String], between: &str| match list.is_empty() {
        true => String::new(),
        false => format!("; {before}: {}", list.join(between)),
    };
    let mut text = list("seen beside it", &causes.found, "; ");
    text += &list("not ruled out", &causes.possible, "; ");
    if text.is_empty() && !causes.looked_at.is_empty() {
        let at = causes.looked_at.join(", ");
        text = format!("; no other cause was seen (looked at: {at})");
    }
    text + &list("could not be seen", &causes.unseen, ", ")
}

#[cfg(test)]
mod tests {
    use super::super::{Evidence, verdict};
    use crate::fixtures::{experiment, point};
    use jostle_model::record::{Came, Causes, Look, LookedAt, Run, Status, When, sign};

    fn judged(runs: &[Run]) -> (Status, Vec<String>) {
        let experiment = experiment();
        let runs: Vec<&Run> = runs.iter().collect();
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &runs,
        });
        let texts = verdict.reasons.into_iter().map(|reason| reason.text);
        (verdict.is, texts.collect())
    }

    fn server(when: When, asked_ns: u64, evicted: u64) -> Look {
        Look {
            at: LookedAt::Server,
            when,
            asked_ns,
            answered_ns: Some(asked_ns),
            came: Came::Answered,
            words: None,
            signs: [(sign::EVICTED.to_owned(), evicted.into())].into(),
            host: None,
        }
    }

    #[test]
    fn what_was_seen_stands_behind_the_failure_and_lifts_no_verdict() {
        let mut run = point();
        run.around.looks = vec![server(When::Before, 0, 7), server(When::After, 9, 19)];
        assert_eq!(judged(&[run.clone()]), (Status::Valid, Vec::new()));
        run.around.errors.insert("lapsed".to_owned(), 3);
        let (is, texts) = judged(&[run.clone(), run.clone()]);
        assert_eq!(is, Status::Invalid);
        let part = "calls failed: lapsed 6 times; not ruled out: the server evicted 12 keys";
        assert!(texts[0].starts_with(part), "{texts:?}");
        // What was seen of another run explains nothing of this one.
        let mut good = point();
        good.around.looks = std::mem::take(&mut run.around.looks);
        let (_, texts) = judged(&[good.clone(), run.clone()]);
        assert_eq!(texts, ["calls failed: lapsed 3 times"]);
        run.around.looks = vec![server(When::Before, 0, 7), server(When::After, 9, 7)];
        let (_, texts) = judged(&[run.clone()]);
        let expected = "calls failed: lapsed 3 times; no other cause was seen (looked at: whether it \
                        did not answer after the run, whether its count of evicted keys grew)";
        assert_eq!(texts, [expected]);
        run.around.looks[1].came = Came::Refused;
        run.around.looks[1].words = Some("NOPERM no permissions".to_owned());
        let (_, texts) = judged(&[run.clone()]);
        let part = "; could not be seen: what the server says about itself (NOPERM no permissions)";
        assert!(texts[0].ends_with(part), "{texts:?}");
    }

    /// `jostle/3` had sentences in place of looks.
    #[test]
    fn what_an_older_version_found_is_said_in_its_words() {
        let mut run = point();
        run.around.errors.insert("lapsed".to_owned(), 3);
        run.around.causes = Some(Box::new(Causes {
            found: vec!["the server evicted 12 keys".to_owned()],
            looked_at: vec!["whether it evicted keys".to_owned()],
            ..Causes::default()
        }));
        let (_, texts) = judged(&[run]);
        let expected = "calls failed: lapsed 3 times; seen beside it: the server evicted 12 keys";
        assert_eq!(texts, [expected]);
    }

    /// A quota that held a server in each of sixteen runs was told sixteen times.
    #[test]
    fn a_cause_stands_once_whatever_its_figures() {
        let with = |text: &str| Causes {
            possible: vec![text.to_owned()],
            ..Causes::default()
        };
        let mut all = with("held it for 0.74 of the window");
        for text in ["held it for 0.75 of the window", "was stopped"] {
            all.add(&with(text));
        }
        assert_eq!(
            all.possible,
            ["held it for 0.74 of the window", "was stopped"]
        );
    }
}
