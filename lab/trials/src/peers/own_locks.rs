//! A user's own lock: the way of `pipe:` to a program that only answers, beside a C
//! program that writes and reads the same lines through two pipes.

use super::figures::Requirement::RatioAtLeast;
use super::{Metric, Trial};
use anyhow::bail;
use std::process::Command;

/// Enough for a mean within a few percent: half a second.
const PAIRS: u32 = 30_000;

/// In the order in which they run.
pub(super) fn trials() -> Vec<Trial> {
    vec![lines()]
}

/// Both sides on one CPU: where the scheduler puts a program and who asks it moves the
/// bare loop by a factor of four.
fn lines() -> Trial {
    Trial {
        name: "pipe beside C".to_owned(),
        metrics: vec![Metric {
            what: "lines through two pipes: pairs/s".to_owned(),
            requirement: RatioAtLeast(0.8),
        }],
        jostle: Box::new(|bench| {
            let program = bench.peers.join("pipe");
            let target = format!("pipe:'{}' answer", program.display());
            let mut command = bench.measure("stream", &[&target, "-n", &PAIRS.to_string()]);
            command.args(["-w", "1", "--place", "cpus:0"]);
            let answer = super::read_answer(&mut command)?;
            Ok(vec![answer.point.throughput_per_s])
        }),
        peer: Some(Box::new(|bench| {
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(bench.peers.join("pipe"));
            command.args(["ask", &PAIRS.to_string()]);
            let text = jostle_testbed::shell::output(&mut command)?;
            let mut numbers = text.split_whitespace().map(str::parse::<f64>);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(pairs)), Some(Ok(nanos))) => Ok(vec![pairs / nanos * 1e9]),
                _ => bail!("pipe printed {text}"),
            }
        })),
    }
}
