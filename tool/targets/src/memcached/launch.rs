//! How a memcached is launched for a run.

use super::stats;
use crate::program::{Ground, LaunchRecipe, Program, Words};
use crate::{Setup, SetupError};

/// Its own limit where nothing is said.
const USUAL_CONNECTIONS: usize = 1024;

/// Memory for items, in MiB: for each lock 250 bytes, and what it comes with.
const USUAL_MIB: usize = 64;
const ITEM_BYTES: usize = 250;

/// The user of a launched server, and its file of users and passwords.
pub(super) const OWNER: &str = "jostle";
const USERS: &str = "users";

pub(super) static PROGRAM: Program = Program {
    file: "memcached",
    places: &[],
    package: Some("memcached"),
    launch_ms: 100,
    asks_libc: true,
};

/// A server with room for the workers and their locks, and otherwise as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    pub connections: usize,
    /// Memory for items.
    pub mebibytes: usize,
}

impl Launch {
    pub(super) fn with_room(setup: &Setup<'_>) -> Launch {
        Launch {
            // It limits its descriptors to the same number, and needs some for its threads.
            connections: setup.connections(USUAL_CONNECTIONS),
            mebibytes: USUAL_MIB + (setup.keys * ITEM_BYTES).div_ceil(1 << 20),
        }
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn instead_of_root(&self) -> Option<&'static str> {
        Some("memcache")
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        vec![(USERS, format!("{OWNER}:{}\n", ground.secret))]
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let options = format!(
            "--listen=127.0.0.1 --port={} --udp-port=0 --auth-file={USERS} --conn-limit={} \
             --memory-limit={}",
            ground.port, self.connections, self.mebibytes
        );
        options.split(' ').map(str::to_owned).collect()
    }

    fn ready(&self, ground: &Ground) -> Result<(), SetupError> {
        stats(&ground.login(Some(OWNER))).map(drop)
    }
}
