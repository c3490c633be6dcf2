//! The lines measured on an idle machine: command lines of one point each, from a table of lists.

use crate::validate::columns;
use jostle_testbed::servers::{Running, Server};
use jostle_testbed::slapd;
use std::net::SocketAddr;

const TABLE: &str = include_str!("../../../validate/clean.tsv");

const LOCKS: &str = "flock ofd posix lockfile sysv sysv-undo posix-sem futex spin pthread \
                     pthread-robust pthread-pi";

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Verb and target.
    pub name: String,
    /// Who answers; None: a lock, or what jostle starts itself.
    pub server: Option<Server>,
    /// The words that follow `jostle`, apart from the target or command.
    options: String,
}

/// So many of the points, evenly spread over the table.
pub(super) fn lines(points: usize) -> Vec<Line> {
    let (locks, others): (Vec<_>, Vec<_>) =
        columns(TABLE).partition(|[_, name, _]| name.contains("LOCK"));
    let line = |[server, name, options]: [&str; 3], lock: &str| Line {
        name: name.replace("LOCK", lock),
        server: Server::named(server),
        options: options.to_owned(),
    };
    let locks = LOCKS.split(' ').flat_map(|lock| {
        let line = &line;
        locks.iter().map(move |row| line(*row, lock))
    });
    let others = others.iter().map(|row| line(*row, ""));
    let all: Vec<Line> = locks.chain(others).flat_map(Line::points).collect();
    let chosen = points.min(all.len());
    let all = (0..chosen).map(|nth| all[nth * all.len() / chosen].clone());
    all.collect()
}

impl Line {
    /// A line for each combination of its lists' values.
    fn points(self) -> Vec<Line> {
        let words: Vec<&str> = self.options.split(' ').collect();
        let Some(list) = words.iter().position(|word| word.contains(':')) else {
            return vec![self];
        };
        let each = words[list].split(':').flat_map(|value| {
            let mut words = words.clone();
            words[list] = value;
            let line = Line {
                name: format!("{} {} {value}", self.name, words[list - 1]),
                server: self.server,
                options: words.join(" "),
            };
            line.points()
        });
        each.collect()
    }

    fn verb(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// The words that follow `jostle`; `server` is who answers.
    pub(super) fn words(&self, server: Option<&Running>) -> Vec<String> {
        let plain = || {
            let target = self.name.split([' ', ',']).nth(1);
            target.unwrap_or_default().to_owned()
        };
        let target = match server {
            None => plain(),
            Some(running) => match self.verb() {
                "connect" => format!("tcp://{}", running.address),
                "call" => command(running.server, running.address),
                _ => running.target(),
            },
        };
        // No connection of jostle's own tells who answers a program that it starts.
        let behind = server.filter(|_| self.verb() == "call").map(|running| {
            let port = format!(":{}", running.address.port());
            ["--server".to_owned(), port]
        });
        let options = self.options.split_whitespace().map(str::to_owned);
        let first = [self.verb().to_owned(), target];
        let words = first.into_iter().chain(options);
        words.chain(behind.into_iter().flatten()).collect()
    }
}

/// A program that asks the server once.
fn command(server: Server, address: SocketAddr) -> String {
    let port = address.port();
    match server {
        Server::Lockd | Server::Redis => format!("redis-cli -p {port} ping"),
        Server::Slapd => format!(
            "ldapsearch -x -LLL -H ldap://{address} -b {} (uid=user1) cn",
            slapd::BASE
        ),
        _ => format!("curl -s http://{address}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_hundred_points_and_a_hundred_that_have_every_lock_and_verb_of_each_server() {
        let all = lines(usize::MAX);
        let names: BTreeSet<_> = all.iter().map(|line| &line.name).collect();
        assert_eq!((names.len(), all.len()), (312, 312));
        let kinds = |lines: &[Line]| -> BTreeSet<String> {
            let kind = |line: &Line| {
                line.name
                    .split([' ', ','])
                    .take(2)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            lines.iter().map(kind).collect()
        };
        let hundred = lines(100);
        assert_eq!((hundred.len(), kinds(&hundred)), (100, kinds(&all)));
        // Locks at 5 numbers of workers with 2 holds.
        let contend = all.iter().filter(|line| line.verb() == "contend");
        assert_eq!(contend.count(), LOCKS.split(' ').count() * 10);
        assert!(!names.iter().any(|name| name.starts_with("connect python")));
    }

    #[test]
    fn a_line_becomes_words() {
        let lines = lines(usize::MAX);
        let words = lines[1].words(None).join(" ");
        let expected = "contend flock -i 0 --warmup 0.05 --runs 3 -w 2 -b 0 -t 1 --measure counts";
        assert_eq!(words, expected);
        assert_eq!(lines[1].name, "contend flock, no hold -w 2");
        let mut unix = lines
            .iter()
            .filter(|line| line.name.starts_with("connect unix"));
        let words = unix.next().unwrap().words(None).join(" ");
        assert!(words.starts_with("connect unix --open 100 "), "{words}");
        let at = "127.0.0.1:80".parse().unwrap();
        assert_eq!(command(Server::Python, at), "curl -s http://127.0.0.1:80/");
    }
}
