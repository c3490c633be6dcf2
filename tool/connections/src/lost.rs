//! Whether the connections of a sweep are open at both ends: at each listed number the
//! clients count those that the peer has closed or reset. They write the counts to the
//! board; nothing here is timed.

use crate::crew::Role;
use crate::sweep::Sweep;
use jostle_harness::Aborted;
use jostle_model::connect::Only;
use jostle_sys::waited::Waited;
use jostle_worker::order::Lost;
use jostle_worker::workloads::connect::board::{Own, UNKNOWN, order};
use std::time::Duration;

/// How long clients may take to look at all their connections.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// A server that closes what it accepts does so when it comes to accept it, which
/// is later than the client has connected.
const TIME_TO_CLOSE: Duration = Duration::from_millis(100);

impl Sweep<'_> {
    /// How many connections the peer has closed or reset; None where nothing is
    /// connected.
    pub(crate) fn lost(&mut self) -> Result<Option<Lost>, Aborted> {
        if self.order.only == Some(Only::Bind) {
            return Ok(None);
        }
        // Our own server is known to accept and to hold everything.
        if self.crew.servers == 0 {
            let until = self.context.clock.now() + TIME_TO_CLOSE.as_nanos() as u64;
            while self.context.clock.now() < until {
                self.nap()?;
            }
        }
        self.look().map(Some)
    }

    /// Has every client that has connections look at them, and adds up.
    fn look(&mut self) -> Result<Lost, Aborted> {
        self.turns += 1;
        let look = order::look(self.turns);
        let mut waited = Waited::begin();
        for client in self.busy_clients() {
            self.board.order(client, look);
        }
        let is_silent = |sweep: &Sweep<'_>| {
            let mut clients = sweep.busy_clients().into_iter();
            clients.any(|client| sweep.board.own(client, Own::Looked) != u64::from(look))
        };
        while is_silent(self) {
            if waited.so_far() > LOOK_PATIENCE {
                return Err(cannot_tell("a client process did not look in time"));
            }
            self.nap()?;
        }
        let counts = self.busy_clients().into_iter().map(|client| {
            let of = |own| self.board.own(client, own);
            let first = Some(of(Own::FirstLost)).filter(|first| *first > 0);
            (of(Own::Lost), first)
        });
        added_up(counts).ok_or_else(|| cannot_tell("poll() failed, for want of memory"))
    }

    /// From a listed number on to the next.
    pub(crate) fn go_on(&mut self) {
        self.turns += 1;
        for client in self.busy_clients() {
            if self.board.own(client, Own::Working) != 0 {
                self.board.order(client, order::go_on(self.turns));
            }
        }
    }

    /// Clients whose turn to connect has come, and who live.
    fn busy_clients(&self) -> Vec<usize> {
        let clients = self.alive.values().filter(|(kind, number)| {
            *kind == Role::Client && self.board.own(*number, Own::Order) != u64::from(order::WAIT)
        });
        clients.map(|(_, number)| *number).collect()
    }
}

fn cannot_tell(why: &str) -> Aborted {
    Aborted(format!(
        "cannot tell how many connections are still open: {why}"
    ))
}

/// The counts of all clients; None where one could not count.
fn added_up(counts: impl Iterator<Item = (u64, Option<u64>)>) -> Option<Lost> {
    counts
        .into_iter()
        .try_fold(Lost::default(), |sum, (count, first)| {
            (count != UNKNOWN).then(|| Lost {
                count: sum.count + count,
                first: sum.first.into_iter().chain(first).min(),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_add_up_and_the_first_connection_lost_is_the_lowest() {
        let lost = |count, first| Some(Lost { count, first });
        for (counts, expected) in [
            (vec![], lost(0, None)),
            (vec![(0, None), (0, None)], lost(0, None)),
            (
                vec![(2, Some(900)), (0, None), (3, Some(7))],
                lost(5, Some(7)),
            ),
            (vec![(2, Some(900)), (UNKNOWN, None)], None),
        ] {
            assert_eq!(added_up(counts.into_iter()), expected);
        }
    }
}
