//! Daemons, an etcd and clients, all with faults, for millions of steps, and a witness that
//! relies on no clock but the real one. It checks:
//!
//! - S1: no two owners of a name are entitled at a time;
//! - S2: the tokens that are told for a name grow;
//! - S3: what was told is in every later primary, or its entitlement has ended; reads show
//!   it, too; a request for several locks is there as a whole or not at all;
//! - S4: once faults end, a free name is granted within 5 s.
//!
//! Requests and answers are late, lost or doubled; "no space" and errors are answered
//! though a write is done; reads are stale; daemons freeze between any two steps, their
//! clocks stopped or not, hang, are cut off, killed, or give their place up; clocks differ
//! by 1 %; etcd is restored from a backup, or loses all. Batches have 2 operations.
//!
//! `cargo xtask mutants` plants faults. `JOSTLE_SEED` and `JOSTLE_STEPS` are as in the
//! table's simulator.

mod clients;
mod etcd;
mod faults;
mod node;
mod witness;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{
    Answer, Call, Due, Head, Init, Keys, Memory, Over, Own, Primary, Request, Rules, Standby, Txn,
};
use crate::table::simulator::{dice::Dice, setting};
use crate::table::{Mode, Time};
use clients::Client;
use etcd::{Etcd, Pairs};
use node::{Active, Link, Links, Node, Role};
use witness::Witness;

type Name = u32;
type Violation = String;

const MS: u64 = 1_000_000;
const ORPHAN_MS: u64 = 4_000;
const MAX_TTL_MS: u64 = 6_000;
/// Within this time a free name must be granted.
const WITHIN_MS: u64 = 5_000;
/// The names of locks; those from 1,000 on are asked for when faults have ended.
const NAMES: u64 = 8;
const PROBES: u32 = 1_000;

const RULES: Rules = Rules {
    operations: 2,
    bytes: 2_000,
    page: 900,
    tokens: 8,
    first_turn_ms: 3_000,
    ..Rules::REAL
};

fn bytes_of(name: Name) -> Vec<u8> {
    match name {
        // Bytes that are no text.
        0 => b"a\0\xff\"%\\".to_vec(),
        name => format!("n{name}").into_bytes(),
    }
}

/// A wish for locks.
#[derive(Clone, Debug)]
struct Wish {
    names: Vec<Name>,
    mode: Mode,
    ttl_ms: Option<u64>,
    session: Option<u128>,
    wait_ms: u64,
}

/// A request of a client: names, tokens, TTLs in milliseconds.
#[derive(Clone, Debug)]
enum Ask {
    Lock(Wish),
    Unlock(Name, Option<u64>),
    Renew(Name, u64, u64),
    Open(u128, u64),
    RenewSession(u128),
    /// With the tokens that it had.
    CloseSession(u128, Vec<u64>),
    Holders(Name),
}

/// A request that was sent.
#[derive(Clone, Debug)]
struct Asked {
    request: Ask,
    sent: u64,
    /// Until when the sender relied on what the request ends.
    relied: u64,
}

/// A message between a daemon and etcd.
struct Letter {
    node: usize,
    life: u64,
    from: u64,
    call: Call,
    /// `None`: it is on its way to etcd.
    answer: Option<Answer>,
}

/// How often something happened: a world in which nothing does proves nothing.
type Counts = BTreeMap<&'static str, u64>;

struct World {
    dice: Dice,
    now: u64,
    keys: Keys,
    etcd: Etcd,
    backups: Vec<(i64, Rc<Pairs>)>,
    nodes: [Node; 3],
    links: Links,
    clients: Vec<Client>,
    letters: Vec<Letter>,
    witness: Witness,
    numbers: u64,
    /// Without faults: the time by which a free name must be granted.
    probe: Option<u64>,
    probes: u32,
    counts: Counts,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let node = |dice: &mut Dice| Node {
            role: Role::Down,
            life: 0,
            disk: Memory::default(),
            tokens: 1,
            clock: Time(dice.below(1 << 40)),
            rate: 995 + dice.below(11),
            read: 0,
            frozen: None,
            hangs: 0,
            cut: [0; 2],
        };
        let nodes = std::array::from_fn(|_| node(&mut dice));
        let clients = (0..7).map(|_| Client::new(&mut dice)).collect();
        let mut world = Self {
            dice,
            now: 0,
            keys: Keys::new("main"),
            etcd: Etcd::default(),
            backups: Vec::new(),
            nodes,
            links: Links::new(),
            clients,
            letters: Vec::new(),
            witness: Witness::default(),
            numbers: 0,
            probe: None,
            probes: 0,
            counts: Counts::new(),
        };
        world.initialise();
        for node in 0..3 {
            world.start(node, false);
        }
        world
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self, node: usize, restored: bool) {
        let own = Own {
            incarnation: format!("run {}", self.number()),
            orphan_ms: ORPHAN_MS,
            max_ttl_ms: MAX_TTL_MS,
            ..Own::default()
        };
        let found = &mut self.nodes[node];
        let memory = found.disk.clone();
        found.life += 1;
        let standby = Standby::new(self.keys.clone(), RULES, own, memory, restored);
        found.role = Role::Standby(Box::new(standby));
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].role = Role::Down;
        let life = self.nodes[node].life;
        self.links
            .retain(|_, link| (link.node, link.life) != (node, life));
    }

    fn act(&mut self) -> Result<(), Violation> {
        self.now += self.dice.below(MS);
        match self.dice.below(100) {
            0..25 if !self.letters.is_empty() => self.deliver()?,
            0..65 => {
                let node = self.some_node();
                self.advance(node)?;
            }
            65..94 => {
                let client = self.dice.below(self.clients.len() as u64) as usize;
                self.act_for(client)?;
            }
            94..97 => self.now += self.dice.below(30 * MS),
            _ => self.meddle()?,
        }
        Ok(())
    }

    /// A daemon: most often the primary.
    fn some_node(&mut self) -> usize {
        let serves = |node: &Node| matches!(node.role, Role::Active(_)) && node.frozen.is_none();
        let serving = self.nodes.iter().position(serves);
        let any = self.dice.below(6) as usize;
        match serving {
            Some(serving) if any >= 3 => serving,
            _ => any % 3,
        }
    }

    fn is_calm(&self) -> bool {
        self.probe.is_some()
    }

    /// A message arrives, or is lost.
    fn deliver(&mut self) -> Result<(), Violation> {
        let count = self.letters.len() as u64;
        let mut at = self.dice.below(count) as usize;
        if self.letters[at].from > self.now {
            at = self.dice.below(count) as usize;
        }
        let letter = &self.letters[at];
        let found = &self.nodes[letter.node];
        let cut = found.cut[usize::from(letter.answer.is_some())] > self.now;
        let late = letter.from > self.now;
        let stopped = letter.answer.is_some() && found.frozen.is_some();
        if late || stopped && found.life == letter.life {
            return Ok(());
        }
        let mut letter = self.letters.swap_remove(at);
        if cut {
            return Ok(());
        }
        let Some(answer) = letter.answer.take() else {
            let calm = self.is_calm();
            let behind = match !calm && self.dice.percent(10) {
                true => self.dice.below(4),
                false => 0,
            };
            let fate = if calm { 100 } else { self.dice.below(100) };
            if (0..4).contains(&fate) {
                // It is done again later, or only then.
                self.letters.push(Letter {
                    from: self.now + self.dice.below(3_000) * MS,
                    call: letter.call.clone(),
                    answer: None,
                    ..letter
                });
            }
            let answer = match fate {
                // An error, or "no space", and nothing is done.
                2..6 => Answer::Unknown,
                _ => self.etcd.answer(&letter.call.request, behind as usize),
            };
            if let (Answer::Committed, Request::Txn(txn)) = (&answer, &*letter.call.request) {
                self.note_discard(txn);
            }
            letter.answer = Some(match fate {
                // The same, and it is done.
                6..9 => Answer::Unknown,
                _ => answer,
            });
            match fate {
                9..13 => {}
                13..15 => {
                    letter.from = self.now + self.dice.below(3_000) * MS;
                    self.letters.push(letter);
                }
                _ => self.letters.push(letter),
            }
            return Ok(());
        };
        if found.life == letter.life {
            *self.counts.entry("answers").or_default() += 1;
            self.answer(letter.node, letter.call.number, answer)?;
        }
        Ok(())
    }

    fn note_discard(&mut self, txn: &Txn) {
        if txn.deletes.iter().any(|(_, to)| to.is_some())
            && let Some(Ok(head)) = txn.puts.first().map(|(_, value)| Head::read(value))
        {
            let first = head.tokens - RULES.tokens;
            self.witness.discard(first, self.numbers + 1);
            let asked = self.clients.iter_mut().flat_map(|client| &mut client.asked);
            asked.for_each(|asked| asked.relied = 0);
        }
    }

    /// A daemon's thread takes an answer.
    fn answer(&mut self, node: usize, number: u64, answer: Answer) -> Result<(), Violation> {
        let found = &mut self.nodes[node];
        found.runs(self.now);
        let now = found.clock;
        match &mut found.role {
            Role::Down => {}
            Role::Active(active) => {
                let news = active.primary.answered(number, answer, now);
                // The daemon's own file comes first.
                found.tokens = found.tokens.max(news.tokens.unwrap_or(0));
                active.news.push_back(news);
            }
            Role::Standby(standby) => {
                if let Some(taken) = standby.answered(number, answer, now) {
                    found.disk = standby.memory().clone();
                    found.tokens = found.tokens.max(taken.head.tokens);
                    let primary = Primary::new(self.keys.clone(), RULES, taken.clone());
                    let active = Active::new(primary, &taken);
                    let names = (0..NAMES as u32).chain(PROBES..PROBES + 8);
                    // Otherwise it was replaced before it knew of its takeover.
                    if self.etcd.pairs.get(&self.keys.head()) == Some(&taken.head.text()) {
                        self.witness.adopt(&active.table, names, self.now)?;
                    }
                    found.role = Role::Active(Box::new(active));
                }
            }
        }
        Ok(())
    }

    /// A daemon does something: its thread, or its loop.
    fn advance(&mut self, node: usize) -> Result<(), Violation> {
        let found = &mut self.nodes[node];
        if !found.runs(self.now) {
            return Ok(());
        }
        let (now, life) = (found.clock, found.life);
        if let Role::Active(active) = &mut found.role
            && self.dice.percent(60)
        {
            if found.hangs <= self.now {
                let own = self
                    .links
                    .iter()
                    .filter(|(_, link)| (link.node, link.life) == (node, life));
                let own: Vec<u64> = own.map(|(number, _)| *number).collect();
                active.step(now, &mut self.links, &own);
                for group in active.groups.drain(..) {
                    self.witness.group(group);
                }
                for token in active.gone.drain(..) {
                    self.witness.gone(token);
                }
            }
            return Ok(());
        }
        let due = match &mut found.role {
            Role::Down => return Ok(()),
            Role::Standby(standby) => {
                if self.dice.percent(5) {
                    found.disk = standby.memory().clone();
                }
                standby.due(now)
            }
            Role::Active(active) => {
                if self.dice.percent(5) {
                    found.disk = Memory::of(active.primary.head());
                }
                active.obey();
                active.primary.due(now)
            }
        };
        match due {
            Due::Wait(_) => {}
            Due::Over(_) => self.kill(node),
            Due::Send(call) => self.letters.push(Letter {
                node,
                life,
                from: self.now,
                call,
                answer: None,
            }),
        }
        Ok(())
    }
}

fn simulate(seed: u64, steps: u64) -> (Counts, Witness) {
    let mut world = World::new(seed);
    for step in 0..steps {
        if let Err(why) = world.act() {
            panic!("seed {seed}, step {step}, at {} ms: {why}", world.now / MS);
        }
    }
    (world.counts, world.witness)
}

#[test]
fn no_fault_breaks_a_promise() {
    let steps = setting("JOSTLE_STEPS", 2_000_000);
    let first = setting("JOSTLE_SEED", 1);
    for seed in first..first + 4 {
        let (mut counts, witness) = simulate(seed, steps);
        counts.extend([("grants", witness.grants), ("takeovers", witness.adopted)]);
        println!("{counts:?}");
        for (what, one_in) in [
            ("grants", 1_000),
            ("takeovers", 10_000),
            ("failovers", 20_000),
            ("freezes", 10_000),
            ("kills", 10_000),
            ("probes", 20_000),
            ("restores", 1_000_000),
        ] {
            let count = counts.get(what).copied().unwrap_or(0);
            assert!(count >= steps / one_in, "{count} {what}");
        }
    }
}

#[test]
fn a_head_that_comes_back_with_its_revision_is_another_one() {
    let (keys, mut etcd, at) = (Keys::new("main"), Etcd::default(), Time(MS));
    let mut init = Init::new(&keys, RULES, "c", 1, at);
    let Due::Send(call) = init.due(at) else {
        panic!("it is due")
    };
    init.answered(etcd.answer(&call.request, 0), at);
    let take = |etcd: &mut Etcd, run: &str| {
        let own = Own {
            incarnation: run.into(),
            orphan_ms: ORPHAN_MS,
            ..Own::default()
        };
        let mut standby = Standby::new(keys.clone(), RULES, own, Memory::default(), true);
        for ms in 0..9_000 {
            if let Due::Send(call) = standby.due(Time(ms * MS))
                && let answer = etcd.answer(&call.request, 0)
                && let Some(taken) = standby.answered(call.number, answer, Time(ms * MS))
            {
                return (taken.at, Primary::new(keys.clone(), RULES, taken));
            }
        }
        panic!("it takes over");
    };
    let backup = (etcd.revision, Rc::clone(&etcd.pairs));
    let (now, mut before) = take(&mut etcd, "before");
    etcd.become_that_of(backup.0, backup.1);
    take(&mut etcd, "after");
    before.ask(Vec::new());
    let Due::Send(call) = before.due(now) else {
        panic!("it is due")
    };
    before.answered(call.number, etcd.answer(&call.request, 0), now);
    assert!(matches!(before.due(now), Due::Over(Over::Deposed(_))));
}
