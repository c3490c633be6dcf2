//! How `jostle doctor` prints its findings: worst first, the remedy below each,
//! and one closing sentence.
//!
//! Not for finding anything: the survey is the engine's.

use jostle_engine::preflight::{Finding, Severity};

/// The whole text, with a newline at its end.
pub fn render(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    // Stable, so that findings of one severity keep the order of the survey.
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.matters));
    let width = sorted
        .iter()
        .map(|f| f.what.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for finding in sorted {
        let word = word(finding.matters);
        text += &format!("{word:<6}  {:<width$}  {}\n", finding.what, finding.found);
        if let Some(remedy) = &finding.remedy {
            text += &format!("{:<6}  {:<width$}  -> {remedy}\n", "", "");
        }
    }
    text + "\n" + &closing(findings) + "\n"
}

fn word(matters: Severity) -> &'static str {
    match matters {
        Severity::Blocks => "BLOCKS",
        Severity::Bends => "bends",
        Severity::Note => "note",
        Severity::Fine => "fine",
    }
}

/// The worst that was found, in one sentence.
fn closing(findings: &[Finding]) -> String {
    let count = |matters| findings.iter().filter(|f| f.matters == matters).count();
    let (blocks, bends, notes) = (
        count(Severity::Blocks),
        count(Severity::Bends),
        count(Severity::Note),
    );
    let things = |n| match n {
        1 => "1 thing".to_owned(),
        n => format!("{n} things"),
    };
    match (blocks, bends, notes) {
        (0, 0, 0) => "Nothing here bends a measurement.".to_owned(),
        (0, 0, n) => format!(
            "Nothing here bends a default measurement; {} to know for others.",
            things(n)
        ),
        (0, n, _) => format!(
            "Measurements work here, but {} will bend them; change that first, or compare \
             targets within one run only.",
            things(n)
        ),
        (n, _, _) => format!(
            "{} must change before the default measurements can run here.",
            things(n)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(what: &str, found: &str, matters: Severity) -> Finding {
        Finding {
            what: what.to_owned(),
            found: found.to_owned(),
            matters,
            remedy: (matters > Severity::Fine).then(|| format!("mend {what}")),
        }
    }

    #[test]
    fn the_worst_comes_first_with_its_remedy_below() {
        let findings = [
            finding("CPUs", "2 of 2 may be used", Severity::Fine),
            finding("swap", "1.0 MiB in use", Severity::Note),
            finding("clock", "hpet", Severity::Bends),
            finding("processes", "room for 8 more", Severity::Blocks),
            finding("steal", "3.0 %", Severity::Bends),
        ];
        let expected = "\
BLOCKS  processes  room for 8 more
                   -> mend processes
bends   clock      hpet
                   -> mend clock
bends   steal      3.0 %
                   -> mend steal
note    swap       1.0 MiB in use
                   -> mend swap
fine    CPUs       2 of 2 may be used

1 thing must change before the default measurements can run here.
";
        assert_eq!(render(&findings), expected);
    }

    #[test]
    fn the_closing_sentence_speaks_of_the_worst() {
        let of = |severities: &[Severity]| {
            let findings: Vec<Finding> = severities.iter().map(|s| finding("x", "y", *s)).collect();
            closing(&findings)
        };
        let table = [
            (vec![], "Nothing here bends a measurement."),
            (vec![Severity::Fine], "Nothing here bends a measurement."),
            (
                vec![Severity::Note, Severity::Fine, Severity::Note],
                "Nothing here bends a default measurement; 2 things to know for others.",
            ),
        ];
        for (severities, sentence) in table {
            assert_eq!(of(&severities), sentence);
        }
        assert!(of(&[Severity::Note, Severity::Bends]).contains("1 thing will bend"));
        assert!(of(&[Severity::Bends, Severity::Blocks]).contains("must change"));
    }
}
