//! The output of `jostle` without arguments: common questions, each with the command that
//! answers it.

use crate::VERSION;

/// Questions, and below each the command that answers it.
const QUESTIONS: &str = "\
Which lock, and how does it do with 10 and 200 workers?
    jostle contend flock sysv -w 10:200
Which lock service?
    jostle contend lockd redis etcd postgres -w 10 -b 100us
Is my server the bottleneck, or my load generator?
    jostle judge -- redis-benchmark -c 50
What does starting a program for each request cost?
    jostle call 'ls /' -n 100:1000
Did my change make it slower?
    jostle compare before.jsonl after.jsonl
";

/// The page, with a newline at its end.
pub(crate) fn page() -> String {
    format!(
        "jostle {VERSION} measures locks, servers and connections under contention.\n\n{QUESTIONS}\n\
         The first one takes under a minute and needs nothing installed: jostle contend\n\
         All commands: jostle --help. What can be measured: jostle targets. What bends a\n\
         measurement on this machine: jostle doctor.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    #[test]
    fn every_command_is_one_and_fits_a_terminal() {
        let lines: Vec<&str> = QUESTIONS.lines().collect();
        for pair in lines.chunks(2) {
            let (question, command) = (pair[0], pair[1].trim_start());
            let words = shlex(command);
            assert!(Cli::try_parse_from(words).is_ok(), "{command}");
            assert!(question.ends_with('?'));
        }
        assert!(page().lines().all(|line| line.chars().count() <= 80));
    }

    /// Words of a line whose quotes have no quotes in them.
    fn shlex(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(nth, part)| match nth % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }
}
