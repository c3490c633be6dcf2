//! Images that no sound table has, and bytes that are no image.

use super::super::image::{HoldRef, TableImage};
use super::super::*;
use proptest::prelude::*;

const NOW: Time = Time(50_000_000_000);

/// A table with everything in it: holds of each kind, lines, a group, a session with a
/// waiter in its name, a closed client whose locks are being released, free slots.
fn busy() -> Table {
    let mut table = Table::new(Limits::default(), HashKey(1, 2), 1);
    let mut outputs = Vec::new();
    macro_rules! step {
        ($event:expr) => {
            table.step($event, NOW, &mut outputs)
        };
    }
    step!(Tokens(10_000));
    for account in [0, 1] {
        let most = Amounts {
            bytes: 1 << (40 + account),
            ..Amounts::ANY
        };
        step!(Quota { account, most });
    }
    let clients: Vec<ClientId> = (0..9).map(|_| step!(Open).unwrap()).collect();
    for client in &clients[..7] {
        let (client, account) = (*client, 1);
        step!(Enlist { client, account });
    }
    let key = SessionKey { user: 1, id: 7 };
    let text = "me";
    step!(OpenSession {
        key,
        ttl_ms: 9000,
        text
    })
    .unwrap();
    let long = "a name that does not fit into its lock";
    let rows: [(usize, &str, Option<u64>, Mode, bool); 13] = [
        (0, "sole", None, Mode::Exclusive, false),
        (0, long, Some(5000), Mode::Exclusive, false),
        (1, "shared", None, Mode::Shared, false),
        (2, "shared", Some(70), Mode::Shared, false),
        (1, "pool", None, Mode::Place { of: 2 }, false),
        (2, "pool", None, Mode::Place { of: 2 }, false),
        (1, "session's", None, Mode::Exclusive, true),
        (1, "sole", None, Mode::Exclusive, false),
        (2, "sole", Some(10), Mode::Shared, false),
        (3, "pool", None, Mode::Place { of: 2 }, false),
        (4, "sole", None, Mode::Shared, true),
        (5, "sole", None, Mode::Exclusive, true),
        (7, "left", Some(90_000), Mode::Exclusive, false),
    ];
    for (who, name, ttl_ms, mode, in_session) in rows {
        step!(LockRequest {
            client: clients[who],
            name: name.as_bytes(),
            ttl_ms,
            wait_ms: Some(60_000),
            mode,
            session: in_session.then_some(&key),
        });
    }
    step!(LockAllRequest {
        client: clients[6],
        names: &[b"shared", b"reserved", long.as_bytes()],
        ttl_ms: None,
        wait_ms: Some(9000),
        shared: false,
        session: Some(&key),
    });
    let many = 2 * RELEASES_PER_STEP;
    for number in 0..many {
        step!(LockRequest {
            client: clients[8],
            name: &number.to_be_bytes(),
            ttl_ms: None,
            wait_ms: Some(0),
            mode: Mode::Exclusive,
            session: None,
        });
    }
    for client in [clients[7], clients[8]] {
        step!(Close(client));
    }
    assert_eq!(table.closing.len(), 1);
    assert!(outputs.is_empty(), "{outputs:?}");
    table
}

fn restored(image: &TableImage) -> Result<Table, BadImage> {
    Table::from_image(image, Limits::default())
}

#[test]
fn a_busy_table_is_the_same_after_it() {
    let table = busy();
    let image = table.image(NOW);
    let again = restored(&image).unwrap();
    assert_eq!(again.image(NOW), image);
    for of in [Table::holds, Table::leases, Table::waiting] {
        assert_eq!(of(&again), of(&table));
    }
    for of in [Table::clients, Table::sessions, Table::names_held] {
        assert_eq!(of(&again), of(&table));
    }
    for account in [0, 1] {
        assert_eq!(again.account_has(account), table.account_has(account));
    }
    // Both tables then do the same as time passes.
    let [one, other] = [table, again].map(|mut table| {
        let mut outputs = Vec::new();
        let mut now = NOW;
        while let Some(tick) = table.next_tick() {
            now = now.max(tick);
            table.step(Tick, now, &mut outputs);
        }
        (outputs, now, table.holds(), table.image(now))
    });
    assert!(one.0.len() >= 4);
    assert_eq!((&one.0, one.1, one.2), (&other.0, other.1, other.2));
    assert_eq!(one.3, other.3);
}

/// A change of an image, and the error that it causes.
type Damage = (fn(&mut TableImage), &'static str);

#[test]
fn what_no_table_can_be_in_is_refused() {
    fn lock<'i>(image: &'i mut TableImage, name: &str) -> &'i mut super::super::image::LockImage {
        let mut locks = image.locks.iter_mut();
        locks.find(|lock| lock.name == name.as_bytes()).unwrap()
    }
    let damages: [Damage; 33] = [
        (|i| i.next_token = 10_001, "tokens go from"),
        (|i| i.next_token = 2, "was never given"),
        (|i| i.tick = u64::MAX, "in the future"),
        (
            |i| lock(i, "sole").waiting[0].since = NOW.0 + 1,
            "in the future",
        ),
        (|i| i.counters.expired = u64::MAX, "a counter"),
        (|i| i.locks[0].place = 1 << 30, "out of range"),
        (
            |i| i.locks.last_mut().unwrap().place = (1 << 30) - 1,
            "--max-memory",
        ),
        (|i| i.locks[1].place = i.locks[0].place, "taken twice"),
        (|i| i.clients.clear(), "0 slots"),
        (|i| i.accounts.clear(), "0 accounts"),
        (|i| i.clients[1].id += 1, "stands in slot 1"),
        (|i| i.clients[1].account = 2, "stands in slot 1"),
        (|i| i.clients[1].open = false, "neither free nor in use"),
        (|i| i.free_slots.push(1), "neither free nor in use"),
        (|i| i.closing.clear(), "neither free nor in use"),
        (|i| i.sessions[0].heartbeat = None, "not in its slot"),
        (|i| i.sessions[0].client = 1, "waits for sole, which it has"),
        (|i| i.clients[1].told = i.next_token, "of the future"),
        (|i| i.sessions.push(i.sessions[0].clone()), "taken twice"),
        (|i| i.sessions[0].waiting.clear(), "are listed"),
        (|i| i.sessions[0].waiting[0] = 9000, "so in the name"),
        (|i| lock(i, "sole").name.clear(), "0 bytes"),
        (|i| lock(i, "sole").name = b"pool".to_vec(), "twice"),
        (|i| lock(i, "pool").places = 0, "exclude each other"),
        (|i| lock(i, "pool").places = 3, "which is free"),
        (
            |i| lock(i, "sole").exclusive = None,
            "owns what is not its own",
        ),
        (
            |i| lock(i, "sole").waiting[0].client = 0,
            "waits as nobody can",
        ),
        (
            |i| lock(i, "reserved").waiting[0].leader = None,
            "waits as nobody can",
        ),
        (
            |i| lock(i, "reserved").waiting[0].next_in_group = None,
            "lost its first",
        ),
        (|i| i.clients[1].owned.clear(), "holds are owned"),
        (|i| i.clients[2].owned.reverse(), ""),
        (
            |i| {
                let twice = i.clients[1].owned[0];
                i.clients[1].owned.push(twice);
            },
            "owns what is not its own",
        ),
        (
            |i| i.clients[1].owned.push(HoldRef::Claim(1 << 29)),
            "owns what is not its own",
        ),
    ];
    let image = busy().image(NOW);
    for (nth, (damage, why)) in damages.into_iter().enumerate() {
        let mut damaged = image.clone();
        damage(&mut damaged);
        assert_ne!(damaged, image, "{nth}");
        match restored(&damaged).map(|table| table.image(NOW)) {
            Ok(again) => assert!(why.is_empty() && again == damaged, "{nth}: {why}"),
            Err(error) => assert!(
                !why.is_empty() && error.to_string().contains(why),
                "{nth}: {error}, not {why}"
            ),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Damaged bytes give an error, or a table that is sound.
    #[test]
    fn damaged_bytes_are_an_error_or_a_sound_table(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            // Without the many locks of the closed client: they are all alike.
            let mut table = busy();
            let mut outputs = Vec::new();
            while table.next_tick() == Some(Time(0)) {
                table.step(Tick, NOW, &mut outputs);
            }
            postcard::to_stdvec(&table.image(NOW)).unwrap()
        });
        let mut bytes = bytes.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        let limits = Limits { memory_bytes: 1 << 23, ..Limits::default() };
        if let Ok(image) = postcard::from_bytes::<TableImage>(&bytes)
            && let Ok(mut table) = Table::from_image(&image, limits)
        {
            prop_assert_eq!(table.image(image.at()), image.clone());
            let mut outputs = Vec::new();
            for client in image.connections() {
                table.step(Close(client), image.at(), &mut outputs);
            }
            for _ in 0..20 {
                table.step(Tick, Time(u64::MAX - 1), &mut outputs);
            }
            prop_assert_eq!(table.waiting(), 0);
        }
    }
}
