//! The lock table, through its public face. Oracles: what it tells of holders
//! after each step has no two incompatible ones; tokens grow; nobody waits for
//! a free lock, unless somebody waits for several; its totals agree with its
//! lists; nobody waits in the name of a session that is over.
use jostle_lockd::table::*;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"exactly twenty-four byte", &[b'n'; 100]];

/// In how many lines each client waits.
fn agrees(table: &Table, waits: &[usize]) {
    let mut holds = 0;
    let mut queued = 0;
    for name in NAMES {
        let holders: Vec<_> = table.holders(name).collect();
        let shared = holders.iter().all(|holder| holder.mode == Mode::Shared);
        let places = holders.first().map_or(1, |holder| holder.mode.places());
        let same = holders.iter().all(|holder| holder.mode.places() == places);
        assert!(
            same && (holders.len() <= usize::from(places) || shared),
            "{holders:?}"
        );
        let waiters = table.waiters(name).count();
        let several = waits.iter().any(|lines| *lines > 1);
        let blocked = !holders.is_empty() || several;
        assert!(waiters == 0 || blocked, "somebody waits for a free lock");
        holds += holders.len();
        queued += waiters;
    }
    assert_eq!(table.holds(), holds as u64);
    assert_eq!(table.waiting(), queued as u64);
    assert_eq!(queued, waits.iter().sum::<usize>());
}

/// What is known of the table from outside.
struct Seen {
    clients: Vec<ClientId>,
    closed: [bool; 8],
    /// In how many lines each waits, and whether in the name of the session.
    waits: [usize; 8],
    in_session: [bool; 8],
    /// When the session ends, and what was asked for it.
    session_end: u64,
    session_ms: u64,
    /// The latest token.
    last: u64,
}

/// What became of a step: the outcome of a request for locks, or in how many lines the client
/// waits from now on, and whether in the name of the session.
#[derive(Default)]
struct Asked {
    outcome: Option<Outcome>,
    queued: Option<(usize, bool)>,
}

const KEY: SessionKey = SessionKey { user: 0, id: 1 };

impl Seen {
    /// One step: who acts, and what, by four bytes.
    fn act(&mut self, table: &mut Table, step: &[u8], now: Time, out: &mut Vec<Output>) -> Asked {
        let who = usize::from(step[0] >> 4 & 7);
        let (client, name) = (self.clients[who], NAMES[usize::from(step[1] & 3)]);
        let token = u64::from(step[2]);
        match step[0] & 7 {
            _ if self.closed[who] => table.step(Tick, now, out),
            what @ 0..=2 if step[2] == 255 => self.session(table, what, step, now, out),
            0..=2 | 7 if self.waits[who] == 0 => return lock(table, client, step, now, out),
            it @ (3 | 4) if it == 4 || self.waits[who] == 0 => {
                let token = (it == 4).then_some(token);
                let unlock = Unlock {
                    client,
                    name,
                    token,
                };
                let _ = table.step(unlock, now, out);
            }
            5 => {
                let ttl_ms = 1 + token;
                let renew = Renew {
                    name,
                    token,
                    ttl_ms,
                };
                let _ = table.step(renew, now, out);
            }
            6 if step[2] == 0 => drop(table.step(Force(name), now, out)),
            6 if step[2] <= 2 => {
                match step[2] {
                    1 => table.step(Close(client), now, out),
                    _ => table.step(Cancel(client), now, out),
                }
                self.closed[who] = step[2] == 1;
                return Asked {
                    queued: Some((0, false)),
                    ..Asked::default()
                };
            }
            _ => table.step(Tick, now, out),
        }
        Asked::default()
    }

    /// Opens, renews or closes the session.
    fn session(
        &mut self,
        table: &mut Table,
        what: u8,
        step: &[u8],
        now: Time,
        out: &mut Vec<Output>,
    ) {
        let is_open = now.0 < self.session_end;
        match what {
            0 => {
                let ttl_ms = 1 << (step[3] & 0xf);
                let open = OpenSession {
                    key: KEY,
                    ttl_ms,
                    text: "fuzz",
                };
                if table.step(open, now, out).is_ok() {
                    assert!(!is_open, "it is open");
                    (self.session_ms, self.session_end) = (ttl_ms, now.0 + ttl_ms * 1_000_000);
                }
            }
            1 => {
                let renewed = table.step(RenewSession(KEY), now, out);
                assert_eq!(renewed, is_open);
                if renewed {
                    self.session_end = now.0 + self.session_ms * 1_000_000;
                }
            }
            _ => {
                assert_eq!(table.step(CloseSession(KEY), now, out), is_open);
                self.session_end = 0;
            }
        }
    }

    /// Takes in what a step of this client came to, and what the table said to others.
    fn hear(&mut self, who: usize, asked: Asked, outputs: &[Output]) {
        let mut granted: Vec<u64> = Vec::new();
        let mut got = |outcome| match outcome {
            Outcome::Granted(token) => granted.push(token),
            Outcome::GrantedAll { first, count } => {
                granted.extend(first..first + u64::from(count));
            }
            _ => {}
        };
        for output in outputs {
            let mut clients = self.clients.iter();
            let at = clients.position(|client| *client == output.client);
            let at = at.expect("one of ours");
            self.waits[at] = 0;
            let named = std::mem::take(&mut self.in_session[at]);
            assert!(
                named || output.outcome != Outcome::NoSession,
                "it waited for itself"
            );
            got(output.outcome);
        }
        asked.outcome.into_iter().for_each(got);
        if let Some(lines) = asked.queued {
            (self.waits[who], self.in_session[who]) = lines;
        }
        for token in granted {
            assert!(token > self.last, "token {token} after {}", self.last);
            self.last = token;
        }
    }
}

/// Asks for one lock, or for several.
fn lock(
    table: &mut Table,
    client: ClientId,
    step: &[u8],
    now: Time,
    out: &mut Vec<Output>,
) -> Asked {
    let ms = |bits: u8| (bits & 3 != 0).then_some(1 << (bits & 0xf));
    let from = usize::from(step[1] & 3);
    if step[0] & 7 == 7 {
        let count = 1 + usize::from(step[3] & 3);
        let names: Vec<&[u8]> = (0..count).map(|n| NAMES[(from + n) % 4]).collect();
        let session = (step[3] & 4 != 0).then_some(&KEY);
        let request = LockAllRequest {
            client,
            names: &names,
            ttl_ms: ms(step[2]).filter(|_| session.is_none()),
            wait_ms: ms(step[2] >> 4),
            shared: step[1] & 4 != 0,
            session,
        };
        let outcome = table.step(request, now, out);
        let queued = outcome.is_none().then_some((count, session.is_some()));
        return Asked { outcome, queued };
    }
    let session = (step[3] & 1 != 0).then_some(&KEY);
    let request = LockRequest {
        client,
        name: NAMES[from],
        ttl_ms: ms(step[2]).filter(|_| session.is_none()),
        wait_ms: ms(step[2] >> 4),
        session,
        mode: match (step[1] & 4, step[0] & 8) {
            (0, _) => Mode::Exclusive,
            (_, 0) => Mode::Shared,
            _ => Mode::Place {
                of: 2 + u16::from(step[0] >> 7),
            },
        },
    };
    let outcome = table.step(request, now, out);
    let queued = outcome.is_none().then_some((1, session.is_some()));
    Asked { outcome, queued }
}

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let mut table: Table = Table::new(Limits::default(), HashKey(1, 2), 1);
    let mut outputs = Vec::new();
    let mut now = Time(0);
    table.step(Tokens(u64::MAX), now, &mut outputs);
    let mut open = || table.step(Open, now, &mut outputs);
    let mut seen = Seen {
        clients: (0..8).map(|_| open().expect("room for it")).collect(),
        closed: [false; 8],
        waits: [0; 8],
        in_session: [false; 8],
        session_end: 0,
        session_ms: 0,
        last: 0,
    };
    for step in bytes.chunks_exact(4) {
        now.0 += u64::from(step[3]) << (step[1] >> 3);
        outputs.clear();
        let asked = seen.act(&mut table, step, now, &mut outputs);
        seen.hear(usize::from(step[0] >> 4 & 7), asked, &outputs);
        if now.0 >= seen.session_end {
            assert!(
                !seen.in_session.contains(&true),
                "somebody waits for a session that is over"
            );
        }
        agrees(&table, &seen.waits);
    }
    seen.last > 0
}
