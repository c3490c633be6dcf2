//! Servers that jostle launched and that ended before their run: which, how, and what
//! they logged. A client sees a lost connection only, which does not tell why.

use super::server_log::ServerLog;
use super::servers::Servers;
use crate::order::Reply;
use jostle_harness::{Aborted, how_it_ended};
use jostle_sys::process::Ended;
use rustix::process::Signal;
use std::time::Duration;

/// Its connections are closed a moment before it can be seen to have ended.
const MOMENT: Duration = Duration::from_millis(100);

impl Servers<'_> {
    /// The reply about a run on these servers. A server that ended before the run is added
    /// to its deaths, or named before the error of a run that failed.
    pub(super) fn outlived(&self, done: Result<Reply, Aborted>) -> Reply {
        let has_failed = match &done {
            Ok(Reply::Ran(data)) => !data.around.errors.is_empty(),
            Ok(_) => false,
            Err(_) => true,
        };
        let mut deaths = self.deaths();
        if deaths.is_empty() && has_failed && !self.is_empty() {
            std::thread::sleep(MOMENT);
            deaths = self.deaths();
        }
        match done {
            Ok(Reply::Ran(mut data)) => {
                data.around.deaths.extend(deaths);
                Reply::Ran(data)
            }
            Ok(reply) => reply,
            Err(Aborted(text)) => Reply::Failed([deaths, vec![text]].concat().join("; then: ")),
        }
    }
}

/// In words; its log is quoted where it had time to write one.
pub(super) fn death(name: &str, ended: &Ended, log: Option<&ServerLog>) -> String {
    let how = how_it_ended(ended);
    let text = format!(
        "the server {name} that jostle launched (pid {}): {how}",
        ended.pid
    );
    let is_killed = ended.signal == Some(Signal::KILL.as_raw());
    match log.filter(|_| !is_killed).map(ServerLog::last_words) {
        Some(logged) => format!("{text}; it logged: {logged}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::process::Usage;

    #[test]
    fn a_death_quotes_the_log_unless_the_server_was_killed() {
        let place = tempfile::tempdir().unwrap();
        let log = ServerLog::create(place.path()).unwrap();
        log.note("no space left");
        let ended = |code, signal| Ended {
            pid: 7,
            code,
            signal,
            usage: Usage::default(),
        };
        for (ended, says) in [
            (
                ended(Some(1), None),
                "exit code 1; it logged: no space left",
            ),
            (
                ended(None, Some(6)),
                "killed by SIGABRT; it logged: no space left",
            ),
            (ended(None, Some(9)), "killed by SIGKILL"),
        ] {
            let text = death("etcd", &ended, Some(&log));
            let expected = format!("the server etcd that jostle launched (pid 7): {says}");
            assert_eq!(text, expected);
        }
    }
}
