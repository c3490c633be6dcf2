//! What is measured on an idle machine: command lines of one point each, from a table of lists.

use jostle_testbed::servers::{ENTRIES, Running, Server};
use jostle_testbed::slapd;
use std::net::SocketAddr;

const LOCKS: [&str; 12] = [
    "flock",
    "ofd",
    "posix",
    "lockfile",
    "sysv",
    "sysv-undo",
    "posix-sem",
    "futex",
    "spin",
    "pthread",
    "pthread-robust",
    "pthread-pi",
];

const SERVERS: [Server; 5] = [
    Server::Lockd,
    Server::Redis,
    Server::Nginx,
    Server::Python,
    Server::Slapd,
];

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
    let all: Vec<Line> = LOCKS
        .into_iter()
        .flat_map(locks)
        .chain(networked())
        .flat_map(Line::points)
        .collect();
    let chosen = points.min(all.len());
    (0..chosen)
        .map(|nth| all[nth * all.len() / chosen].clone())
        .collect()
}

/// Every number of workers with both holds, in windows of a second, which have room for clean
/// slices. Locks without a hold are quicker than the stamps around them, and are measured
/// without. 100 workers in turn with a hold of 1 ms need a longer window for the ten turns
/// each that fairness wants.
fn locks(lock: &str) -> Vec<Line> {
    let line = |what: &str, options: &str| Line {
        name: format!("contend {lock}, {what}"),
        server: None,
        options: format!("-i 0 --warmup 0.05 --runs 3 {options}"),
    };
    vec![
        line("no hold", "-w 1:2:4:10:100 -b 0 -t 1 --measure counts"),
        line("hold 1 ms", "-w 1:2:4:10 -b 1ms -t 1"),
        line("hold 1 ms, many", "-w 100 -b 1ms -t 1.4"),
    ]
}

/// The verbs of services, with what each server takes of them.
fn networked() -> impl Iterator<Item = Line> {
    let each = SERVERS.into_iter().flat_map(|server| {
        let is_slow = matches!(server, Server::Python | Server::Slapd);
        let (operations, calls) = match is_slow {
            true => ("500:1000:2000", "60:120"),
            false => ("10000:20000:40000", "200:400"),
        };
        // It sends head and body apart, and on a connection that is kept the body waits
        // for the delayed acknowledgement of the head: 40 ms each.
        let requests = match server {
            Server::Python => "--connection each".to_owned(),
            // A user that the directory does not have is an error.
            Server::Slapd => format!("--numbers {ENTRIES}"),
            _ => String::new(),
        };
        let verbs = [
            ("stream", format!("-n {operations} -w 1:2:4:8 {requests}")),
            ("connect", "--open 200:400:600:800 --close rst".to_owned()),
            ("call", format!("-n {calls} -w 1:2 --null none")),
            (
                "spread",
                format!("--in-flight 12 --generators 2:3:4:6 -t 1 --warmup 0.1 {requests}"),
            ),
            (
                "rate",
                format!("--rate 50:75:100:150:200:250:300:350 -w 16 -t 1 --warmup 0.1 {requests}"),
            ),
        ];
        let holds = matches!(server, Server::Lockd | Server::Redis);
        let hold = ("hold", "--keys 1k:2k:4k:8k:16k:32k -w 1:2".to_owned());
        // Its backlog is 5: each sixth connection waits for a second.
        let stalls = move |verb: &str| verb == "connect" && matches!(server, Server::Python);
        let verbs = verbs.into_iter().chain(holds.then_some(hold));
        let verbs = verbs.filter(move |(verb, _)| !stalls(verb));
        verbs.map(move |(verb, options)| Line {
            name: format!("{verb} {}", server.name()),
            server: Some(server),
            options: format!("{options} --runs 3"),
        })
    });
    let by_itself = |name: &str, options: &str| Line {
        name: name.to_owned(),
        server: None,
        options: format!("{options} --runs 3"),
    };
    each.chain([
        by_itself(
            "connect tcp",
            "--open 100:300:1000:3000 --sources 1 --close rst",
        ),
        by_itself("connect unix", "--open 100:300:1000:3000"),
        by_itself("call true", "-n 100:200 -w 1:2 --null none"),
    ])
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
        assert_eq!(contend.count(), LOCKS.len() * 10);
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
