//! The findings of `jostle verify` about one target, and the promise that they are judged by.
//!
//! Times are nanoseconds from the start of the run, unless said otherwise.

use crate::plan::Fault;
use crate::time::{Nanos, Unit};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// What a lock promises its owners. What it does not promise, a fault may take away.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// To what a hold belongs, and with what it ends.
    pub belongs: Belongs,
    /// The lease: a hold ends so long after it was asked for, or last renewed. Absent: none.
    pub lease_ns: Option<u64>,
    /// By so much a lease may end early, since the service counts in steps.
    pub lease_step_ns: Option<u64>,
    /// By so much the service may notice late that a lease has ended.
    pub lease_lag_ns: Option<u64>,
    /// A hold survives a restart of its server.
    #[serde(default)]
    pub restart: bool,
    /// A hold survives the loss of one server of several.
    #[serde(default)]
    pub failover: bool,
    /// Each grant has a fencing token, which is greater than all before it.
    #[serde(default)]
    pub tokens: bool,
    /// Waiters are granted in the order in which they asked.
    #[serde(default)]
    pub order: bool,
}

/// To what a hold belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Belongs {
    /// To the process that took it: only its end, or its release, ends the hold.
    Process,
    /// To the connection over which it was taken: it ends with that.
    Connection,
    /// To the lease alone: no end of a process or of a connection ends it early.
    Lease,
    /// Nobody has said: after a fault of its owner or its server nothing is known.
    #[default]
    Unknown,
}

impl Belongs {
    const ALL: [Belongs; 4] = [
        Belongs::Process,
        Belongs::Connection,
        Belongs::Lease,
        Belongs::Unknown,
    ];

    /// As typed behind `by=`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Belongs::Process => "process",
            Belongs::Connection => "connection",
            Belongs::Lease => "lease",
            Belongs::Unknown => "unknown",
        }
    }
}

impl Promise {
    /// In a sentence without its full stop.
    pub fn in_words(&self) -> String {
        let mut said = vec![match (self.belongs, self.lease_ns) {
            (Belongs::Process, _) => "a hold ends with its release, or with its process".to_owned(),
            (Belongs::Connection, _) => {
                "a hold ends with its release, or with its connection".to_owned()
            }
            (Belongs::Lease, _) => "a hold ends with its release, or with its lease".to_owned(),
            (Belongs::Unknown, _) => "nobody has stated with what a hold ends".to_owned(),
        }];
        if let Some(lease) = self.lease_ns {
            let early = self.lease_step_ns.map_or_else(String::new, |step| {
                format!(" (it may end {} early)", Nanos(step))
            });
            said.push(format!(
                "the lease is {}{early} and can be renewed",
                Nanos(lease)
            ));
        }
        let served = matches!(self.belongs, Belongs::Connection | Belongs::Lease);
        let kept = [
            (self.restart, "it survives a restart of its server"),
            (
                served && !self.restart,
                "it is lost when its server restarts",
            ),
            (
                self.failover,
                "it survives the loss of one server of several",
            ),
            (self.tokens, "each grant has a fencing token that grows"),
            (self.order, "waiters are served in order"),
        ];
        let kept = kept.into_iter().filter(|(is, _)| *is);
        said.extend(kept.map(|(_, words)| words.to_owned()));
        said.join("; ")
    }
}

/// As typed: `by=lease,lease=2s,restart,tokens`.
impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "by={}", self.belongs.as_str())?;
        let times = [
            ("lease", self.lease_ns),
            ("step", self.lease_step_ns),
            ("lag", self.lease_lag_ns),
        ];
        for (word, ns) in times {
            ns.map_or(Ok(()), |ns| write!(f, ",{word}={}", Nanos(ns)))?;
        }
        let kept = [
            ("restart", self.restart),
            ("failover", self.failover),
            ("tokens", self.tokens),
            ("order", self.order),
        ];
        let mut kept = kept.into_iter().filter(|(_, is)| *is);
        kept.try_for_each(|(word, _)| write!(f, ",{word}"))
    }
}

/// As typed, or as a program of `pipe:` states it: with commas or spaces, a bare time in
/// milliseconds. A lease without `by=` means `by=lease`.
impl std::str::FromStr for Promise {
    type Err = String;

    fn from_str(typed: &str) -> Result<Promise, String> {
        let mut promise = Promise::default();
        let mut belongs = None;
        for word in typed.split([',', ' ']) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_bare = value.ends_with(|last: char| last.is_ascii_digit());
            let unit = if is_bare { "ms" } else { "" };
            let time = || match Nanos::parse(&format!("{value}{unit}"), Unit::Seconds) {
                Ok(Nanos(ns @ 1..)) => Ok(Some(ns)),
                _ => Err(format!("`{word}`: a time above 0, such as {name}=2s")),
            };
            match name {
                "by" | "belongs" => {
                    let known = Belongs::ALL.into_iter().find(|by| by.as_str() == value);
                    belongs = Some(known.ok_or_else(|| {
                        format!("`{word}` is none of: by=process, by=connection, by=lease")
                    })?);
                }
                "lease" => promise.lease_ns = time()?,
                "step" => promise.lease_step_ns = time()?,
                "lag" => promise.lease_lag_ns = time()?,
                "restart" => promise.restart = true,
                "failover" => promise.failover = true,
                "tokens" | "token" => promise.tokens = true,
                "order" | "fifo" => promise.order = true,
                _ => {
                    return Err(format!(
                        "`{word}` is none of: by=process|connection|lease, lease=TIME, step=TIME, \
                         lag=TIME, restart, failover, tokens, order"
                    ));
                }
            }
        }
        let by_lease = promise
            .lease_ns
            .map_or(Belongs::Unknown, |_| Belongs::Lease);
        promise.belongs = belongs.unwrap_or(by_lease);
        match promise.belongs == Belongs::Lease && promise.lease_ns.is_none() {
            true => Err("by=lease needs lease=TIME: how long a hold lasts".to_owned()),
            false => Ok(promise),
        }
    }
}

/// What `verify` found out about one target in one run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// By which holds were judged.
    pub promise: Promise,
    /// How long workers called and faults struck.
    pub ran_ns: u64,
    /// Locks by different names.
    pub keys: u64,
    /// Processes that called.
    pub clients: u64,
    /// Calls made: requests, releases, renewals, and those given up.
    pub calls: u64,
    /// Requests granted.
    pub grants: u64,
    /// Requests refused, or too late.
    pub refused: u64,
    /// Calls that failed, fault or not.
    pub errors: u64,
    /// Calls whose end nobody saw, since their client was killed or the run ended.
    pub unknown: u64,
    /// Renewals that succeeded.
    pub renewals: u64,
    /// Calls that are not in the history, since it could not be written fast enough; nothing is
    /// judged around them.
    pub dropped: u64,
    /// What struck, by kind.
    pub faults: BTreeMap<Fault, FaultSeen>,
    /// Faults that this target or this machine cannot have, with the reason.
    pub without: BTreeMap<Fault, String>,
    /// Two entitled owners at the same time.
    pub overlaps: u64,
    /// Releases confirmed although another owner had the lock.
    pub foreign_releases: u64,
    /// Tokens not greater than that of an earlier hold.
    pub tokens_fell: u64,
    /// Grants later than the bound, although the lock was free and a client waited.
    pub late_grants: u64,
    /// Overlaps after a fault that the promise leaves out: to be expected.
    pub outside: u64,
    /// Overlaps that the promise, or a missing stamp, leaves open.
    pub undecided: u64,
    /// Grants to clients that had given up, so that nobody owned what was granted.
    pub to_the_departed: u64,
    /// The longest time that a lock was certainly free while a client waited for it.
    pub longest_free_ns: u64,
    /// The bound for that: lease, its lag, the poll, outages of the server, and CPU time that the
    /// waiters did not get.
    pub free_bound_ns: Option<u64>,
    /// The smallest part of the history that shows the first violation.
    pub excerpt: Option<Excerpt>,
    /// Runs with the same seed that found the same kind again, of so many.
    pub again: Option<(u32, u32)>,
    /// The first words of each kind of failed call, with its count.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub said: BTreeMap<String, u64>,
}

impl Verified {
    /// Violations of the promise, of all kinds.
    pub fn violations(&self) -> u64 {
        self.overlaps + self.foreign_releases + self.tokens_fell + self.late_grants
    }

    /// Violations of one kind.
    pub fn of(&self, kind: Violation) -> u64 {
        match kind {
            Violation::Overlap => self.overlaps,
            Violation::ForeignRelease => self.foreign_releases,
            Violation::TokenFell => self.tokens_fell,
            Violation::LateGrant => self.late_grants,
        }
    }

    /// Faults that struck, of all kinds.
    pub fn struck(&self) -> u64 {
        self.faults.values().map(|seen| seen.struck).sum()
    }
}

/// The faults of one kind.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultSeen {
    /// How often it struck.
    pub struck: u64,
    /// How often it struck a client that owned a lock, or a service with owners.
    pub struck_owners: u64,
    /// Median time from the fault to the next grant of a lock that was held by who was struck.
    pub next_grant_p50_ns: Option<u64>,
    /// The longest of these.
    pub next_grant_max_ns: Option<u64>,
}

/// The smallest part of a history that shows a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// Which kind of violation.
    pub kind: Violation,
    /// The lock.
    pub key: u64,
    /// From when until when both owned.
    pub from_ns: u64,
    /// See `from_ns`.
    pub until_ns: u64,
    /// In the order of time: the calls of the two owners, and the faults that matter.
    pub lines: Vec<ExcerptLine>,
}

/// The kinds of violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Violation {
    /// Two entitled owners.
    #[default]
    Overlap,
    /// A release was confirmed of what another owned.
    ForeignRelease,
    /// A token is not greater than an earlier one.
    TokenFell,
    /// A free lock was not granted in time.
    LateGrant,
}

/// One event of an excerpt.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcerptLine {
    /// When.
    pub at_ns: u64,
    /// The client, from 0; absent: a fault, or the end of an entitlement by itself.
    pub client: Option<u64>,
    /// What happened, in words: `granted`, `asks`, `releases`, `server killed`.
    pub what: String,
    /// The fencing token, where there is one.
    pub token: Option<u64>,
}

impl Violation {
    /// All kinds.
    pub const ALL: [Violation; 4] = [
        Violation::Overlap,
        Violation::ForeignRelease,
        Violation::TokenFell,
        Violation::LateGrant,
    ];

    /// So many, in a sentence: `1 overlap of entitled owners`.
    pub fn counted(self, count: u64) -> String {
        let [one, several] = match self {
            Violation::Overlap => ["overlap of entitled owners", "overlaps of entitled owners"],
            Violation::ForeignRelease => {
                ["release of another's lock", "releases of another's lock"]
            }
            Violation::TokenFell => ["fencing token that fell", "fencing tokens that fell"],
            Violation::LateGrant => ["late grant of a free lock", "late grants of a free lock"],
        };
        format!("{count} {}", if count == 1 { one } else { several })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_read_as_it_is_printed() {
        let read = |typed: &str| typed.parse::<Promise>();
        for (typed, printed) in [
            ("lease=2s", "by=lease,lease=2s"),
            (
                "lease=1500ms,restart,tokens,order",
                "by=lease,lease=1500ms,restart,tokens,order",
            ),
            ("by=connection", "by=connection"),
            (
                "fifo by=connection lease=30000",
                "by=connection,lease=30s,order",
            ),
            ("by=process,failover", "by=process,failover"),
            (
                "lease=3s,step=1s,lag=2s",
                "by=lease,lease=3s,step=1s,lag=2s",
            ),
        ] {
            let promise = read(typed).unwrap();
            assert_eq!(promise.to_string(), printed);
            assert_eq!(read(printed).unwrap(), promise);
        }
        for wrong in [
            "", "by=luck", "lease", "lease=0", "lease=x", "by=lease", "tokes",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
