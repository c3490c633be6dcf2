//! The console sessions of the README, run as they stand there.

#[test]
fn the_readme_s_sessions_are_true() {
    trycmd::TestCases::new().case("../../README.md");
}
