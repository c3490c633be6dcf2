//! Every command against the real daemon, as a client sees it.

mod admin;
mod figures;
mod large;
mod locks;
mod sessions;
mod tools;
mod users;
mod waits;
mod wire;

use crate::common::Daemon;

/// Plays rows of (who, request, short reply).
fn play(daemon: &Daemon, rows: &[(usize, &str, &str)]) {
    let mut clients: Vec<_> = (0..4).map(|_| daemon.client()).collect();
    for (who, line, expected) in rows {
        assert_eq!(clients[*who].say(line), *expected, "{who}: {line}");
    }
}
