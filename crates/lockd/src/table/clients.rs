//! Clients that come, give up, and leave with what they own.

use super::entries::{Kind, Links, Ref, Client};
use super::slab::NIL;
use super::{LEAKED_WAITER, Output, RELEASES_PER_STEP, Refusal, Reply, ClientId, Table, Time};

impl<const FAULT: u8> Table<FAULT> {
    pub(super) fn open(&mut self) -> Reply {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.clients.len() >> ClientId::SLOT_BITS != 0 => {
                return self.refuse(Refusal::Clients);
            }
            None => {
                let slot = self.clients.len() as u32;
                let id = u64::from(slot);
                self.clients.push(Client {
                    id,
                    open: false,
                    owned: Links::ALONE,
                    waiting: NIL,
                    last: NIL,
                });
                slot
            }
        };
        let head = Ref::new(Kind::Client, slot);
        let client = &mut self.clients[slot as usize];
        client.owned = Links {
            prev: head,
            next: head,
        };
        client.open = true;
        self.open += 1;
        Reply::Opened(ClientId(client.id))
    }

    fn is_open(&self, client: ClientId) -> bool {
        self.clients
            .get(client.slot())
            .is_some_and(|found| found.id == client.0 && found.open)
    }

    pub(super) fn cancel(&mut self, client: ClientId, now: Time, outputs: &mut Vec<Output>) {
        let claim = self.clients[client.slot()].waiting;
        if !self.is_open(client) || claim == NIL || FAULT == LEAKED_WAITER {
            return;
        }
        let lock = self.claims[claim].lock;
        self.counters.wait_cancels += self.give_up(claim);
        self.serve(lock, now.0, now, outputs);
    }

    pub(super) fn close(&mut self, client: ClientId, now: Time, outputs: &mut Vec<Output>) {
        if !self.is_open(client) {
            return;
        }
        self.cancel(client, now, outputs);
        self.clients[client.slot()].open = false;
        self.open -= 1;
        self.closing.push(client.slot() as u32);
        self.reap(now, outputs);
    }

    /// Releases what closed clients own, a bounded number of locks at a time.
    pub(super) fn reap(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let mut budget = RELEASES_PER_STEP;
        while let Some(&slot) = self.closing.last() {
            let head = Ref::new(Kind::Client, slot);
            loop {
                let entry = self.clients[slot as usize].owned.next;
                if entry == head {
                    break;
                }
                if budget == 0 {
                    return;
                }
                budget -= 1;
                let lock = self.end_entry(entry);
                self.counters.released_by_disconnect += 1;
                self.serve(lock, now.0, now, outputs);
            }
            self.closing.pop();
            let client = &mut self.clients[slot as usize];
            client.owned = Links::ALONE;
            client.waiting = NIL;
            client.id += 1 << ClientId::SLOT_BITS;
            self.free_slots.push(slot);
        }
    }
}
