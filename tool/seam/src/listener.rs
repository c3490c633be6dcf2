//! Finds the process of this machine that listens on a port, so that the CPU time of a
//! server that does not report its process can be read. Only for servers of this host, and
//! without root only for this user's.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The process that listens on this TCP port; None if there is none, if several
/// share it, or if we may not look.
pub fn process(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let files = tables.iter().filter_map(|table| File::open(table).ok());
    let sockets: Vec<String> = files
        .flat_map(|file| listening(BufReader::new(file), port))
        .collect();
    let mut holders = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| holds(*pid, &sockets));
    match (holders.next(), holders.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The inodes of the sockets that listen on the port. A table has all that listen first
/// (Documentation/networking/proc_net_tcp.rst); once one is found, the rest, which may be tens
/// of thousands of closed connections, is not read.
fn listening(table: impl BufRead, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let here = format!(":{port:04X}");
    let mut inodes = Vec::new();
    for line in table.lines().skip(1).map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let listens = words.len() > 9 && words[3] == LISTEN;
        if !listens && !inodes.is_empty() {
            break;
        }
        if listens && words[1].ends_with(&here) {
            inodes.push(format!("socket:[{}]", words[9]));
        }
    }
    inodes
}

fn holds(pid: u32, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut places = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    places.any(|place| sockets.iter().any(|socket| Path::new(socket) == place))
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn what_follows_those_that_listen_is_not_read_once_one_is_found() {
        let line = |port: u16, state: &str, inode: u32| {
            format!("0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 0:0 0 0 0 {inode} 1\n")
        };
        let listen = line(80, "0A", 7) + &line(81, "0A", 8) + &line(80, "0A", 9);
        let table = format!("head\n{listen}{}", line(81, "06", 0).repeat(10_000));
        let mut rest = table.as_bytes();
        assert_eq!(listening(&mut rest, 80), ["socket:[7]", "socket:[9]"]);
        assert!(rest.len() > table.len() / 2);
        assert_eq!(listening(table.as_bytes(), 82), [""; 0]);
    }
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_is_found_by_its_port_and_clients_are_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(process(port), Some(std::process::id()));
        assert_eq!(process(client.local_addr().unwrap().port()), None);
        drop(listener);
        assert_eq!(process(port), None);
    }
}
