//! Owners on different hosts, from the grants that the workers of each have logged.

use crate::hosts::{Host, HostData};
use jostle_model::record::Across;
use jostle_stats::across::{self, Clock, HostLog};
use jostle_targets::LEASE_FACT;

pub use jostle_worker::grants::{Damaged, unpacked};

/// The comparison of the logs of several hosts, about owners on different ones; None where fewer
/// than two have one. `hosts` are all, by rank.
///
/// # Errors
/// A log that cannot be read.
pub fn across<'a>(
    hosts: &[Host],
    gathered: impl IntoIterator<Item = &'a HostData>,
) -> Result<Option<Across>, Damaged> {
    let gathered = gathered.into_iter();
    let logged = gathered.filter(|host| !host.data.grants.is_empty());
    let logged: Vec<_> = logged
        .map(|host| Ok((host, unpacked(&host.data.grants)?)))
        .collect::<Result<_, Damaged>>()?;
    let logs: Vec<HostLog<'_>> = logged
        .iter()
        .map(|(host, grants)| HostLog {
            name: hosts.get(host.rank).map_or("a host", |host| &host.name),
            clock: Clock::steady(host.clock.ahead_ns, host.clock.within_ns),
            from_ns: host.data.grants.from_ns,
            until_ns: host.data.grants.until_ns,
            grants,
            made: host.data.grants.made,
            lease_ns: host.data.around.setup.get(LEASE_FACT).map(|ns| *ns as u64),
        })
        .collect();
    Ok((logs.len() > 1).then(|| across::judge(&logs)))
}
