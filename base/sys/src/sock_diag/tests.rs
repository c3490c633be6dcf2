use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn between(diag: &mut SockDiag, own_port: u16, other_port: u16) -> Vec<Tcp> {
    let wanted = Wanted {
        own_port,
        other_port,
        listeners: true,
        carried: true,
        ..Wanted::default()
    };
    diag.tcp(wanted).unwrap()
}

#[test]
fn an_answer_that_is_cut_short_is_no_socket() {
    assert_eq!(socket(&[2; 40]), None);
    assert_eq!(carried(&[0; 100]), None);
}

#[test]
fn a_connection_that_is_used_again_at_once_is_known_to_wait() {
    let awaits = |idle_ms, acknowledged_ms, in_flight| {
        let carried = Carried {
            idle_ms,
            acknowledged_ms,
            in_flight,
            ..Carried::default()
        };
        carried.awaits_answer()
    };
    assert_eq!(awaits([4, 8], 8, 0), Some(true));
    assert_eq!(awaits([8, 4], 4, 0), Some(false));
    // In the same tick: neither tells, in flight, acknowledged 40 ms later.
    assert_eq!(awaits([60, 60], 60, 0), None);
    assert_eq!(awaits([20, 20], 20, 1), Some(true));
    assert_eq!(awaits([60, 60], 20, 0), Some(true));
}

#[test]
fn an_answer_that_came_in_part_is_still_owed() {
    let awaits = |sent, received, idle_ms| {
        let carried = Carried {
            idle_ms,
            acknowledged_ms: idle_ms[1],
            data_segments: [sent, received],
            ..Carried::default()
        };
        carried.awaits_answer()
    };
    // A proxy that waits for the second of two segments, which a delayed acknowledgement holds.
    assert_eq!(awaits(33, 65, [104, 40]), Some(true));
    assert_eq!(awaits(33, 66, [104, 40]), Some(false));
    // Asked in the tick of the answer before.
    assert_eq!(awaits(34, 66, [12, 12]), Some(true));
    assert_eq!(awaits(34, 68, [12, 12]), None);
    // One segment has no parts.
    assert_eq!(awaits(34, 33, [12, 12]), None);
    // Answers of different lengths, one that only sends, one that only receives, too few.
    assert_eq!(awaits(100, 150, [12, 12]), None);
    assert_eq!(awaits(100, 0, [12, 12]), None);
    assert_eq!(awaits(1, 100, [12, 12]), None);
    assert_eq!(awaits(3, 5, [12, 12]), None);
}

#[test]
fn a_connection_that_only_sends_is_known() {
    for (sent, received, is_it) in [(100, 9, true), (100, 10, false), (9, 0, false)] {
        let data_segments = [sent, received];
        let carried = Carried {
            data_segments,
            ..Carried::default()
        };
        assert_eq!(carried.only_sends(), is_it, "{data_segments:?}");
    }
}

mod live_tests {
    use super::*;

    #[track_caller]
    fn in_time<T>(mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..5000 {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("not within 5,000 looks");
    }

    #[test]
    fn both_ends_show_what_they_carried_and_what_was_not_read() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // without IPv6
            };
            let port = listener.local_addr().unwrap().port();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut diag = SockDiag::open().unwrap();
            // Connected by the kernel, accepted by nobody. On a busy machine connect() may
            // return before the listener has seen the end of the handshake.
            in_time(|| {
                let listening = between(&mut diag, port, 0);
                let waiting = listening.iter().find(|socket| socket.state == LISTEN);
                (waiting.unwrap().unread == 1).then_some(())
            });
            let (mut accepted, _) = listener.accept().unwrap();
            client.write_all(&[7; 1000]).unwrap();
            let mut some = [0; 400];
            accepted.read_exact(&mut some).unwrap();
            let ends = between(&mut diag, port, client.local_addr().unwrap().port());
            let [server] = &ends[..] else {
                panic!("{ends:?}")
            };
            assert_eq!((server.state, server.unread), (ESTABLISHED, 600));
            assert_eq!(server.carried.unwrap().received_bytes, 1000);
            assert!(server.is_loopback() && server.inode > 0);
            let ends = between(&mut diag, 0, port);
            assert_eq!(ends.len(), 1, "{ends:?}");
            let own = client.local_addr().unwrap();
            assert_eq!(ends[0].addresses(), [own, client.peer_addr().unwrap()]);
            assert_eq!(ends[0].own_port, own.port());
            assert!(ends[0].carried.unwrap().segments >= 2);
            assert_ne!(ends[0].cookie, server.cookie);
        }
    }

    #[test]
    fn who_is_owed_an_answer_is_known_though_it_asked_in_the_tick_of_the_last_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut diag = SockDiag::open().unwrap();
        let mut read = [0; 1];
        // The last of many answers at once, and one more request.
        for _ in 0..100 {
            client.write_all(&[1]).unwrap();
            server.read_exact(&mut read).unwrap();
            server.write_all(&[2]).unwrap();
            client.read_exact(&mut read).unwrap();
        }
        client.write_all(&[1]).unwrap();
        in_time(|| {
            let ends = between(&mut diag, 0, address.port());
            let carried = ends[0].carried?;
            (carried.awaits_answer() == Some(true)).then_some(())
        });
    }

    #[test]
    fn sockets_are_found_again_until_they_are_closed() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // without IPv6
            };
            let port = listener.local_addr().unwrap().port();
            // More than one message asks for.
            let mut clients: Vec<TcpStream> = (0..40)
                .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
                .collect();
            let mut diag = SockDiag::open().unwrap();
            // On a busy machine what was sent arrives after the call has returned.
            let known = in_time(|| {
                let mut known = between(&mut diag, port, 0);
                known.extend(between(&mut diag, 0, port));
                let same = known.len() == 81 && diag.again(&known).unwrap() == known;
                same.then_some(known)
            });
            assert_eq!(diag.again(&[]).unwrap(), []);
            clients[7].write_all(&[7; 1000]).unwrap();
            let unread = |socket: &Tcp| socket.own_port == port && socket.unread == 1000;
            in_time(|| {
                let again = diag.again(&known).unwrap();
                let count = again.iter().filter(|socket| unread(socket)).count();
                (count == 1).then_some(())
            });
            // Reset, so that neither end stays in TIME_WAIT.
            rustix::net::sockopt::set_socket_linger(&clients[0], Some(std::time::Duration::ZERO))
                .unwrap();
            clients.remove(0);
            // Children that other tests fork hold both a moment longer.
            in_time(|| {
                let again = diag.again(&known).unwrap();
                (79..=80).contains(&again.len()).then_some(())
            });
            drop((clients, listener));
            in_time(|| {
                let again = diag.again(&known).unwrap();
                let none = again.iter().all(|socket| socket.state != LISTEN);
                none.then_some(())
            });
        }
    }
}
