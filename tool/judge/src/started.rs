//! The server of `--start-server`: started apart from the command, before it, and ended after it.

use super::guard::{Guard, News};
use super::{JudgeError, remedy};
use jostle_model::ServerAt;
use jostle_model::text::quoted;
use jostle_sys::serving::{self, Address};
use jostle_sys::{clock, process};
use std::time::Duration;

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether it listens.
const PAUSE_NS: u64 = 20_000_000;

/// Starts it, and waits until one of its processes accepts connections: at `named`, or anywhere.
///
/// # Errors
/// That it cannot be started, ended, does not listen, or the user gave up.
pub(super) fn start(
    words: &[String],
    named: Option<&ServerAt>,
    asked: &mut dyn FnMut() -> Option<i32>,
) -> Result<Guard, JudgeError> {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let command = quoted.join(" ");
    let mut guard =
        Guard::start(words, None, &mut None, true).map_err(|cause| JudgeError::Server {
            remedy: remedy(&cause),
            why: format!("cannot be started: {cause}"),
            command: command.clone(),
        })?;
    let refuse = |why: String, remedy: &'static str| JudgeError::Server {
        command: command.clone(),
        why,
        remedy,
    };
    let address = match named {
        Some(ServerAt::Port(port)) => Some(Address::Port(*port)),
        Some(ServerAt::Unix(path)) => Some(Address::Unix(path.clone())),
        _ => None,
    };
    let until_ns = clock::monotonic() + PATIENCE.as_nanos() as u64;
    loop {
        let own = process::with_descendants(guard.pid);
        let listens = match &address {
            Some(address) => serving::serving(address)
                .iter()
                .any(|pid| own.contains(pid)),
            None => own.iter().any(|pid| serving::accepts(*pid)),
        };
        if listens {
            return Ok(guard);
        }
        let now_ns = clock::monotonic();
        let news = guard.news(now_ns + PAUSE_NS).map_err(JudgeError::Lost)?;
        // A server that goes on in the background has ended in the foreground.
        let is_left = || process::with_descendants(guard.pid).len() > 1;
        match news {
            Some(News::Over { .. }) => guard.let_go().map_err(JudgeError::Lost)?,
            Some(News::Ended { code, signal, .. }) if code != Some(0) || !is_left() => {
                let how = match (code, signal) {
                    (Some(code), _) => format!("exit code {code}"),
                    (_, signal) => signal.map_or(String::new(), process::signal_name),
                };
                let why = format!("ended before it listened ({how})");
                return Err(refuse(why, "run it by itself to see why"));
            }
            _ => {}
        }
        if asked().is_some() {
            return Err(refuse(
                "was not awaited: interrupted".to_owned(),
                "run it again",
            ));
        }
        if now_ns >= until_ns {
            let at = named.map_or(String::new(), |named| format!(" at {named}"));
            let why = format!("did not listen{at} within {} s", PATIENCE.as_secs());
            return Err(refuse(
                why,
                "name a command that accepts connections over TCP or a Unix socket; --server :PORT \
                 says where",
            ));
        }
    }
}
