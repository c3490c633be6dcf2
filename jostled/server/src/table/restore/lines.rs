//! Lines of an image: the sharers of a lock and its waiters.

use super::super::entries::{ClaimState, EntryKind, NEVER, Ref};
use super::super::image::{LockImage, SessionImage, SharerImage, WaiterImage};
use super::super::lines::Wish;
use super::super::slab::NIL;
use super::super::{ClientId, Table, TableImage, Time};
use super::{BadImage, Checked, ensure};

impl Table {
    pub(super) fn restore_sharer(&mut self, id: u32, image: &SharerImage) -> Checked {
        self.check_holder(&image.hold)?;
        let claim = &mut self.claims[image.place];
        (claim.client, claim.lock) = (image.hold.client, id);
        claim.since = image.hold.since;
        self.enter_sharers(image.place, image.hold.token);
        self.restore_hold(Ref::new(EntryKind::Claim, image.place), &image.hold);
        Ok(())
    }

    pub(super) fn restore_waiter(&mut self, id: u32, image: &WaiterImage) -> Checked {
        let slot = ClientId(image.client).slot();
        let client = self.clients.get(slot);
        let open = client.is_some_and(|found| found.open && found.id == image.client);
        let follows = image.leader.is_some_and(|leader| leader != image.place);
        let sound = open
            && image.deadline != Some(NEVER)
            && !(follows && image.deadline.is_some())
            && (image.leader.is_some() || image.next_in_group.is_none())
            && (image.session.is_none() || image.ttl_ms == 0);
        ensure!(sound => "client {} waits as nobody can, for {}", image.client, self.shown(id));
        let wish = Wish {
            client: image.client,
            ttl_ms: image.ttl_ms,
            exclusive: image.exclusive,
            session: NIL,
        };
        self.enter_line(id, image.place, wish, Time(image.since));
        let claim = &mut self.claims[image.place];
        claim.leader = image.leader.unwrap_or(NIL);
        claim.next_in_group = image.next_in_group.unwrap_or(NIL);
        // The session's list is made later; until then this field names the expected session.
        claim.session = image.session.unwrap_or(NIL);
        self.waiting += 1;
        if let Some(deadline) = image.deadline {
            self.set_deadline(Ref::new(EntryKind::Claim, image.place), deadline);
        }
        if !follows {
            let before = std::mem::replace(&mut self.clients[slot].waiting, image.place);
            ensure!(before == NIL => "client {} waits twice", image.client);
        }
        Ok(())
    }

    fn shown(&self, id: u32) -> String {
        let mut name = Vec::new();
        self.locks[id].name_into(&self.blocks, &mut name);
        name.escape_ascii().to_string()
    }

    /// Every claim of a group can be reached from its first one, once, and no two of
    /// a group want the same lock.
    pub(super) fn check_groups(&self, image: &TableImage) -> Checked {
        let grouped = image
            .waiters()
            .filter(|waiter| waiter.leader.is_some())
            .count();
        let leads = |waiter: &&WaiterImage| waiter.leader == Some(waiter.place);
        let mut reached = 0;
        for leader in image.waiters().filter(leads) {
            let mut locks = Vec::new();
            let mut at = leader.place;
            while at != NIL {
                let session = leader.session.unwrap_or(NIL);
                let claim = self.claims.get(at).filter(|claim| {
                    (claim.state, claim.leader, claim.client)
                        == (ClaimState::Waiting, leader.place, leader.client)
                        && (claim.session, claim.exclusive) == (session, leader.exclusive)
                });
                reached += 1;
                let Some(claim) = claim.filter(|_| reached <= grouped) else {
                    return Err(BadImage("a group is not whole".to_owned()));
                };
                locks.push(claim.lock);
                at = claim.next_in_group;
            }
            let count = locks.len();
            locks.sort_unstable();
            locks.dedup();
            ensure!(locks.len() == count => "a group waits twice for one lock");
        }
        ensure!(reached == grouped => "a group has lost its first");
        Ok(())
    }

    /// Links the waiters in the name of a session, the last one first, since each is
    /// inserted before the others.
    pub(super) fn restore_waits_in_session(&mut self, image: &SessionImage) -> Checked {
        let client = &self.clients[ClientId(image.client).slot()];
        ensure!(client.waiting == NIL => "a session waits for a lock itself");
        for place in image.waiting.iter().rev() {
            let expected = self.claims.get(*place).is_some_and(|claim| {
                let waits = claim.state == ClaimState::Waiting && claim.session == image.place;
                // Still alone.
                let first = self.sessions[image.place].waiting;
                waits
                    && claim.prev_in_session == NIL
                    && claim.next_in_session == NIL
                    && first != *place
            });
            ensure!(expected => "nobody waits so in the name of a session");
            self.enter_session(image.place, *place);
        }
        Ok(())
    }

    /// The first in a line must have something to wait for, and nobody may wait for a
    /// lock that its own session has.
    pub(super) fn check_line(&self, image: &LockImage) -> Checked {
        let lock = &self.locks[image.place];
        for session in image.waiting.iter().filter_map(|waiter| waiter.session) {
            let owner = self.sessions[session].client;
            ensure!(self.owned(image.place, owner).is_none() =>
                "a session waits for {}, which it has", self.shown(image.place));
        }
        let Some(head) = image.waiting.first() else {
            return Ok(());
        };
        let blocked = match head.leader {
            _ if lock.is_exclusive() || self.queue(lock).keeps_out(head.exclusive) => true,
            None => false,
            Some(leader) => !self.group_is_ready(leader),
        };
        ensure!(blocked =>
            "client {} waits for {}, which is free", head.client, self.shown(image.place));
        Ok(())
    }
}
