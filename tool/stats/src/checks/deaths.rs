//! Did every worker, and every server that jostle launched, live to the end of the window?

use super::{EVERYTHING, Evidence, Found, seen};

/// Deaths.
const MOST: usize = 0;

check! {
    "deaths" in "deaths": "Did a worker, or a server that jostle launched, end before its time?";
    threshold: text!("more than {MOST}: INVALID"),
    source: "the figures are those of the workers that were asked for, or of nothing",
    fooled_by: "nothing known; processes are reaped one by one with their cause",
    advice: "find out who killed it: the sentence names the signal (SIGKILL is often the kernel's \
             out-of-memory killer; see `dmesg`), and of a server that ended by itself its last \
             lines",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = evidence.runs.iter();
    let deaths: Vec<&String> = runs.flat_map(|run| &run.around.deaths).collect();
    let first = deaths.first().filter(|_| deaths.len() > MOST)?;
    Some(
        Found::invalid(EVERYTHING, deaths.len() as f64, MOST as f64).seen(match deaths.len() {
            1 => (*first).clone(),
            n => format!("{first} (and {} more)", n - 1),
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};

    #[test]
    fn one_death_is_flagged_and_more_are_counted() {
        assert_eq!(judge(&CHECK, &[point()]), None);
        let mut bad = point();
        bad.around.deaths = vec!["worker 7 was killed by SIGKILL".to_string()];
        let text = |runs: &[_]| judge(&CHECK, runs).unwrap().text;
        assert_eq!(
            text(&[point(), bad.clone()]),
            "worker 7 was killed by SIGKILL"
        );
        assert_eq!(
            text(&[bad.clone(), bad]),
            "worker 7 was killed by SIGKILL (and 1 more)"
        );
    }
}
