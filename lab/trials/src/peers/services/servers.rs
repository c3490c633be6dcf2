//! The servers that are measured, each on the server's CPU.

use super::Ground;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{Placed, Running, Server, launch};

/// Who may take jostle's locks, and how many.
const USERS: &str = "user default on nopass ~jostle* +@lock max-locks=100000 max-waiters=100000 \
     max-connections=10000\n";

/// Starts one, which ends when it is dropped; a jostled has its metrics at this port.
pub(super) fn start(server: &str, ground: &Ground) -> anyhow::Result<(Running, u16)> {
    let placed = Placed {
        cpu: Some(ground.server_cpu),
        ..Placed::default()
    };
    let metrics = free_port()?;
    let running = match server {
        // Writing nothing to disk.
        "redis" | "redisson" => Server::Redis.start_at(&ground.jostle, placed),
        "relays" => launch(Server::Other, placed, |address, _| {
            let lab = ground.lab.display();
            Ok(words(&format!("{lab} relay {}", address.port())))
        }),
        // As it comes, tokens on disk included, with room for all waiters.
        _ => launch(Server::Other, placed, |address, place| {
            let (jostled, data) = (ground.jostled.display(), place.display());
            let mut line = format!(
                "env --unset=JOSTLED_PASSWORD {jostled} --data {data} --listen {address} \
                 --metrics 127.0.0.1:{metrics} --max-connections 15000 \
                 --max-waiters-per-lock 15000"
            );
            if server == "governed" {
                std::fs::write(place.join("users"), USERS)?;
                line += &format!(" --log-level debug --users-file {data}/users");
            }
            Ok(words(&line))
        }),
    };
    Ok((running?, metrics))
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
