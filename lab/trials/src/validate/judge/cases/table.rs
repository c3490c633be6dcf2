//! The tables of cases and of servers, and what is planted in a case.

use crate::validate::columns;
use crate::validate::sides::Side;
use anyhow::{Context, bail};
use jostle_model::judged::Limit;
use jostle_sys::limits::cpu_group::NO_QUOTA_CPUS;

/// The cases by which rules were made, and those that were written down after the rules; the fifth
/// table has two authors.
pub(super) const TABLES: [&str; 5] = [
    include_str!("../../../../cases/cases.tsv"),
    include_str!("../../../../cases/cases-2.tsv"),
    include_str!("../../../../cases/cases-3.tsv"),
    include_str!("../../../../cases/cases-4.tsv"),
    concat!(
        include_str!("../../../../cases/cases-5a.tsv"),
        include_str!("../../../../cases/cases-5b.tsv")
    ),
];
const SERVERS: &str = include_str!("../../../../cases/servers.tsv");

/// Cases of the first table whose number is a multiple of this are held aside; all of the others
/// are.
const ASIDE: u32 = 3;

/// How far apart the numbers of the tables' first cases are: 1, 101, 201, 301, 401.
const EACH: u32 = 100;

/// A line of the table.
pub(super) struct Case {
    pub number: u32,
    pub server: &'static str,
    /// The server that this one asks.
    pub behind: Option<&'static str>,
    pub planted: Vec<Plant>,
    pub truth: Vec<Limit>,
    pub command: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plant {
    /// Neither side has a CPU of its own.
    Free,
    /// Both sides, and a busy loop that is no part of either, have the first CPU.
    Beside,
    /// The number of ports for new connections.
    Ports(u16),
    /// CPUs of a side, from when on in seconds.
    Quota(Side, f64, f64),
    /// From when on and until when a side is stopped, in seconds.
    Stop(Side, f64, f64),
    /// When the server is killed.
    Kill(f64),
    /// Where client, server and judge are, by a word of place.sh, unless all are in one namespace.
    Place(&'static str),
    /// The command starts its server and ends it.
    Script,
}

impl Case {
    /// Whether no rule may be made by it.
    pub(super) fn is_aside(&self) -> bool {
        self.table() > 1 || self.number.is_multiple_of(ASIDE)
    }

    /// Where it runs.
    pub(super) fn place(&self) -> Option<&'static str> {
        self.planted.iter().find_map(|planted| match planted {
            Plant::Place(place) => Some(*place),
            _ => None,
        })
    }

    /// The table that has it, from 1.
    pub(super) fn table(&self) -> usize {
        ((self.number - 1) / EACH) as usize + 1
    }
}

/// How a shell starts a server of the table.
pub(super) fn server_line(name: &str) -> Option<&'static str> {
    let mut lines = columns(SERVERS).filter(|[server, _]| *server == name);
    lines.next().map(|[_, line]| line)
}

pub(super) fn cases() -> anyhow::Result<Vec<Case>> {
    let each = |table: usize| columns(TABLES[table]).zip(EACH * table as u32 + 1..);
    let each = (0..TABLES.len()).flat_map(each);
    let each = each.map(|([servers, planted, truth, command, _why], number)| {
        let (server, behind) = match servers.split_once(' ') {
            Some((server, behind)) => (server, Some(behind)),
            None => (servers, None),
        };
        let planted = planted.split(' ').filter(|word| *word != "-");
        let words = truth.split('|');
        let truth = words.map(|word| serde_json::from_value(word.into()));
        Ok(Case {
            number,
            server,
            behind,
            planted: planted.map(plant).collect::<anyhow::Result<_>>()?,
            truth: truth.collect::<Result<_, _>>()?,
            command,
        })
    });
    each.collect()
}

fn plant(word: &'static str) -> anyhow::Result<Plant> {
    let (what, value) = word.split_once('=').unwrap_or((word, ""));
    let (side, what) = match what.split_once(':') {
        Some(("generator", what)) => (Side::Generator, what),
        Some(("server", what)) => (Side::Server, what),
        _ => (Side::Generator, what),
    };
    Ok(match what {
        "free" => Plant::Free,
        "beside" => Plant::Beside,
        "ports" => Plant::Ports(value.parse()?),
        "quota" => {
            let (cpus, from_s) = value.split_once('@').unwrap_or((value, "0"));
            Plant::Quota(side, cpus.parse()?, from_s.parse()?)
        }
        "lift" => Plant::Quota(side, NO_QUOTA_CPUS, value.parse()?),
        "kill" => Plant::Kill(value.parse()?),
        "apart" | "dnat" | "snat" | "hop" | "podman" | "inside" | "noise" | "client" => {
            Plant::Place(what)
        }
        "script" => Plant::Script,
        "stop" => {
            let (from, to) = value.split_once('-').context("stop=FROM-TO")?;
            Plant::Stop(side, from.parse()?, to.parse()?)
        }
        _ => bail!("nothing is planted by `{word}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_enough_cases_and_every_truth_and_servers_that_are_known() {
        let cases = cases().unwrap();
        let of_table = |table| cases.iter().filter(move |case| case.table() == table);
        assert!((1..=TABLES.len()).all(|table| of_table(table).count() >= 44));
        for limit in [
            Limit::Generator,
            Limit::Server,
            Limit::Machine,
            Limit::Downstream,
            Limit::Ports,
            Limit::Timer,
            Limit::Path,
            Limit::Nothing,
        ] {
            for table in 1..=TABLES.len() {
                let is_there = of_table(table).any(|case| case.truth.contains(&limit));
                assert!(is_there, "{limit:?} in table {table}");
            }
        }
        let known = [
            "redis",
            "jostled",
            "postgres",
            "mariadb",
            "memcached",
            "none",
        ];
        let is_known = |name: &str| known.contains(&name) || server_line(name).is_some();
        for case in &cases {
            let mut servers = [Some(case.server), case.behind].into_iter().flatten();
            assert!(servers.all(is_known), "case {}", case.number);
            let is_script = case.planted.contains(&Plant::Script);
            assert!(!is_script || case.server == "none", "case {}", case.number);
            let is_there = |planted: &&Plant| matches!(planted, Plant::Place(_));
            let places = case.planted.iter().filter(is_there).count();
            assert!(places + usize::from(is_script) <= 1, "case {}", case.number);
        }
    }

    #[test]
    fn what_is_planted_is_a_word_with_its_numbers() {
        assert_eq!(
            plant("server:quota=0.2").unwrap(),
            Plant::Quota(Side::Server, 0.2, 0.0)
        );
        assert_eq!(
            plant("server:quota=0.2@1").unwrap(),
            Plant::Quota(Side::Server, 0.2, 1.0)
        );
        assert_eq!(
            plant("generator:lift=2").unwrap(),
            Plant::Quota(Side::Generator, NO_QUOTA_CPUS, 2.0)
        );
        assert_eq!(
            plant("generator:stop=1.5-3").unwrap(),
            Plant::Stop(Side::Generator, 1.5, 3.0)
        );
        assert_eq!(plant("server:kill=2").unwrap(), Plant::Kill(2.0));
        assert_eq!(plant("ports=300").unwrap(), Plant::Ports(300));
        assert_eq!(plant("beside").unwrap(), Plant::Beside);
        assert_eq!(plant("apart").unwrap(), Plant::Place("apart"));
        assert!(plant("server:quota=much").is_err() && plant("slower").is_err());
    }
}
