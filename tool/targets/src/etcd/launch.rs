//! How an etcd is launched, alone or as a member of a cluster.

use super::server::status;
use crate::prelude::*;
use crate::program::{Leads, free_ports};

pub(super) static PROGRAM: Program = Program {
    file: "etcd",
    places: &[],
    package: Some("etcd-server"),
    launch_ms: 700,
    asks_libc: false,
};

/// One server, as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Its place in the cluster, from 0.
    number: usize,
    /// The ports by which its members hear each other; 0 of one that is alone.
    ports: Vec<u16>,
}

impl Launch {
    /// The members of a cluster.
    ///
    /// # Errors
    /// No free ports.
    pub fn members(count: usize) -> Result<Vec<Launch>> {
        let ports = match count {
            // Nobody is to be heard: any port.
            0 | 1 => vec![0],
            _ => free_ports(count)?,
        };
        let member = |number| Launch {
            number,
            ports: ports.clone(),
        };
        Ok((0..ports.len()).map(member).collect())
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let here = format!("http://{}", ground.address());
        let heard =
            |number: usize| format!("http://{}:{}", ground.host_of(number), self.ports[number]);
        let each = (0..self.ports.len()).map(|nth| format!("member{nth}={}", heard(nth)));
        let all: Vec<String> = each.collect();
        let peers = heard(self.number);
        vec![
            format!("--data-dir={}", text(&ground.directory.join("data"))),
            format!("--listen-client-urls={here}"),
            format!("--advertise-client-urls={here}"),
            format!("--name=member{}", self.number),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster={}", all.join(",")),
        ]
    }

    fn leads(&self) -> Option<Leads> {
        Some(|address, _| {
            let address = Address::Tcp(address.to_owned());
            let told = status(&address, &Credentials::default());
            told.is_ok_and(|told| {
                let own = told.header.map(|header| header.member_id);
                own == Some(told.leader)
            })
        })
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        status(&Address::Tcp(ground.address()), &Credentials::default()).map(drop)
    }
}
