//! A start's treatment of a store's content.

use super::*;
use crate::store::{Entry, Hold, Owner, Session, Stored};

fn session(id: u128) -> Session {
    let user = "app".to_owned();
    Session { user, id }
}

fn begun(token: u64, name: &str, mode: Mode, owner: Owner) -> Entry {
    let name = name.as_bytes().to_vec();
    Entry::Begun(token, Hold { name, mode, owner })
}

fn connection(number: u64) -> Owner {
    let user = "app".to_owned();
    Owner::Connection { number, user }
}

fn lease(ttl_ms: u64) -> Owner {
    let user = "app".to_owned();
    Owner::Lease { ttl_ms, user }
}

fn adopt(entries: &[Entry], first: u64, now: Time) -> Result<Table, BadImage> {
    let mut stored = Stored::default();
    for entry in entries {
        stored.apply(entry);
    }
    // Nothing is granted under this bound, and what was granted stays.
    let limits = Limits {
        memory_bytes: 0,
        ..Limits::default()
    };
    let number = |user: &str| u16::from(user == "app");
    Table::adopt(&stored, limits, first, 0, number, now)
}

#[test]
fn leases_and_sessions_get_their_whole_ttl_again_and_nobody_elses_number_releases_them() {
    const S: u64 = 1_000_000_000;
    let now = Time(500 * S);
    let of = |id| Owner::Session(session(id));
    let entries = [
        Entry::Opened(session(1), 20_000, String::new()),
        begun(3, "s", Mode::Exclusive, of(1)),
        begun(4, "shared", Mode::Shared, of(1)),
        begun(5, "shared", Mode::Shared, lease(10_000)),
        begun(6, "l", Mode::Exclusive, lease(10_000)),
        begun(7, "place", Mode::Place { of: 2 }, lease(10_000)),
        // Its session has ended, though its own end did not get that far.
        begun(8, "over", Mode::Exclusive, of(2)),
        begun(9, "connection", Mode::Exclusive, connection(1)),
        Entry::Renewed(6, 30_000),
    ];
    let mut table = adopt(&entries, 10, now).unwrap();
    assert_eq!((table.holds(), table.sessions(), table.leases()), (5, 1, 3));
    assert_eq!(table.account_has(1).locks, 5, "they count for their user");
    let ends = |table: &Table, name: &str| {
        let holders = table.holders(name.as_bytes());
        holders.map(|found| found.expires).collect::<Vec<_>>()
    };
    // And a hundredth more.
    let after_ms = |ms: u64| Some(Time(now.0 + ms * 1_010_000));
    assert_eq!(ends(&table, "shared"), [None, after_ms(10_000)]);
    assert_eq!(ends(&table, "l"), [after_ms(30_000)]);
    assert_eq!(ends(&table, "over"), []);
    let mut outputs = Vec::new();
    for _ in 0..20 {
        let client = table.step(Open, now, &mut outputs).unwrap();
        for name in [&b"s"[..], b"l", b"shared", b"place"] {
            let token = None;
            let unlock = Unlock {
                client,
                name,
                token,
            };
            let reply = table.step(unlock, now, &mut outputs);
            assert_eq!(reply, Err(NotReleased::NotOwner), "{client}");
        }
    }
    let key = SessionKey { user: 1, id: 1 };
    assert!(table.step(RenewSession(key), now, &mut outputs));
    table.step(Tick, Time(now.0 + 20 * S), &mut outputs);
    assert_eq!((table.holds(), table.sessions()), (1, 0));
    table.step(Tick, Time(now.0 + 31 * S), &mut outputs);
    assert_eq!(table.holds(), 0);
}

#[test]
fn what_no_table_can_have_left_is_refused() {
    let both = |one, two| {
        let entries = [begun(1, "x", one, lease(1)), begun(2, "x", two, lease(1))];
        adopt(&entries, 3, Time(1)).err().unwrap().to_string()
    };
    let of = |of| Mode::Place { of };
    for (one, two) in [
        (Mode::Exclusive, Mode::Exclusive),
        (Mode::Shared, Mode::Exclusive),
        (Mode::Exclusive, Mode::Shared),
        (of(2), of(3)),
        (of(2), Mode::Shared),
    ] {
        assert!(both(one, two).contains("x has holders that exclude"));
    }
    // The tokens begin above all that were given out.
    let entries = [begun(7, "x", Mode::Exclusive, lease(1))];
    let error = adopt(&entries, 7, Time(1)).err().unwrap();
    assert!(error.to_string().contains("token 7"), "{error}");
}
