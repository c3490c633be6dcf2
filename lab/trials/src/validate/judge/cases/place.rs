//! Where the client, the server and judge of a case are, if not all in one namespace: made and
//! removed by lab/trials/cases/place.sh.

use super::bench::directory;
use crate::validate::bench::Bench;
use anyhow::{Context, ensure};
use jostle_testbed::leash::Leash;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Dropping it ends what runs there.
pub(super) struct Place {
    /// The host by which the client reaches the server.
    pub host: IpAddr,
    /// The one at which the server listens.
    pub listen: IpAddr,
    /// What both command lines begin with.
    pub client: Vec<String>,
    pub server: Vec<String>,
    #[allow(dead_code, reason = "held so that dropping it ends the place")]
    leash: Leash,
}

impl Place {
    /// Makes the place of this word for a server at this port.
    pub(super) fn make(word: &str, port: u16, bench: &Bench) -> anyhow::Result<Place> {
        let mut make = Command::new(directory().join("place.sh"));
        make.args([word, &port.to_string()])
            .current_dir(bench.directory())
            .stdout(Stdio::piped());
        let mut leash = Leash::start(&mut make)?;
        let stdout = leash.stdout().context("place.sh without output")?;
        let lines: Result<Vec<String>, _> = BufReader::new(stdout).lines().take(4).collect();
        let lines = lines?;
        ensure!(lines.len() == 4, "no place `{word}` could be made");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        Ok(Place {
            host: lines[0].parse()?,
            listen: lines[1].parse()?,
            client: words(&lines[2]),
            server: words(&lines[3]),
            leash,
        })
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use jostle_testbed::shell::output;
    use std::io::{Read, Write};

    /// Whoever made it ends it by the end of its input, in whatever way.
    #[test]
    fn a_place_has_namespaces_and_leaves_none_behind() {
        for (word, address) in [
            ("apart", Some("198.18.0.2/24")),
            ("client", Some("198.18.0.2/24")),
            ("noise", None),
        ] {
            let script = "ip link set lo up; \"$0\" $1 8000; ip -o link | wc -l";
            let mut own = Command::new("unshare");
            own.args(["--net", "sh", "-c", script])
                .arg(directory().join("place.sh"))
                .arg(word)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut own = own.spawn().unwrap();
            let mut lines = BufReader::new(own.stdout.take().unwrap());
            let mut said = [(); 4].map(|()| String::new());
            for line in &mut said {
                lines.read_line(line).unwrap();
            }
            let client: Vec<&str> = said[2].split_whitespace().collect();
            assert_eq!(client.is_empty(), address.is_none(), "{said:?}");
            if let Some(address) = address {
                let mut ask = Command::new(client[0]);
                let found = output(ask.args(&client[1..]).args(["ip", "-br", "address"])).unwrap();
                assert!(found.contains(address), "{found}");
            }
            own.stdin.take().unwrap().flush().unwrap();
            let mut left = String::new();
            lines.read_to_string(&mut left).unwrap();
            assert_eq!(left.trim(), "1", "{word}");
            assert!(own.wait().unwrap().success());
        }
    }
}
