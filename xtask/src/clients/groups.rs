//! What clients do when the member of a group that serves is gone: `xtask/clients/groups.py`
//! plays that in namespaces, which needs root. The table is in lab/record/redis-libraries.md.

use super::Ground;
use jostle_testbed::shell;

/// A client, and how many of the two faults it gets over within a minute and a half.
const CLIENTS: [(&str, usize); 6] = [
    ("redis-py", 2),
    ("go-redis", 2),
    // It has no time limit of its own for an answer.
    ("ioredis", 1),
    ("jedis", 2),
    // Nor has redis-rs.
    ("redis-rs", 1),
    ("package python in a group", 2),
];

const WITHIN: &str = "unshare --net --mount --pid --fork --kill-child python3";

/// The failures, a line for each client.
pub(super) fn run(ground: &Ground, wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (client, faults) in CLIENTS.into_iter().filter(|(client, _)| wanted(client)) {
        let script = shell::root().join("xtask/clients/groups.py");
        let (script, jostled) = (script.display(), ground.jostled.display());
        let mut command = ground.script(super::raw::PROGRAMS);
        command
            .env("WITHIN", format!("{WITHIN} {script} {jostled}"))
            .args([client, "2626", "group"]);
        let said = match shell::output(&mut command) {
            Ok(said) => said,
            Err(error) => format!("{error:#}"),
        };
        println!("== {client}, a member is gone\n{said}");
        let over = said.lines().filter(|line| line.contains("served again"));
        if over.count() < faults || said.contains("LOST") {
            broken.push(format!("{client}: it does not get over a member's end"));
        }
    }
    broken
}
