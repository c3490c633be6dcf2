//! Where an experiment takes place: on this host, or on many of which this is
//! the first.
//!
//! The experiment gives orders and takes yields; what lies between is this
//! host's keeper alone, or [`Hosts`], which have a keeper each. How they are
//! reached is theirs to know: the experiment never waits for a network itself.

use crate::keeper::{Keeper, KeeperError};
use crate::order::{RunOrder, Yield};
use serde::{Deserialize, Serialize};

/// One of the hosts that take part. Its place in the list is its rank; rank 0
/// prints and writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// As it calls itself (`uname -n`).
    pub name: String,
    /// CPUs that this rank may use.
    pub cpus: u64,
    /// `/proc/sys/kernel/random/boot_id`: ranks that share it share a machine, and
    /// with it its CPUs.
    pub boot_id: String,
    /// Version and commit of its jostle; a rank that differs is refused.
    pub version: String,
}

/// What the clock of a host shows beside rank 0's, both `CLOCK_MONOTONIC`: rank
/// 0's time = the host's - `ahead_ns`, give or take `within_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// The host's clock less rank 0's.
    pub ahead_ns: i64,
    /// Half of the least round trip, and what the clocks may have drifted since.
    pub within_ns: u64,
}

/// What one host did in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct HostYield {
    /// Its rank.
    pub rank: usize,
    /// Its own yield.
    pub data: Yield,
    /// Its clock, bracketed by measurements before and after the run.
    pub clock: Offset,
    /// By how much it began later than agreed, in rank 0's time, give or take
    /// `clock.within_ns`.
    pub late_ns: i64,
}

/// Many hosts with a keeper each.
pub trait Hosts {
    /// All, by rank.
    fn all(&self) -> &[Host];

    /// Makes one run: the host of rank n does `orders[n]`; those with None sleep.
    /// All who take part are ready before a common start, and nobody asks a server
    /// for its counts before all have drained. `keeper` is rank 0's own. `ended` is
    /// asked several times a second whether the user wants to stop.
    ///
    /// # Errors
    /// A host that failed, died or does not answer, by its name.
    fn run(
        &mut self,
        keeper: &mut Keeper,
        orders: &[Option<RunOrder>],
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostYield>, KeeperError>;
}
