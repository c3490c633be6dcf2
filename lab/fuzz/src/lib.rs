//! The properties that must hold for every input of codec, handover, procedures, writers, command
//! lines and plans: a module for each fuzz target, whose head names its oracles. `cargo xtask fuzz`
//! searches for inputs that break them; the tests here give each its seeds.

#[cfg(feature = "program")]
pub mod commands;
pub mod handover;
pub mod overrun;
#[cfg(feature = "program")]
pub mod plans;
pub mod reply;
pub mod request;
#[cfg(feature = "program")]
pub mod results;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// All seeds pass, and so many of them are more than refused.
    #[track_caller]
    fn pass(target: &str, check: fn(&[u8]) -> bool, least: usize) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(target);
        let files = std::fs::read_dir(corpus).unwrap();
        let mut reached = 0;
        for file in files.map(|file| file.unwrap().path()) {
            // git keeps these; what else fuzzing has found is there on some machines.
            if file
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("seed-")
            {
                println!("{}", file.display());
                reached += usize::from(check(&std::fs::read(&file).unwrap()));
            }
        }
        assert!(reached >= least, "{target}: {reached} of at least {least}");
    }

    #[test]
    fn seeds_of_the_codec() {
        pass("reply", crate::reply::check, 3);
        pass("request", crate::request::check, 3);
    }

    #[test]
    fn seeds_of_procedures() {
        pass("overrun", crate::overrun::check, 1);
    }

    #[cfg(feature = "program")]
    #[test]
    fn seeds_of_command_lines() {
        pass("commands", crate::commands::check, 6);
    }

    #[cfg(feature = "program")]
    #[test]
    fn seeds_of_plans() {
        pass("plans", crate::plans::check, 3);
    }

    #[cfg(feature = "program")]
    #[test]
    fn seeds_of_result_files() {
        pass("results", crate::results::check, 7);
    }
}
