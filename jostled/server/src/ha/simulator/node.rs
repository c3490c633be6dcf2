//! A daemon: the core with a real table, a gate, connections, and a clock of its own.

use std::collections::{BTreeMap, VecDeque};

use super::super::{Memory, News, Primary, Standby, Taken};
use super::{Ask, Asked, bytes_of};
use crate::store::Entry;
use crate::table::{
    CancelAll, Change, ClientId, Close, CloseSession, Limits, LockAllRequest, LockRequest, Mode,
    NotReleased, NotRenewed, Open, OpenSession, Outcome, Output, Renew, RenewSession, SessionKey,
    Table, Tick, Time, Tokens, Unlock,
};

/// A reply, as far as clients look at it.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Lock(Outcome),
    Released(Result<(), NotReleased>),
    Renewed(Result<(), NotRenewed>),
    Session(bool),
    Tokens(Vec<u64>),
    Loading,
}

/// What comes in over a connection.
#[derive(Debug)]
pub(super) enum Up {
    /// Requests that are executed in one turn.
    Asked(Vec<Asked>),
    Close,
}

/// A connection.
pub(super) struct Link {
    pub(super) node: usize,
    pub(super) life: u64,
    pub(super) up: VecDeque<Up>,
    pub(super) down: VecDeque<Reply>,
    /// Its number in the table.
    id: Option<ClientId>,
    /// The gate's two places.
    held: Vec<Reply>,
    sent_for: Vec<Reply>,
}

impl Link {
    pub(super) fn new(node: usize, life: u64) -> Self {
        Self {
            node,
            life,
            up: VecDeque::new(),
            down: VecDeque::new(),
            id: None,
            held: Vec::new(),
            sent_for: Vec::new(),
        }
    }
}

pub(super) type Links = BTreeMap<u64, Link>;

/// What the loop tells the thread.
enum Post {
    Ask(Vec<Entry>),
    Release,
}

pub(super) struct Active {
    pub(super) primary: Primary,
    pub(super) table: Table,
    outputs: Vec<Output>,
    by_client: BTreeMap<ClientId, u64>,
    journal: Vec<Entry>,
    asked: bool,
    posts: VecDeque<Post>,
    pub(super) news: VecDeque<News>,
    /// Replies that were freed, and not written yet.
    output: Vec<(u64, Reply)>,
    /// When the loop has turned.
    turned: Time,
    /// Until when nothing is granted.
    pub(super) loading: Time,
    pub(super) drains: bool,
    released: bool,
    /// Of each request for several locks since the last look: its tokens.
    pub(super) groups: Vec<Vec<u64>>,
    pub(super) gone: Vec<u64>,
}

pub(super) enum Role {
    Down,
    Standby(Box<Standby>),
    Active(Box<Active>),
}

pub(super) struct Node {
    pub(super) role: Role,
    /// How often it was started.
    pub(super) life: u64,
    pub(super) disk: Memory,
    /// The end of the tokens, in its own file.
    pub(super) tokens: u64,
    /// Its clock; a thousandth of its rate; when it was read.
    pub(super) clock: Time,
    pub(super) rate: u64,
    pub(super) read: u64,
    /// Until when it is frozen, and whether its clock stands still.
    pub(super) frozen: Option<(u64, bool)>,
    /// Until when its loop alone hangs.
    pub(super) hangs: u64,
    /// Until when nothing comes through to etcd, and from it.
    pub(super) cut: [u64; 2],
}

impl Node {
    /// Brings its clock to this time; whether it runs.
    pub(super) fn runs(&mut self, now: u64) -> bool {
        let since = now - self.read;
        match self.frozen {
            Some((until, _)) if now < until => return false,
            Some((_, true)) => {}
            _ => self.clock.0 += since * self.rate / 1000,
        }
        (self.read, self.frozen) = (now, None);
        true
    }
}

impl Active {
    pub(super) fn new(primary: Primary, taken: &Taken) -> Self {
        let limits = Limits::default();
        let (first, orphan_ms) = (taken.first_token, taken.orphan_ms);
        let table = Table::adopt(&taken.stored, limits, first, orphan_ms, |_| 0, taken.at);
        let mut table = table.unwrap_or_else(|why| panic!("{why}"));
        table.keep_journal(true);
        let mut outputs = Vec::new();
        table.step(Tokens(taken.head.tokens), taken.at, &mut outputs);
        Self {
            primary,
            table,
            outputs,
            by_client: BTreeMap::new(),
            journal: Vec::new(),
            asked: false,
            posts: VecDeque::new(),
            news: VecDeque::new(),
            output: Vec::new(),
            turned: taken.at,
            loading: taken.loading,
            drains: false,
            released: false,
            groups: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// A step of the thread before it looks for what is due.
    pub(super) fn obey(&mut self) {
        self.primary.turned(self.turned);
        match self.posts.pop_front() {
            Some(Post::Ask(entries)) => self.primary.ask(entries),
            Some(Post::Release) => self.primary.release(),
            None => {}
        }
    }

    /// A step of the loop: news, or replies to write, or else a turn.
    pub(super) fn step(&mut self, now: Time, links: &mut Links, own: &[u64]) {
        self.turned = now;
        if let Some(news) = self.news.pop_front() {
            if let Some(end) = news.tokens {
                self.table.step(Tokens(end), now, &mut self.outputs);
            }
            if news.freed {
                self.asked = false;
                for number in own {
                    if let Some(link) = links.get_mut(number) {
                        let freed = link.sent_for.drain(..);
                        self.output.extend(freed.map(|reply| (*number, reply)));
                    }
                }
            }
        } else if !self.output.is_empty() {
            for (number, reply) in self.output.drain(..) {
                if let Some(link) = links.get_mut(&number) {
                    link.down.push_back(reply);
                }
            }
        } else {
            self.turn(now, links, own);
        }
    }

    fn turn(&mut self, now: Time, links: &mut Links, own: &[u64]) {
        self.table.step(Tick, now, &mut self.outputs);
        for number in own {
            self.tell(links);
            if let Some(link) = links.get_mut(number)
                && !self.drains
                && self.serve(*number, link, now)
            {
                // It is gone with what it had in the gate.
                links.remove(number);
            }
        }
        self.tell(links);
        self.take_records();
        let mut held = false;
        for number in own {
            held |= links.get(number).is_some_and(|link| !link.held.is_empty());
        }
        if !self.asked && (held || !self.journal.is_empty()) {
            self.asked = true;
            let journal = std::mem::take(&mut self.journal);
            self.posts.push_back(Post::Ask(journal));
            for number in own {
                if let Some(link) = links.get_mut(number) {
                    link.sent_for = std::mem::take(&mut link.held);
                }
            }
        } else if self.drains && !self.released && !held && self.journal.is_empty() {
            // The journal stops before connections close.
            self.released = true;
            self.posts.push_back(Post::Release);
            self.table.step(CancelAll, now, &mut self.outputs);
            for client in std::mem::take(&mut self.by_client).into_keys() {
                self.table.step(Close(client), now, &mut self.outputs);
            }
            self.take_records();
        }
    }

    /// Ends waits, before anything else is answered over their connections.
    fn tell(&mut self, links: &mut Links) {
        for output in self.outputs.drain(..) {
            let number = self.by_client.get(&output.client);
            if let Some(link) = number.and_then(|number| links.get_mut(number)) {
                link.held.push(Reply::Lock(output.outcome));
            }
        }
    }

    fn take_records(&mut self) {
        let mut group = 0;
        for record in self.table.take_records() {
            match record.change {
                Change::Together { count } => {
                    group = count;
                    self.groups.push(Vec::new());
                }
                Change::Begun { .. } if group > 0 => {
                    group -= 1;
                    if let Some(group) = self.groups.last_mut() {
                        group.push(record.token);
                    }
                }
                Change::Ended(_) => self.gone.push(record.token),
                _ => {}
            }
            let entry = Entry::from_record(record, |_| "user".to_owned());
            self.journal.push(entry);
        }
    }

    /// Serves a connection; whether it is closed.
    fn serve(&mut self, number: u64, link: &mut Link, now: Time) -> bool {
        let id = *link.id.get_or_insert_with(|| {
            let id = self.table.step(Open, now, &mut self.outputs);
            id.expect("few clients are open")
        });
        self.by_client.insert(id, number);
        let waits = self.table.is_waiting(id);
        let ends = matches!(link.up.back(), Some(Up::Close));
        if ends && (waits || link.up.len() == 1) {
            self.table.step(Close(id), now, &mut self.outputs);
            self.by_client.remove(&id);
            return true;
        }
        if !waits && let Some(Up::Asked(all)) = link.up.pop_front() {
            for asked in all {
                let reply = self.execute(id, &asked.request, now);
                link.held.extend(reply);
            }
        }
        false
    }

    fn execute(&mut self, client: ClientId, request: &Ask, now: Time) -> Option<Reply> {
        let key = |id: &u128| SessionKey { user: 0, id: *id };
        let (table, out) = (&mut self.table, &mut self.outputs);
        let loads = now < self.loading;
        Some(match request {
            Ask::Lock(_) | Ask::Open(..) if loads => Reply::Loading,
            Ask::Lock(wish) => {
                let session = wish.session.as_ref().map(key);
                let (session, wait_ms) = (session.as_ref(), Some(wish.wait_ms));
                let names: Vec<Vec<u8>> = wish.names.iter().map(|name| bytes_of(*name)).collect();
                let (mode, ttl_ms) = (wish.mode, wish.ttl_ms);
                let outcome = if let [name] = &names[..] {
                    let request = LockRequest {
                        client,
                        name,
                        ttl_ms,
                        wait_ms,
                        mode,
                        session,
                    };
                    table.step(request, now, out)
                } else {
                    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                    let request = LockAllRequest {
                        client,
                        names: &names,
                        ttl_ms,
                        wait_ms,
                        shared: mode == Mode::Shared,
                        session,
                    };
                    table.step(request, now, out)
                };
                Reply::Lock(outcome?)
            }
            Ask::Unlock(name, token) => {
                let (name, token) = (&bytes_of(*name)[..], *token);
                let unlock = Unlock {
                    client,
                    name,
                    token,
                };
                Reply::Released(table.step(unlock, now, out))
            }
            Ask::Renew(name, token, ttl_ms) => {
                let (name, token, ttl_ms) = (&bytes_of(*name)[..], *token, *ttl_ms);
                let renew = Renew {
                    name,
                    token,
                    ttl_ms,
                };
                Reply::Renewed(table.step(renew, now, out))
            }
            Ask::Open(id, ttl_ms) => {
                let (key, ttl_ms, text) = (key(id), *ttl_ms, "a text");
                let open = OpenSession { key, ttl_ms, text };
                Reply::Session(table.step(open, now, out).is_ok())
            }
            Ask::RenewSession(id) => Reply::Session(table.step(RenewSession(key(id)), now, out)),
            Ask::CloseSession(id, _) => Reply::Session(table.step(CloseSession(key(id)), now, out)),
            Ask::Holders(name) => {
                table.step(Tick, now, out);
                let name = bytes_of(*name);
                let holders = table.holders(&name);
                Reply::Tokens(holders.map(|found| found.token).collect())
            }
        })
    }
}
