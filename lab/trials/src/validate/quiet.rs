//! The programs beside a session, by an account that is none of jostle's: this program and all that
//! it starts are a control group of `cpuacct`, and foreign is what the CPUs ran apart from the
//! group. The kernel's ticks, which need no such group, err by 1.5 % of a second.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Where distributions mount the controller.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"];
const EVERY: Duration = Duration::from_millis(100);

/// A session is quiet if no second of it had more than this share of all CPUs' time foreign or
/// stolen: a fifth of what a figure may be off and still be VALID. Below it the account does
/// not tell: a tick of steal is 0.5 % of a second of two CPUs, and clocks step by ticks.
pub(super) const QUIET: f64 = 0.01;

/// Shares of the time of all CPUs, from before the session's first window to after its last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Beside {
    pub foreign: f64,
    pub stolen: f64,
    /// Both, in the worst second.
    pub worst: f64,
}

impl Beside {
    pub(super) fn is_quiet(&self) -> bool {
        self.worst <= QUIET
    }
}

/// The group, until it is dropped.
pub(super) struct Sampler {
    root: PathBuf,
    group: PathBuf,
}

impl Sampler {
    /// Moves this program into a group of its own, where what it starts will be too.
    pub(super) fn start() -> anyhow::Result<Sampler> {
        let mut roots = ROOTS.into_iter().map(PathBuf::from);
        let root = roots.find(|root| root.join("cpuacct.usage").exists());
        let root = root.context("the account of what runs beside jostle needs `cpuacct`")?;
        let group = root.join(format!("jostle-lab-{}", std::process::id()));
        fs::create_dir(&group).context("cannot make a control group: are you root?")?;
        let sampler = Sampler { root, group };
        enter(&sampler.group)?;
        Ok(sampler)
    }

    /// The programs beside that work.
    pub(super) fn beside<T>(&self, work: impl FnOnce() -> T) -> anyhow::Result<(T, Beside)> {
        let (over, until) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let readings = scope.spawn(move || -> anyhow::Result<Vec<Reading>> {
                let mut readings = vec![self.read()?];
                while let Err(mpsc::RecvTimeoutError::Timeout) = until.recv_timeout(EVERY) {
                    readings.push(self.read()?);
                }
                readings.push(self.read()?);
                Ok(readings)
            });
            let result = work();
            drop(over);
            let readings = readings.join();
            let readings = readings.map_err(|_| anyhow::anyhow!("the sampler failed"))??;
            let cpus = std::thread::available_parallelism()?.get();
            Ok((result, shares(&readings, cpus as f64)))
        })
    }

    fn read(&self) -> anyhow::Result<Reading> {
        let usage_s = |group: &Path| -> anyhow::Result<f64> {
            let text = fs::read_to_string(group.join("cpuacct.usage"))?;
            Ok(text.trim().parse::<u64>()? as f64 / 1e9)
        };
        let stat = fs::read_to_string("/proc/stat")?;
        // cpu user nice system idle iowait irq softirq steal
        let steal = stat.split_whitespace().nth(8).unwrap_or_default();
        Ok(Reading {
            at: Instant::now(),
            foreign_s: usage_s(&self.root)? - usage_s(&self.group)?,
            stolen_s: steal.parse::<f64>()? / rustix::param::clock_ticks_per_second() as f64,
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = enter(&self.root);
        let _ = fs::remove_dir(&self.group);
    }
}

fn enter(group: &Path) -> anyhow::Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, "0").with_context(|| file.display().to_string())
}

/// Totals since boot.
struct Reading {
    at: Instant,
    foreign_s: f64,
    stolen_s: f64,
}

fn shares(readings: &[Reading], cpus: f64) -> Beside {
    let between = |from: &Reading, to: &Reading| {
        let all_s = (to.at - from.at).as_secs_f64().max(f64::MIN_POSITIVE) * cpus;
        [
            (to.foreign_s - from.foreign_s).max(0.0) / all_s,
            (to.stolen_s - from.stolen_s).max(0.0) / all_s,
        ]
    };
    let [foreign, stolen] = between(&readings[0], &readings[readings.len() - 1]);
    let seconds = readings.iter().enumerate().filter_map(|(nth, from)| {
        let is_later = |to: &&Reading| to.at - from.at >= Duration::from_secs(1);
        let to = readings[nth..].iter().find(is_later)?;
        Some(between(from, to).iter().sum())
    });
    Beside {
        foreign,
        stolen,
        worst: seconds.fold(foreign + stolen, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_second_is_found_wherever_it_begins() {
        let start = Instant::now();
        // Three seconds; one burst of 30 ms after 1.25 s, and steal of 10 ms at the same time.
        let readings: Vec<Reading> = (0..=30)
            .map(|nth| Reading {
                at: start + nth * EVERY,
                foreign_s: 5.0 + if nth > 12 { 0.03 } else { 0.0 },
                stolen_s: 7.0 + if nth > 12 { 0.01 } else { 0.0 },
            })
            .collect();
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        let found = shares(&readings, 2.0);
        assert!(near(found.foreign, 0.005) && near(found.stolen, 0.01 / 6.0));
        assert!(near(found.worst, 0.02) && !found.is_quiet());
        // With eight CPUs the same time is a quarter of the share.
        assert!(shares(&readings, 8.0).is_quiet());
        // Less than a second.
        let brief = shares(&readings[10..15], 2.0);
        assert!(near(brief.worst, 0.05), "{brief:?}");
    }
}
