//! `jostle run` of a result file: what the file names is asked for before it runs.
//!
//! A plan is written to be run; a result file is often somebody else's, and its user may never
//! have seen the commands in it.

use crate::args::Run;
use crate::plan_file::named_code;
use crate::{Failure, complain, ranks};
use jostle_engine::world::launched;
use jostle_model::plan::Plan;
use std::io::{IsTerminal, Write, stderr, stdin};

/// Whether the programs and libraries that the plans of a result file name may run; false on
/// ranks other than 0, which leave the refusal to rank 0.
///
/// # Errors
/// For the user: what they are, if the answer is no or nobody can be asked.
pub(crate) fn may_run(run: &Run, plans: &[(Plan, String)]) -> Result<bool, Failure> {
    let mut code: Vec<String> = Vec::new();
    for (plan, _) in plans {
        let named = match run.output.dry_run {
            // It only looks whether optional targets can be used.
            true => named_code(&Plan {
                optional: plan.optional.clone(),
                ..Plan::of(plan.workload)
            }),
            false => named_code(plan),
        };
        for typed in named {
            if !code.contains(&typed) {
                code.push(typed);
            }
        }
    }
    if code.is_empty() || run.yes {
        return Ok(true);
    }
    if ranks::are_others() {
        return Ok(false);
    }
    let name = run.plan.display();
    let one_host = launched().is_none_or(|launched| launched.size == 1);
    if !(one_host && stdin().is_terminal() && stderr().is_terminal()) {
        return Err(Failure::Usage(format!(
            "{name} is a result file whose plan runs {}; if you trust it, type --yes to run that",
            code.join(", ")
        )));
    }
    complain(&format!(
        "{name} is a result file whose plan runs:\n  {}",
        code.join("\n  ")
    ));
    let _ = write!(stderr(), "Run that? [y/N] ");
    let mut answer = String::new();
    let _ = stdin().read_line(&mut answer);
    match ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        true => Ok(true),
        false => Err(Failure::Usage("nothing was run".to_owned())),
    }
}
