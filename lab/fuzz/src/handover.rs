//! The state of a lock table as another program hands it over, in any bytes.
//!
//! Oracles: nothing panics; a table that was made says the same of itself as the bytes
//! did; when all clients leave and all time has passed, nobody waits and nothing is held.

use jostle_lockd::table::{Close, Limits, Table, TableImage, Tick, Time};

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let limits = Limits {
        memory_bytes: 1 << 22,
        ..Limits::default()
    };
    let Ok(image) = postcard::from_bytes::<TableImage>(bytes) else {
        return false;
    };
    let Ok(mut table) = Table::from_image(&image, limits) else {
        return false;
    };
    assert_eq!(table.image(image.at()), image);
    let mut outputs = Vec::new();
    for client in image.connections() {
        table.step(Close(client), image.at(), &mut outputs);
    }
    // The last instant at which anything can end.
    let end = Time(u64::MAX - 1);
    table.step(Tick, end, &mut outputs);
    while table.next_tick().is_some_and(|tick| tick <= end) {
        table.step(Tick, end, &mut outputs);
    }
    assert_eq!((table.waiting(), table.holds(), table.clients()), (0, 0, 0));
    true
}

#[cfg(test)]
mod tests {
    use jostle_lockd::table::*;

    #[test]
    fn the_seed_is_the_state_of_a_busy_table() {
        let mut table: Table = Table::new(Limits::default(), HashKey(1, 2), 1);
        let mut outputs = Vec::new();
        let now = Time(1_000_000);
        table.step(Tokens(u64::MAX), now, &mut outputs);
        let clients: Vec<ClientId> = (0..4)
            .map(|_| table.step(Open, now, &mut outputs).unwrap())
            .collect();
        let key = SessionKey { user: 0, id: 1 };
        let open = OpenSession {
            key,
            ttl_ms: 60_000,
            text: "me@host",
        };
        table.step(open, now, &mut outputs).unwrap();
        let lock = |client, name: &'static [u8], ttl_ms, session, mode| LockRequest {
            client,
            name,
            ttl_ms,
            wait_ms: Some(5_000),
            session,
            mode,
        };
        table.step(
            lock(clients[0], b"a", None, None, Mode::Exclusive),
            now,
            &mut outputs,
        );
        table.step(
            lock(clients[1], b"b", Some(9_000), None, Mode::Exclusive),
            now,
            &mut outputs,
        );
        table.step(
            lock(
                clients[1],
                b"exactly twenty-four byte",
                None,
                Some(&key),
                Mode::Shared,
            ),
            now,
            &mut outputs,
        );
        table.step(
            lock(
                clients[2],
                b"exactly twenty-four byte",
                None,
                None,
                Mode::Shared,
            ),
            now,
            &mut outputs,
        );
        table.step(
            lock(clients[2], b"places", None, None, Mode::Place { of: 2 }),
            now,
            &mut outputs,
        );
        table.step(
            lock(clients[2], b"a", None, None, Mode::Exclusive),
            now,
            &mut outputs,
        );
        table.step(
            LockAllRequest {
                client: clients[3],
                names: &[b"a", b"b", b"c"],
                ttl_ms: None,
                wait_ms: None,
                shared: false,
                session: Some(&key),
            },
            now,
            &mut outputs,
        );
        let bytes = postcard::to_allocvec(&table.image(now)).unwrap();
        assert!(super::check(&bytes));
        // Written anew from these bytes whenever the format of the state changes.
        assert_eq!(bytes, include_bytes!("../corpus/handover/seed-busy"));
    }
}
