//! Who traces or samples this machine: programs with performance events or attached eBPF
//! programs, or that get all packets, by their descriptors, and what is switched on in tracefs.
//!
//! Root alone sees other users' descriptors, and tracefs, which is never mounted from here. An
//! eBPF program that is pinned to a file has no descriptor, and is not seen.

use crate::census;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The processes that have performance events open (perf_event_open(2)), or eBPF programs
/// attached to events or functions of the kernel, or /proc/locks (who reads it holds up all file
/// locks, which keep to the slow path of the kernel's `file_rwsem` for a while), and whether all descriptors of the machine
/// were looked at. A look takes 2 us for each descriptor, and at most `patience`.
pub fn programs(patience: Duration) -> (Vec<u32>, bool) {
    those_that(traces, patience)
}

/// Those with one of these sockets, by inode, as [`programs`].
pub fn owners(sockets: &[u64], patience: Duration) -> (Vec<u32>, bool) {
    let links: Vec<String> = sockets
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let owns = |pid| {
        let mut entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
        Ok(entries.any(|entry| {
            let link = fs::read_link(entry.path()).unwrap_or_default();
            links
                .iter()
                .any(|socket| link.as_os_str() == socket.as_str())
        }))
    };
    those_that(owns, patience)
}

/// The inodes of the sockets that get every packet of this process's network namespace
/// (packet(7) with ETH_P_ALL), each of which costs whoever sends and receives.
///
/// # Errors
/// Where the kernel does not tell.
pub fn captures() -> io::Result<Vec<u64>> {
    fs::read_to_string("/proc/self/net/packet").map(|text| captures_in(&text))
}

fn captures_in(text: &str) -> Vec<u64> {
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["0003", _, "1", _, _, inode] = words.get(3..)? else {
            return None;
        };
        inode.parse().ok()
    };
    text.lines().filter_map(inode).collect()
}

fn those_that(is_one: impl Fn(u32) -> io::Result<bool>, patience: Duration) -> (Vec<u32>, bool) {
    let until = Instant::now() + patience;
    let mut is_complete = census::is_complete();
    let traces = |pid: &u32| match is_one(*pid) {
        _ if Instant::now() > until => Err(()),
        // It has ended.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        traces => traces.map_err(|_| ()),
    };
    let mut found = census::processes();
    found.retain(|pid| {
        let traces = traces(pid);
        is_complete &= traces.is_ok();
        traces == Ok(true)
    });
    (found, is_complete)
}

fn traces(pid: u32) -> io::Result<bool> {
    let mut entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(entries.any(|entry| {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        let link = link.to_string_lossy();
        let info = || {
            let path = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display());
            fs::read_to_string(path).unwrap_or_default()
        };
        link == "anon_inode:[perf_event]"
            || link == "/proc/locks"
            || link.contains("bpf_link") && is_tracing(&info())
    }))
}

/// Whether events or functions of the kernel call an eBPF program, by what the kernel tells of
/// its link. Networks, control groups and security modules (attach type 27) have others.
fn is_tracing(info: &str) -> bool {
    let has = |name: &str, values: &[&str]| {
        let of_name = info.lines().filter_map(|line| line.strip_prefix(name));
        of_name
            .into_iter()
            .any(|value| values.contains(&value.trim()))
    };
    let kinds = [
        "tracing",
        "raw_tracepoint",
        "perf_event",
        "kprobe_multi",
        "uprobe_multi",
    ];
    has("link_type:", &kinds) && !has("attach_type:", &["27"])
}

/// Tracers and events that are on in tracefs, itself or in one of its instances: a tracer by
/// its name, events as `sched:sched_switch`. Wherever it is mounted, it shows the same.
///
/// # Errors
/// Where it is not mounted, or only root may read it.
pub fn switched_on() -> io::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let place = words.next()?;
        (words.next() == Some("tracefs")).then_some(Path::new(place))
    });
    let read = places.map(on_in);
    read.reduce(io::Result::or)
        .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

fn on_in(place: &Path) -> io::Result<Vec<String>> {
    let mut found = on(place)?;
    let instances = fs::read_dir(place.join("instances")).into_iter().flatten();
    for instance in instances.flatten() {
        // One that has just been removed traces nothing.
        found.extend(on(&instance.path()).unwrap_or_default());
    }
    Ok(found)
}

fn on(place: &Path) -> io::Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(place.join(name));
    let (tracer, events) = (read("current_tracer")?, read("set_event")?);
    // Daemons that wait for faults of the hardware keep some on, which never occur.
    let is_idle = |on: &&str| *on == "nop" || on.starts_with("ras:") || on.starts_with("mce:");
    let all = tracer.lines().chain(events.lines()).map(str::trim);
    Ok(all.filter(|on| !is_idle(on)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_ebpf_are_told_apart() {
        for (is, text) in [
            (true, "link_type:\traw_tracepoint\nlink_id:\t4\n"),
            (true, "link_type:\ttracing\nattach_type:\t24\n"),
            (false, "link_type:\ttracing\nattach_type:\t27\n"),
            (false, "link_type:\tcgroup\nattach_type:\t2\n"),
            (false, ""),
        ] {
            assert_eq!(is_tracing(&format!("pos:\t0\n{text}")), is, "{text}");
        }
    }

    #[test]
    fn sockets_that_get_every_packet_are_told_from_those_of_one_protocol() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                    0000000000000000 3      3    0003   1     1 0      0      90210\n\
                    0000000000000000 3      3    0003   0     0 0      0      90211\n\
                    0000000000000000 3      2    0800   2     1 0      0      90212\n";
        assert_eq!(captures_in(text), [90_210]);
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
        let link = link.to_string_lossy().into_owned();
        let inode = link.trim_start_matches("socket:[").trim_end_matches(']');
        let (found, _) = owners(&[inode.parse().unwrap()], Duration::from_secs(60));
        assert!(found.contains(&std::process::id()));
    }

    #[test]
    fn what_tracefs_has_on_is_read_and_faults_of_hardware_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let instance = place.path().join("instances/plant");
        fs::create_dir_all(&instance).unwrap();
        let set = |place: &Path, tracer: &str, events: &str| {
            fs::write(place.join("current_tracer"), tracer).unwrap();
            fs::write(place.join("set_event"), events).unwrap();
        };
        set(place.path(), "nop\n", "ras:mc_event\n");
        assert!(on_in(place.path()).unwrap().is_empty());
        set(
            place.path(),
            "function\n",
            "ras:mc_event\nsched:sched_switch\n",
        );
        set(&instance, "nop\n", "raw_syscalls:sys_exit\n");
        assert_eq!(
            on_in(place.path()).unwrap(),
            ["function", "sched:sched_switch", "raw_syscalls:sys_exit"]
        );
        assert!(on_in(&instance.join("absent")).is_err());
    }

    /// Opens an event of this process; a container may not.
    #[test]
    fn a_process_with_performance_events_is_found() {
        // A software event (type 1) that counts the CPU's clock (0) in user mode alone (bits 5
        // and 6): what perf_event_paranoid leaves to everybody.
        let mut attributes = [0u64; 16];
        (attributes[0], attributes[5]) = (1 | (128 << 32), 0b110_0000);
        // SAFETY: the pointer is to live attributes of the size that they state.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 0) };
        let own = std::process::id();
        if descriptor >= 0 {
            let (found, _) = programs(Duration::from_secs(60));
            assert!(found.contains(&own));
            // SAFETY: nobody else has it.
            unsafe { libc::close(descriptor as i32) };
        }
        assert!(!traces(own).unwrap() && !programs(Duration::ZERO).1);
    }
}
