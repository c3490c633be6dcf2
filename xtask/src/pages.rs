//! The pages of the project, for a test that their links lead somewhere.

use crate::sources::below;
use jostle_testbed::shell;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The links of a page, and their possible targets in it.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: Vec<String>,
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = slug(&heading.take().unwrap_or_default());
                    let again = page.anchors.iter().filter(|one| **one == anchor).count();
                    page.anchors.push(match again {
                        0 => anchor,
                        n => format!("{anchor}-{n}"),
                    });
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub gives a heading: lower case, blanks as hyphens, no other marks.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> BTreeMap<PathBuf, Page> {
        let mut found = Vec::new();
        let root = shell::root();
        for folder in ["docs", "tool", "jostled", "procd", "base", "lab", "xtask"] {
            below(&root.join(folder), "md", &mut found);
        }
        for entry in std::fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
        let page = |(path, text): (PathBuf, String)| (path, Page::parse(&text));
        found.into_iter().map(page).collect()
    }

    #[test]
    fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
        let pages = all();
        assert!(pages.len() > 50, "{}", pages.len());
        let mut broken = Vec::new();
        for (path, page) in &pages {
            for link in &page.links {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let to = match file {
                    "" => path.clone(),
                    file => plain(&path.parent().unwrap().join(file)),
                };
                let is_there = match pages.get(&to) {
                    Some(page) => anchor.is_empty() || page.anchors.iter().any(|a| a == anchor),
                    None => to.exists(),
                };
                if !is_there {
                    broken.push(format!("{}: {link}", path.display()));
                }
            }
        }
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    fn words(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter(|word| !word.is_empty())
    }

    /// Whether a word of code can be followed: a placeholder stands for the reader's own word, and
    /// a command or an expression is no name.
    fn is_there(code: &str, defined: &BTreeSet<&str>) -> bool {
        let is_checked = |name: &str| code.ends_with('!') || name.starts_with(char::is_uppercase);
        match code {
            _ if code.contains([' ', '=']) || code.contains("NAME") => true,
            _ if code.contains('/') => shell::root().join(code).exists(),
            _ => words(code).all(|name| !is_checked(name) || defined.contains(name)),
        }
    }

    #[test]
    fn what_contributing_names_is_in_the_tree_and_its_examples_are_lines_of_it() {
        const BY: &str = "struct enum trait impl const static macro_rules";
        let sources: String = crate::sources::all().into_iter().map(|one| one.1).collect();
        let mut defined = BTreeSet::new();
        for (by, name) in words(&sources).zip(words(&sources).skip(1)) {
            if BY.split(' ').any(|one| one == by) {
                defined.insert(name);
            }
        }
        let page = std::fs::read_to_string(shell::root().join("CONTRIBUTING.md")).unwrap();
        let mut gone = Vec::new();
        for (nth, text) in page.split("```").enumerate() {
            if nth % 2 == 1 {
                let examples = text.lines().filter(|line| !line.starts_with("cargo "));
                gone.extend(examples.filter(|line| !sources.contains(line.trim())));
            } else {
                let codes = text.split('`').skip(1).step_by(2);
                // A variant of an enum is used somewhere.
                let is_used = |code: &&str| code.contains("::") && sources.contains(*code);
                gone.extend(codes.filter(|code| !is_used(code) && !is_there(code, &defined)));
            }
        }
        assert!(gone.is_empty(), "{gone:#?}");
        for never in ["tool/never.rs", "never!", "NeverThere", "Run::NEVER_THERE"] {
            assert!(!is_there(never, &defined), "{never}");
        }
    }

    #[test]
    fn a_heading_s_anchor_is_github_s() {
        let page = Page::parse(
            "# What is `R`, and `--shared`?\n\n## Two_words - three\n\n## Two_words - three\n",
        );
        assert_eq!(
            page.anchors,
            [
                "what-is-r-and---shared",
                "two_words---three",
                "two_words---three-1"
            ]
        );
    }
}
