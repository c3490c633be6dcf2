//! `cargo xtask fuzz`: feeds the targets of `fuzz/` with inputs that libFuzzer makes up
//! (`fuzz.sh`). The tests of that crate give each target its seeds, so that targets and oracles
//! cannot rot.
//!
//! It needs neither cargo-fuzz nor a nightly compiler: the pass of LLVM that
//! tells libFuzzer which edges an input took is reached by stable flags. Without
//! nightly there is no AddressSanitizer, which code without `unsafe` can spare.

use anyhow::ensure;
use jostle_testbed::{packages, shell};
use std::process::Command;

/// Fuzzes one target, or all one after the other, for so many seconds each.
pub(crate) fn run(only: Option<&str>, seconds: u32) -> anyhow::Result<()> {
    packages::ensure(&["g++"])?;
    // The script says what is wrong; its text in an error would hide that.
    let status = script(only, seconds).status()?;
    ensure!(status.success(), "fuzz.sh: {status}");
    Ok(())
}

fn script(only: Option<&str>, seconds: u32) -> Command {
    let mut script = shell::outside("sh");
    script.args(["-euc", include_str!("fuzz.sh"), "fuzz.sh"]);
    script.arg(seconds.to_string()).args(only);
    script.env("PLACE", shell::target_directory().join("fuzz"));
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_program_and_its_seeds() {
        let fuzz = shell::root().join("lab/fuzz");
        let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        let names = |folder: &str| -> Vec<String> {
            let entries = std::fs::read_dir(fuzz.join(folder)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect()
        };
        let targets = names("fuzz_targets");
        assert!(!targets.is_empty());
        for target in targets {
            let name = target.trim_end_matches(".rs");
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            let seeds = names(&format!("corpus/{name}"));
            let is_kept = seeds.iter().any(|seed| seed.starts_with("seed-"));
            assert!(is_kept, "{name}: git keeps seed-* alone");
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_wrong_target_is_told_the_right_ones_before_anything_is_built() {
            let output = script(Some("repl"), 1).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            let expected = "no fuzz target `repl`; there are: commands handover ";
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
