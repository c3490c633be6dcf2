//! A module of `worker` or `engine` uses only those of its crate that stand before it in
//! ARCHITECTURE.md, so that no two of them need each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a crate in the order of ARCHITECTURE.md.
fn listed(name: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, chapter) = page.split_once("## The order of engine's modules").unwrap();
    let mut paragraphs = chapter.split("\n\n");
    let start = format!("`{name}`: ");
    let list = paragraphs.find_map(|text| text.strip_prefix(&start));
    let names = list.unwrap().split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// The source files of each module of a crate, without this one.
fn sources(name: &str) -> BTreeMap<String, Vec<PathBuf>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = crates.join(name).join("src");
    let mut files = Vec::new();
    gather(&root, &mut files);
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        let below = file.strip_prefix(&root).unwrap();
        let first = below.components().next().unwrap().as_os_str();
        let module = Path::new(first).file_stem().unwrap().to_str().unwrap();
        let is_source = file.extension().is_some_and(|extension| extension == "rs");
        // A file of tests alone may use any module, and so may what stands in its folder.
        let stems = below
            .components()
            .map(|part| Path::new(part.as_os_str()).file_stem());
        let mut stems = stems.flatten();
        let is_test = stems.any(|stem| stem == "tests" || stem == "live_tests");
        if is_source && !is_test && !["lib", "arrows"].contains(&module) {
            modules.entry(module.to_owned()).or_default().push(file);
        }
    }
    modules
}

fn gather(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => gather(&path, into),
            false => into.push(path),
        }
    }
}

/// The code of a file without its comments and its tests, which are its last module.
fn code(text: &str) -> String {
    let tests = ["tests", "live_tests"].map(|name| format!("#[cfg(test)]\nmod {name} {{"));
    let begin = tests.iter().filter_map(|tests| text.find(tests)).min();
    let code = &text[..begin.unwrap_or(text.len())];
    let lines = code.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules that code names behind `crate::`, those in braces too.
fn used(code: &str) -> Vec<String> {
    code.split("crate::")
        .skip(1)
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(braced) => in_braces(braced),
            None => vec![name(rest)],
        })
        .collect()
}

fn name(text: &str) -> String {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text[..end.unwrap_or(text.len())].to_owned()
}

/// The first name of each part of `a, b::{c, d}}`.
fn in_braces(text: &str) -> Vec<String> {
    let (mut names, mut depth, mut part) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                names.push(name(&text[part..at]));
                part = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

#[test]
fn a_module_uses_only_those_before_it() {
    let seen = ["worker", "engine"].map(check);
    assert!(seen.iter().all(|seen| *seen > 50), "only {seen:?} uses");
}

/// Returns how many uses it has seen.
fn check(name: &str) -> usize {
    let listed = listed(name);
    let sources = sources(name);
    let place = |module: &str| listed.iter().position(|name| name == module);
    for name in sources.keys() {
        assert!(
            place(name).is_some(),
            "ARCHITECTURE.md does not list `{name}`"
        );
    }
    assert_eq!(listed.len(), sources.len(), "{listed:?}");
    let mut seen = 0;
    for (module, files) in &sources {
        for file in files {
            for other in used(&code(&fs::read_to_string(file).unwrap())) {
                // What is no module is an item of the crate's root.
                let Some(at) = place(&other) else { continue };
                seen += 1;
                assert!(
                    Some(at) <= place(module),
                    "{} uses `{other}`, which stands after `{module}` in ARCHITECTURE.md",
                    file.display()
                );
            }
        }
    }
    seen
}

#[test]
fn uses_are_found_in_braces_and_in_expressions() {
    let text = "use crate::order::{A, B};\nuse crate::{page, work::{Work, X}};\n\
                // crate::no\nlet x = crate::grants::y();\n#[cfg(test)]\nmod tests {\n crate::z";
    assert_eq!(used(&code(text)), ["order", "page", "work", "grants"]);
}
