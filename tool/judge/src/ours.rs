//! Which connections to the server are the command's: those of its own sockets.

use super::views::Own;
use jostle_sys::sock_diag::Tcp;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// The connections that were met, by cookie.
#[derive(Debug, Default)]
pub(super) struct Ours {
    own: HashSet<u64>,
    /// Those of others, with their own addresses.
    others: HashMap<u64, SocketAddr>,
    /// Those that no look has met in a process of the command yet, with the looks around before.
    open: HashMap<u64, usize>,
    /// Looks at all processes: one that was started since is not known before.
    around: usize,
}

/// Looks around after which a connection that lives on is another's.
const SURE: usize = 2;

impl Ours {
    /// Those that are there before the command, which has none yet.
    pub(super) fn begin(&mut self, all: &[Tcp]) {
        let others = all
            .iter()
            .map(|socket| (socket.cookie, socket.addresses()[0]));
        self.others = others.collect();
    }

    pub(super) fn look_around(&mut self) {
        self.around += 1;
    }

    /// Leaves the command's among those of its port. One that lives for less than a look may be
    /// nobody's by the time that descriptors are read: it counts as long as nobody else was seen.
    pub(super) fn keep(&mut self, clients: &mut Vec<Tcp>, own: &Own<'_>) {
        let is_known = |this: &Ours, socket: &Tcp| {
            this.own.contains(&socket.cookie) || this.others.contains_key(&socket.cookie)
        };
        let is_new = |socket: &Tcp| socket.inode != 0 && !is_known(self, socket);
        if clients.iter().any(is_new) {
            let (inodes, are_whole) = (own.inodes(), own.are_whole());
            let mut open = HashMap::new();
            for socket in clients.iter().filter(|socket| socket.inode != 0) {
                if is_known(self, socket) {
                    continue;
                }
                let since = self
                    .open
                    .get(&socket.cookie)
                    .copied()
                    .unwrap_or(self.around);
                if inodes.contains(&socket.inode.into()) || !are_whole {
                    self.own.insert(socket.cookie);
                } else if self.around >= since + SURE {
                    self.others.insert(socket.cookie, socket.addresses()[0]);
                } else {
                    open.insert(socket.cookie, since);
                }
            }
            self.open = open;
        }
        let there: HashSet<u64> = clients.iter().map(|socket| socket.cookie).collect();
        self.own.retain(|cookie| there.contains(cookie));
        self.others.retain(|cookie, _| there.contains(cookie));
        let is_alone = self.others.is_empty();
        clients.retain(|socket| match self.others.contains_key(&socket.cookie) {
            true => false,
            false => is_alone || self.own.contains(&socket.cookie),
        });
    }

    /// Leaves out the other ends of others' connections.
    pub(super) fn keep_served(&self, servers: &mut Vec<Tcp>) {
        let others: HashSet<&SocketAddr> = self.others.values().collect();
        if !others.is_empty() {
            servers.retain(|socket| !others.contains(&socket.addresses()[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    mod live_tests {
        use super::*;

        fn inode(stream: &TcpStream) -> u32 {
            let link = std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd()));
            let link = link.unwrap().display().to_string();
            let number = link.trim_start_matches("socket:[").trim_end_matches(']');
            number.parse().unwrap()
        }

        #[test]
        fn connections_of_other_programs_to_the_same_server_are_left_out() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            let ours = TcpStream::connect(at).unwrap();
            let client = |inode: u32, cookie: u64, port: u16| Tcp {
                inode,
                cookie,
                ..Tcp::between(([127, 0, 0, 1], port).into(), at)
            };
            let own_one = client(inode(&ours), 1, 1001);
            // Inodes of nobody in this process.
            let [before, stays] = [client(u32::MAX, 2, 1002), client(u32::MAX - 1, 3, 1003)];
            let brief = |cookie| client(u32::MAX - 2, cookie, 1004);
            let (pids, inherited) = ([std::process::id()], BTreeSet::new());
            let own = Own {
                pids: &pids,
                inherited: &inherited,
            };
            let kept = |of: &mut Ours, all: &[&Tcp]| {
                let mut all: Vec<Tcp> = all.iter().map(|socket| (*socket).clone()).collect();
                of.keep(&mut all, &own);
                all.iter().map(|socket| socket.cookie).collect::<Vec<u64>>()
            };
            let mut of = Ours::default();
            // Each lives for less than a look.
            assert_eq!(kept(&mut of, &[&brief(4)]), [4]);
            of.look_around();
            assert_eq!(kept(&mut of, &[&own_one, &brief(5), &stays]), [1, 5, 3]);
            (0..SURE).for_each(|_| of.look_around());
            assert_eq!(kept(&mut of, &[&own_one, &brief(6), &stays]), [1]);
            let end = Tcp::between(at, stays.addresses()[0]);
            let mut served = vec![end, Tcp::between(at, own_one.addresses()[0])];
            of.keep_served(&mut served);
            assert_eq!(served.len(), 1);
            // The other one has gone.
            assert_eq!(kept(&mut of, &[&own_one, &brief(7)]), [1, 7]);
            // What was there before the command is another's from the first look on.
            let mut of = Ours::default();
            of.begin(std::slice::from_ref(&before));
            assert_eq!(kept(&mut of, &[&own_one, &before]), [1]);
        }
    }
}
