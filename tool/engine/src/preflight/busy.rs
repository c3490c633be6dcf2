//! Other programs that use this machine's CPUs right now: for a note before the first run, for
//! those who wait until it is quiet, and for `jostle doctor`.
//!
//! [`Look::now`] reads the scheduler's clocks of all processes, [`between`] compares two
//! readings and is pure. Not for what others do during a run: that is booked with each
//! run.

use jostle_sys::{census, clock, stat};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough for a clock that steps by a tick of 4 to 10 ms while a thread runs.
pub const SPAN: Duration = Duration::from_millis(200);

/// Share of one CPU from which on a program is named before a run. What a run then lost to
/// others is judged by the check of that name, from the run's own accounts.
pub const NAMED: f64 = 0.03;

/// Share of all CPUs under which the machine counts as quiet.
pub const QUIET: f64 = 0.03;

/// How many programs are named.
const MOST_NAMED: usize = 3;

/// All processes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    at_ns: u64,
    sees_all: bool,
    processes: BTreeMap<u32, Seen>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    used_ns: u64,
    identity: census::Identity,
}

impl Look {
    /// Reads all that /proc shows: some 20 us for each process.
    pub fn now() -> Look {
        let at_ns = clock::monotonic();
        let each = census::take().into_iter().filter_map(|(pid, used_ns)| {
            let identity = census::Identity::of(pid)?;
            Some((pid, Seen { used_ns, identity }))
        });
        Look {
            at_ns,
            sees_all: census::is_complete(),
            processes: each.collect(),
        }
    }

    /// The next look, at least so long after this one.
    pub fn after(&self, span: Duration) -> Look {
        let passed = Duration::from_nanos(clock::monotonic() - self.at_ns);
        std::thread::sleep(span.saturating_sub(passed));
        Look::now()
    }

    /// Whether a process is one of `ancestors` or was started by them or their
    /// descendants.
    fn descends(&self, pid: u32, ancestors: &[u32]) -> bool {
        let parent = |pid: &u32| Some(self.processes.get(pid)?.identity.parent);
        // More generations than any real tree has, in case that one changes meanwhile.
        std::iter::successors(Some(pid), parent)
            .take(64)
            .any(|pid| ancestors.contains(&pid))
    }

    /// CPU time of processes that ended since `before` and were waited for by `parent`:
    /// compilers that a build starts are seen in this way alone.
    fn reaped_since(&self, before: &Look, parent: u32) -> u64 {
        let reaped = |look: &Look| look.processes.get(&parent).map(|p| p.identity.reaped_ns);
        let (Some(now), Some(then)) = (reaped(self), reaped(before)) else {
            return 0;
        };
        // What they had used before counts with what was waited for.
        let ended = before.processes.iter().filter(|(pid, process)| {
            process.identity.parent == parent && !self.processes.contains_key(pid)
        });
        let earlier: u64 = ended.map(|(_, p)| p.used_ns + p.identity.reaped_ns).sum();
        // It is counted in ticks, and may step by a whole one for a process that
        // took next to nothing.
        let tick_ns = 1_000_000_000 / stat::ticks_per_second().max(1);
        (now.saturating_sub(then)).saturating_sub(earlier + tick_ns)
    }
}

/// A program that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// As the kernel names it.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// CPUs' worth of time that it used, with that of children that have ended.
    pub cpus: f64,
}

/// The CPU use of other programs between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyPrograms {
    /// CPUs' worth of time, of all of them.
    pub cpus: f64,
    /// CPUs that the machine has.
    pub of: usize,
    /// Those that used any, the largest first.
    pub programs: Vec<Program>,
    /// Whether these are all: not in a container, nor where other users' processes are
    /// hidden.
    pub sees_all: bool,
}

/// The use of all processes between two looks that are neither the kernel's nor descend from one of
/// `ours`. `of` is how many CPUs the machine has.
pub fn between(before: &Look, after: &Look, ours: &[u32], of: usize) -> BusyPrograms {
    let elapsed_ns = after.at_ns.saturating_sub(before.at_ns).max(1);
    let others = after
        .processes
        .iter()
        .filter(|(pid, process)| !process.identity.is_kernel && !after.descends(**pid, ours));
    let used = others.map(|(pid, process)| {
        // A process that is not in the look before has begun since.
        let then = before.processes.get(pid).map_or(0, |then| then.used_ns);
        let own_ns = process.used_ns.saturating_sub(then);
        let used_ns = own_ns + after.reaped_since(before, *pid);
        Program {
            name: process.identity.name.clone(),
            pid: *pid,
            // No more than there is, should a process have got another parent.
            cpus: (used_ns as f64 / elapsed_ns as f64).min(of as f64),
        }
    });
    let mut programs: Vec<Program> = used.filter(|program| program.cpus > 0.0).collect();
    programs.sort_by(|one, other| other.cpus.total_cmp(&one.cpus));
    BusyPrograms {
        cpus: programs.iter().map(|program| program.cpus).sum(),
        of,
        programs,
        sees_all: before.sees_all && after.sees_all,
    }
}

impl BusyPrograms {
    /// Share of the machine's CPUs.
    pub fn share(&self) -> f64 {
        self.cpus / self.of.max(1) as f64
    }

    /// The largest of those that are worth a name.
    pub fn named(&self) -> impl Iterator<Item = &Program> {
        let large = self.programs.iter().filter(|p| p.cpus >= NAMED);
        large.take(MOST_NAMED)
    }

    /// `cargo (812) 31 % of a CPU, rustc (901) 22 %`; None where nobody is.
    pub fn names(&self) -> Option<String> {
        let each = self.named().enumerate().map(|(nth, program)| {
            let unit = if nth == 0 { " of a CPU" } else { "" };
            let share = 100.0 * program.cpus;
            format!("{} ({}) {share:.0} %{unit}", program.name, program.pid)
        });
        let all: Vec<String> = each.collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The largest share that they can take from a figure: where all workers meet in
    /// one lock or one thread of a server, what its CPU loses.
    pub fn cost(&self) -> f64 {
        self.cpus.min(1.0)
    }
}

/// Whether the machine was quiet for a second in a row.
#[derive(Clone, Debug, Default)]
pub struct Quiet(Vec<f64>);

impl Quiet {
    /// How long it has to be quiet.
    const FOR: Duration = Duration::from_secs(1);

    /// Takes the share of the machine that others used in the next span, and tells
    /// whether they used less than [`QUIET`] of the last second.
    pub fn is_after(&mut self, share: f64) -> bool {
        let spans = (Quiet::FOR.as_nanos() / SPAN.as_nanos()) as usize;
        self.0.push(share);
        let Some(first) = self.0.len().checked_sub(spans) else {
            return false;
        };
        self.0[first..].iter().sum::<f64>() / (spans as f64) < QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::census::Identity;
    use std::process::{Child, Command};

    const MS: u64 = 1_000_000;

    const OWN: u32 = 50;

    /// pid, parent, used and reaped in ms.
    fn look(at_ms: u64, processes: &[(u32, u32, u64, u64)]) -> Look {
        let each = processes.iter().map(|(pid, parent, used_ms, reaped_ms)| {
            let identity = Identity {
                name: format!("program{pid}"),
                parent: *parent,
                is_kernel: *parent == 2,
                reaped_ns: reaped_ms * MS,
            };
            let used_ns = used_ms * MS;
            (*pid, Seen { used_ns, identity })
        });
        Look {
            at_ns: at_ms * MS,
            sees_all: true,
            processes: each.collect(),
        }
    }

    #[test]
    fn who_is_neither_ours_nor_the_kernel_s_is_named_by_size() {
        let before = look(
            0,
            &[
                (1, 0, 5, 0),
                (30, 2, 0, 0),
                (50, 1, 0, 0),
                (51, 50, 0, 0),
                (60, 1, 100, 0),
            ],
        );
        let after = look(
            200,
            &[
                (1, 0, 5, 0),
                (30, 2, 90, 0),  // a thread of the kernel
                (50, 1, 80, 0),  // we
                (51, 50, 80, 0), // ours
                (52, 51, 80, 0), // theirs
                (60, 1, 140, 0),
                (61, 60, 100, 0), // has begun since
                (62, 1, 2, 0),    // too little for a name
            ],
        );
        let found = between(&before, &after, &[OWN], 4);
        let names = "program61 (61) 50 % of a CPU, program60 (60) 20 %";
        assert_eq!(found.names().as_deref(), Some(names));
        assert!((found.cpus - 0.71).abs() < 1e-9, "{found:?}");
        assert!((found.share() - 0.71 / 4.0).abs() < 1e-9);
        assert_eq!(between(&before, &before, &[OWN], 4).names(), None);
    }

    #[test]
    fn three_are_named_at_most_and_the_cost_is_at_most_all() {
        let before = look(0, &[]);
        let after = look(
            100,
            &[(1, 0, 50, 0), (2, 0, 60, 0), (3, 0, 70, 0), (4, 0, 80, 0)],
        );
        let found = between(&before, &after, &[OWN], 4);
        assert_eq!(found.named().count(), 3);
        assert_eq!(found.cost(), 1.0);
        assert_eq!(found.programs.len(), 4);
    }

    #[test]
    fn a_compiler_that_came_and_went_is_counted_with_the_build() {
        // The build's child 61 had used 30 ms before; it and others were waited for.
        let before = look(0, &[(60, 1, 0, 500), (61, 60, 30, 0)]);
        let cpus = |reaped_ms| {
            let after = look(200, &[(60, 1, 0, reaped_ms)]);
            between(&before, &after, &[OWN], 4).cpus
        };
        let tick_ms = 1_000 / stat::ticks_per_second();
        let expected = (130 - 30 - tick_ms) as f64 / 200.0;
        assert!((cpus(630) - expected).abs() < 1e-9, "{}", cpus(630));
        // One tick, for a process that took nothing.
        assert_eq!(cpus(530 + tick_ms), 0.0);
        // An orphan's whole life, by its new parent.
        assert_eq!(cpus(1_000_000), 4.0);
    }

    #[test]
    fn quiet_is_a_second_under_the_threshold() {
        let after = |shares: &[f64]| {
            let mut quiet = Quiet::default();
            shares
                .iter()
                .map(|share| quiet.is_after(*share))
                .collect::<Vec<_>>()
        };
        assert_eq!(after(&[0.0; 5]), [false, false, false, false, true]);
        let last = |shares: &[f64]| after(shares).pop().unwrap();
        assert!(last(&[0.5, 0.0, 0.0, 0.0, 0.0, 0.0]));
        assert!(!last(&[0.5, 0.0, 0.0, 0.0, 0.0]));
        assert!(last(&[0.029; 5]));
        assert!(!last(&[0.03; 5]));
    }

    mod live_tests {
        use super::*;

        /// A shell that names itself and never sleeps, until it is dropped.
        struct Spinner(Child);

        impl Spinner {
            fn start(name: &str) -> Spinner {
                let script = format!("printf {name} > /proc/$$/comm; while :; do :; done");
                let child = Command::new("sh").args(["-c", &script]).spawn();
                Spinner(child.unwrap())
            }
        }

        impl Drop for Spinner {
            fn drop(&mut self) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }

        #[test]
        fn a_loop_beside_us_is_seen_by_its_name_and_one_of_ours_is_not() {
            const NAME: &str = "spinner-beside";
            let cpus = |ours: &[u32]| {
                let before = Look::now();
                let found = between(&before, &before.after(SPAN * 2), ours, 2);
                let programs = found.programs.into_iter();
                programs
                    .filter(|p| p.name == NAME)
                    .map(|p| p.cpus)
                    .sum::<f64>()
            };
            assert_eq!(cpus(&[]), 0.0);
            let spinner = Spinner::start(NAME);
            // A busy machine lets it run late, and gives it a share as small as it likes.
            assert!((0..150).any(|_| cpus(&[]) > 0.0));
            assert_eq!(cpus(&[std::process::id()]), 0.0);
            drop(spinner);
        }
    }
}
