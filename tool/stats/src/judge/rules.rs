//! The table of limits: the one place that orders them.
//!
//! Each rule is a pure function of what was recorded. Causes that show the same first sign stand
//! in order: one that is looked for earlier refutes those after it.

use super::window::{Busy, Window};
use super::{State, held::held, waits};
use super::{
    busy_generator, full, limited_server, neighbours, network, reads_late, same_cpus, silent,
    still_generator, still_server, stolen,
};

/// A row: one reason why a load generator got no further.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name, in tests and docs.
    pub name: &'static str,
    /// Causes with the same first sign, and how they are told apart.
    pub rivals: &'static str,
    of: fn(&Seen<'_, '_>) -> Option<State>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.name)
    }
}

/// A part of a run, and what is known of the whole.
struct Seen<'s, 'w> {
    window: &'s Window<'w>,
    generator: Option<Busy<'w>>,
    server: Option<Busy<'w>>,
    is_held: [bool; 2],
}

macro_rules! rules {
    ($($name:literal: |$seen:ident| $of:expr; $rivals:literal)*) => {
        /// All rules, in their order.
        pub const RULES: &[Rule] = &[$(Rule { name: $name, rivals: $rivals, of: |$seen| $of }),*];
    };
}

rules! {
    "generator still": |seen| still_generator(seen.window);
        "a quota around both sides: both are throttled by one control group"
    "hypervisor": |seen| stolen(seen.window);
        "other programs: their time is counted apart"
    "server still": |seen| still_server(seen.window);
        "a generator that is busy connecting to a server that has ended"
    "ports": |seen| waits::for_ports(seen.window);
        "a generator that is busy trying; one look without a port"
    "same CPUs": |seen| same_cpus(seen.window, seen.generator, seen.server);
        "another program that ran meanwhile; the side's own threads; a quota"
    "generator busy": |seen| busy_generator(seen.window, seen.generator, seen.server, seen.is_held[0]);
        "a busy server where requests lie unread, while the generator is never late"
    "server limited": |seen| limited_server(seen.window, seen.server);
        "another program on the server's CPU: the machine"
    "generator held": |seen| held(seen.window, 0).filter(|_| seen.is_held[0]);
        "threads that use one CPU in the mean only; a busy server"
    "server held": |seen| held(seen.window, 1).filter(|_| seen.is_held[1]);
        "a server without an interpreter's lock or GOMAXPROCS, of which no more is asked"
    "timer": |seen| waits::for_timer(seen.window);
        "acknowledgements that are late because the answers are: nothing lies unsent"
    "backlog": |seen| waits::for_backlog(seen.window);
        "connections that open slowly while no accept queue overflowed"
    "server's lock": |seen| waits::for_lock(seen.window);
        "a few of many processes that wait for a lock; a busy server"
    "downstream": |seen| waits::downstream(seen.window);
        "a connection of the server's that waits for news, or is mostly idle"
    "disk": |seen| waits::for_disk(seen.window);
        "uninterruptible sleep without bytes or faults; a command that waits"
    "pool": |seen| waits::for_pool(seen.window, seen.generator, seen.server);
        "a busy server"
    "in turn": |seen| waits::for_turn(seen.window, seen.generator);
        "a timer for each request; answers on a slow line; a server that is nearly busy"
    "other programs": |seen| neighbours(seen.window, seen.generator, seen.server);
        "a hog on another CPU; threads of both sides that wait for one another"
    "full CPUs": |seen| full(seen.window);
        "threads that use less than the CPUs together"
    "network": |seen| network(seen.window);
        "a queue that is full at one look"
    "read late": |seen| reads_late(seen.window, seen.generator);
        "answers that lie unread at a generator with room"
    "silent": |seen| silent(seen.window);
        "start and end without traffic"
}

/// The busiest threads of generator and server.
pub(super) fn busiest<'w>(window: &Window<'w>) -> [Option<Busy<'w>>; 2] {
    let server = window.watched.server.as_ref();
    [
        window.busiest(&window.watched.generator),
        server.and_then(|side| window.busiest(side)),
    ]
}

/// The first of these rules that holds, and what it says.
pub(super) fn first<'r>(
    window: &Window<'_>,
    is_held: [bool; 2],
    rules: impl IntoIterator<Item = &'r Rule>,
) -> Option<(&'r Rule, State)> {
    let [generator, server] = busiest(window);
    let seen = Seen {
        window,
        generator,
        server,
        is_held,
    };
    let mut rules = rules.into_iter();
    rules.find_map(|rule| Some((rule, (rule.of)(&seen)?)))
}
