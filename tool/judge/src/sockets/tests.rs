use super::finding::most_connected;
use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

mod live_tests {
    use super::*;

    #[test]
    fn the_port_that_most_connections_lead_to_is_the_server_s() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = |inode, own_port: u16, other_port: u16, state| Tcp {
            inode,
            state,
            ..Tcp::between(
                ([127, 0, 0, 1], own_port).into(),
                ([127, 0, 0, 1], other_port).into(),
            )
        };
        let own = [
            socket(1, 4001, 80, ESTABLISHED),
            socket(2, 4002, 80, ESTABLISHED),
            socket(3, 4003, 443, ESTABLISHED),
            socket(4, 9000, 0, LISTEN),
            socket(5, 9000, 5555, ESTABLISHED),
            socket(6, 9000, 5556, ESTABLISHED),
            socket(7, 9000, 5556, ESTABLISHED),
        ];
        let found = |own: &[Tcp], port| {
            most_connected(own.to_vec(), port).map(|(to, of)| (to.port(), of.len()))
        };
        assert_eq!(found(&own, None), Some((80, 2)));
        assert_eq!(found(&own, Some(443)), Some((443, 1)));
        assert_eq!(found(&own, Some(1)), Some((80, 2)));
        assert_eq!(found(&own[3..], None), None);
        // Connections that were there before the command would be another's.
        let mut sockets = Sockets::open(Some(port), None).unwrap();
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
            .collect();
        let accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let (pids, inherited) = ([std::process::id()], BTreeSet::new());
        let ours = Own {
            pids: &pids,
            inherited: &inherited,
        };
        // This process serves itself: only a port that is told can be watched.
        let (mut client, mut server) = (&clients[0], &accepted[0]);
        // On a busy machine what was sent arrives after the call has returned.
        let await_unread = |bytes| {
            let arrived = (0..60_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                accepted[0].peek(&mut [0; 1000]).unwrap() == bytes
            });
            assert!(arrived, "{bytes} bytes");
        };
        client.write_all(&[1; 500]).unwrap();
        await_unread(500);
        server.read_exact(&mut [0; 300]).unwrap();
        sockets.look(&ours, true);
        let mut later = |sockets: &mut Sockets, unread: usize| {
            client.write_all(&[1; 70]).unwrap();
            await_unread(unread + 70);
            server.read_exact(&mut [0; 50]).unwrap();
            sockets.look(&ours, true);
        };
        // By their addresses, unless another test has opened a connection.
        later(&mut sockets, 200);
        // Among all sockets.
        (sockets.are_few, sockets.known) = (true, None);
        later(&mut sockets, 220);
        let traffic = sockets.into_columns(Vec::new()).0.unwrap();
        assert_eq!(traffic.connections, [3.0, 3.0, 3.0]);
        // The first segment of each counts as a byte.
        assert_eq!(traffic.bytes, [503.0, 70.0, 70.0]);
        assert_eq!(traffic.server_unread_bytes, Some(vec![200.0, 220.0, 240.0]));
        assert_eq!(traffic.generator_unread_bytes, [0.0, 0.0, 0.0]);
        assert!(traffic.backlog_limit > Some(0) && traffic.ports > 0);
    }
}
