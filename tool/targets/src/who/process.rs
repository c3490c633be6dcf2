//! Waits of a process, and who could end them: its threads at two looks a second apart, and those
//! of whoever they wait for. Nothing is stopped.
//!
//! A mutex of the C library names its owner in its memory, which is read on request alone. The
//! owner is told where lock word, kind and a thread that lives agree at both looks.

use super::{Answer, Refusal, State, Told, files};
use jostle_model::who::{Party, Wait};
use jostle_sys::census::{self, Identity};
use jostle_sys::owners::{Locks, OwnedBy, Waiting};
use jostle_sys::sock_diag::{SockDiag, Tcp, Wanted};
use jostle_sys::waits::{self, Blocked, LOCK_PI, Look, WAIT};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Between the looks.
const BETWEEN: Duration = Duration::from_secs(1);
/// Processes that a chain is followed through.
const AT_MOST: usize = 64;
/// Pairs of looks at most, until owners are the same in both.
const PAIRS: usize = 4;

/// A thread: its process, and its own number.
type Thread = (u32, u32);

/// A thread that waits.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    look: Look,
    wait: Wait,
    /// The only thread that can end it, where one process alone can.
    owner: Option<u32>,
    /// Nothing but an owner ends it.
    is_endless: bool,
}

/// All that one look shows.
#[derive(Default)]
struct Shown {
    nodes: BTreeMap<Thread, Node>,
    /// The threads of each process.
    threads: BTreeMap<u32, BTreeSet<u32>>,
    /// Threads whose call may not be seen.
    unseen: usize,
}

/// The waits of the process; `memory`: may its memory, and that of those it waits for, be read?
///
/// # Errors
/// That there is no such process.
pub fn process(pid: u32, memory: bool) -> Told {
    let none = || Refusal::Unknown(format!("there is no process {pid} here"));
    Identity::of(pid).ok_or_else(none)?;
    if !census::processes().contains(&pid) {
        let said = format!("{pid} is a thread, and no process; ps -L -p {pid} has its process");
        return Err(Refusal::Usage(said));
    }
    let changed =
        |before: &Node, node: &Node| before.pids() != node.pids() || before.owner != node.owner;
    let again = || {
        std::thread::sleep(BETWEEN);
        explore(pid, memory)
    };
    let mut first = explore(pid, memory);
    let mut shown = again();
    // The kernel gives its list of locks in parts: beside many that come and go a look may miss one.
    for _ in 1..PAIRS {
        let mut nodes = shown.nodes.iter();
        let is_changed = |(thread, node): (&Thread, &Node)| {
            let before = first.nodes.get(thread);
            before.is_some_and(|before| changed(before, node))
        };
        if !nodes.any(is_changed) {
            break;
        }
        first = std::mem::replace(&mut shown, again());
    }
    let all = shown.nodes.len();
    shown.nodes.retain(|thread, node| {
        let before = first.nodes.get(thread);
        if before.is_some_and(|before| changed(before, node)) {
            node.wait.owners.clear();
            node.wait.note = Some("who has it changed between the looks".to_owned());
        }
        before.is_some_and(|before| before.look == node.look)
    });
    let moved = all - shown.nodes.len();
    if !shown.threads.contains_key(&pid) {
        return Err(Refusal::Unknown(format!("process {pid} ended meanwhile")));
    }
    Ok(answer(pid, &shown, moved, memory))
}

fn answer(pid: u32, shown: &Shown, moved: usize, memory: bool) -> Answer {
    let mut waits: Vec<&Node> = shown.nodes.values().collect();
    waits.sort_by_key(|node| (node.look.pid != pid, node.look.pid, node.look.tid));
    let is_for_others = |node: &&&Node| node.is_for_others();
    let own = waits.iter().filter(|node| node.look.pid == pid);
    let mut answer = Answer {
        state: match (own.clone().filter(is_for_others).count(), shown.unseen) {
            (0, 0) => State::Free,
            (0, _) => State::Unknown,
            _ => State::Held,
        },
        deadlock: deadlock(pid, shown),
        waits: waits.iter().map(|node| node.wait.clone()).collect(),
        ..Answer::default()
    };
    if shown.unseen > 0 {
        answer.notes.push(format!(
            "the calls of {} may not be seen (only root, or a user who may trace them, sees them); \
             waits for file locks are in the kernel's list all the same",
            threads(shown.unseen)
        ));
    }
    if moved > 0 {
        answer.notes.push(format!(
            "left out: {}, waiting at one of the two looks only",
            threads(moved)
        ));
    }
    if !memory && waits.iter().any(|node| node.wait.kind == "futex") {
        let note = "--memory reads the owner of a mutex from the memory of the process";
        answer.notes.push(note.to_owned());
    }
    answer
}

fn threads(count: usize) -> String {
    match count {
        1 => "1 thread".to_owned(),
        many => format!("{many} threads"),
    }
}

impl Node {
    fn pids(&self) -> Vec<Option<u32>> {
        self.wait.owners.iter().map(|owner| owner.pid).collect()
    }

    /// Whether somebody has what it waits for: no event, and no time.
    fn is_for_others(&self) -> bool {
        const KINDS: [&str; 7] = [
            "flock",
            "fcntl",
            "socket",
            "pipe",
            "child",
            "futex",
            "semaphore",
        ];
        KINDS.contains(&&*self.wait.kind)
    }
}

/// The processes of threads that wait for each other, as far as this process waits for them.
/// Every owner of what a thread waits for must wait itself, with all of its threads where any of
/// them could let go: then nobody is left who could end it.
fn deadlock(pid: u32, shown: &Shown) -> Vec<u32> {
    let mut stuck: BTreeSet<Thread> = shown.nodes.keys().copied().collect();
    loop {
        let before = stuck.len();
        let owners = |node: &Node| -> Vec<Thread> { node.owners(&shown.threads) };
        let still: BTreeSet<Thread> = stuck
            .iter()
            .copied()
            .filter(|thread| {
                let node = &shown.nodes[thread];
                let owners = owners(node);
                node.is_endless
                    && !owners.is_empty()
                    && owners.iter().all(|owner| stuck.contains(owner))
            })
            .collect();
        stuck = still;
        if stuck.len() == before {
            break;
        }
    }
    let from = |thread: &Thread| {
        let mut reached = BTreeSet::new();
        let mut next = shown.nodes[thread].owners(&shown.threads);
        while let Some(thread) = next.pop() {
            if reached.insert(thread) {
                next.extend(shown.nodes[&thread].owners(&shown.threads));
            }
        }
        reached
    };
    let own = stuck.iter().filter(|(of, _)| *of == pid);
    let reached: BTreeSet<Thread> = own.flat_map(&from).collect();
    let reached = reached.iter();
    let in_circle = reached.filter(|thread| from(thread).contains(*thread));
    let pids: BTreeSet<u32> = in_circle.map(|(pid, _)| *pid).collect();
    pids.into_iter().collect()
}

impl Node {
    /// The threads that could end it; none where not all are known.
    fn owners(&self, threads: &BTreeMap<u32, BTreeSet<u32>>) -> Vec<Thread> {
        let mut found = Vec::new();
        for party in &self.wait.owners {
            let Some(pid) = party.pid else {
                return Vec::new();
            };
            match (self.owner, threads.get(&pid)) {
                (Some(tid), _) => found.push((pid, tid)),
                (None, Some(tids)) => found.extend(tids.iter().map(|tid| (pid, *tid))),
                (None, None) => return Vec::new(),
            }
        }
        found
    }
}

/// The machine at one look.
struct Machine {
    locks: Locks,
    descriptors: OnceCell<Vec<Descriptor>>,
    tcp: OnceCell<Vec<Tcp>>,
    memory: bool,
}

/// An open pipe or socket.
struct Descriptor {
    pid: u32,
    /// `pipe:[7]`.
    link: String,
    reads: bool,
    writes: bool,
}

fn explore(pid: u32, memory: bool) -> Shown {
    let machine = Machine {
        locks: Locks::read(),
        descriptors: OnceCell::new(),
        tcp: OnceCell::new(),
        memory,
    };
    let mut shown = Shown::default();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        if shown.threads.contains_key(&pid) || shown.threads.len() == AT_MOST {
            continue;
        }
        let looks = waits::threads(pid);
        if looks.is_empty() {
            continue;
        }
        shown
            .threads
            .insert(pid, looks.iter().map(|look| look.tid).collect());
        let is_unseen = |look: &&Look| look.sleeps && look.call.is_none();
        shown.unseen += looks.iter().filter(is_unseen).count();
        for look in looks.iter().filter(|look| look.sleeps) {
            let Some(node) = machine.node(look) else {
                continue;
            };
            next.extend(node.wait.owners.iter().filter_map(|owner| owner.pid));
            shown.nodes.insert((pid, look.tid), node);
        }
    }
    shown
}

fn process_party(pid: u32) -> Party {
    Party {
        who: Some(format!(
            "pid {pid} {}",
            Identity::of(pid).unwrap_or_default().name
        )),
        pid: Some(pid),
        ..Party::default()
    }
}

impl Machine {
    fn node(&self, look: &Look) -> Option<Node> {
        let link = |descriptor: u32| {
            let link =
                fs::read_link(format!("/proc/{}/fd/{descriptor}", look.pid)).unwrap_or_default();
            link.display().to_string()
        };
        let mut node = Node {
            look: look.clone(),
            wait: Wait {
                pid: look.pid,
                tid: look.tid,
                who: match look.tid == look.pid {
                    true => format!("pid {} {}", look.pid, look.name),
                    false => format!("pid {} thread {} {}", look.pid, look.tid, look.name),
                },
                ..Wait::default()
            },
            owner: None,
            is_endless: true,
        };
        let wait = &mut node.wait;
        match look.call {
            Some(Blocked::Flock(descriptor)) => {
                wait.on = Some(link(descriptor));
                self.file_lock(wait, OwnedBy::Flock, Some(descriptor));
                node.is_endless = sees_all();
            }
            Some(Blocked::Record(descriptor)) => {
                wait.on = Some(link(descriptor));
                self.file_lock(wait, OwnedBy::Record, Some(descriptor));
                node.is_endless = sees_all();
            }
            // A list for everybody has the process, and not the thread.
            None if look.tid == look.pid => {
                for kind in [OwnedBy::Flock, OwnedBy::Record] {
                    if wait.kind.is_empty() {
                        self.file_lock(wait, kind, None);
                    }
                }
                if wait.kind.is_empty() {
                    return None;
                }
                node.is_endless = false;
            }
            None => return None,
            Some(Blocked::Reads(descriptor)) => {
                node.is_endless = self.peers(wait, &link(descriptor), true);
            }
            Some(Blocked::Writes(descriptor)) => {
                node.is_endless = self.peers(wait, &link(descriptor), false);
            }
            Some(Blocked::Child(child)) => {
                wait.kind = "child".to_owned();
                let lives = |pid: &u32| !jostle_sys::process::is_over(*pid);
                let is_it = |pid: &u32| match child {
                    Some(child) => child == *pid,
                    None => Identity::of(*pid).is_some_and(|one| one.parent == look.pid),
                };
                let children = census::processes().into_iter().filter(is_it).filter(lives);
                wait.owners = children.map(process_party).collect();
            }
            Some(Blocked::Semaphores(id)) => {
                wait.kind = "semaphore".to_owned();
                wait.on = Some(format!(
                    "set {id} of System V; jostle who sysv {id} has more"
                ));
            }
            Some(Blocked::Futex {
                address,
                operation,
                is_private,
                expected,
                is_timed,
            }) => {
                wait.kind = "futex".to_owned();
                node.is_endless = !is_timed;
                let mapped = waits::mapping(look.pid, address);
                let place = mapped.as_ref().map(|(_, _, name)| match &**name {
                    "" => ", memory without a name".to_owned(),
                    name => format!(", {name}"),
                });
                let others = others(look, address, is_private, mapped.as_ref());
                wait.on = Some(format!("0x{address:x}{}", place.unwrap_or_default()));
                if !others.is_empty() {
                    wait.note = Some(format!("threads {others:?} wait there, too"));
                }
                if let Some((pid, tid)) = self
                    .memory
                    .then(|| mutex(look.pid, address, operation, expected, is_private))
                    .flatten()
                {
                    wait.owners = vec![process_party(pid)];
                    wait.owners[0].note = (pid != tid).then(|| format!("its thread {tid}"));
                    node.owner = Some(tid);
                }
            }
            Some(Blocked::Other(name)) => {
                wait.kind = name.to_owned();
                node.is_endless = false;
            }
        }
        Some(node)
    }

    /// Whose locks it waits for; of a process whose calls may not be seen by the list alone.
    fn file_lock(&self, wait: &mut Wait, kind: OwnedBy, descriptor: Option<u32>) {
        let key = descriptor.and_then(|descriptor| waits::file(wait.pid, descriptor));
        let is_it = |one: &Waiting| {
            let is_own = one.pid == wait.pid || one.pid == 0 && key.is_some();
            one.kind == kind && is_own && key.as_ref().is_none_or(|key| *key == one.key)
        };
        let waiting: Vec<Waiting> = self.locks.waiting().filter(is_it).collect();
        if descriptor.is_some() || !waiting.is_empty() {
            wait.kind = word(kind).to_owned();
        }
        let Some(first) = waiting.first() else {
            return;
        };
        let same = |one: &Waiting| (one.bytes, one.is_shared) == (first.bytes, first.is_shared);
        if !waiting.iter().all(same) {
            let note =
                "several wait there for different locks; the kernel does not say which is whose";
            wait.note = Some(note.to_owned());
            return;
        }
        // A lock of an open file may stand in the way of the same process; its own never does.
        let is_own = |pid: u32| pid == wait.pid && kind == OwnedBy::Record && first.pid != 0;
        let owners = self.locks.in_the_way(first);
        let owners = owners.iter().filter(|owner| !is_own(owner.pid));
        wait.owners = owners.map(|owner| files::party(owner, kind)).collect();
    }

    fn descriptors(&self) -> &[Descriptor] {
        self.descriptors.get_or_init(|| {
            let mut all = Vec::new();
            for pid in census::processes() {
                let open = fs::read_dir(format!("/proc/{pid}/fd"));
                for entry in open.into_iter().flatten().flatten() {
                    let link = fs::read_link(entry.path()).unwrap_or_default();
                    let link = link.display().to_string();
                    if !link.starts_with("pipe:[") && !link.starts_with("socket:[") {
                        continue;
                    }
                    let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display());
                    let info = fs::read_to_string(info).unwrap_or_default();
                    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
                    let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
                    // O_ACCMODE.
                    let way = flags.unwrap_or(0) & 3;
                    all.push(Descriptor {
                        pid,
                        link,
                        reads: way != 1,
                        writes: way != 0,
                    });
                }
            }
            all
        })
    }

    /// Who is at the other end of a pipe or socket. Whether the wait lasts until they act: a
    /// socket may have a time limit that nobody can see.
    fn peers(&self, wait: &mut Wait, link: &str, reads: bool) -> bool {
        let have = |link: &str, is_end: &dyn Fn(&Descriptor) -> bool| -> Vec<Party> {
            let open = self.descriptors().iter();
            let open = open.filter(|one| one.link == link && is_end(one));
            let pids: BTreeSet<u32> = open.map(|one| one.pid).collect();
            pids.into_iter().map(process_party).collect()
        };
        let inode = |kind: &str| -> Option<u32> {
            link.strip_prefix(kind)?
                .strip_prefix(":[")?
                .strip_suffix(']')?
                .parse()
                .ok()
        };
        wait.on = Some(link.to_owned());
        if inode("pipe").is_some() {
            wait.kind = "pipe".to_owned();
            wait.owners = have(link, &|one| if reads { one.writes } else { one.reads });
            // One whose descriptors may not be seen could have the other end.
            return sees_all();
        }
        let Some(inode) = inode("socket") else {
            wait.kind = if reads { "read" } else { "write" }.to_owned();
            return false;
        };
        wait.kind = "socket".to_owned();
        let tcp = self.tcp.get_or_init(|| {
            let all = SockDiag::open().and_then(|mut diag| diag.tcp(Wanted::default()));
            all.unwrap_or_default()
        });
        let mut peer = None;
        if let Some(own) = tcp.iter().find(|socket| socket.inode == inode) {
            let [here, there] = own.addresses();
            wait.on = Some(format!("TCP {here} -> {there}"));
            peer = tcp
                .iter()
                .find(|other| other.addresses() == [there, here])
                .map(|other| other.inode);
        } else if let Ok(found) = SockDiag::open().and_then(|mut diag| diag.unix_peer(inode)) {
            wait.on = Some("a Unix socket".to_owned());
            peer = found;
        }
        if let Some(peer) = peer.filter(|peer| *peer != 0) {
            wait.owners = have(&format!("socket:[{peer}]"), &|_| true);
        }
        false
    }
}

/// Whether nobody's descriptors are hidden: an open file that was inherited has other owners.
fn sees_all() -> bool {
    census::is_complete() && rustix::process::geteuid().is_root()
}

fn word(kind: OwnedBy) -> &'static str {
    match kind {
        OwnedBy::Flock => "flock",
        OwnedBy::Record => "fcntl",
    }
}

/// Other threads that wait for the same word, in this process or in those that share its memory.
fn others(
    look: &Look,
    address: u64,
    is_private: bool,
    mapped: Option<&(String, u64, String)>,
) -> Vec<u32> {
    let same = |other: &Look| match other.call {
        Some(Blocked::Futex { address: there, .. }) if other.tid != look.tid => {
            let is_own = other.pid == look.pid && there == address;
            let is_shared = || {
                let mapped = mapped.filter(|(file, ..)| !file.ends_with(" 0"));
                let there = waits::mapping(other.pid, there);
                mapped
                    .zip(there.as_ref())
                    .is_some_and(|(one, other)| (&one.0, one.1) == (&other.0, other.1))
            };
            is_own || !is_private && is_shared()
        }
        _ => false,
    };
    let pids = match is_private {
        true => vec![look.pid],
        false => census::processes(),
    };
    let looks = pids.into_iter().flat_map(waits::threads);
    let looks = looks.filter(|other| same(other));
    looks.map(|other| other.tid).collect()
}

/// The process and thread that own a mutex of the C library (glibc's `struct __pthread_mutex_s`:
/// word, count, owner, users, kind, spins), by what stands in memory. None for anything else that waits
/// for a word.
fn mutex(
    pid: u32,
    address: u64,
    operation: u32,
    expected: u32,
    is_private: bool,
) -> Option<Thread> {
    const TID: u32 = 0x3fff_ffff;
    const WAITED_FOR: u32 = 0x8000_0000;
    // Parts of the kind; two bits are for elision.
    const PLAIN: u32 = 3;
    const RECURSIVE: u32 = 1;
    const ROBUST: u32 = 16;
    const SHARED: u32 = 128;
    const ELISION: u32 = 256 | 512;
    let lives = |tid: u32| {
        let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
        let of = text.lines().find_map(|line| line.strip_prefix("Tgid:\t"))?;
        let is_over = text.contains("\nState:\tZ") || text.contains("\nState:\tX");
        let of = of.parse::<u32>().ok()?;
        // A child that was forked has a copy of its parent's mutex: nobody can open that.
        Some((of, tid)).filter(|_| tid != 0 && !is_over && (of == pid || !is_private))
    };
    // Memory has the numbers of the namespace that wrote it.
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/pid")).ok();
    if namespace(&pid.to_string()) != namespace("self") {
        return None;
    }
    let [word, count, owner, users, kind, _] = waits::words::<6>(pid, address)?;
    if LOCK_PI.contains(&operation) {
        // The kernel itself keeps it, and checks it.
        return lives(word & TID);
    }
    if !WAIT.contains(&operation) || word != expected {
        return None;
    }
    let is_known = kind & !(PLAIN | ROBUST | SHARED | ELISION) == 0;
    let is_counted = (count > 0) == (kind & ROBUST != 0 || kind & PLAIN == RECURSIVE);
    let is_taken = match kind & ROBUST {
        0 => word == 2,
        _ => word & TID == owner & TID && word & WAITED_FOR != 0,
    };
    lives(owner).filter(|_| is_known && is_counted && users > 0 && is_taken)
}
