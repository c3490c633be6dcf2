//! The state of a lock table as another program hands it over, in any bytes.
//!
//! Oracles: nothing panics; a table that was made says the same of itself as the bytes
//! did; when all clients leave and all time has passed, nobody waits and nothing is held.

use jostle_lockd::table::{Event, Limits, Table, TableImage, Time};

/// Whether the input was more than refused.
pub fn check(bytes: &[u8]) -> bool {
    let limits = Limits {
        memory_bytes: 1 << 22,
        ..Limits::default()
    };
    let Ok(image) = postcard::from_bytes::<TableImage>(bytes) else {
        return false;
    };
    let Ok(mut table) = Table::<0>::from_image(&image, limits) else {
        return false;
    };
    assert_eq!(table.image(image.at()), image);
    let mut outputs = Vec::new();
    for client in image.connections() {
        table.step(Event::Close { client }, image.at(), &mut outputs);
    }
    // The last instant at which anything can end.
    let end = Time(u64::MAX - 1);
    table.step(Event::Tick, end, &mut outputs);
    while table.next_tick().is_some_and(|tick| tick <= end) {
        table.step(Event::Tick, end, &mut outputs);
    }
    assert_eq!((table.waiting(), table.holds(), table.clients()), (0, 0, 0));
    true
}
