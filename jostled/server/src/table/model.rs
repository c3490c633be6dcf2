//! Plays the same acts on the table and on a naive model; both must give the same answers.

mod naive;

use super::*;
use naive::{Naive, Notice, Notices};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An act of a test case, with small numbers so that acts meet.
#[derive(Clone, Debug)]
enum Act {
    Lock {
        who: usize,
        name: usize,
        ttl: Option<u64>,
        wait: Option<u64>,
        mode: Mode,
        /// One of the latest.
        session: Option<usize>,
    },
    OpenSession {
        ttl: u64,
    },
    RenewSession {
        session: usize,
    },
    CloseSession {
        session: usize,
    },
    LockAll {
        who: usize,
        /// In this order.
        names: Vec<usize>,
        ttl: Option<u64>,
        wait: Option<u64>,
        shared: bool,
        /// One of the latest.
        session: Option<usize>,
    },
    Unlock {
        who: usize,
        name: usize,
        token: Option<usize>,
    },
    Renew {
        name: usize,
        token: usize,
        ttl: u64,
    },
    Force {
        name: usize,
    },
    Cancel {
        who: usize,
    },
    CancelAll,
    Close {
        who: usize,
    },
    Pass {
        ns: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let (who, name) = (0..6usize, 0..4usize);
    let session = 0..3usize;
    let ms = prop_oneof![1..5u64, 60..70u64, Just(4096), Just(300_000)];
    let ttl = prop_oneof![Just(None), ms.clone().prop_map(Some)];
    let wait = prop_oneof![Just(None), Just(Some(0)), ms.clone().prop_map(Some)];
    let all = (0..NAMES.len()).collect::<Vec<_>>();
    let several = (Just(all).prop_shuffle(), 1..4usize).prop_map(|(mut names, count)| {
        names.truncate(count);
        names
    });
    prop_oneof![
        4 => (
            who.clone(), several, ttl.clone(), wait.clone(), 0..3u8,
            proptest::option::of(session.clone()),
        ).prop_map(
            |(who, names, ttl, wait, dice, session)| {
                let ttl = ttl.filter(|_| session.is_none());
                Act::LockAll { who, names, ttl, wait, shared: dice == 0, session }
            }),
        8 => (who.clone(), name.clone(), ttl, wait.clone(), 0..20u8).prop_map(
            |(who, name, ttl, wait, dice)| {
                Act::Lock { who, name, ttl, wait, mode: mode(name, dice), session: None }
            }),
        // Mostly one session, so that several wait in its name for one lock.
        8 => (
            who.clone(), name.clone(), wait, 0..20u8,
            prop_oneof![3 => Just(0), 1 => session.clone()],
        ).prop_map(
            |(who, name, wait, dice, session)| {
                let (mode, session) = (mode(name, dice), Some(session));
                Act::Lock { who, name, ttl: None, wait, mode, session }
            }),
        2 => prop_oneof![1..4u64, ms.clone()].prop_map(|ttl| Act::OpenSession { ttl }),
        2 => session.clone().prop_map(|session| Act::RenewSession { session }),
        1 => session.prop_map(|session| Act::CloseSession { session }),
        5 => (who.clone(), name.clone(), proptest::option::of(0..8usize)).prop_map(
            |(who, name, token)| Act::Unlock { who, name, token }),
        2 => (name.clone(), 0..4usize, ms.clone()).prop_map(
            |(name, token, ttl)| Act::Renew { name, token, ttl }),
        1 => name.prop_map(|name| Act::Force { name }),
        1 => prop_oneof![
            3 => who.clone().prop_map(|who| Act::Cancel { who }),
            1 => Just(Act::CancelAll),
        ],
        2 => who.prop_map(|who| Act::Close { who }),
        6 => prop_oneof![
            ms.prop_map(|ms| ms * 1_000_000),
            0..3_000_000u64,
        ].prop_map(|ns| Act::Pass { ns }),
    ]
}

/// One of the names is mostly a semaphore, the others are mostly not.
fn mode(name: usize, dice: u8) -> Mode {
    match (name, dice) {
        (2, 0..16) | (_, 0) => Mode::Place { of: 2 },
        (2, 16..18) => Mode::Place { of: 3 },
        (_, 0..10) => Mode::Shared,
        _ => Mode::Exclusive,
    }
}

/// The table and the model, side by side.
struct Pair {
    table: Table,
    naive: Naive,
    people: Vec<ClientId>,
    tokens: Vec<u64>,
    /// Sessions that were opened; their ids are their places, from 1 on.
    sessions: u128,
    now: Time,
    /// The holds by the journal.
    replayed: BTreeMap<u64, (ClientId, Vec<u8>)>,
}

/// The messages of one step to clients.
#[derive(Default)]
struct Heard {
    /// By the model, and by the table.
    told: Notices,
    seen: Notices,
    granted: Vec<(ClientId, u64)>,
    /// Tokens told again to those who have them.
    again: Vec<u64>,
}

const NAMES: [&[u8]; 4] = [
    b"a",
    b"b",
    b"a name of exactly 24 byt",
    b"a name that is too long to stand within its lock, and even needs two blocks of its own",
];

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            table: Table::new(Limits::default(), HashKey(3, 4), 1),
            naive: Naive::default(),
            people: Vec::new(),
            tokens: vec![0],
            sessions: 0,
            now: Time(0),
            replayed: BTreeMap::new(),
        };
        pair.table.keep_journal(true);
        pair.table.step(Tokens(u64::MAX), Time(0), &mut Vec::new());
        pair.people = (0..6).map(|_| pair.open()).collect();
        pair
    }

    fn open(&mut self) -> ClientId {
        let opened = self.table.step(Open, self.now, &mut Vec::new());
        opened.unwrap()
    }

    /// One of the latest tokens; they are the interesting ones.
    fn token(&self, back: usize) -> u64 {
        self.tokens[self.tokens.len().saturating_sub(back + 1)]
    }

    /// One of the latest sessions.
    fn session(&self, back: usize) -> SessionKey {
        SessionKey {
            user: 0,
            id: self.sessions.saturating_sub(back as u128),
        }
    }

    fn play(&mut self, act: &Act) -> Result<(), TestCaseError> {
        let now = self.now;
        match *act {
            Act::OpenSession { ttl } => {
                self.sessions += 1;
                let (key, ttl_ms) = (self.session(0), ttl);
                let text = "";
                self.both(OpenSession { key, ttl_ms, text }, |naive, _| {
                    naive.sessions.insert(key.id, (ttl, now.after_ms(ttl)));
                    Ok(())
                })
            }
            Act::RenewSession { session } => {
                let key = self.session(session);
                let renew = |naive: &mut Naive, _: &mut Notices| naive.renew_session(key.id, now);
                self.both(RenewSession(key), renew)
            }
            Act::CloseSession { session } => {
                let key = self.session(session);
                self.both(CloseSession(key), |naive, told| {
                    naive.close_session(key.id, told)
                })
            }
            // The server holds such commands back; here time passes, so that the wait may
            // end.
            Act::LockAll { who, .. } | Act::Lock { who, .. }
                if self.naive.is_waiting(self.people[who]) =>
            {
                self.pass()
            }
            Act::LockAll {
                who,
                ref names,
                ttl,
                wait,
                shared,
                session,
            } => {
                let key = session.map(|back| self.session(back));
                let names: Vec<&[u8]> = names.iter().map(|name| NAMES[*name]).collect();
                let request = LockAllRequest {
                    client: self.people[who],
                    names: &names,
                    ttl_ms: ttl,
                    wait_ms: wait,
                    shared,
                    session: key.as_ref(),
                };
                self.both_grant(request, request.client, |naive| {
                    naive.lock_all(request, now)
                })
            }
            Act::Pass { ns } => {
                self.now.0 += ns;
                self.pass()
            }
            Act::Lock {
                who,
                name,
                ttl,
                wait,
                mode,
                session,
            } => {
                let key = session.map(|back| self.session(back));
                let request = LockRequest {
                    client: self.people[who],
                    name: NAMES[name],
                    ttl_ms: ttl,
                    wait_ms: wait,
                    mode,
                    session: key.as_ref(),
                };
                self.both_grant(request, request.client, |naive| naive.lock(request, now))
            }
            Act::Unlock { who, name, token } => {
                let token = token.map(|back| self.token(back));
                let (client, name) = (self.people[who], NAMES[name]);
                let unlock = Unlock {
                    client,
                    name,
                    token,
                };
                self.both(unlock, |naive, _| naive.unlock(client, name, token))
            }
            Act::Renew { name, token, ttl } => {
                let (name, token) = (NAMES[name], self.token(token));
                let renew = Renew {
                    name,
                    token,
                    ttl_ms: ttl,
                };
                self.both(renew, |naive, _| {
                    naive.renew(name, token, now.after_ms(ttl))
                })
            }
            Act::Force { name } => {
                let name = NAMES[name];
                self.both(Force(name), |naive, _| naive.force(name))
            }
            Act::Cancel { who } => {
                let client = self.people[who];
                self.both(Cancel(client), |naive, _| naive.leave(client, false))
            }
            Act::CancelAll => self.both(CancelAll, |naive, _| {
                naive.locks.values_mut().for_each(|lock| lock.waits.clear());
            }),
            Act::Close { who } => {
                let client = self.people[who];
                self.people[who] = self.open();
                self.both(Close(client), |naive, _| naive.leave(client, true))
            }
        }
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.both(Tick, |_, _| ())
    }

    /// An event that grants its own client nothing.
    fn both<E: Event<Reply: PartialEq + std::fmt::Debug>>(
        &mut self,
        event: E,
        naive: impl FnOnce(&mut Naive, &mut Notices) -> E::Reply,
    ) -> Result<(), TestCaseError> {
        let (found, expected, heard) = self.step(event, naive);
        prop_assert_eq!(found, expected);
        self.agrees(heard)
    }

    /// A request for locks.
    fn both_grant<E: Event<Reply = Option<Outcome>>>(
        &mut self,
        event: E,
        client: ClientId,
        naive: impl FnOnce(&mut Naive) -> Option<Outcome>,
    ) -> Result<(), TestCaseError> {
        let (found, mut expected, mut heard) = self.step(event, |it, _| naive(it));
        // The model has no token yet for what was granted in this very step.
        match (found, &mut expected) {
            (Some(Outcome::Granted(token)), Some(Outcome::Granted(named))) => {
                *named = token;
                heard.granted.push((client, token));
            }
            (
                Some(Outcome::GrantedAll { first, count }),
                Some(Outcome::GrantedAll { first: named, .. }),
            ) => {
                *named = first;
                let tokens = first..first + u64::from(count);
                heard.granted.extend(tokens.map(|token| (client, token)));
            }
            (
                Some(Outcome::AlreadyHeld { token, .. }),
                Some(Outcome::AlreadyHeld {
                    token: named @ 0, ..
                }),
            ) => {
                *named = token;
                heard.again.push(token);
            }
            _ => {}
        }
        prop_assert_eq!(found, expected);
        self.agrees(heard)
    }

    /// One step of both: the replies, and what others are told.
    fn step<E: Event>(
        &mut self,
        event: E,
        naive: impl FnOnce(&mut Naive, &mut Notices) -> E::Reply,
    ) -> (E::Reply, E::Reply, Heard) {
        let (mut heard, mut outputs) = (Heard::default(), Vec::new());
        self.naive.advance(self.now, &mut heard.told);
        let expected = naive(&mut self.naive, &mut heard.told);
        self.naive.serve(self.now, &mut heard.told);
        let found = self.table.step(event, self.now, &mut outputs);
        for output in outputs {
            let client = output.client;
            let seen = match output.outcome {
                Outcome::Granted(token) => {
                    heard.granted.push((client, token));
                    Notice::Granted
                }
                Outcome::GrantedAll { first, count } => {
                    let tokens = first..first + u64::from(count);
                    heard.granted.extend(tokens.map(|token| (client, token)));
                    Notice::Granted
                }
                Outcome::AlreadyHeld { token, .. } => {
                    heard.again.push(token);
                    Notice::AlreadyHeld
                }
                Outcome::TimedOut => Notice::TimedOut,
                Outcome::NoSession => Notice::NoSession,
                Outcome::Refused(refusal) => panic!("{refusal:?}"),
            };
            heard.seen.push((client, seen));
        }
        (found, expected, heard)
    }

    /// A step told clients exactly what it had to, and the table then shows what the model has.
    fn agrees(&mut self, heard: Heard) -> Result<(), TestCaseError> {
        let Heard {
            mut told,
            mut seen,
            granted,
            again,
        } = heard;
        // Locks are independent: outputs of one step for different locks may come in any order.
        seen.sort();
        told.sort();
        prop_assert_eq!(seen, told);
        for &(client, token) in &granted {
            prop_assert!(
                token > self.token(0),
                "token {} after {}",
                token,
                self.token(0)
            );
            self.tokens.push(token);
            self.naive.name_token(client, token);
        }
        for token in again {
            let mut holds = self.naive.locks.values().flat_map(|lock| &lock.holds);
            let held = holds.any(|hold| hold.token == token && hold.deadline.is_none());
            // A session that got it in this very step may have ended in it, too.
            let was = granted.iter().any(|&(_, granted)| granted == token);
            prop_assert!(held || was, "token {} is said to be held", token);
        }
        self.replay()?;
        self.same_view()
    }

    /// Holds that have begun and not ended in the journal are those that the table shows.
    fn replay(&mut self) -> Result<(), TestCaseError> {
        for record in self.table.take_records() {
            let hold = (record.client, record.name.clone());
            let before = match record.change {
                Change::Begun { .. } => self.replayed.insert(record.token, hold),
                Change::Ended(_) => {
                    let begun = self.replayed.remove(&record.token);
                    prop_assert_eq!(begun, Some(hold), "{:?}", record);
                    None
                }
                // The simulator replays them, too.
                Change::Renewed { .. }
                | Change::Opened { .. }
                | Change::Closed
                | Change::Together { .. } => None,
            };
            prop_assert_eq!(before, None, "{:?}", record);
        }
        let mut held = BTreeMap::new();
        for name in NAMES {
            let holders = self.table.holders(name);
            held.extend(holders.map(|found| (found.token, (found.client, name.to_vec()))));
        }
        prop_assert_eq!(&self.replayed, &held);
        Ok(())
    }

    /// The administrator's view of the table agrees with the model.
    fn same_view(&self) -> Result<(), TestCaseError> {
        let held = self.naive.locks.len() as u64;
        prop_assert_eq!(self.table.names_held(), held);
        for name in NAMES {
            let lock = self.naive.locks.get(name);
            let holders = lock.map_or(vec![], |lock| {
                lock.holds
                    .iter()
                    .map(|hold| (hold.token, hold.deadline.map(Time)))
                    .collect()
            });
            let found: Vec<_> = self
                .table
                .holders(name)
                .map(|holder| (holder.token, holder.expires))
                .collect();
            prop_assert_eq!(found, holders);
            let waiters = lock.map_or(vec![], |lock| {
                lock.waits
                    .iter()
                    .map(|wait| (wait.client, wait.ttl_ms, wait.deadline.map(Time)))
                    .collect()
            });
            let found: Vec<_> = self
                .table
                .waiters(name)
                .map(|waiter| (waiter.client, waiter.ttl_ms, waiter.until))
                .collect();
            prop_assert_eq!(found, waiters);
        }
        Ok(())
    }
}

fn agree(acts: &[Act]) -> Result<(), TestCaseError> {
    let mut pair = Pair::new();
    acts.iter().try_for_each(|act| pair.play(act))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_table_does_what_the_naive_model_does(
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        agree(&acts)?;
    }
}

/// One step in which a session gets a lock for two who wait for it in its name, and ends.
#[test]
fn who_asked_again_is_told_a_token_though_the_session_ends_in_the_same_step() {
    let lock = |who, ttl, wait, mode, session| Act::Lock {
        who,
        name: 1,
        ttl,
        wait,
        mode,
        session,
    };
    let acts = [
        lock(0, Some(2), None, Mode::Shared, None),
        Act::OpenSession { ttl: 60 },
        lock(0, Some(1), Some(60), Mode::Exclusive, None),
        lock(1, None, None, Mode::Shared, Some(0)),
        lock(2, None, None, Mode::Shared, Some(0)),
        Act::Pass { ns: 2_000_000 },
        Act::Pass { ns: 60_000_000 },
    ];
    agree(&acts).unwrap();
}

/// A session gets a place at the very instant at which another wait in its name ends: that
/// wait has ended, and is told no token.
#[test]
fn a_wait_that_ends_when_its_session_gets_the_lock_has_ended() {
    let lock = |who, ttl, wait, session| Act::Lock {
        who,
        name: 2,
        ttl,
        wait,
        mode: Mode::Place { of: 2 },
        session,
    };
    let acts = [
        lock(2, None, None, None),
        Act::OpenSession { ttl: 2 },
        lock(0, Some(1), None, None),
        lock(0, None, None, Some(0)),
        lock(1, None, Some(1), Some(0)),
        Act::Pass { ns: 1_000_000 },
    ];
    agree(&acts).unwrap();
}
