//! The ranks of this machine as the system sees them: how much memory they took,
//! and what CPU time their threads.

use jostle_sys::stat;
use std::fs;
use std::io;

/// Processes, those of one rank one after the other: a rank, then its keeper.
pub struct Ranks(Vec<Vec<u32>>);

/// A thread of a rank or of its keeper.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    pub tid: u32,
    /// As the program or the library has named it; `keeper` before those of one.
    pub name: String,
    /// CPU time so far.
    pub ran_ns: u64,
}

impl Ranks {
    /// Those that our own launcher has started on this machine, this one first.
    ///
    /// # Errors
    /// Where /proc does not tell (CONFIG_PROC_CHILDREN).
    pub fn find() -> io::Result<Ranks> {
        let own = std::process::id();
        let our_name = name(own, own)?;
        let mut pids = children(std::os::unix::process::parent_id())?;
        pids.retain(|pid| name(*pid, *pid).is_ok_and(|name| name == our_name));
        pids.sort_by_key(|pid| (*pid != own, *pid));
        let with_keeper = |pid| Ok([vec![pid], children(pid)?].concat());
        Ok(Ranks(
            pids.into_iter()
                .map(with_keeper)
                .collect::<io::Result<_>>()?,
        ))
    }

    /// The most memory that each has had (VmHWM of proc(5)), in KB, its keeper's not
    /// counted. A page of a library counts for each that uses it.
    ///
    /// # Errors
    /// Where one has ended.
    pub fn peaks_kb(&self) -> io::Result<Vec<u64>> {
        self.0.iter().map(|pids| peak_kb(pids[0])).collect()
    }

    /// The threads of each.
    ///
    /// # Errors
    /// Where one has ended.
    pub fn threads(&self) -> io::Result<Vec<Vec<Thread>>> {
        let of_rank = |pids: &Vec<u32>| {
            let each = pids.iter().map(|pid| threads(*pid, *pid != pids[0]));
            Ok(each.collect::<io::Result<Vec<_>>>()?.concat())
        };
        self.0.iter().map(of_rank).collect()
    }
}

fn tasks(pid: u32) -> io::Result<Vec<u32>> {
    let mut tids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        tids.extend(entry?.file_name().to_string_lossy().parse::<u32>());
    }
    Ok(tids)
}

fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for tid in tasks(pid)? {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"))?;
        pids.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(pids)
}

fn name(pid: u32, tid: u32) -> io::Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))?;
    Ok(text.trim().to_owned())
}

fn peak_kb(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
    peak.ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no VmHWM")))
}

fn threads(pid: u32, is_keeper: bool) -> io::Result<Vec<Thread>> {
    let thread = |tid| {
        let name = name(pid, tid)?;
        Ok(Thread {
            tid,
            name: if is_keeper {
                format!("keeper {name}")
            } else {
                name
            },
            ran_ns: stat::scheduled(pid, tid).unwrap_or_default().ran_ns,
        })
    };
    tasks(pid)?.into_iter().map(thread).collect()
}
