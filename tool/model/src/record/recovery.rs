//! The results of one fault, and the history of the run, from which they all follow.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`.

use crate::plan::Fault;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One run of `recover`. Stamps are nanoseconds of `CLOCK_MONOTONIC`, and all figures follow
/// from them and from `history`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// The fault that struck, in the words of `--fault`.
    pub fault: Fault,
    /// Processes that waited.
    pub waiters: u64,
    /// How long the next grant was waited for.
    pub within_ns: u64,
    /// The lease of the lock; absent where it has none, or where jostle cannot know of one
    /// (`lib:`, `pipe:`).
    pub lease_ns: Option<u64>,
    /// By so much a lease may end early, since the service counts in steps (memcached:
    /// seconds).
    pub lease_step_ns: Option<u64>,
    /// When the owner asked for its lease, or for the last renewal that succeeded; the lease
    /// does not end before this and the lease together.
    pub leased_at_ns: Option<u64>,
    /// Who was struck; absent in records of versions that did not tell.
    pub struck: Option<Struck>,
    /// Whether the target promises that a hold survives the loss of one server of several (the
    /// word `failover`); absent for faults that strike no single server of a cluster.
    pub promised: Option<bool>,
    /// After so long the server first asks the silent owner's host whether it lives (TCP
    /// keepalive), 0: never; absent unless its connection is lost for good.
    pub keepalive_s: Option<u64>,
    /// Just before the fault struck; times until something count from here.
    pub struck_at_ns: u64,
    /// Just after the call that struck it.
    pub struck_by_ns: u64,
    /// When what was stopped was let go on, or the restarted service accepted connections.
    pub returned_at_ns: Option<u64>,
    /// From the fault to the next grant that came before the owner began to release. Absent:
    /// the service kept the lock for its owner (then there is `after_release_ns`), or nobody
    /// was granted it within the limit.
    pub next_grant_ns: Option<u64>,
    /// Time taken from the next owner and the service, from just before the fault until the keeper
    /// saw the next grant; absent without `next_grant_ns`, or without the kernel's schedstat.
    pub delays: Option<Delays>,
    /// From the beginning of the owner's release to the next grant, where that came after it.
    pub after_release_ns: Option<u64>,
    /// From `leased_at_ns` and the lease together to the next grant; negative: it came before.
    pub after_lease_ns: Option<i64>,
    /// From `returned_at_ns` to the next grant; negative: it came before.
    pub after_return_ns: Option<i64>,
    /// For how long the old owner and a later one both believed that they owned: from the
    /// return of the later one's acquisition to the beginning of the old one's release (where
    /// that failed, to the failure; where its client told it before, to then), or to the
    /// beginning of the later one's release if that came first.
    pub two_believed_ns: Option<u64>,
    /// The part of it in which the old owner ran, which is less where it was stopped.
    pub two_ran_ns: Option<u64>,
    /// Whether the old owner's client told it that the lock is lost, or its release failed;
    /// absent where the lock was still its own and the release succeeded, and where the answer
    /// to the release was not waited for any longer.
    pub told: Option<bool>,
    /// Who told it first.
    pub told_by: Option<ToldBy>,
    /// From the fault until it was told.
    pub told_after_ns: Option<u64>,
    /// Whether a resource that checks fencing tokens refused the old owner's last write; absent
    /// without tokens, or where the next owner had not written before.
    pub write_refused: Option<bool>,
    /// Whether waiters were served in the order of their first request; absent where fewer than
    /// two were served, or one had to ask again.
    pub in_order: Option<bool>,
    /// Waiters that were granted the lock.
    pub served: u64,
    /// The events, in the order of time. Calls of a process that was killed have no end.
    pub history: Vec<Event>,
}

/// Who was struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Struck {
    /// The owner's process: that of jostle which owns the lock or the session.
    #[default]
    Worker,
    /// The user's program that the owner has started, with its process group.
    Program,
    /// The owner's connection to the service.
    Connection,
    /// All processes of the service.
    Service,
    /// One server of the cluster, or its host.
    Member,
}

/// Who told an owner that its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToldBy {
    /// Its client, when a renewal was refused or the session could not be taken up again.
    Client,
    /// Its release, which failed.
    Release,
}

/// CPU time that some processes did not get between two looks at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// How long their threads were ready to run and had no CPU, summed.
    pub waited_for_cpu_ns: u64,
    /// Time that the hypervisor took of all CPUs, counted in ticks of 10 ms.
    pub stolen_ns: u64,
}

/// One event.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, by `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The owner is 0, the waiters follow in the order in which they came; absent: the
    /// tool, or the service.
    pub process: Option<u64>,
    /// The event.
    pub what: What,
    /// The fencing token that was granted, or written with.
    pub token: Option<u64>,
    /// The words of a failure.
    pub said: Option<String>,
    /// How often the same failure came to the process in a row, of which the first three are
    /// listed.
    pub times: Option<u64>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// An acquisition begins.
    Acquire,
    /// The acquisition succeeded.
    Granted,
    /// The acquisition succeeded, and the lock said that its last owner had died.
    GrantedFromDead,
    /// The acquisition failed.
    NotGranted,
    /// A new connection, after a failure.
    JoinedAgain,
    /// A write to a resource that checks tokens, taken.
    Written,
    /// A write to a resource that checks tokens, refused: it has seen a newer token.
    WriteRefused,
    /// A release begins.
    Release,
    /// The release succeeded.
    Released,
    /// The release failed.
    NotReleased,
    /// The old owner found that it runs again.
    Awake,
    /// The fault struck.
    Fault,
    /// The struck part went on.
    Return,
    /// The lease may have ended from here on.
    LeaseEnd,
    /// The owner's client found that its connection is gone, or that nobody answers.
    CutOff,
    /// The owner's client told it that the lock is lost.
    Lost,
    /// The tool waited no longer for the answer to a release.
    GaveUp,
}
