//! `cargo xtask docs`: the pages that the program writes about itself, so that
//! nothing is written twice. With `--check` it only compares.

use crate::options_page;
use anyhow::{Context, bail};
use jostle_testbed::shell;
use std::process::{Command, Stdio};

/// Pages, each with the program that prints it and its arguments, beside [`VERBS`].
const PAGES: &str = "\
tool/docs/targets.md jostle targets --format markdown
tool/docs/verdicts.md jostle explain --format markdown
tool/docs/method/causes.md jostle explain causes --format markdown
tool/man/jostle.1 jostle man
jostled/dist/jostle-lock.1 jostle-lock --man
procd/dist/procd.1 procd --man procd
procd/dist/jostle-call.1 procd --man jostle-call";

/// Verbs of jostle that have a manual page.
const VERBS: &str = "contend stream hold connect rate spread recover verify run report compare explain calibrate who";

/// Each page with the program that prints it and its arguments.
fn pages() -> impl Iterator<Item = (String, &'static str, String)> {
    let pages = PAGES.lines().filter_map(|line| {
        let (page, rest) = line.split_once(' ')?;
        let (program, words) = rest.split_once(' ')?;
        Some((page.to_owned(), program, words.to_owned()))
    });
    let verbs = VERBS.split(' ').map(|verb| {
        let page = format!("tool/man/jostle-{verb}.1");
        (page, "jostle", format!("man {verb}"))
    });
    pages.chain(verbs)
}

/// The command that builds the programs alone.
const BUILD: &str =
    "build --quiet -p jostle -p jostle-procd -p jostle-lock-command --features jostle/services";

/// The command that builds them with all tests, as `ci` has just done. With other packages beside
/// them cargo would compile most of it again.
const BUILD_ALL: [&str; 3] = ["test", "--quiet", "--no-run"];

/// Writes all pages, or compares them.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let build = match check {
        true => [&BUILD_ALL[..], &shell::EVERYTHING].concat(),
        false => BUILD.split(' ').collect(),
    };
    shell::run(&mut shell::cargo(&build))?;
    let programs = shell::target_directory().join("debug");
    let mut stale = Vec::new();
    let mut texts = vec![("tool/docs/options.md".to_owned(), options_page::markdown())];
    for (page, program, arguments) in pages() {
        let mut print = Command::new(programs.join(program));
        let text = shell::output(print.args(arguments.split(' ')))?;
        texts.push((page, text));
    }
    for (page, text) in texts {
        let path = shell::root().join(&page);
        if check {
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            stale.extend(difference(&stored, &text).map(|what| format!("{page}: {what}")));
        } else {
            std::fs::write(&path, &text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {page}");
        }
    }
    if !stale.is_empty() {
        bail!(
            "run `cargo xtask docs` and commit what it writes\n{}",
            stale.join("\n")
        );
    }
    let manuals = pages().map(|(page, ..)| page);
    let mut manuals = manuals.filter(|page| page.ends_with(".1"));
    manuals.try_for_each(|page| render_manual(&page))
}

/// The first line in which a stored page is not what it should be.
fn difference(stored: &str, text: &str) -> Option<String> {
    if stored == text {
        return None;
    }
    if stored.is_empty() {
        return Some("missing".to_owned());
    }
    let lines = stored.lines();
    let same = lines.zip(text.lines()).take_while(|(a, b)| a == b).count();
    let line = |of: &str| of.lines().nth(same).unwrap_or("(end of page)").to_owned();
    Some(format!(
        "line {} is `{}`, the program says `{}`",
        same + 1,
        line(stored),
        line(text)
    ))
}

/// Renders the manual page as a reader's `man` would; a warning is a mistake in
/// the page.
fn render_manual(page: &str) -> anyhow::Result<()> {
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page])
        .current_dir(shell::root())
        .env("MANROFFSEQ", "")
        .env("MANWIDTH", "80")
        .stdout(Stdio::null());
    let Ok(output) = man.output() else {
        println!("{page} was not rendered: no `man` here");
        return Ok(());
    };
    let warnings = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !warnings.trim().is_empty() {
        bail!("`{}`: {}", shell::typed(&man), warnings.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_differs_is_named_by_its_first_line() {
        let table = [
            ("a\nb\n", "a\nb\n", None),
            ("", "a\n", Some("missing")),
            (
                "a\nb\n",
                "a\nc\n",
                Some("line 2 is `b`, the program says `c`"),
            ),
            (
                "a\n",
                "a\nb\n",
                Some("line 2 is `(end of page)`, the program says `b`"),
            ),
        ];
        for (stored, text, expected) in table {
            assert_eq!(difference(stored, text).as_deref(), expected);
        }
    }
}
