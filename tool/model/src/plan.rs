//! The plan of an experiment, in the same words on a command line, in a plan file and in
//! the `experiment` record of a result.
//!
//! A plan as typed may leave options out. A *resolved* plan has every default and the seed
//! filled in, and can be run again as it is. Its fields are the rows of the table of
//! options ([`crate::options`]); here are the words that they take.

use crate::list::List;
use crate::options::{OPTIONS, ValueKind};
use crate::text::redacted;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use std::borrow::Cow;

pub use crate::options::Plan;
pub use crate::workload::{Shape, Workload};

/// A word that stands on the command line and in files, one of a few.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word, in the order of the help text.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as typed and stored.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!("`{text}` is none of: {}", [$($word),+].join(", "))),
                }
            }
        }

        impl $crate::options::Value for $name {
            const KIND: $crate::options::ValueKind = $crate::options::ValueKind::Choice(&[$($word),+]);
            const EXAMPLE: &'static str = {
                let words = [$($word),+];
                words[words.len() - 1]
            };

            fn read(typed: &str, _: $crate::time::Unit) -> Result<$name, String> {
                typed.parse()
            }

            fn typed(&self) -> String {
                self.as_str().to_owned()
            }
        }
    };
}

words! {
    /// The fault that strikes while one owns the lock and others wait for it.
    Fault {
        /// The owner's process is killed.
        Kill = "kill",
        /// The owner's process is stopped, and goes on later.
        Stop = "stop",
        /// Nothing passes between the owner and the service, for a while.
        Cut = "cut",
        /// All processes of the service are killed, and it is started again.
        ServerKill = "server-kill",
        /// All processes of the service are stopped, and go on later.
        ServerStop = "server-stop",
        /// For a while, bytes from the owner are lost; bytes to it arrive.
        CutTo = "cut-to",
        /// For a while, bytes to the owner are lost; bytes from it arrive.
        CutFrom = "cut-from",
        /// All processes of the service are killed, and it is started again without its data.
        ServerWipe = "server-wipe",
        /// The service's wall clock is set.
        Clock = "clock",
        /// The server of a cluster that leads is killed.
        LeaderKill = "leader-kill",
        /// The server of a cluster that leads is stopped, and goes on later.
        LeaderStop = "leader-stop",
        /// A server of a cluster that does not lead is killed.
        MemberKill = "member-kill",
        /// For a while, the leader and the owner are cut off from all others.
        PartitionMinority = "partition:minority",
        /// For a while, the leader alone is cut off from all others.
        PartitionMajority = "partition:majority",
        /// The leader's host vanishes from the network; where there is one server, the owner's.
        HostGone = "host-gone",
        /// A firewall forgets the owner's connection once it has been silent for a while.
        IdleCut = "idle-cut",
    }
}

impl Fault {
    /// Whether it strikes the service, and not the owner alone.
    pub const fn is_of_server(self) -> bool {
        matches!(
            self,
            Fault::ServerKill | Fault::ServerStop | Fault::ServerWipe | Fault::Clock
        ) || self.is_of_member()
    }

    /// Whether it strikes one server of several, where there are several.
    pub const fn is_of_member(self) -> bool {
        matches!(
            self,
            Fault::LeaderKill | Fault::LeaderStop | Fault::MemberKill
        ) || self.parts_hosts()
    }

    /// Whether it cuts the links of a server's host.
    pub const fn parts_hosts(self) -> bool {
        matches!(
            self,
            Fault::PartitionMinority | Fault::PartitionMajority | Fault::HostGone
        )
    }

    /// Whether it strikes in `verify` only.
    pub const fn is_of_verify(self) -> bool {
        matches!(
            self,
            Fault::CutTo | Fault::CutFrom | Fault::ServerWipe | Fault::Clock
        )
    }

    /// Who is struck, and how: `owner`, `cut off`.
    pub const fn struck(self) -> (&'static str, &'static str) {
        match self {
            Fault::Kill => ("owner", "killed"),
            Fault::Stop => ("owner", "stopped"),
            Fault::Cut => ("owner", "cut off"),
            Fault::ServerKill => ("server", "killed"),
            Fault::ServerStop => ("server", "stopped"),
            Fault::CutTo => ("owner", "cut off (to the server)"),
            Fault::CutFrom => ("owner", "cut off (from the server)"),
            Fault::ServerWipe => ("server", "killed, data lost"),
            Fault::Clock => ("server", "clock set"),
            Fault::LeaderKill => ("leader", "killed"),
            Fault::LeaderStop => ("leader", "stopped"),
            Fault::MemberKill => ("member", "killed"),
            Fault::PartitionMinority => ("leader+owner", "cut"),
            Fault::PartitionMajority => ("leader", "cut"),
            Fault::HostGone => ("host", "gone"),
            Fault::IdleCut => ("owner", "cut when silent"),
        }
    }
}

words! {
    /// A worker's carrier: thread or process.
    Carrier {
        /// A process for each worker.
        Processes = "processes",
        /// A thread for each worker, all in one process.
        Threads = "threads",
        /// A connection for each worker, many of them on each of a few threads;
        /// for targets that are servers.
        Tasks = "tasks",
    }
}

words! {
    /// When requests are due that come at a rate.
    Arrivals {
        /// At equal distances.
        Constant = "constant",
        /// At random and independently of each other, as those of many clients do.
        Poisson = "poisson",
    }
}

words! {
    /// How much of each cycle is recorded.
    Measure {
        /// Stamps, histograms and the witness of exclusion.
        Full = "full",
        /// Counts only: for locks that are quicker than a stamp.
        Counts = "counts",
    }
}

words! {
    /// The locks that workers of a stream take.
    Names {
        /// One for all: they contend.
        One = "one",
        /// Each worker its own: none contend.
        Own = "own",
    }
}

words! {
    /// The connections that requests use.
    Connection {
        /// Each request one of its own, opened for it and closed behind it.
        Each = "each",
        /// Each worker one, opened before its first request.
        Keep = "keep",
    }
}

words! {
    /// Whether clients renew the leases of what they hold.
    Renew {
        /// Where the field's clients do.
        Yes = "yes",
        /// None does.
        No = "no",
    }
}

words! {
    /// The byte range of the file that each worker locks (record locks only).
    Range {
        /// Every worker the same range: they all contend.
        Same = "same",
        /// Each worker shares one half of its range with each neighbour.
        Overlap = "overlap",
        /// Each worker a range of its own: none contend.
        Disjoint = "disjoint",
    }
}

pub(crate) use words;

/// The CPUs that workers may use.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum Place {
    /// Wherever the scheduler puts them.
    None,
    /// All on one CPU.
    Same,
    /// Round robin over all CPUs, one each.
    Cross,
    /// Round robin over these CPUs, one each.
    Cpus(Vec<usize>),
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text {
            "none" => Ok(Place::None),
            "same" => Ok(Place::Same),
            "cross" => Ok(Place::Cross),
            _ => match text.strip_prefix("cpus:").map(cpu_list) {
                Some(Some(cpus)) => Ok(Place::Cpus(cpus)),
                _ => Err(format!(
                    "`{text}` is none of: none, same, cross, cpus:0-3 (or cpus:0,2)"
                )),
            },
        }
    }
}

/// Reads the kernel's CPU list format: `0-3,8`. None if it is empty or wrong.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::None => f.write_str("none"),
            Place::Same => f.write_str("same"),
            Place::Cross => f.write_str("cross"),
            Place::Cpus(cpus) => {
                let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
                write!(f, "cpus:{}", list.join(","))
            }
        }
    }
}

/// A single number is not written as a list, for compatibility with versions in which
/// `hold` did not sweep it.
pub(crate) fn one_or_many<S: serde::Serializer>(
    list: &Option<List>,
    s: S,
) -> Result<S::Ok, S::Error> {
    match list.as_ref().map(|list| list.0.as_slice()) {
        Some([one]) => s.serialize_u64(*one),
        _ => list.serialize(s),
    }
}

impl Plan {
    /// The plan as it may be written and printed: without the passwords of URLs.
    pub fn redacted(mut self) -> Plan {
        for text in self.targets.iter_mut().chain(&mut self.optional) {
            if let Cow::Owned(without) = redacted(text) {
                *text = without;
            }
        }
        let found = OPTIONS.iter();
        for option in found.filter(|option| option.kind == ValueKind::Text) {
            let text = option.get(&self).unwrap_or_default();
            if let Cow::Owned(without) = redacted(&text) {
                // Any text will do.
                let _ = option.set(&mut self, &without);
            }
        }
        self
    }

    /// How many locks there are, where that is not swept.
    pub fn key_count(&self) -> u64 {
        let first = self.keys.as_ref().and_then(|list| list.0.first());
        first.copied().unwrap_or(1)
    }
}
