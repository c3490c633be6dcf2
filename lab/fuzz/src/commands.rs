//! Command lines: words, one a line of the input, as a user or a script types them.
//! Nothing is started and no file is read.
//!
//! The properties that must hold for every input:
//!
//! - no panic: a line makes sense, or is refused in words;
//! - a plan that is resolved is resolved to itself the next time, so that a result can be
//!   measured again from its record;
//! - no password of a URL is in what is printed or written of it.

use jostle_engine::resolve::resolve;

/// URLs of the seeds up to their password's end. Elsewhere the word is no password.
const SECRETS: [&str; 2] = ["://user:hunter2@", "://a:hunter2@"];

/// Whether the input was more than refused.
pub fn check(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let words = text.lines().map(str::to_owned);
    let Ok(plans) = jostle_cli::plans_of(words) else {
        return false;
    };
    let mut resolves = false;
    for plan in plans {
        if let Ok(resolved) = resolve(plan, 7, &[0, 1]) {
            let again = resolve(resolved.plan.clone(), 8, &[0, 1]);
            let again = again
                .expect("a resolved plan is one that can be resolved")
                .plan;
            assert_eq!(again, resolved.plan);
            resolves = true;
            let written = serde_json::to_string(&resolved.plan.redacted()).expect("plain data");
            for secret in SECRETS {
                assert!(!written.contains(secret), "{written}");
                for spec in &resolved.specs {
                    assert!(!spec.typed.contains(secret), "{}", spec.typed);
                }
            }
        }
    }
    resolves
}
