//! The sentences of a judgement. Each quotes figures of the record.

use super::waits::{self, Inside};
use super::window::{Busy, Window};
use super::{BUSY, HARMED, SHORTEST_S};
use crate::tcp;
use jostle_model::judged::{Hop, Limit, Peer, Process, ServerUnseen, Side, StartedBy, Watched};
use jostle_model::text::quoted;

/// Where the kernel counts no time in run queues.
pub(super) const NO_SCHEDSTAT: &str = "the kernel counts no run-queue wait (no schedstat), or no thread of \
                                the command lived long enough to be seen";

pub(super) const UNIX_SOCKETS: &str = "the command used Unix sockets, whose traffic cannot be \
                                      seen; name its server (--server unix:PATH)";

pub(super) const NO_CONNECTION: &str = "the command opened no TCP connection";

pub(super) fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small > 0.0 && small < 9.95 => format!("{small:.1} %"),
        other => format!("{other:.0} %"),
    }
}

pub(super) fn seconds(value: f64) -> String {
    format!("{value:.1} s")
}

/// The label of what the kernel counts for a whole network namespace, unless that is the
/// command's and its server's own.
pub(super) fn whose(watched: &Watched) -> &'static str {
    match watched.shared_network {
        Some(false) => "",
        _ => " in this network namespace, whoever caused them",
    }
}

/// The command connected in vain.
pub(super) fn refused(opened: f64, failed: f64, watched: &Watched) -> String {
    let failed = format!(
        "{failed:.0} of {opened:.0} attempts to connect failed{}",
        whose(watched)
    );
    match watched.shared_network {
        Some(false) => format!(
            "{failed}, and no connection carried a byte: nobody listens where the command connects \
             to"
        ),
        _ => format!(
            "no connection of the command's was seen to carry a byte, and {failed}: if they are \
             its, nobody listens where it connects to"
        ),
    }
}

/// The command has no TCP.
pub(super) fn no_tcp(watched: &Watched) -> String {
    let protocols = watched.protocols.as_deref().unwrap_or_default();
    let others = match protocols.is_empty() {
        true => String::new(),
        false => format!(
            "; it has sockets of {}, whose traffic is not watched",
            protocols.join(", ")
        ),
    };
    let looks = watched.span_s.len();
    format!("the command was seen with no TCP socket of its own, in {looks} looks{others}")
}

/// Where the server may be, which was not found.
fn unseen(watched: &Watched) -> String {
    let hop = watched
        .traffic
        .as_ref()
        .and_then(|traffic| traffic.hops.first());
    match (watched.server_unseen, hop) {
        (Some(ServerUnseen::Namespaces), _) => {
            "the server is in another namespace of this machine, or on another machine: run judge \
             as root on the host, which sees the former"
                .to_owned()
        }
        (Some(ServerUnseen::Owner), _) => {
            "the server's process may not be looked at by this user: \
                                           run judge as root, or as the server's user"
                .to_owned()
        }
        (Some(ServerUnseen::Forwarder), Some(hop)) => format!(
            "the connections go through {} (pid {}), whose other side could not be followed; name \
             the server (--server pid:N)",
            hop.name, hop.pid
        ),
        _ => "the server was not found on this machine".to_owned(),
    }
}

pub(super) fn failed(watched: &Watched) -> String {
    let how = match (watched.exit, &watched.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => signal.clone(),
        (None, None) => "how is unknown".to_owned(),
    };
    format!(
        "the command failed ({how}): its figures are missing, or are those of a part of its work"
    )
}

pub(super) fn no_port(line: &str) -> String {
    format!("the command failed, as no port was left for a new connection: `{line}`")
}

pub(super) fn gone(window: &Window<'_>, share: f64) -> String {
    let column = window.watched.server.as_ref();
    let column = column.and_then(|side| side.gone_s.as_ref());
    let spans = column.into_iter().flatten().zip(&window.watched.end_s);
    let since = spans.clone().find(|(gone_s, _)| **gone_s > 0.0);
    let since_s = since.map_or(0.0, |(gone_s, end_s)| end_s - gone_s);
    format!(
        "the server's processes had ended for {} of the time, since {}",
        percent(share),
        seconds(since_s)
    )
}

pub(super) fn throttled(side: &str, of: &Side, share: f64) -> String {
    let quota = of
        .quota_cpus
        .map_or(String::new(), |cpus| format!(" of {cpus} CPUs"));
    let group = of.quota_group.as_ref();
    let group = group.map_or(String::new(), |group| format!(" ({group})"));
    format!(
        "a CPU quota{quota}{group} kept the {side} from running for {} of the time",
        percent(share)
    )
}

pub(super) fn shared_quota(of: &Side, share: f64) -> String {
    throttled(
        "generator and the server, which are in the same control group,",
        of,
        share,
    )
}

/// `name`: the server's machine, if it is that one's.
pub(super) fn stolen(share: f64, name: Option<&str>) -> String {
    let of = name.map_or(String::new(), |name| {
        format!(" on the server's machine {name}")
    });
    format!(
        "the hypervisor took {} of the CPUs' time{of}",
        percent(share)
    )
}

fn name(busy: Busy<'_>) -> String {
    format!("{} (thread {})", busy.thread.name, busy.thread.tid)
}

/// Who ran while it waited.
pub(super) fn queued_for(window: &Window<'_>, name: &str, of: &Side, busy: Busy<'_>) -> String {
    let machine = window.machine_of(of);
    let far = window.far().filter(|(_, far)| std::ptr::eq(*far, machine));
    let at = far.map_or(String::new(), |(host, _)| format!(" on {}", host.host));
    let waited = format!(
        "the {name}'s busiest thread, {}, was runnable for {} of the time without running{at}",
        self::name(busy),
        percent(busy.queued)
    );
    let Some(others) = window.others(machine) else {
        let here = if at.is_empty() { "here" } else { "there" };
        return format!("{waited}; which programs ran meanwhile cannot be seen {here}");
    };
    let names: Vec<String> = machine
        .neighbours
        .iter()
        .map(|other| {
            format!(
                "{} (pid {}) {}",
                other.name,
                other.pid,
                seconds(other.cpu_s)
            )
        })
        .collect();
    match names.is_empty() {
        true => waited,
        false => format!(
            "{waited}, while other programs used {others:.2} CPUs: {}",
            names.join(", ")
        ),
    }
}

/// `used`: CPUs, by the generator and by the server.
pub(super) fn same_cpus(busy: Busy<'_>, [generator, server]: [f64; 2]) -> String {
    format!(
        "{} was runnable for {} of the time without running, and no other program ran in its \
         place: generator ({generator:.2} CPUs) and server ({server:.2}) are bound to the same CPUs",
        name(busy),
        percent(busy.queued)
    )
}

pub(super) fn all_cpus(side: &str, used: f64, cpus: f64) -> String {
    let cpus = match cpus {
        1.0 => "the one CPU".to_owned(),
        _ => format!("the {cpus} CPUs"),
    };
    format!("the {side} used {used:.2} of {cpus} that it may run on")
}

/// `name`: the server's machine, if it is that one which is full.
pub(super) fn full(
    name: Option<&str>,
    cpus: f64,
    generator: f64,
    server: f64,
    behind: f64,
    others: f64,
) -> String {
    let of = name.map_or(String::new(), |name| {
        format!(" of the server's machine {name}")
    });
    let behind = match behind >= 0.005 {
        true => format!("{behind:.2} by what the server asks, "),
        false => String::new(),
    };
    format!(
        "the {cpus} CPUs{of} were all in use: {server:.2} by the server, {generator:.2} by the \
         generator, {behind}{others:.2} by other programs"
    )
}

pub(super) fn held(side: &str, process: &Process, cpus: f64, used: f64) -> String {
    let (limit, by) = match process.gomaxprocs {
        Some(setting) => (cpus, format!("GOMAXPROCS={setting}")),
        None => (
            1.0,
            "one lock for all of them, such as an interpreter's,".to_owned(),
        ),
    };
    format!(
        "the {side}'s process {} (pid {}) used {used:.2} CPUs, all the time close to {limit:.0}, \
         though none of its {} threads was busy: {by} holds it there",
        process.name, process.pid, process.threads
    )
}

/// The cost of a full accept queue: the schedule of this kernel's SYNs.
fn refusals(window: &Window<'_>) -> Option<String> {
    let network = window.watched.network.as_ref()?;
    let [overflows, again] =
        [&network.overflows, &network.syn_again].map(|column| window.sum(column));
    let syn_again_after_s = network.syn_again_after_s.iter();
    let after: Vec<String> = syn_again_after_s.map(f64::to_string).collect();
    (overflows >= 1.0).then(|| {
        format!(
            "{}{}, {} s after one another: {}{}",
            tcp::refused(overflows, again),
            whose(window.watched),
            after.join(", "),
            tcp::BACKLOG,
            match waits::unaccepted(window) {
                Some(_) => ", or let the server serve more at a time (workers, maxconn)",
                None => "",
            }
        )
    })
}

/// `bytes` where the waits were for a disk, and no page faults.
pub(super) fn on_disk(
    mean: f64,
    share: f64,
    bytes: Option<u64>,
    faults: f64,
    server: Busy<'_>,
) -> String {
    let (what, counted) = match bytes {
        Some(bytes) => (
            "a disk",
            format!(
                "its processes read and wrote {:.1} MB meanwhile",
                bytes as f64 / 1e6
            ),
        ),
        None => (
            "pages that were in swap or on a disk",
            format!("{faults:.0} major page faults: it needs more memory"),
        ),
    };
    format!(
        "the server's threads waited for {what} in {} of the looks ({mean:.1} threads in the \
         mean), while its busiest thread was busy for {} of the time; {counted}",
        percent(share),
        percent(server.share())
    )
}

pub(super) fn backlog(limit: f64) -> String {
    format!("the server's accept queue was full: {limit:.0} connections waited to be accepted")
}

pub(super) fn lost(share: f64) -> String {
    format!("{} of the segments were sent again", percent(share))
}

/// Share of the looks at which answers lay unread at the generator.
pub(super) fn unread(window: &Window<'_>) -> Option<f64> {
    let column = &window.watched.traffic.as_ref()?.generator_unread_bytes;
    let within = column.get(window.range.clone())?;
    let late = within.iter().filter(|bytes| **bytes > 0.0).count();
    (!within.is_empty()).then(|| late as f64 / within.len() as f64)
}

pub(super) fn idle(generator: Busy<'_>, server: Busy<'_>) -> String {
    format!("neither side was busy: {}", both(generator, server))
}

/// Other observations that distort the figures, but did not decide.
pub(super) fn beside(window: &Window<'_>, limit: Limit) -> Vec<String> {
    let mut beside = Vec::new();
    for (machine, name) in window.machines() {
        let stolen = window.stolen(machine);
        if stolen >= 0.02 && limit != Limit::Machine {
            beside.push(self::stolen(stolen, name));
        }
    }
    let host = window.watched.server_host.as_ref();
    beside.extend(host.and_then(|host| {
        let why = host.unseen.as_ref()?;
        Some(format!("the server was not seen on {}: {why}", host.host))
    }));
    if limit != Limit::Server || waits::for_backlog(window).is_none() {
        beside.extend(refusals(window));
    }
    if let (Some(share), true) = (waits::delayed(window), limit != Limit::Timer)
        && share >= HARMED
    {
        beside.push(delayed(share));
    }
    let unread = unread(window).filter(|late| *late >= 0.5);
    if let (Some(late), Limit::Generator) = (unread, limit) {
        beside.push(format!(
            "answers lay unread at the generator in {} of the looks: it reads late",
            percent(late)
        ));
    }
    beside
}

/// The consequence for the figures that the command printed.
pub(super) fn meaning(limit: Limit, watched: &Watched) -> &'static str {
    match limit {
        Limit::Generator => {
            "The server does at least as much as the command printed, and could do more; latencies \
             contain the generator's own delays."
        }
        Limit::Server => "The figures that the command printed are the server's own.",
        Limit::Machine => {
            "The figures that the command printed are those of this machine in this state, not of \
             the server alone."
        }
        Limit::Downstream => {
            "The figures that the command printed are those of what the server waits for; the \
             server itself could do more."
        }
        Limit::Ports => {
            "The figures that the command printed are those of this machine's ports: widen \
             net.ipv4.ip_local_port_range, or let the command keep its connections."
        }
        Limit::Timer => {
            "The figures that the command printed are those of a timer: neither more load on each \
             connection nor a faster server shortens it."
        }
        Limit::Nothing => "There is nothing to judge.",
        Limit::Path => {
            "The figures that the command printed are those of its number of connections, each of \
             which waits for its answer, or of the pace that it keeps; the server does at least as \
             much."
        }
        Limit::Undecided if watched.server.is_none() => {
            "Whether the figures that the command printed are the server's cannot be told without \
             seeing the server."
        }
        Limit::Undecided => {
            "Whether the figures that the command printed are the server's cannot be told by \
             watching this run."
        }
    }
}

/// For a command that starts its own server.
const START_SERVER: &str = "jostle judge --start-server SERVER --double -- LOAD, with the number of \
                            connections of LOAD in braces";

/// The command that would decide.
pub(super) fn next(limit: Limit, by_copies: bool, watched: &Watched) -> Option<String> {
    if watched.pair.is_some() || !matches!(limit, Limit::Path | Limit::Undecided) {
        return None;
    }
    let server = watched.server.as_ref();
    if server.and_then(|side| side.started_by) == Some(StartedBy::Command) {
        return Some(START_SERVER.to_owned());
    }
    let address = watched
        .traffic
        .as_ref()
        .and_then(|traffic| traffic.address.as_ref());
    // Where a look at its process would decide, the reason says so.
    let is_elsewhere = !matches!(
        watched.server_unseen,
        Some(ServerUnseen::Owner | ServerUnseen::Forwarder)
    );
    if let (Some(address), None, None, true) =
        (address, &watched.server, &watched.server_host, is_elsewhere)
    {
        let words: Vec<String> = watched.command.iter().map(|word| quoted(word)).collect();
        return Some(format!(
            "jostle judge --server-host {address} -- {}",
            words.join(" ")
        ));
    }
    match by_copies {
        true => Some(copying(&watched.command)),
        false => doubling(&watched.command),
    }
}

/// The command that runs this one once and twice at the same time.
pub fn copying(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!("jostle judge --copies 2 -- {}", words.join(" "))
}

/// The command that runs this one with its number of connections and with twice as many.
/// None where it does not show which of its words that number is: only `-c N`, `-cN`,
/// `--vus N`, `--clients N`, `--connections N` and `--concurrency N` are known, with and
/// without `=`.
pub fn doubling(command: &[String]) -> Option<String> {
    const NAMES: [&str; 5] = ["-c", "--vus", "--clients", "--connections", "--concurrency"];
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let marked = command.iter().enumerate().find_map(|(at, word)| {
        let before = at.checked_sub(1).and_then(|before| command.get(before));
        if is_number(word) && before.is_some_and(|name| NAMES.contains(&name.as_str())) {
            return Some((at, format!("{{{word}}}")));
        }
        let (name, number) = match word.split_once('=') {
            Some((name, number)) => (format!("{name}="), number),
            None => ("-c".to_owned(), word.strip_prefix("-c")?),
        };
        let known = NAMES.contains(&name.trim_end_matches('='));
        (known && is_number(number)).then(|| (at, format!("{name}{{{number}}}")))
    });
    let (at, marked) = marked?;
    let words = command.iter().enumerate();
    let words: Vec<String> = words
        .map(|(nth, word)| {
            if nth == at {
                marked.clone()
            } else {
                quoted(word)
            }
        })
        .collect();
    Some(format!("jostle judge --double -- {}", words.join(" ")))
}

/// Functions that format a sentence: `name(what it is made of) = (what format! takes);`.
macro_rules! sentences {
    ($($(#[$doc:meta])* $name:ident($($of:tt)*) = $words:tt;)*) => {
        $($(#[$doc])* pub(super) fn $name($($of)*) -> String { format! $words })*
    };
}

sentences! {
    too_short(window: &Window<'_>) = (
        "traffic was seen for {}, in {} looks: let the command run for {} or more",
        seconds(window.wall_s), window.range.len(),
        seconds((10.0 * SHORTEST_S).max(2.0 * window.wall_s)));

    no_connection_of_its_own(opened: f64, watched: &Watched) = (
        "none of the {opened:.0} connections that were opened{} meanwhile was seen to be the \
         command's, in {} looks", whose(watched), watched.span_s.len());

    too_brief(opened: f64, watched: &Watched) = (
        "{opened:.0} connections were opened{}, and in {} looks none was met that is surely the \
         command's: each may have been too short; name the server (--server :PORT)",
        whose(watched), watched.span_s.len());

    /// A program between both sides that may be the limit.
    hop(hop: &Hop, share: f64) = (
        "neither side was at its limit, but {} (pid {}), which forwards the connections between \
         them, used {share:.2} CPUs: connect to the server's own address to leave it out",
        hop.name, hop.pid);

    short_lived(seen: f64) = (
        "{} of the command's CPU time belongs to processes that ended before they could be watched",
        percent(1.0 - seen));

    stopped(side: &str, share: f64) = ("the {side} was stopped by a signal for {} of the time",
        percent(share));

    busy(side: &str, busy: Busy<'_>) = (
        "the {side}'s busiest thread, {}, was busy for {} of the time: {} on a CPU, {} waiting for \
         one; from {} on it is the limit",
        name(busy), percent(busy.share()), percent(busy.cpu), percent(busy.queued), percent(BUSY));

    near(server: Busy<'_>) = (
        "the server's busiest thread, {}, was busy for {} of the time too: little is left there",
        name(server), percent(server.share()));

    ports(ports: u64, left: f64, time_wait: f64, watched: &Watched) = (
        "of {ports} ports for new connections {left:.0} were left, with {time_wait:.0} sockets in \
         TIME_WAIT{}", whose(watched));

    perhaps_held(process: &Process, used: f64) = (
        "neither side's threads were busy, but the {} threads of the generator's process {} (pid \
         {}) used {used:.2} CPUs together: a lock may hold them there, which more copies of the \
         command would show", process.threads, process.name, process.pid);

    silent(silent_s: f64, from_s: f64) = (
        "nothing was carried for {}, first from {} on, and neither side was seen to be kept from \
         running", seconds(silent_s), seconds(from_s));

    delayed(share: f64) = (
        "each connection waited for delayed acknowledgements (40 ms each) for {} of the time: {}",
        percent(share), tcp::NAGLE);

    refused_by_queue(window: &Window<'_>, share: f64) = (
        "{} of the connections waited for an answer to their SYN: {}",
        percent(share), refusals(window).unwrap_or_default());

    downstream(peer: &Peer) = (
        "the server itself waited for {}: it has {} connection{} there, waiting for an answer in \
         {} of the looks",
        peer.at, peer.connections, if peer.connections == 1 { "" } else { "s" },
        percent(peer.waiting_share.unwrap_or(0.0)));

    unread_at_server(unread: f64, open: f64, server: Busy<'_>) = (
        "requests lay unread at the server on {unread:.0} of {open:.0} connections, while its \
         busiest thread was busy for {} of the time: its pool of workers is the limit, or what \
         these wait for (a lock, a disk, another server)", percent(server.share()));

    in_turn(waiting: f64, server: Busy<'_>) = (
        "{waiting:.0} connections waited for answers, which came one after the other at even \
         distances, while the server's busiest thread was busy for {} of the time: a lock or \
         another queue inside the server is the limit", percent(server.share()));

    at_locks(waiting: f64, processes: u64) = (
        "{waiting:.1} of the server's {processes} processes waited for a lock of the database, as \
         their titles say: its locks are the limit");

    reads_late(late: f64, generator: Busy<'_>) = (
        "answers lay unread at the generator in {} of the looks, and its busiest thread, {}, was \
         busy for {} of the time: it is nearly at its limit",
        percent(late), name(generator), percent(generator.share()));

    no_server(watched: &Watched, generator: Busy<'_>) = (
        "the generator was busy for {} of the time at most, and {}",
        percent(generator.share()), unseen(watched));

    both(generator: Busy<'_>, server: Busy<'_>) = (
        "busiest thread of the generator {}, of the server {} ({})",
        percent(generator.share()), percent(server.share()), name(server));

    inside(inside: &Inside) = (
        "{:.0} of {:.0} connections waited for answers, and {}: each waits inside the server for \
         something else than a CPU, such as a timer, a lock or a pool",
        inside.waiting, inside.open, match inside.unread > 0.0 {
            true => format!("requests lay unread on {:.0} of them", inside.unread),
            false => "their requests had been read".to_owned(),
        });

    unseen_sockets(idle: &str) = (
        "{idle}; no connection was seen at the server that was named (Unix sockets, another network \
         namespace, or a server behind another one), so that what it waits for is not known");

    spins(spinning: Busy<'_>, server: Busy<'_>) = (
        "the server's thread {} was busy for {} of the time, but it spins while it has no work: how \
         full the server is cannot be told (its busiest other thread, {}, was busy for {})",
        name(spinning), percent(spinning.share()), name(server), percent(server.share()));

    no_byte(open: f64) = (
        "{open:.0} connections were open, and none of them carried a byte");

    exit_of_server(code: i32) = (
        "exit code {code} may be that of the server, which the command has started and ended: then \
         the load did not fail");

    /// `reason`: that the server waits for another. `behind`: the CPUs that that one used.
    shared_out(reason: &str, clients: f64, behind: Option<f64>) = (
        "{reason}, which {clients:.0} connections of its clients share: {}",
        match behind {
            Some(cpus) => format!(
                "what is behind used {cpus:.2} CPUs, so that the limit is the server's own number of \
                 connections there (a pool, maxconn), unless a lock behind it is, or each carries \
                 several requests at once"
            ),
            None => "that number (a pool, maxconn) may be the limit, or what is behind, whose CPU \
                     time is not seen".to_owned(),
        });

    unaccepted(backlog: f64, open: f64, server: Busy<'_>) = (
        "{backlog:.0} of {open:.0} connections waited to be accepted, while the server's busiest \
         thread was busy for {} of the time: it serves no more at a time, by its number of workers \
         or by a setting (such as haproxy's maxconn)", percent(server.share()));

    at_file_locks(waiting: f64) = (
        "{waiting:.1} of the server's threads waited for the lock of a file (flock or fcntl), such \
         as that of a session: that lock is the limit");

    paced(idle: f64, generator: Busy<'_>, server: Busy<'_>) = (
        "{}, and no answer was owed on {} of the connections: the command keeps a pace of its own",
        self::idle(generator, server), percent(idle));

    between(generator: Busy<'_>, server: Busy<'_>) = (
        "neither side was at its limit, nor had both of them room: {}", both(generator, server));

    partly(time_s: f64, all_s: f64) = ("the generator was at its limit in {} of {}",
        seconds(time_s), seconds(all_s));
}
