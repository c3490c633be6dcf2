//! The kernel's limits and counts of sockets, in this network namespace and on this machine: limits
//! before a sweep, memory and sockets during it.

use super::slurp;
use super::text::{bytes, field};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::time::Duration;

/// Limits on connections; what a kernel does not offer is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// net.ipv4.ip_local_port_range: the first and the last port that the kernel may choose.
    pub ports: Option<(u16, u16)>,
    /// net.ipv4.ip_local_reserved_ports that lie in it.
    pub reserved: u64,
    /// net.core.somaxconn: connections that may wait to be accepted.
    pub somaxconn: Option<u64>,
    /// net.ipv4.tcp_max_tw_buckets: sockets in TIME_WAIT; beyond, they end at once.
    pub max_time_wait: Option<u64>,
    /// Sockets in TIME_WAIT now.
    pub time_wait: Option<u64>,
    /// net.ipv4.tcp_tw_reuse: whether a port in TIME_WAIT is given again after a second; 0:
    /// never, 1: always, 2: between addresses of this machine (127.0.0.0/8).
    pub time_wait_reuse: Option<u64>,
    /// net.netfilter.nf_conntrack_max and its count; absent without conntrack.
    pub conntrack: Option<(u64, u64)>,
    /// Entries of hash tables for sockets, by the kernel's name for them.
    pub hash_sizes: BTreeMap<String, u64>,
}

impl Net {
    /// Reads it all.
    pub fn read() -> Net {
        let ports = slurp("/proc/sys/net/ipv4/ip_local_port_range").and_then(|text| {
            let mut ends = text.split_whitespace().map_while(|end| end.parse().ok());
            Some((ends.next()?, ends.next()?))
        });
        let reserved = slurp("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
        let conntrack = setting("netfilter/nf_conntrack_max");
        Net {
            reserved: ports.map_or(0, |ports| reserved_within(&reserved, ports)),
            ports,
            somaxconn: setting("core/somaxconn"),
            max_time_wait: setting("ipv4/tcp_max_tw_buckets"),
            time_wait: time_wait(),
            time_wait_reuse: setting("ipv4/tcp_tw_reuse"),
            conntrack: conntrack.zip(setting("netfilter/nf_conntrack_count")),
            hash_sizes: hash_sizes(),
        }
    }
}

/// A number of /proc/sys/net.
fn setting<T: FromStr>(name: &str) -> Option<T> {
    field(&slurp(format!("/proc/sys/net/{name}"))?, 0)
}

/// Sockets in TIME_WAIT now, in this network namespace.
fn time_wait() -> Option<u64> {
    Tables::of(std::process::id())?.time_wait()
}

/// The tables of the network namespace of a process, which are open so that they can be read when
/// it has ended.
#[derive(Debug)]
pub struct Tables {
    snmp: File,
    netstat: Option<File>,
    sockstat: Option<File>,
}

impl Tables {
    /// None where /proc does not tell.
    pub fn of(pid: u32) -> Option<Tables> {
        let open = |name: &str| File::open(format!("/proc/{pid}/net/{name}"));
        Some(Tables {
            snmp: open("snmp").ok()?,
            netstat: open("netstat").ok(),
            sockstat: open("sockstat").ok(),
        })
    }

    /// Sockets in TIME_WAIT now.
    pub fn time_wait(&self) -> Option<u64> {
        let sockets = again(self.sockstat.as_ref()?)?;
        tcp_line(&sockets).get("tw").copied()
    }

    /// TCP's counters now.
    pub fn counted(&self) -> Option<Counted> {
        let tcp = again(&self.snmp)?;
        let more = self.netstat.as_ref().and_then(again).unwrap_or_default();
        let more = |name| column(&more, "TcpExt:", name).unwrap_or(0);
        Some(Counted {
            opened: column(&tcp, "Tcp:", "ActiveOpens")?,
            accepted: column(&tcp, "Tcp:", "PassiveOpens")?,
            failed: column(&tcp, "Tcp:", "AttemptFails")?,
            overflows: more("ListenOverflows"),
            dropped: more("ListenDrops"),
            syn_again: more("TCPSynRetrans"),
            delayed_acks: more("DelayedACKs"),
        })
    }
}

/// The text of such a file now: the kernel writes it anew for a reader at its beginning.
fn again(file: &File) -> Option<String> {
    let mut text = vec![0; 16 << 10];
    let mut length = 0;
    loop {
        match file.read_at(text.get_mut(length..)?, length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        text.resize(text.len().max(2 * length), 0);
    }
    text.truncate(length);
    String::from_utf8(text).ok()
}

/// The connections that may take the port of one in TIME_WAIT, after a second or two of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// None.
    #[default]
    Never,
    /// Those of the loopback: the kernel's default since 4.19.
    Loopback,
    /// All.
    Always,
}

impl Reuse {
    /// net.ipv4.tcp_tw_reuse.
    pub fn read() -> Reuse {
        match setting("ipv4/tcp_tw_reuse") {
            Some(1u64) => Reuse::Always,
            Some(2) => Reuse::Loopback,
            _ => Reuse::Never,
        }
    }
}

/// TCP's counters in a network namespace since it exists, whoever caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Attempts to connect (ActiveOpens).
    pub opened: u64,
    /// Connections that listeners were asked for (PassiveOpens).
    pub accepted: u64,
    /// Attempts that failed (AttemptFails).
    pub failed: u64,
    /// Connections that a full accept queue refused (ListenOverflows).
    pub overflows: u64,
    /// All segments that listeners dropped (ListenDrops).
    pub dropped: u64,
    /// First segments (SYN) that were sent again (TCPSynRetrans).
    pub syn_again: u64,
    /// Acknowledgements that their timer sent (DelayedACKs).
    pub delayed_acks: u64,
}

impl Counted {
    /// Those of this network namespace; None where /proc does not tell.
    pub fn read() -> Option<Counted> {
        Tables::of(std::process::id())?.counted()
    }
}

/// The times after which the first segment of a connection is sent again, in seconds, each
/// since the one before: by the settings of this network namespace.
pub fn syn_again_after_s() -> Vec<f64> {
    // A kernel without the setting (before 6.5) doubles the time from the first on.
    let linear = setting("ipv4/tcp_syn_linear_timeouts").unwrap_or(0);
    syn_schedule(setting("ipv4/tcp_syn_retries").unwrap_or(6), linear)
}

/// `linear` times after a second each, which do not count as retries, then doubled up to two
/// minutes (TCP_TIMEOUT_INIT and TCP_RTO_MAX, include/net/tcp.h). With 6 and 4 a segment to an
/// address that did not answer was sent again after 1.0, 2.1, 3.1, 4.1, 5.1, 7.1, 11.3 and
/// 19.5 s (Linux 6.18).
fn syn_schedule(retries: u32, linear: u32) -> Vec<f64> {
    const MOST_S: f64 = 120.0;
    let doubled = |nth: u32| nth.saturating_sub(linear).min(7);
    let each = (0..(linear + retries).min(127)).map(doubled);
    each.map(|times| f64::from(1 << times).min(MOST_S))
        .collect()
}

/// How long a port stays in TIME_WAIT before [`Reuse`] gives it again.
pub fn reuse_after() -> Duration {
    // Before 6.14 the kernel counted in whole seconds, and required more than one.
    Duration::from_millis(setting("ipv4/tcp_tw_reuse_delay").unwrap_or(2_000))
}

/// A column of a table with a line of names and one of numbers under the same first word.
fn column(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let at = lines
        .next()?
        .split_whitespace()
        .position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// How many of a list such as `8080,9148-9150` lie in the range.
fn reserved_within(list: &str, (first, last): (u16, u16)) -> u64 {
    let ranges = list.split(',').filter_map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u16, u16) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        let (low, high) = (low.max(first), high.min(last));
        (low <= high).then(|| u64::from(high - low) + 1)
    });
    ranges.sum()
}

/// The TCP line of /proc/net/sockstat as name to number.
fn tcp_line(text: &str) -> BTreeMap<String, u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: "));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let pairs = words.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)))
        .collect()
}

/// From /proc/sys where the kernel tells, and from the kernel's log where it may
/// be read and still has its beginning.
fn hash_sizes() -> BTreeMap<String, u64> {
    let mut sizes = kernel_log().map_or_else(BTreeMap::new, |log| parse_hash_sizes(&log));
    // The size for this namespace; it is below zero where the table is the machine's own.
    if let Some(entries) = setting::<i64>("ipv4/tcp_ehash_entries") {
        sizes.insert("TCP established".to_owned(), entries.unsigned_abs());
    }
    sizes
}

/// The contents of /dev/kmsg now; None without the right to read it.
fn kernel_log() -> Option<String> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = open("/dev/kmsg", flags, Mode::empty()).ok()?;
    let mut text = String::new();
    let mut record = [0u8; 8192];
    // One record a call; EPIPE where one was overwritten meanwhile.
    loop {
        match rustix::io::read(&log, &mut record) {
            Ok(0) => return Some(text),
            Ok(length) => {
                text += &String::from_utf8_lossy(&record[..length]);
                text.push('\n');
            }
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Err(_) => return Some(text),
        }
    }
}

/// `TCP bind hash table entries: 65536 (...)`, of sockets only.
fn parse_hash_sizes(log: &str) -> BTreeMap<String, u64> {
    const NAMES: [&str; 3] = ["TCP established", "TCP bind", "tcp_listen_portaddr_hash"];
    let of = |line: &str| {
        let (name, rest) = line.split_once(" hash table entries: ")?;
        let name = NAMES.iter().find(|known| name.ends_with(*known))?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(((*name).to_owned(), digits.parse().ok()?))
    };
    log.lines().filter_map(of).collect()
}

/// The kernel memory that sockets use at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelMemory {
    /// Slab of /proc/meminfo.
    pub slab_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// Objects in use times what one takes of its slab, by cache; empty without
    /// the right to read /proc/slabinfo.
    pub caches: BTreeMap<String, u64>,
    /// TCP sockets of this network namespace, by state.
    pub tcp: BTreeMap<String, u64>,
}

impl KernelMemory {
    /// Reads it.
    pub fn read() -> KernelMemory {
        let memory = slurp("/proc/meminfo").unwrap_or_default();
        KernelMemory {
            slab_bytes: bytes(&memory, "Slab").unwrap_or(0),
            available_bytes: bytes(&memory, "MemAvailable").unwrap_or(0),
            caches: slurp("/proc/slabinfo").map_or_else(BTreeMap::new, |text| caches(&text)),
            tcp: tcp_line(&slurp("/proc/net/sockstat").unwrap_or_default()),
        }
    }
}

/// Caches that hold no part of an open connection: what the page cache and file
/// systems keep of files (reading /proc fills some of it), and what is left of
/// connections that are closed.
const OF_NO_CONNECTION: [&str; 6] = [
    "extent_status",
    "buffer_head",
    "radix_tree_node",
    "jbd2_",
    "ext4_",
    "tw_sock_",
];

impl KernelMemory {
    /// The slabs that sockets and their files use: of single caches where they can be read, all of
    /// Slab where not. Slabs are handed back late and in whole pages, so that their sum says little
    /// after many connections have been closed; objects in use are counted at once.
    pub fn socket_bytes(&self) -> u64 {
        let of_files = |name: &str| {
            let inodes = name.ends_with("inode_cache");
            let of_sockets = ["sock_inode_cache", "lsm_inode_cache"].contains(&name);
            (inodes && !of_sockets) || OF_NO_CONNECTION.iter().any(|start| name.starts_with(start))
        };
        let each = self.caches.iter();
        let kept = each.filter(|(name, _)| !of_files(name));
        match self.caches.is_empty() {
            true => self.slab_bytes,
            false => kept.map(|(_, bytes)| bytes).sum(),
        }
    }
}

/// Name, objects in use, objects, size, objects in a slab, its pages: slabinfo(5).
fn caches(text: &str) -> BTreeMap<String, u64> {
    let page = rustix::param::page_size() as u64;
    let of = |line: &str| {
        let (used, in_slab, pages): (u64, u64, u64) =
            (field(line, 1)?, field(line, 4)?, field(line, 5)?);
        let bytes = (used * pages * page).checked_div(in_slab)?;
        Some((line.split_whitespace().next()?.to_owned(), bytes))
    };
    text.lines().skip(2).filter_map(of).collect()
}

/// Memory of one process in bytes: its private pages and its share of shared
/// ones (Pss of /proc/PID/smaps_rollup), and its page tables; None once it is
/// gone, or without the right to look.
pub fn own_memory(pid: u32) -> Option<u64> {
    let pss = bytes(&slurp(format!("/proc/{pid}/smaps_rollup"))?, "Pss")?;
    let tables = bytes(&slurp(format!("/proc/{pid}/status"))?, "VmPTE")?;
    Some(pss + tables)
}

/// MemAvailable, quickly.
pub fn available_bytes() -> Option<u64> {
    bytes(&slurp("/proc/meminfo")?, "MemAvailable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stands_under_its_name() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoMin MaxConn ActiveOpens\nTcp: 200 -1 77\n";
        assert_eq!(column(text, "Tcp:", "ActiveOpens"), Some(77));
        assert_eq!(column(text, "Tcp:", "NoSuch"), None);
        assert!(Counted::read().is_some() && time_wait().is_some());
    }

    #[test]
    fn a_syn_is_sent_again_after_equal_times_and_then_after_twice_as_long_each_time() {
        assert_eq!(
            syn_schedule(6, 4)[..8],
            [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0]
        );
        assert_eq!(syn_schedule(6, 0), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
        assert_eq!(syn_schedule(9, 0)[7..], [120.0, 120.0]);
        assert!(!syn_again_after_s().is_empty());
    }

    #[test]
    fn reserved_ports_count_where_they_lie_in_the_range() {
        let ports = (9_000, 9_149);
        for (list, count) in [("", 0), ("8080,9148-9150", 2), ("1-65535", 150), ("x", 0)] {
            assert_eq!(reserved_within(list, ports), count, "{list}");
        }
    }

    #[test]
    fn sockstat_and_slabinfo_are_read_as_their_manuals_say() {
        let sockets = "sockets: used 16\nTCP: inuse 1 orphan 0 tw 3 alloc 2 mem 91\nUDP: inuse 0\n";
        let tcp = tcp_line(sockets);
        assert_eq!((tcp["inuse"], tcp["tw"], tcp["mem"]), (1, 3, 91));
        let slab = "slabinfo - version: 2.1\n# name <active_objs> ...\n\
                    TCP 78 130 2368 13 8 : tunables 0 0 0 : slabdata 10 10 0\n";
        assert_eq!(caches(slab)["TCP"], 78 * 8 * 4096 / 13);
    }

    #[test]
    fn files_and_closed_connections_are_no_memory_of_open_ones() {
        let mut memory = KernelMemory {
            slab_bytes: 1_000,
            ..KernelMemory::default()
        };
        assert_eq!(memory.socket_bytes(), 1_000, "where caches cannot be read");
        let caches = [
            ("TCP", 1),
            ("sock_inode_cache", 2),
            ("dentry", 4),
            ("lsm_inode_cache", 8),
            ("proc_inode_cache", 100),
            ("ext4_inode_cache", 100),
            ("radix_tree_node", 100),
            ("tw_sock_TCP", 100),
        ];
        memory.caches = caches.map(|(name, n)| (name.to_owned(), n)).into();
        assert_eq!(memory.socket_bytes(), 15);
    }

    #[test]
    fn hash_sizes_stand_in_the_kernel_s_log() {
        let log = "6,288,144124,-;TCP established hash table entries: 262144 (order: 9, linear)\n\
                   6,289,144646,-;TCP bind hash table entries: 65536 (order: 9)\n\
                   6,290,145620,-;MPTCP token hash table entries: 32768 (order: 8)\n";
        let sizes = parse_hash_sizes(log);
        assert_eq!(sizes.len(), 2);
        assert_eq!(sizes["TCP established"], 262_144);
    }

    #[test]
    fn this_machine_has_ports_and_a_process_has_memory() {
        let net = Net::read();
        assert!(net.ports.is_some_and(|(first, last)| first <= last));
        assert!(net.somaxconn.is_some());
        let memory = KernelMemory::read();
        assert!(memory.slab_bytes > 0 && memory.available_bytes > 0);
        assert!(own_memory(std::process::id()).unwrap() > 100_000);
        assert!(available_bytes().unwrap() > 0);
    }
}
