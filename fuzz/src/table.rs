//! The lock table, through its public face. Oracles: what it tells of holders
//! after each step has no two incompatible ones; tokens grow; nobody waits for
//! a free lock, unless somebody waits for several; its totals agree with its
//! lists; nobody waits in the name of a session that is over.
use jostle_lockd::table::{
    ClientId, Event, HashKey, Limits, LockAllRequest, LockRequest, Mode, Outcome, Reply,
    SessionKey, Table, Time,
};

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

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let mut table: Table = Table::new(Limits::default(), HashKey(1, 2), 1);
    let mut outputs = Vec::new();
    let mut now = Time(0);
    table.step(Event::Tokens { end: u64::MAX }, now, &mut outputs);
    let mut open = || match table.step(Event::Open, now, &mut outputs) {
        Reply::Opened(client) => client,
        other => panic!("{other:?}"),
    };
    let clients: Vec<ClientId> = (0..8).map(|_| open()).collect();
    let mut closed = [false; 8];
    let mut waits = [0; 8];
    let mut last = 0;
    // When the session ends, as far as it is known from outside, and who waits in
    // its name.
    let key = SessionKey { user: 0, id: 1 };
    let (mut session_end, mut session_ms) = (0, 0);
    let mut in_session = [false; 8];
    for step in bytes.chunks_exact(4) {
        let who = usize::from(step[0] >> 4 & 7);
        let (client, name) = (clients[who], NAMES[usize::from(step[1] & 3)]);
        now.0 += u64::from(step[3]) << (step[1] >> 3);
        let token = u64::from(step[2]);
        let ms = |bits: u8| (bits & 3 != 0).then_some(1 << (bits & 0xf));
        let (from, count) = (usize::from(step[1] & 3), 1 + usize::from(step[3] & 3));
        let several: Vec<&[u8]> = (0..count).map(|n| NAMES[(from + n) % 4]).collect();
        let event = match step[0] & 7 {
            _ if closed[who] => Event::Tick,
            0 if step[2] == 255 => {
                let ttl_ms = 1 << (step[3] & 0xf);
                Event::OpenSession { key, ttl_ms }
            }
            1 if step[2] == 255 => Event::RenewSession { key },
            2 if step[2] == 255 => Event::CloseSession { key },
            0..=2 if waits[who] == 0 => Event::Lock(LockRequest {
                client,
                name,
                ttl_ms: ms(step[2]).filter(|_| step[3] & 1 == 0),
                wait_ms: ms(step[2] >> 4),
                session: (step[3] & 1 != 0).then_some(&key),
                mode: match (step[1] & 4, step[0] & 8) {
                    (0, _) => Mode::Exclusive,
                    (_, 0) => Mode::Shared,
                    _ => Mode::Place {
                        of: 2 + u16::from(step[0] >> 7),
                    },
                },
            }),
            7 if waits[who] == 0 => Event::LockAll(LockAllRequest {
                client,
                names: &several,
                ttl_ms: ms(step[2]),
                wait_ms: ms(step[2] >> 4),
            }),
            3 if waits[who] == 0 => Event::Unlock {
                client,
                name,
                token: None,
            },
            4 => Event::Unlock {
                client,
                name,
                token: Some(token),
            },
            5 => Event::Renew {
                name,
                token,
                ttl_ms: 1 + token,
            },
            6 if step[2] == 0 => Event::Force { name },
            6 if step[2] == 1 => Event::Close { client },
            6 if step[2] == 2 => Event::Cancel { client },
            _ => Event::Tick,
        };
        outputs.clear();
        let reply = table.step(event, now, &mut outputs);
        let mut granted: Vec<u64> = Vec::new();
        for output in &outputs {
            let at = clients.iter().position(|client| *client == output.client);
            let at = at.expect("one of ours");
            waits[at] = 0;
            let named = std::mem::take(&mut in_session[at]);
            match output.outcome {
                Outcome::NoSession => assert!(named, "it waited for itself"),
                Outcome::Granted { token, .. } => granted.push(token),
                Outcome::GrantedAll { first, count, .. } => {
                    granted.extend(first..first + u64::from(count));
                }
                _ => {}
            }
        }
        match (event, reply) {
            (Event::Lock(request), Reply::Queued) => {
                waits[who] = 1;
                in_session[who] = request.session.is_some();
            }
            (Event::OpenSession { ttl_ms, .. }, Reply::Done) => {
                assert!(now.0 >= session_end, "it is open");
                (session_ms, session_end) = (ttl_ms, now.0 + ttl_ms * 1_000_000);
            }
            (Event::RenewSession { .. }, Reply::Renewed) => {
                assert!(now.0 < session_end, "it is over");
                session_end = now.0 + session_ms * 1_000_000;
            }
            (Event::RenewSession { .. } | Event::CloseSession { .. }, Reply::NoSession) => {
                assert!(now.0 >= session_end, "it is open");
            }
            (Event::CloseSession { .. }, _) => session_end = 0,
            (Event::LockAll(_), Reply::Queued) => waits[who] = count,
            (_, Reply::GrantedAll { first, count }) => {
                granted.extend(first..first + u64::from(count));
            }
            (_, Reply::Granted(token)) => granted.push(token),
            (Event::Close { .. }, _) => {
                closed[who] = true;
                waits[who] = 0;
                in_session[who] = false;
            }
            (Event::Cancel { .. }, _) => {
                waits[who] = 0;
                in_session[who] = false;
            }
            _ => {}
        }
        for token in granted {
            assert!(token > last, "token {token} after {last}");
            last = token;
        }
        if now.0 >= session_end {
            assert!(
                !in_session.contains(&true),
                "somebody waits for a session that is over"
            );
        }
        agrees(&table, &waits);
    }
    last > 0
}
