//! The hosts that take part in a measurement, and what each did: plain data.

use crate::order::RunData;
use jostle_model::hosts::HostHere;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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

/// A host's clock beside rank 0's, both `CLOCK_MONOTONIC`: rank 0's time = the host's - `ahead_ns`,
/// give or take `within_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// The host's clock less rank 0's.
    pub ahead_ns: i64,
    /// Half of the least round trip, and what the clocks may have drifted since.
    pub within_ns: u64,
}

/// The work of one host in one run, or up to one listed number of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDid<D> {
    /// Its rank.
    pub rank: usize,
    /// Its own data.
    pub data: D,
    /// Its clock, bracketed by measurements before and after the run.
    pub clock: Offset,
    /// By how much it began later than agreed, in rank 0's time, give or take
    /// `clock.within_ns`.
    pub late_ns: i64,
}

/// The work of one host in one run.
pub type HostData = HostDid<RunData>;

/// The hosts as a record of the environment has them.
pub fn here(hosts: &[Host]) -> Vec<HostHere> {
    let numbers = numbers(hosts).into_iter();
    let each = hosts.iter().zip(numbers);
    each.map(|(host, machine)| HostHere {
        host: host.name.clone(),
        cpus: host.cpus,
        machine,
        jostle: host.version.clone(),
    })
    .collect()
}

/// A number for each host, the same for those of one machine. Where the kernel does
/// not say which machine it is, each is taken for one by itself.
pub fn numbers(hosts: &[Host]) -> Vec<u64> {
    let machine = |rank: usize| {
        let id = &hosts[rank].boot_id;
        let same = hosts.iter().position(|other| other.boot_id == *id);
        same.filter(|_| !id.is_empty()).unwrap_or(rank)
    };
    let firsts: BTreeSet<usize> = (0..hosts.len()).map(machine).collect();
    (0..hosts.len())
        .map(|rank| {
            firsts
                .iter()
                .take_while(|first| **first < machine(rank))
                .count() as u64
        })
        .collect()
}
