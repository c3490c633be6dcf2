//! Finds the process of this machine that listens on a port, so that the CPU time of a
//! server that does not report its process can be read. Only for servers of this host, and
//! without root only for this user's.

use std::fs;
use std::path::Path;

/// The process that listens on this TCP port; None if there is none, if several
/// share it, or if we may not look.
pub fn process(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text: String = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .collect();
    let sockets = listening(&text, port);
    let mut holders = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| holds(*pid, &sockets));
    match (holders.next(), holders.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The inodes of the sockets that listen on the port, by tables of proc(5).
fn listening(tables: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let here = format!(":{port:04X}");
    let lines = tables.lines().map(|line| line.split_whitespace().collect());
    lines
        .filter(|words: &Vec<&str>| {
            words.len() > 9 && words[1].ends_with(&here) && words[3] == LISTEN
        })
        .map(|words| format!("socket:[{}]", words[9]))
        .collect()
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
