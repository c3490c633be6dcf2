//! `xtask hog`: a program that uses a share of one CPU, by a duty cycle much shorter
//! than a run. Started by `cargo xtask validate judge` as the neighbour of what is
//! measured; ends with its standard input.

use anyhow::Context;
use jostle_testbed::leash::Leash;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// One turn of the duty cycle.
const PERIOD_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub(crate) struct Hog {
    /// Per cent of the CPU
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100))]
    pub percent: u64,
    /// Which CPU
    pub cpu: usize,
    /// Niceness
    #[arg(default_value_t = 0, allow_negative_numbers = true)]
    pub niceness: i32,
}

impl Hog {
    /// Starts it in the control group of what it disturbs, by its directory: between
    /// groups, and between sessions (autogroups), niceness counts for nothing.
    pub(crate) fn start_in(self, group: &Path) -> anyhow::Result<Leash> {
        let enter = format!(
            "echo 0 > {}/cgroup.procs && exec /proc/{}/exe \"$@\"",
            group.display(),
            std::process::id()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &enter, "sh"]);
        Leash::start(self.words(&mut shell))
    }

    fn words(self, command: &mut Command) -> &mut Command {
        command
            .arg("hog")
            .args([self.percent.to_string(), self.cpu.to_string()])
            .args(["--".to_owned(), self.niceness.to_string()])
    }

    /// Burns until the standard input ends.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        jostle_sys::process::set_name("hog");
        jostle_sys::cpu::pin(&[self.cpu]).context("cannot pin a hog")?;
        rustix::process::nice(self.niceness).context("cannot set a hog's niceness")?;
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        let share_ns = PERIOD_NS * self.percent / 100;
        let mut edge = jostle_sys::clock::monotonic();
        loop {
            edge += PERIOD_NS;
            burn(share_ns, edge);
            jostle_sys::clock::sleep_until(edge);
        }
    }
}

/// Uses so much CPU time, but gives up at `edge`: what others kept it from is not
/// made up for, so that the dose never exceeds what was asked for.
fn burn(share_ns: u64, edge: u64) {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let end = used() + share_ns;
    let mut sum = 0u64;
    while used() < end && jostle_sys::clock::monotonic() < edge {
        (0..1_000).for_each(|n| sum = black_box(sum.wrapping_add(n)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_hog_uses_its_share_and_no_more() {
        let used_ms = |percent: u64| {
            let hog = std::thread::spawn(move || {
                let before = clock_gettime(ClockId::ThreadCPUTime);
                let mut edge = jostle_sys::clock::monotonic();
                for _ in 0..30 {
                    edge += PERIOD_NS;
                    burn(PERIOD_NS * percent / 100, edge);
                    jostle_sys::clock::sleep_until(edge);
                }
                let after = clock_gettime(ClockId::ThreadCPUTime);
                Duration::from_secs((after.tv_sec - before.tv_sec) as u64).as_secs_f64() * 1e3
                    + (after.tv_nsec - before.tv_nsec) as f64 / 1e6
            });
            hog.join().unwrap()
        };
        // 300 ms each. A busy machine can only take from a hog.
        let found = (0..5).any(|_| {
            let [little, much] = [used_ms(10), used_ms(60)];
            assert!(little < 60.0 && much < 210.0, "{little} and {much} ms");
            much > 1.5 * little
        });
        assert!(found, "in none of five tries");
    }
}
