//! How `jostle doctor` prints its findings: worst first, the remedy below each,
//! and one closing sentence; with `--fix` as commands for a shell.
//!
//! The engine makes the survey of the machine; this module only prints it.

pub(crate) mod etcd;

use jostle_engine::preflight::{Finding, SHELL, Severity};
use jostle_model::text::one_line;

/// Those of one severity in the order of the survey.
fn worst_first(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    // It is stable.
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.matters));
    sorted
}

/// The whole text with this last sentence, and a newline at its end.
pub(crate) fn render(findings: &[Finding], closing: &str) -> String {
    let sorted = worst_first(findings);
    let width = sorted.iter();
    let width = width.map(|f| f.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in sorted {
        let word = word(finding.matters);
        text += &format!("{word:<6}  {:<width$}  {}\n", finding.what, finding.found);
        if let Some(remedy) = &finding.remedy {
            text += &format!("{:<6}  {:<width$}  -> {remedy}\n", "", "");
        }
    }
    text + "\n" + closing + "\n"
}

/// A line for each finding that is not fine: the command that fixes it, followed by the
/// finding as a comment, or a comment alone if no command fixes it. `shell` is the process
/// whose limits are raised. The output is safe to pipe into a root shell: names of other
/// programs cannot end their comment.
pub(crate) fn commands(findings: &[Finding], shell: u32) -> String {
    let flawed = worst_first(findings).into_iter();
    let flawed: Vec<&Finding> = flawed.filter(|f| f.matters > Severity::Fine).collect();
    let count = flawed.iter().filter(|f| f.mend.is_some()).count();
    let mut text = match (flawed.len(), count) {
        (0, _) => "# jostle doctor --fix: nothing here bends a measurement.\n".to_owned(),
        (_, 0) => "# jostle doctor --fix: no command mends what was found.\n".to_owned(),
        _ => format!(
            "# jostle doctor --fix: {}; nothing was run. To run all that follows:\n\
             # jostle doctor --fix | sudo sh\n\
             # It lasts until the next boot; with --pid {shell}, as long as that shell.\n",
            match count {
                1 => "1 command".to_owned(),
                n => format!("{n} commands"),
            }
        ),
    };
    for finding in flawed {
        let about = format!("{}: {}", finding.what, finding.found);
        let line = match (&finding.mend, &finding.remedy) {
            (Some(mend), _) => format!("{}  # {about}", mend.replace(SHELL, &shell.to_string())),
            (None, remedy) => format!(
                "# {about}; no command mends it: {}",
                remedy.as_deref().unwrap_or_default()
            ),
        };
        text += &format!("{}\n", one_line(&line));
    }
    text
}

fn word(matters: Severity) -> &'static str {
    match matters {
        Severity::Blocks => "BLOCKS",
        Severity::Bends => "bends",
        Severity::Note => "note",
        Severity::Fine => "fine",
    }
}

/// The worst finding, in one sentence.
pub(crate) fn closing(findings: &[Finding]) -> String {
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
            mend: None,
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
        assert_eq!(render(&findings, &closing(&findings)), expected);
    }

    #[test]
    fn what_mends_is_a_line_for_a_shell_with_its_reason() {
        let mended = |finding: Finding, command: &str| Finding {
            mend: Some(command.to_owned()),
            ..finding
        };
        let swap = finding("swap", "1.0 MiB in use", Severity::Note);
        let processes = finding("processes", "room for 8", Severity::Blocks);
        let findings = [
            finding("CPUs", "2 of 2 may be used", Severity::Fine),
            mended(swap, "swapoff -a && swapon -a"),
            finding("other programs", "evil\nrm -rf /", Severity::Bends),
            mended(processes, "prlimit --pid {shell} --nproc=9:9"),
        ];
        let expected = "\
# jostle doctor --fix: 2 commands; nothing was run. To run all that follows:
# jostle doctor --fix | sudo sh
# It lasts until the next boot; with --pid 812, as long as that shell.
prlimit --pid 812 --nproc=9:9  # processes: room for 8
# other programs: evil\\u000arm -rf /; no command mends it: mend other programs
swapoff -a && swapon -a  # swap: 1.0 MiB in use
";
        assert_eq!(commands(&findings, 812), expected);
        let fine = commands(&findings[..1], 812);
        assert!(
            fine.ends_with("nothing here bends a measurement.\n"),
            "{fine}"
        );
        let without = commands(&findings[2..3], 812);
        assert!(
            without.starts_with("# jostle doctor --fix: no command"),
            "{without}"
        );
        assert!(
            without.lines().all(|line| line.starts_with('#')),
            "{without}"
        );
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
