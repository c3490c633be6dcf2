//! Whose turn it is: users go round, and the connections of each in their order. So a user
//! with 400 connections that always have something to do waits for the others as often as
//! they wait for it.

use std::collections::VecDeque;

use crate::table::ClientId;

/// Clients that are ready, each once.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// By place: clients that have not logged in, then users by number.
    queues: Vec<VecDeque<ClientId>>,
    /// Places with clients.
    order: VecDeque<usize>,
    len: usize,
}

impl Rounds {
    pub(super) fn push(&mut self, place: usize, client: ClientId) {
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, VecDeque::new);
        }
        let queue = &mut self.queues[place];
        if queue.is_empty() {
            self.order.push_back(place);
        }
        queue.push_back(client);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<ClientId> {
        let place = self.order.pop_front()?;
        let queue = &mut self.queues[place];
        let client = queue.pop_front();
        if !queue.is_empty() {
            self.order.push_back(place);
        }
        self.len -= 1;
        client
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClientId> {
        self.queues.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 400 connections of one user made each request of another one wait for all of them.
    #[test]
    fn users_take_turns_however_many_connections_each_has() {
        let mut rounds = Rounds::default();
        for number in 0..400 {
            rounds.push(2, ClientId::from_number(number));
        }
        let mut next = || rounds.pop().map(ClientId::number);
        assert_eq!((next(), next()), (Some(0), Some(1)));
        rounds.push(7, ClientId::from_number(1000));
        rounds.push(0, ClientId::from_number(1001));
        rounds.push(7, ClientId::from_number(1002));
        let first: Vec<u64> = (0..7)
            .filter_map(|_| rounds.pop().map(ClientId::number))
            .collect();
        assert_eq!(first, [2, 1000, 1001, 3, 1002, 4, 5]);
        assert_eq!((rounds.len(), rounds.iter().count()), (394, 394));
    }
}
