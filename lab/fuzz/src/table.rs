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

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let mut table: Table = Table::new(Limits::default(), HashKey(1, 2), 1);
    let mut outputs = Vec::new();
    let mut now = Time(0);
    table.step(Tokens(u64::MAX), now, &mut outputs);
    let mut open = || table.step(Open, now, &mut outputs);
    let clients: Vec<ClientId> = (0..8).map(|_| open().expect("room for it")).collect();
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
        outputs.clear();
        // What became of a request for locks: the outcome, or in how many lines the client
        // waits, and whether in the name of the session.
        let (mut outcome, mut queued) = (None, None);
        let mut leaves = false;
        let out = &mut outputs;
        match step[0] & 7 {
            _ if closed[who] => table.step(Tick, now, out),
            0 if step[2] == 255 => {
                let ttl_ms = 1 << (step[3] & 0xf);
                if table.step(OpenSession { key, ttl_ms }, now, out).is_ok() {
                    assert!(now.0 >= session_end, "it is open");
                    (session_ms, session_end) = (ttl_ms, now.0 + ttl_ms * 1_000_000);
                }
            }
            1 if step[2] == 255 => {
                let renewed = table.step(RenewSession(key), now, out);
                assert_eq!(renewed, now.0 < session_end);
                if renewed {
                    session_end = now.0 + session_ms * 1_000_000;
                }
            }
            2 if step[2] == 255 => {
                let closed = table.step(CloseSession(key), now, out);
                assert_eq!(closed, now.0 < session_end);
                session_end = 0;
            }
            0..=2 if waits[who] == 0 => {
                let session = (step[3] & 1 != 0).then_some(&key);
                let request = LockRequest {
                    client,
                    name,
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
                outcome = table.step(request, now, out);
                queued = outcome.is_none().then_some((1, session.is_some()));
            }
            7 if waits[who] == 0 => {
                let request = LockAllRequest {
                    client,
                    names: &several,
                    ttl_ms: ms(step[2]),
                    wait_ms: ms(step[2] >> 4),
                };
                outcome = table.step(request, now, out);
                queued = outcome.is_none().then_some((count, false));
            }
            it @ (3 | 4) if it == 4 || waits[who] == 0 => {
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
            6 if step[2] == 1 => {
                table.step(Close(client), now, out);
                (closed[who], leaves) = (true, true);
            }
            6 if step[2] == 2 => {
                table.step(Cancel(client), now, out);
                leaves = true;
            }
            _ => table.step(Tick, now, out),
        }
        let mut granted: Vec<u64> = Vec::new();
        let mut got = |outcome| match outcome {
            Outcome::Granted(token) => granted.push(token),
            Outcome::GrantedAll { first, count } => {
                granted.extend(first..first + u64::from(count));
            }
            _ => {}
        };
        for output in &outputs {
            let at = clients.iter().position(|client| *client == output.client);
            let at = at.expect("one of ours");
            waits[at] = 0;
            let named = std::mem::take(&mut in_session[at]);
            assert!(
                named || output.outcome != Outcome::NoSession,
                "it waited for itself"
            );
            got(output.outcome);
        }
        outcome.into_iter().for_each(got);
        if leaves {
            queued = Some((0, false));
        }
        if let Some(lines) = queued {
            (waits[who], in_session[who]) = lines;
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
