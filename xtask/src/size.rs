//! `cargo xtask size`: lines of Rust that somebody must read, without tests, comments and
//! blank lines, for each crate and product; and the files and functions that are too long.
//! Texts that a program includes count too: a script or a table is read like code.
//!
//! It relies on the form that `cargo fmt` gives: an item ends at the first line of its own
//! indent that closes it.

use anyhow::Context;
use jostle_testbed::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Code lines above which a file, and a function, is listed.
const LONG_FILE: usize = 600;
const LONG_FUNCTION: usize = 70;

/// The kinds of included text that count, and what a comment begins with in each. Records and
/// pages are for readers of results, and sources are counted where they stand.
const TEXTS: [(&str, &str); 8] = [
    ("css", "/*"),
    ("js", "//"),
    ("lua", "--"),
    ("py", "#"),
    ("sh", "#"),
    ("toml", "#"),
    ("tsv", "#"),
    ("txt", "#"),
];

/// The parts counted: the product and, below it, the crates.
const PRODUCTS: [&str; 6] = ["tool", "jostled", "procd", "base", "lab", "xtask"];

/// The crates that somebody must know who contributes to the core of `jostle`. A target is
/// one file, so that of the targets only what they are made of is among them.
const CORE: [&str; 8] = [
    "tool/model",
    "tool/stats",
    "base/sys",
    "tool/seam",
    "tool/harness",
    "tool/engine",
    "tool/report",
    "tool/cli",
];

/// Prints the table.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = shell::root();
    let mut crates = BTreeMap::new();
    let mut long = Vec::new();
    for product in PRODUCTS {
        let manifests = shell::output(
            std::process::Command::new("git")
                .args(["ls-files", "--", &format!("{product}/**Cargo.toml")])
                .current_dir(root),
        )?;
        for manifest in manifests.lines() {
            let folder = Path::new(manifest)
                .parent()
                .context("a file has a folder")?;
            // Clients and examples are packages of their own.
            if folder.components().count() > 2 {
                continue;
            }
            let lines = count(root, folder, &mut long)?;
            crates.insert(folder.display().to_string(), lines);
        }
    }
    print!("{}", table(&crates));
    long.sort();
    for line in long {
        println!("{line}");
    }
    Ok(())
}

fn table(crates: &BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    let sum = |of: &dyn Fn(&str) -> bool| -> usize {
        let counted = crates.iter().filter(|(name, _)| of(name));
        counted.map(|(_, lines)| lines).sum()
    };
    for product in PRODUCTS {
        let within = |name: &str| name.split('/').next() == Some(product);
        text += &format!("{:>7}  {product}\n", sum(&within));
        for (name, lines) in crates.iter().filter(|(name, _)| name.contains('/')) {
            if within(name) {
                text += &format!("{lines:>7}    {name}\n");
            }
        }
    }
    text += &format!("{:>7}  core of jostle\n", sum(&|name| CORE.contains(&name)));
    text + &format!("{:>7}  in all\n", sum(&|_| true))
}

/// Code lines of the crate, following `#[cfg(test)] mod`; what is too long goes to `long`.
fn count(root: &Path, folder: &Path, long: &mut Vec<String>) -> anyhow::Result<usize> {
    let (mut files, mut tests) = (Vec::new(), Vec::new());
    gather(&root.join(folder).join("src"), &mut files)?;
    for file in &mut files {
        file.1 = std::fs::read_to_string(&file.0)?;
    }
    let mut counted = Vec::new();
    for (file, text) in &files {
        let (code, modules) = without_tests(file, text);
        tests.extend(modules);
        counted.push((file, code));
    }
    // A module of tests is NAME.rs or what stands in the folder NAME.
    counted.retain(|(file, _)| {
        !tests
            .iter()
            .any(|test| file.with_extension("") == *test || file.starts_with(test))
    });
    for (file, code) in &counted {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        if code.len() > LONG_FILE {
            long.push(format!("file      {:>4}  {name}", code.len()));
        }
        let functions = functions(code).into_iter();
        let longer = functions.filter(|(_, lines)| *lines > LONG_FUNCTION);
        long.extend(
            longer.map(|(function, lines)| format!("function  {lines:>4}  {name}: {function}")),
        );
    }
    let mut lines = counted.iter().map(|(_, code)| code.len()).sum();
    let texts = counted.iter().flat_map(|(file, code)| included(file, code));
    for text in texts.collect::<BTreeSet<PathBuf>>() {
        lines += length(&text)?;
    }
    Ok(lines)
}

/// The texts that a file includes by their paths.
fn included(file: &Path, code: &[&str]) -> Vec<PathBuf> {
    let code = code.join("\n");
    let each = code.split("include_str!(").skip(1);
    let paths = each.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    paths.map(|path| file.with_file_name(path)).collect()
}

/// Lines of a text without comments and blank ones; none if it is no code.
fn length(text: &Path) -> anyhow::Result<usize> {
    let kind = TEXTS
        .iter()
        .find(|(kind, _)| text.extension().is_some_and(|own| own == *kind));
    let Some((_, comment)) = kind else {
        return Ok(0);
    };
    let read = std::fs::read_to_string(text).with_context(|| text.display().to_string())?;
    let lines = read.lines().map(str::trim_start);
    Ok(lines
        .filter(|line| !line.is_empty() && !line.starts_with(comment))
        .count())
}

/// Where the modules stand that this file declares.
fn folder_of(file: &Path) -> PathBuf {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.unwrap_or_default();
    match ["lib", "main", "mod"].contains(&stem) {
        true => file.parent().unwrap_or(file).to_owned(),
        false => file.with_extension(""),
    }
}

/// Source files below a folder, with room for their texts.
fn gather(folder: &Path, into: &mut Vec<(PathBuf, String)>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push((path, String::new()));
        }
    }
    Ok(())
}

/// The lines of code outside tests, and the modules of tests that stand in files of their own,
/// as paths without an extension.
fn without_tests<'a>(file: &Path, text: &'a str) -> (Vec<&'a str>, Vec<PathBuf>) {
    let (mut code, mut modules) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        if bare.is_empty() || bare.starts_with("//") {
            continue;
        }
        if bare != "#[cfg(test)]" && !bare.starts_with("#[cfg(any(test,") {
            code.push(line);
            continue;
        }
        let (indent, mut named, mut end) = (indent(line), None, End::default());
        for item in lines.by_ref() {
            let item_path = item.trim().strip_prefix("#[path = \"");
            named = named.or(item_path.and_then(|path| path.strip_suffix(".rs\"]")));
            if end.is_at(item, indent) {
                let name = item.trim().strip_suffix(';');
                let name = name.and_then(|item| item.rsplit_once("mod "));
                modules.extend(name.map(|(_, name)| match named {
                    Some(path) => file.with_file_name(path),
                    None => folder_of(file).join(name),
                }));
                break;
            }
        }
    }
    (code, modules)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Where an item ends: what has opened a block ends with its brace, however the lines of a text
/// within end.
#[derive(Default)]
struct End {
    is_open: bool,
}

impl End {
    /// Whether the item of this indent ends in this line, the next one of it.
    fn is_at(&mut self, line: &str, at: usize) -> bool {
        if indent(line) != at {
            return false;
        }
        self.is_open |= line.ends_with('{');
        let ends = !self.is_open && (line.ends_with(';') || line.ends_with("{}"));
        ends || line.trim_start().starts_with('}')
    }
}

/// The functions in lines of code, each with the number of its lines.
fn functions<'a>(code: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    for (at, line) in code.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        let Some(word) = words.iter().position(|word| *word == "fn") else {
            continue;
        };
        let name = words.get(word + 1);
        let name = name.and_then(|name| name.split(['(', '<']).next());
        let (mut end, mut lines) = (End::default(), code[at..].iter());
        let length = lines.position(|next| end.is_at(next, indent(line)));
        if let (Some(name), Some(length)) = (name, length) {
            found.push((name, length + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! Head.\n\nuse a::b;\n#[cfg(test)]\nmod elsewhere;\n\n/// Says.\n\
        pub(crate) fn long<T>(\n    a: T,\n) -> T {\n    // why\n    a\n}\n\n\
        impl X {\n    #[cfg(test)]\n    fn only() {\n        b();\n    }\n\n    fn short() {}\n}\n\n\
        #[cfg(test)]\nmod tests {\n    const A: &str = \"\n\";\n    fn no() {\n    }\n}\n";

    #[test]
    fn tests_comments_and_blank_lines_do_not_count() {
        let file = Path::new("src/of.rs");
        let (code, modules) = without_tests(file, TEXT);
        assert_eq!(code.len(), 9, "{code:#?}");
        assert_eq!(modules, [Path::new("src/of/elsewhere")]);
        assert_eq!(functions(&code), [("long", 5), ("short", 1)]);
        let renamed = "#[cfg(test)]\n#[path = \"of_tests.rs\"]\nmod tests;\n";
        let (code, modules) = without_tests(file, renamed);
        assert_eq!((code.len(), modules), (0, vec!["src/of_tests".into()]));
    }

    #[test]
    fn texts_that_are_included_count_and_records_do_not() {
        let code = [
            "const A: &str = include_str!(\"../a.tsv\");",
            "    include_str!(",
            "        \"b.jsonl\"",
        ];
        let found = included(Path::new("src/of.rs"), &code);
        assert_eq!(found, ["src/../a.tsv", "src/b.jsonl"].map(PathBuf::from));
        let place = tempfile::tempdir().unwrap();
        let length_of = |name: &str| {
            let file = place.path().join(name);
            std::fs::write(&file, "# why\n\n  a\tb\nc\n").unwrap();
            length(&file).unwrap()
        };
        assert_eq!(
            [length_of("a.tsv"), length_of("a.css"), length_of("a.jsonl")],
            [2, 3, 0]
        );
    }

    #[test]
    fn a_table_sums_crates_products_and_the_core() {
        let crates = [("tool/cli", 7), ("tool/mpi", 2), ("xtask", 1)];
        let crates = crates.map(|(name, lines)| (name.to_owned(), lines)).into();
        let table = table(&crates);
        for line in [
            "      9  tool",
            "      7    tool/cli",
            "      1  xtask",
            "      7  core of jostle",
            "     10  in all",
        ] {
            assert!(table.lines().any(|found| found == line), "{table}");
        }
    }
}
