//! Plan files: any text, as `jostle run` reads it.
//!
//! The properties that must hold for every input:
//!
//! - no panic, neither in reading nor in resolving;
//! - a text that is refused is refused with the name of the file and the line, and never
//!   in the words of the library that could not choose among its types.

use jostle_engine::resolve::resolve;
use std::path::Path;

/// Whether the input was more than refused.
pub fn check(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    match jostle_cli::plans_in(Path::new("a.toml"), &text) {
        Ok(plans) => {
            let plans = plans.into_iter();
            let resolved = plans.map(|plan| resolve(plan, 7, &[0, 1]).is_ok());
            resolved.fold(false, |some, this| some | this)
        }
        Err(error) => {
            let named = error.starts_with("a.toml, line ") || error.starts_with("a.toml holds no");
            // An empty text has no line.
            assert!(named || error.starts_with("a.toml, not a plan"), "{error}");
            assert!(!error.contains("did not match any variant"), "{error}");
            false
        }
    }
}
