use super::*;
use crate::sock_diag::{Carried, ESTABLISHED};

/// A connection of `inode` that has sent and received so many bytes.
fn socket(inode: u32, own: &str, other: &str, [sent, received]: [u64; 2]) -> Tcp {
    Tcp {
        inode,
        carried: Some(Carried {
            sent_bytes: sent,
            received_bytes: received,
            ..Carried::default()
        }),
        ..Tcp::between(own.parse().unwrap(), other.parse().unwrap())
    }
}

fn places<const N: usize>(of: [Vec<Tcp>; N]) -> Vec<Place> {
    let place = |sockets| Place {
        sockets,
        translated: Vec::new(),
    };
    of.into_iter().map(place).collect()
}

/// The place and the inode at the other end of a client of the first place.
fn found(places: &[Place], client: &Tcp) -> Option<(usize, u32)> {
    let of = Followed {
        home: 0,
        before: client.clone(),
        later: Some(client.clone()),
    };
    end(places, &of).map(|(place, socket)| (place, socket.inode))
}

const CLIENT: &str = "10.0.0.1:40000";

#[test]
fn the_client_s_own_address_leads_to_its_server_under_translation_of_the_destination() {
    let client = socket(1, CLIENT, "10.0.0.2:8080", [500, 900]);
    let server = socket(2, "172.17.0.2:80", CLIENT, [900, 500]);
    let all = places([vec![client.clone()], vec![server.clone()]]);
    assert_eq!(found(&all, &client), Some((1, 2)));
    // Two networks use the same addresses: only the bytes carried tell the connections apart.
    let other = |carried| socket(3, "172.17.0.2:80", CLIENT, carried);
    let both = |carried| {
        let all = [
            vec![client.clone()],
            vec![other(carried)],
            vec![server.clone()],
        ];
        found(&places(all), &client)
    };
    assert_eq!(both([90, 50]), Some((2, 2)));
    assert_eq!(both([900, 501]), None);
    // From the same port there is a connection to another server of this place.
    let second = socket(4, CLIENT, "10.0.0.1:90", [500, 900]);
    let its_server = socket(5, "10.0.0.1:90", CLIENT, [900, 500]);
    let here = vec![client.clone(), second, its_server];
    assert_eq!(found(&places([here.clone(), Vec::new()]), &client), None);
    assert_eq!(found(&places([here, vec![server]]), &client), Some((1, 2)));
    // A socket of nobody leads to nobody.
    let closed = socket(0, "10.0.0.2:8080", CLIENT, [900, 500]);
    assert_eq!(
        found(&places([vec![client.clone(), closed]]), &client),
        None
    );
}

#[test]
fn under_translation_of_both_ends_the_table_of_connections_leads_there() {
    const TABLE: &str = "\
        ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=40000 dport=8080 src=172.17.0.2 dst=172.17.0.1 sport=80 dport=50001 [ASSURED] mark=0 zone=0 use=2\n\
        ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.9 dst=10.0.0.2 sport=41000 dport=22 src=10.0.0.2 dst=10.0.0.9 sport=22 dport=41000 [ASSURED] mark=0 zone=0 use=2\n\
        ipv4     2 udp      17 29 src=10.0.0.1 dst=10.0.0.2 sport=40000 dport=8080 src=172.17.0.2 dst=172.17.0.1 sport=80 dport=50001 mark=0 zone=0 use=2\n\
        ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.1 dst= sport=x\n";
    let client = socket(1, CLIENT, "10.0.0.2:8080", [500, 900]);
    let server = socket(2, "172.17.0.2:80", "172.17.0.1:50001", [900, 500]);
    let mut all = places([vec![client.clone()], vec![server]]);
    assert_eq!(found(&all, &client), None);
    all[1].translated = translated(TABLE);
    assert_eq!(all[1].translated.len(), 1);
    assert_eq!(found(&all, &client), Some((1, 2)));
    // Two tables that contradict each other tell nothing.
    all[0].translated = translated(&TABLE.replace("50001", "50002"));
    assert_eq!(found(&all, &client), None);
}

mod live_tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// A command that was once given the first server of its port.
    #[test]
    fn a_connection_of_one_namespace_leads_to_the_process_that_accepted_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _accepted = listener.accept().unwrap();
        let ours = Tcp {
            state: ESTABLISHED,
            ..Tcp::between(client.local_addr().unwrap(), client.peer_addr().unwrap())
        };
        let home = crate::namespaces::network_of(std::process::id()).unwrap();
        let found = follow(home, &[ours]).unwrap();
        // Beside it, perhaps, what another test has just forked.
        assert!(found.pids.contains(&std::process::id()));
        assert_eq!(
            (found.at, found.network.id),
            (client.peer_addr().unwrap(), home)
        );
        assert!(found.hops.is_empty());
    }
}
