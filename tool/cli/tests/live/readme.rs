//! The console sessions of the README, run as they stand there.

#[test]
fn the_readme_s_sessions_are_true() {
    trycmd::TestCases::new().case("../../README.md");
}

/// Results of compare.in, compared as they stand in compare.md.
#[test]
fn the_sessions_of_compare_are_true() {
    trycmd::TestCases::new().case("tests/compare.md");
}
