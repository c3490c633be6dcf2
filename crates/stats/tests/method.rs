//! METHOD.md has a section for every check, so that a verdict can be looked up
//! by the name that stands in it.

use jostle_stats::checks::CHECKS;
use std::path::Path;

fn method() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../METHOD.md");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_check_has_a_section_and_every_section_a_check() {
    let method = method();
    let sections: Vec<&str> = method
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .collect();
    let checks: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(
        sections, checks,
        "in the order of CHECKS, the gravest first"
    );
}

#[test]
fn every_section_says_what_it_asks_and_from_where_on_it_speaks() {
    let method = method();
    for check in CHECKS {
        let heading = format!("### `{}`\n", check.name);
        let after = method.split(&heading).nth(1).unwrap();
        let section = after.split("\n#").next().unwrap();
        for part in [
            "*Asks:*",
            "*Threshold:*",
            "*Source:*",
            "*What would fool it:*",
        ] {
            assert!(section.contains(part), "{}: no {part}", check.name);
        }
    }
}
