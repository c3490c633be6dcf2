//! The place of an experiment: this host, or several hosts of which this is the first.
//!
//! The experiment gives orders and takes data. In between is this host's keeper alone, or
//! [`Hosts`], which have a keeper each. Only `Hosts` knows how they are reached: the
//! experiment itself never waits for a network.

mod ceilings;
mod launcher;
mod machines;
mod merge;
mod ranks;
mod rows;
pub(crate) mod split;
pub(crate) mod sweeps;

use crate::across;
use crate::hosts::{Host, HostData, HostDid};
use crate::keeper::{Keeper, KeeperError, Result};
use crate::order::{Closed, Reached, RunData, RunOrder, Running, SweepOrder};
use jostle_model::hosts::HostCeiling;
use jostle_model::plan::Plan;
use jostle_stats::rng::Rng;
use jostle_worker::grants;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub use ceilings::takes as ceilings_take;
pub use launcher::{Launched, launched};
pub use ranks::{Joined, Link, LinkError, Rank, join};
pub use rows::rows;
pub use sweeps::{Step, rows as step_rows};

/// The time of a run of many hosts beside the workers' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From the order to the last host that was ready.
    pub prepare: Duration,
    /// From the last host that had drained to the last data.
    pub gather: Duration,
    /// Bytes of the other hosts' data.
    pub bytes: u64,
    /// Asking all clocks, once.
    pub clocks: Duration,
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
    ) -> Result<Vec<HostData>>;

    /// Makes one sweep of connections in the same way. All begin together and wait for each
    /// other at each listed number, which is reported to `reached`. None goes on beyond a
    /// number at which any of them had to stop.
    ///
    /// # Errors
    /// As above; listed numbers that were reached have been reported.
    fn sweep(
        &mut self,
        keeper: &mut Keeper,
        orders: &[Option<SweepOrder>],
        ended: &mut dyn FnMut() -> bool,
        reached: &mut dyn FnMut(Vec<HostDid<Reached>>),
    ) -> Result<Vec<HostDid<Closed>>>;

    /// The time of the last run beside the workers' time.
    fn spent(&self) -> Spent {
        Spent::default()
    }
}

/// Rank 0's keeper, and the other hosts if there are any.
pub struct World {
    keeper: Keeper,
    hosts: Option<Box<dyn Hosts>>,
    /// The source of the names of a run's locks, where hosts have to agree.
    names: Rng,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World of {}", self.hosts().len().max(1))
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The order, of all hosts together.
    pub order: RunOrder,
    /// The work of their workers, as if they had been one generator's.
    pub data: RunData,
    /// The part of each host, by rank; empty where there is but this one.
    pub parts: Vec<Part>,
}

/// One host's part of a run, or of a step of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<O = RunOrder, D = RunData> {
    /// Its order.
    pub order: O,
    /// Its work.
    pub of: HostDid<D>,
}

impl World {
    /// This host alone.
    pub fn alone(keeper: Keeper) -> World {
        World::new(keeper, None)
    }

    /// Many hosts, of which this one is the first.
    pub fn over(keeper: Keeper, hosts: Box<dyn Hosts>) -> World {
        World::new(keeper, Some(hosts))
    }

    fn new(keeper: Keeper, hosts: Option<Box<dyn Hosts>>) -> World {
        World {
            keeper,
            hosts,
            // Other experiments may use the same server, with the same seed.
            names: Rng::new(RandomState::new().hash_one(std::process::id())),
        }
    }

    /// This host's keeper, for what concerns it alone.
    pub fn keeper(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    /// The hosts by rank; none where there is but this one.
    pub fn hosts(&self) -> &[Host] {
        let hosts = self.hosts.as_ref().map_or(&[][..], |hosts| hosts.all());
        if hosts.len() > 1 { hosts } else { &[] }
    }

    /// Makes one run, on as many hosts as its order is for. `running` is told how far it
    /// is, where the order is watched and there is but this host.
    ///
    /// # Errors
    /// The error that stopped the run.
    pub fn run(
        &mut self,
        order: &RunOrder,
        ended: &mut dyn FnMut() -> bool,
        running: &mut dyn FnMut(Running),
    ) -> Result<Ran> {
        let ranks = self.hosts().len();
        let (Some(hosts), 2..) = (&mut self.hosts, ranks) else {
            return Ok(Ran {
                order: order.clone(),
                data: self.keeper.run(order, ended, running)?,
                parts: Vec::new(),
            });
        };
        let names = self.names.next_u64();
        let mut order = grants::asked(order, split::taking_part(order, ranks));
        // Keepers of several hosts reply in turns, so that they send no progress reports.
        order.watched = false;
        let order = &order;
        let orders = split::split(order, ranks, names);
        let gathered = hosts.run(&mut self.keeper, &orders, ended)?;
        let parts = parts(orders, gathered)?;
        let whole = split::whole(order, ranks, names);
        let mut data = merge::merge(&whole, hosts.all(), &parts);
        let across = across::across(hosts.all(), parts.iter().map(|part| &part.of));
        let across = across.map_err(|damaged| KeeperError::Failed(damaged.to_string()))?;
        data.exclusion.across = across.map(Box::new);
        Ok(Ran {
            data,
            order: whole,
            parts,
        })
    }
}

impl World {
    /// Makes one sweep of connections, on all hosts; `reached` is told of each listed
    /// number as it is reached, `running` as in [`World::run`].
    ///
    /// # Errors
    /// The error that stopped the sweep; listed numbers that were reached have been reported.
    pub fn sweep(
        &mut self,
        order: &SweepOrder,
        ended: &mut dyn FnMut() -> bool,
        reached: &mut dyn FnMut(Step),
        running: &mut dyn FnMut(Running),
    ) -> Result<Closed> {
        let ranks = self.hosts().len();
        let (Some(hosts), 2..) = (&mut self.hosts, ranks) else {
            let reached = &mut |data| reached(Step::alone(data));
            return self.keeper.sweep(order, ended, reached, running);
        };
        let all = hosts.all().to_vec();
        let orders = sweeps::split(order, ranks);
        let mut total_ns = 0;
        let closed = hosts.sweep(&mut self.keeper, &orders, ended, &mut |did| {
            let step = Step::together(&all, &orders, did, total_ns);
            total_ns = step.data.total_ns;
            reached(step);
        })?;
        Ok(sweeps::closed(&all, order, &closed))
    }

    /// The ceiling of each host that takes part in `order` by itself: short runs of one host after
    /// the other, each with its part of the order. `begins` is told whose turn it is. Empty where
    /// fewer than two take part, and where the hosts did too little in that time to be told apart.
    ///
    /// # Errors
    /// The error that stopped a run.
    pub fn ceilings(
        &mut self,
        plan: &Plan,
        order: &RunOrder,
        begins: &mut dyn FnMut(&str),
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostCeiling>> {
        let ranks = self.hosts().len();
        let (Some(hosts), 2..) = (&mut self.hosts, split::taking_part(order, ranks)) else {
            return Ok(Vec::new());
        };
        let all = hosts.all().to_vec();
        let names = self.names.next_u64();
        let mut done = Vec::new();
        for (rank, orders) in ceilings::orders(order, ranks, names)
            .into_iter()
            .enumerate()
        {
            begins(&name(&all, rank));
            let gathered = hosts.run(&mut self.keeper, &orders, ended)?;
            done.extend(parts(orders, gathered)?);
        }
        Ok(ceilings::rows(plan, &all, &done))
    }
}

/// Each order with what came of it.
fn parts(mut orders: Vec<Option<RunOrder>>, mut gathered: Vec<HostData>) -> Result<Vec<Part>> {
    gathered.sort_by_key(|of| of.rank);
    let taken = gathered.into_iter().filter_map(|of| {
        let order = orders.get_mut(of.rank)?.take()?;
        Some(Part { order, of })
    });
    let parts: Vec<Part> = taken.collect();
    match orders.iter().position(Option::is_some) {
        Some(rank) => Err(KeeperError::Failed(format!(
            "rank {rank} did not say what it did"
        ))),
        None => Ok(parts),
    }
}

fn name(hosts: &[Host], rank: usize) -> String {
    let known = hosts.get(rank).map(|host| host.name.clone());
    known.unwrap_or_else(|| format!("rank {rank}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::Offset;

    fn did(rank: usize) -> HostData {
        HostData {
            rank,
            data: RunData::default(),
            clock: Offset::default(),
            late_ns: 0,
        }
    }

    #[test]
    fn parts_are_in_the_order_of_ranks_and_none_may_be_missing() {
        let mut order = crate::experiment::tests::order("lockd://server:2626");
        order.workers = 2;
        let orders = split::split(&order, 3, 7);
        let both = parts(orders.clone(), vec![did(1), did(0)]).unwrap();
        let ranks: Vec<usize> = both.iter().map(|part| part.of.rank).collect();
        assert_eq!(ranks, [0, 1]);
        assert_eq!(both[1].order.share.unwrap().first_worker, 1);
        let error = parts(orders, vec![did(0)]).unwrap_err().to_string();
        assert_eq!(error, "rank 1 did not say what it did");
    }
}
