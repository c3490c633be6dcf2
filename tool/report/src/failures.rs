//! The messages of failures: the first of each kind, below the table, unless the verdict quotes
//! it.

use jostle_model::text::alike;
use jostle_stats::summary::PointSummary;

/// Stands above them.
pub(crate) const FAILURES: &str = "The first failure of each kind:";

/// The most that are printed; the result file has the others.
const AT_MOST: usize = 8;

/// Each text once for each target, in the order of the table.
pub(crate) fn failures(points: &[PointSummary<'_>]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for point in points {
        let reasons = || point.verdict.reasons.iter();
        let is_quoted = |text: &str| reasons().any(|r| r.text.contains(text));
        let all = || point.runs.iter().flat_map(|run| &run.around.messages);
        let quoted: Vec<&String> = all().filter(|text| is_quoted(text)).collect();
        // How long a call took makes no other failure.
        for text in all().filter(|text| !quoted.iter().any(|one| alike(one, text))) {
            let of_target = |one: &String| {
                let rest = one.strip_prefix(point.target)?.strip_prefix(": ")?;
                Some(rest.to_owned())
            };
            if !said
                .iter()
                .filter_map(of_target)
                .any(|one| alike(&one, text))
            {
                said.push(format!("{}: {text}", point.target));
            }
        }
    }
    if said.len() > AT_MOST {
        let others = said.split_off(AT_MOST).len();
        said.push(format!("and {others} more (--format json)"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::failures;
    use crate::made;
    use jostle_stats::summary::summarize;

    #[test]
    fn each_is_said_once_for_each_target_and_not_too_many() {
        let mut set = made::set();
        let said = |set: &crate::ResultSet| failures(&summarize(&set.experiment, &set.runs));
        assert_eq!(said(&set), [""; 0]);
        for run in &mut set.runs {
            run.around.messages = vec!["connect: refused".to_owned()];
        }
        assert_eq!(
            said(&set),
            ["flock: connect: refused", "sysv: connect: refused"]
        );
        // What the verdict quotes is not printed again.
        let mut quoted = set.clone();
        for run in &mut quoted.runs {
            run.around.errors = [("ECONNREFUSED".to_owned(), 1)].into();
        }
        assert_eq!(said(&quoted), [""; 0]);
        set.runs[0].around.messages = "abcdefghijklmnopqrst"
            .chars()
            .map(|which| format!("reply {which}"))
            .collect();
        let many = said(&set);
        assert_eq!(many.len(), 9);
        assert_eq!(many[8], "and 14 more (--format json)");
    }
}
