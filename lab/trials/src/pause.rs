//! `xtask pause`: stops the processes of a control group and lets them go on, in turn.
//! Started by `cargo xtask validate judge`; ends with its standard input, and leaves
//! nothing stopped.

use anyhow::Context;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Pause {
    /// The directory of the control group
    pub group: PathBuf,
    /// Milliseconds of each turn for which they are stopped
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub stopped_ms: u64,
    /// Milliseconds of each turn for which they run
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub running_ms: u64,
}

impl Pause {
    pub(crate) fn start(&self) -> anyhow::Result<Leash> {
        // By this link, so that it is this program even after another build.
        let mut pause = Command::new("/proc/self/exe");
        pause.arg("pause").arg(&self.group);
        pause.args([self.stopped_ms, self.running_ms].map(|ms| ms.to_string()));
        Leash::start(&mut pause)
    }

    /// Until the standard input ends.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (send, ended) = channel::<()>();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(send);
        });
        let turns = self.turns(&ended);
        // Whatever ended it.
        let left = self.each(process::go_on);
        turns.and(left)
    }

    fn turns(&self, ended: &Receiver<()>) -> anyhow::Result<()> {
        let is_over = |ms| {
            let waited = ended.recv_timeout(Duration::from_millis(ms));
            waited == Err(RecvTimeoutError::Disconnected)
        };
        while !is_over(self.running_ms) {
            self.each(process::stop)?;
            let over = is_over(self.stopped_ms);
            self.each(process::go_on)?;
            if over {
                break;
            }
        }
        Ok(())
    }

    fn each(&self, tell: fn(u32)) -> anyhow::Result<()> {
        let file = self.group.join("cgroup.procs");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        text.lines()
            .filter_map(|line| line.parse().ok())
            .for_each(tell);
        Ok(())
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_process_is_stopped_in_turns_and_runs_at_the_end() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = sleeper.id();
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cgroup.procs"), format!("{pid}\n")).unwrap();
        let pause = Pause {
            group: group.path().to_owned(),
            stopped_ms: 20,
            running_ms: 20,
        };
        let (send, ended) = channel();
        let turns = std::thread::spawn(move || pause.turns(&ended));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !process::is_halted(pid) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let was_stopped = process::is_halted(pid);
        drop::<std::sync::mpsc::Sender<()>>(send);
        turns.join().unwrap().unwrap();
        let is_stopped = process::is_halted(pid);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(was_stopped && !is_stopped);
    }
}
