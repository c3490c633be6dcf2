//! The contents of a line in the table of targets.

use crate::program::Program;
use crate::{SetupError, Target, argument};
use jostle_model::record::TargetFacts;
use std::path::Path;
use std::time::Duration;

/// A target's name, text and capabilities. Help, man page and docs print the text.
#[derive(Debug)]
pub struct Entry {
    /// As typed.
    pub name: &'static str,
    /// Other names for the same.
    pub aliases: &'static [&'static str],
    /// The argument behind the colon, as help shows it: `PATH`, `TIME`.
    pub argument: Option<&'static str>,
    /// Refuses an argument (or its absence) before anything starts.
    pub check_argument: fn(Option<&str>) -> Result<(), String>,
    /// Checks that the target can be used: that what the argument (empty where there is none)
    /// names is there, and accepts the credentials of the file, or else of the environment.
    /// A service without an argument is launched, and not asked.
    pub reach: fn(&str, Option<&Path>) -> Result<(), SetupError>,
    /// The program that has to be installed for this target to launch its server.
    pub program: Option<&'static Program>,
    /// The heading it stands under.
    pub family: Family,
    /// One line.
    pub summary: &'static str,
    /// A few sentences for `tool/docs/targets.md`: which calls, what is peculiar.
    pub details: &'static str,
    /// Its capabilities as a lock.
    pub lock: LockCapabilities,
    /// Why a thread cannot be a worker of its own; None where it can.
    pub no_threads: Option<&'static str>,
}

impl Entry {
    /// A specimen without an argument, and what other targets have in common with it.
    pub const PLAIN: Entry = Entry {
        name: "",
        aliases: &[],
        argument: None,
        check_argument: argument::none,
        reach: |_, _| Ok(()),
        program: None,
        family: Family::Specimen,
        summary: "",
        details: "",
        lock: LockCapabilities::NONE,
        no_threads: None,
    };

    /// The parts that most lines of lock services share.
    pub const SERVICE: Entry = Entry {
        argument: Some("//HOST:PORT[?tls]"),
        check_argument: argument::service,
        family: Family::Service,
        lock: LockCapabilities::SERVICE,
        ..Entry::PLAIN
    };

    /// Whether a server keeps the lock, so that a worker is either busy or waiting for an
    /// answer.
    pub const fn is_remote(&self) -> bool {
        self.lock.remote
    }

    /// Whether one thread can keep requests of many workers in flight, because the protocol
    /// is separate from the socket ([`crate::Lock::into_dialled`]).
    pub fn carries_tasks(&self) -> bool {
        self.lock.tasks
    }

    /// Whether its address may be left out, so that its server is launched for the run.
    pub fn is_launched(&self) -> bool {
        self.family == Family::Server && self.argument.is_some_and(|text| text.starts_with("[//"))
    }

    /// How it is typed with an address, as help shows it.
    pub fn addressed(&self) -> String {
        let argument = self.argument.unwrap_or_default();
        format!("{}:{}", self.name, argument.replace(['[', ']'], ""))
    }

    /// Whether connections to it use up ports.
    pub fn has_ports(&self) -> bool {
        let place = self.argument.unwrap_or_default();
        self.family == Family::Connection && place.starts_with("//")
    }

    /// The answering target whose own cost is measured before the first run.
    pub fn path_alone(&self) -> Option<&'static str> {
        self.lock.answering.filter(|_| self.lock.path_alone)
    }

    /// Facts for a result file; None where there is nothing to state.
    pub fn facts(&self) -> Option<TargetFacts> {
        let facts = TargetFacts {
            answering: self.lock.answering.map(str::to_owned),
            path_alone: self.lock.path_alone,
            descriptor_each: self.family == Family::File,
        };
        (facts != TargetFacts::default()).then_some(facts)
    }

    /// Whether its workers reach a server over TCP.
    pub fn is_over_tcp(&self) -> bool {
        self.lock.remote && self.argument.is_some_and(|text| text.contains("//"))
    }

    /// Whether its argument is a program that it starts, or a library that it loads.
    pub fn runs_argument(&self) -> bool {
        self.family == Family::Own || self.argument == Some("COMMAND")
    }

    /// Whether it answers requests, and is no lock.
    pub fn is_asked(&self) -> bool {
        self.family == Family::Server
    }
}

/// The headings of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Locks on files.
    File,
    /// Semaphores of the kernel.
    Semaphore,
    /// Locks in shared memory.
    Memory,
    /// Locks that a server keeps.
    Service,
    /// Locks that the user brings along.
    Own,
    /// Connections, not locks.
    Connection,
    /// Servers that answer requests, and are no locks.
    Server,
    /// Targets whose truth is known.
    Specimen,
}

impl Family {
    /// In the order of `jostle targets`.
    pub const ALL: [Family; 8] = [
        Family::File,
        Family::Semaphore,
        Family::Memory,
        Family::Service,
        Family::Own,
        Family::Connection,
        Family::Server,
        Family::Specimen,
    ];

    /// The heading above its members.
    pub fn heading(self) -> &'static str {
        self.words().0
    }

    /// The noun for one of its members, in a sentence.
    pub fn noun(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Family::File => ("File locks", "a file lock"),
            Family::Semaphore => ("Kernel semaphores", "a kernel semaphore"),
            Family::Memory => ("Locks in shared memory", "a lock in shared memory"),
            Family::Service => ("Lock services", "a lock service"),
            Family::Own => ("Your own lock", "a lock of your own"),
            Family::Connection => ("Connections", "a server to connect to"),
            Family::Server => ("What answers requests", "a server that answers requests"),
            Family::Specimen => (
                "Specimens: their truth is known",
                "a specimen, whose truth is known",
            ),
        }
    }
}

/// Capabilities that differ from others: `capabilities!(BASE; fifo, starts: 2)`. A name alone is
/// one that it has.
#[macro_export]
macro_rules! capabilities {
    ($base:expr; $($name:ident $(: $value:expr)?),+) => {{
        let mut lock = $base;
        $(lock.$name = $crate::capabilities!(@value $($value)?);)+
        lock
    }};
    (@value) => { true };
    (@value $value:expr) => { $value };
}
pub use capabilities;

/// The capabilities of a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockCapabilities {
    /// Shared mode beside exclusive.
    pub shared: bool,
    /// Waits with a timeout.
    pub timeout: bool,
    /// Byte ranges.
    pub ranges: bool,
    /// A file that can be opened for each acquisition.
    pub open_each: bool,
    /// Lets one owner in at a time. False only for specimens that grant everything, for
    /// which the witness checks each worker separately.
    pub excludes: bool,
    /// When an owner dies, the lock is freed, or its next owner is notified.
    pub survives_owner: bool,
    /// Keeps waiters in order, by design or by documentation.
    pub fifo: bool,
    /// Takes many requests before it answers the first.
    pub pipeline: bool,
    /// A server keeps it.
    pub remote: bool,
    /// [`crate::Lock::into_dialled`] returns connections, of which one thread can drive many.
    pub tasks: bool,
    /// Grants survive a restart of the server.
    pub durable: bool,
    /// Several servers can replicate the grants.
    pub replicated: bool,
    /// A cluster of it can be launched.
    pub clusters: bool,
    /// A client can wait until replicas have a grant.
    pub awaits_replicas: bool,
    /// Its locks need what is made on the server before the run (a bucket, a node), and is gone
    /// when the server has lost its data.
    pub made_before: bool,
    /// Each grant comes with a fencing token ([`crate::Lock::token`]).
    pub fenced: bool,
    /// The default lease of kept locks. None if by default nothing has to be renewed.
    pub usual_lease: Option<Duration>,
    /// The clients that its users run renew the lease while they hold, by themselves.
    pub renews: bool,
    /// The target that only answers, reached by the same path in the same protocol.
    pub answering: Option<&'static str>,
    /// The cost of that path alone is measured before the first run, alternating with the
    /// lock.
    pub path_alone: bool,
    /// Processes and threads that each worker starts for itself, at least.
    pub starts: u64,
    /// It uses up System V semaphores, which `kernel.sem` limits.
    pub semaphore_sets: bool,
}

impl LockCapabilities {
    /// A target that is no lock has none of them.
    pub const NONE: LockCapabilities = LockCapabilities {
        shared: false,
        timeout: false,
        ranges: false,
        open_each: false,
        excludes: false,
        survives_owner: false,
        fifo: false,
        pipeline: false,
        remote: false,
        tasks: false,
        durable: false,
        replicated: false,
        clusters: false,
        awaits_replicas: false,
        made_before: false,
        fenced: false,
        usual_lease: None,
        renews: false,
        answering: None,
        path_alone: false,
        starts: 0,
        semaphore_sets: false,
    };

    /// The capabilities of most locks.
    pub const TIMED: LockCapabilities = capabilities!(LockCapabilities::NONE; timeout, excludes);

    /// The capabilities of most lock services.
    pub const SERVICE: LockCapabilities = capabilities!(LockCapabilities::TIMED; remote, tasks);

    /// The capabilities of specimens that grant everything; a dead owner leaves nothing
    /// behind there.
    pub const GRANTS_ALL: LockCapabilities = capabilities!(LockCapabilities::NONE; shared,
        survives_owner);
}

/// A computation over a target's own type, so that the measured loop is compiled separately
/// for each lock and calls it without indirection.
pub trait Visitor {
    /// The visit's result.
    type Out;
    /// Runs with the target's type.
    fn visit<T: Target>(self) -> Self::Out;
}
