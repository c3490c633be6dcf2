use super::tests::books;
use super::*;
use std::io::{Read, Write};

#[test]
fn own_packets_are_the_segments_of_connections_that_were_open_all_the_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut client = connect();
    let (mut server, _) = listener.accept().unwrap();
    let books = books(Vec::new());
    *books.diag.borrow_mut() = Some(SockDiag::open().unwrap());
    // A pair of bytes there and back, as a request and its answer.
    let opened = books.enter();
    for _ in 0..100 {
        client.write_all(b"?").unwrap();
        server.read_exact(&mut [0]).unwrap();
        server.write_all(b"!").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    let inode = |socket: &std::net::TcpStream| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(socket));
        let link = std::fs::read_link(path).unwrap();
        let number = link.to_str().unwrap().trim_start_matches("socket:[");
        number.trim_end_matches(']').parse::<u64>().unwrap()
    };
    let own = |sockets: Vec<u64>| {
        *books.sockets.borrow_mut() = sockets.into_iter().collect();
        books.own_packets(&opened, &books.enter())
    };
    // Each way may be confirmed apart.
    assert!((200..=400).contains(&own(vec![inode(&client)]).unwrap()));
    assert_eq!(own(Vec::new()), None);
    let later = connect();
    assert_eq!(own(vec![inode(&client), inode(&later)]), None);
}
