//! States of a server in use, and bytes that are not such a state.

use std::io::Write;
use std::net::TcpStream;

use super::super::conn::Conn;
use super::super::stream::Stream;
use super::unpack::could_go_on;
use super::*;
use crate::Config;
use crate::handover::state::{State, StateError, decode, encode, reseal};
use crate::table::Table;

/// A server whose clients hold, wait, queue, and have sent half of something.
fn used() -> (Server, Vec<TcpStream>) {
    let mut server = Server::bind(Config::embedded()).unwrap();
    let address = server.addresses().next().unwrap();
    let lines = [
        "LOCK a\r\nLOCK lease TTL 60000\r\nHELLO 3 SETNAME me\r\n",
        "LOCK lease TTL 500\r\nECHO behind\r\n*2\r\n$4\r\nLO",
        "MULTI\r\nLOCK b\r\nUNLOCK b\r\n",
        "LOCKALL 2 a c TTL 70\r\n",
        "*3\r\n$4\r\nLOCK\r\n$1",
    ];
    let mut streams = Vec::new();
    for line in lines {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        streams.push(stream);
        // Loopback: what was sent is there, sooner or later.
        while server.stats.connections < streams.len() as u64 {
            server.accept(0);
        }
        let heard = server.stats.bytes_in + line.len() as u64;
        while server.stats.bytes_in < heard {
            for slot in 0..server.conns.len() {
                if let Some(conn) = &server.conns[slot] {
                    let number = conn.id.number();
                    server.client_ready(number, EventFlags::IN);
                }
            }
        }
        server.end_of_turn();
    }
    assert_eq!((server.table.holds(), server.table.waiting()), (2, 3));
    (server, streams)
}

fn state_of(server: &mut Server) -> State {
    let now = server.now();
    server.state(now)
}

#[test]
fn a_state_survives_its_bytes_and_a_connection_its_state() {
    let (mut server, _streams) = used();
    let state = state_of(&mut server);
    assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
    could_go_on(&server.config, state.clone()).unwrap();
    let input: usize = state.conns.iter().map(|conn| conn.intake.input.len()).sum();
    assert!(input > 20 && state.conns.iter().any(|conn| conn.transaction.is_some()));
    for conn in &state.conns {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let user = conn.user.as_ref().map(|name| server.user_named(name));
        let again = Conn::restored(conn, Stream::plain(nothing.into()), user);
        assert_eq!(again.state(), *conn);
    }
}

#[test]
fn bytes_that_are_cut_or_changed_are_refused() {
    let (mut server, _streams) = used();
    let state = state_of(&mut server);
    let whole = encode(&state).unwrap();
    for length in 0..whole.len() {
        assert!(decode(&whole[..length]).is_err(), "{length} bytes");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        match decode(&changed) {
            Err(StateError::Version { .. }) => assert!((8..12).contains(&at)),
            other => assert!(matches!(other, Err(StateError::Damaged(_))), "byte {at}"),
        }
        // With a new checksum the damage is found later, or the state is still sound.
        reseal(&mut changed);
        if let Ok(other) = decode(&changed) {
            let _ = could_go_on(&server.config, other);
        }
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(decode(&longer).is_err());
}

/// A state of version 2, with a bound on locks, and leases of a client that is gone.
#[test]
fn a_state_of_the_version_before_is_read() {
    let mut state = decode(include_bytes!("state-2")).unwrap();
    let table = Table::from_image(&state.table, Config::embedded().table).unwrap();
    assert_eq!((table.holds(), table.leases(), table.waiting()), (5, 3, 3));
    assert_eq!(table.sessions(), 1);
    let at = state.table.at();
    let ago = |name: &[u8]| {
        table
            .holders(name)
            .map(|it| it.since.ms_until(at))
            .collect::<Vec<_>>()
    };
    assert_eq!((ago(b"a"), ago(b"left")), (vec![0], vec![0]));
    // The gone client's slot is free, and its leases count on.
    let again = Table::from_image(&table.image(at), Config::embedded().table).unwrap();
    assert_eq!(again.image(at), table.image(at));
    assert_eq!(state.conns.len(), 5);
    state.conns.clear();
    assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
}

/// A change of a state, and the error that it causes.
type Damage = (fn(&mut State), &'static str);

#[test]
fn connections_that_do_not_fit_the_table_are_refused() {
    let damages: [Damage; 10] = [
        (|state| state.begun = u64::MAX, "in the future"),
        (|state| state.started = u64::MAX, "in the future"),
        (
            |state| state.conns[0].profile.since = Time(u64::MAX),
            "in the future",
        ),
        (|state| state.conns[0].number = 1, "has no user"),
        (|state| state.conns[0].waiting = true, "waits for nothing"),
        (|state| state.conns[1].waiting = false, "waits for nothing"),
        (|state| drop(state.conns.pop()), "are not the clients"),
        (
            |state| state.conns[1].id = state.conns[0].id,
            "are one client",
        ),
        (
            |state| state.lost.push(state.conns[0].id),
            "both lost and there",
        ),
        (|state| state.data = Some(b"/".to_vec()), "needs a restart"),
    ];
    let (mut server, _streams) = used();
    let state = state_of(&mut server);
    for (damage, why) in damages {
        let mut damaged = state.clone();
        damage(&mut damaged);
        let error = could_go_on(&server.config, damaged).unwrap_err();
        assert!(error.to_string().contains(why), "{error}, not {why}");
    }
}
