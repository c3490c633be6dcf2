//! What was seen outside the lock stands behind the reason that it may explain. A cause never
//! lifts a verdict.

use super::{errors, exclusion, idle_lock, leases, lost_update, with_text};
use jostle_model::record::{Causes, Reason, Run};

/// The checks whose reasons have a cause that can be looked for.
const EXPLAINED: [&str; 5] = [
    exclusion::CHECK.name,
    lost_update::CHECK.name,
    errors::CHECK.name,
    leases::CHECK.name,
    idle_lock::CHECK.name,
];

/// The reasons with what was looked at in these runs.
pub(super) fn attribute(reasons: Vec<Reason>, runs: &[&Run]) -> Vec<Reason> {
    let mut all = Causes::default();
    for causes in runs.iter().filter_map(|run| run.around.causes.as_deref()) {
        add(&mut all.found, &causes.found);
        add(&mut all.looked_at, &causes.looked_at);
    }
    if all == Causes::default() {
        return reasons;
    }
    let explained = |mut reason: Reason| match EXPLAINED.contains(&reason.check.as_str()) {
        true => {
            reason.causes = Some(Box::new(all.clone()));
            with_text(reason)
        }
        false => reason,
    };
    reasons.into_iter().map(explained).collect()
}

fn add(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// What stands behind the sentence of a reason.
pub(super) fn clause(causes: Option<&Causes>) -> String {
    match causes {
        None => String::new(),
        Some(causes) if !causes.found.is_empty() => {
            format!("; seen beside it: {}", causes.found.join("; "))
        }
        Some(causes) => format!(
            "; no other cause was seen (looked at: {})",
            causes.looked_at.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Evidence, verdict};
    use crate::fixtures::{experiment, point};
    use jostle_model::record::{Causes, Run, Status};

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

    #[test]
    fn what_was_seen_stands_behind_the_failure_and_lifts_no_verdict() {
        let mut run = point();
        run.around.causes = Some(Box::new(Causes {
            found: vec!["the server evicted 12 keys".to_owned()],
            looked_at: vec!["whether it evicted keys".to_owned()],
        }));
        assert_eq!(judged(&[run.clone()]), (Status::Valid, Vec::new()));
        run.around.errors.insert("lapsed".to_owned(), 3);
        let (is, texts) = judged(&[run.clone(), run.clone()]);
        assert_eq!(is, Status::Invalid);
        let expected = "calls failed: lapsed 6 times; seen beside it: the server evicted 12 keys";
        assert_eq!(texts, [expected]);
        run.around.causes.as_mut().unwrap().found.clear();
        let (_, texts) = judged(&[run]);
        let expected = "calls failed: lapsed 3 times; no other cause was seen (looked at: whether it \
                        evicted keys)";
        assert_eq!(texts, [expected]);
    }
}
