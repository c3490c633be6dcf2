//! What `lockd` and `lockd+unix` share: a worker's connection to jostled.

use crate::remote::{Address, Client, Reply, info_figure};
use crate::{CallError, Lock, Mode, Outcome, ServerFigures, Setup, SetupError, Wait};
use jostle_resp::request::encode;
use jostle_sys::clock;

/// A server, and the names of this run's locks on it.
#[derive(Debug)]
pub struct Daemon {
    address: Address,
    names: Vec<Vec<u8>>,
}

impl Daemon {
    /// Asks the server whether it is a jostled.
    pub fn prepare(address: Address, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        let daemon = Daemon {
            address,
            names: names(setup),
        };
        daemon.figures()?;
        Ok(daemon)
    }

    pub fn join(&self) -> Result<DaemonLock, SetupError> {
        Ok(DaemonLock {
            client: Client::connect(&self.address)?,
            names: self.names.clone(),
        })
    }

    pub fn figures(&self) -> Result<ServerFigures, SetupError> {
        let info = Client::connect(&self.address)?.ask(&[b"INFO"])?;
        let grants = info_figure(&info, "grants").ok_or_else(|| {
            SetupError(format!(
                "the server at {} is not a jostled: its INFO counts no grants",
                self.address
            ))
        })?;
        Ok(ServerFigures {
            grants: Some(grants),
            pid: self.address.process(&info),
        })
    }
}

/// Names that no other run has, so that runs side by side do not meet.
pub fn names(setup: &Setup<'_>) -> Vec<Vec<u8>> {
    let run = setup
        .ledger
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let run = run.trim_start_matches("jostle-");
    (0..setup.keys)
        .map(|key| format!("jostle:{run}:{key}").into_bytes())
        .collect()
}

/// One worker's connection. What it holds goes with it.
#[derive(Debug)]
pub struct DaemonLock {
    client: Client,
    names: Vec<Vec<u8>>,
}

impl Lock for DaemonLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let mut digits = [0; 20];
        let (command, timeout): (&[u8], _) = match wait {
            Wait::Try => (b"TRYLOCK", None),
            Wait::Block { .. } => (b"LOCK", None),
            Wait::Until(until) => {
                // Rounded up: the user's timeout is the least that is waited.
                let left = until.saturating_sub(clock::monotonic()).div_ceil(1_000_000);
                (b"LOCK", Some(decimal(left, &mut digits)))
            }
        };
        let mut words = [command, &self.names[key], b"", b"", b""];
        let mut count = 2;
        let mut push = |word| {
            words[count] = word;
            count += 1;
        };
        if let Some(timeout) = timeout {
            push(b"WAIT".as_slice());
            push(timeout);
        }
        if mode == Mode::Shared {
            push(b"SHARED".as_slice());
        }
        self.client.request.clear();
        encode(&mut self.client.request, &words[..count]);
        Ok(match self.client.call("LOCK")? {
            Reply::Integer(_) => Outcome::Granted,
            Reply::Interrupted => Outcome::Interrupted,
            Reply::Nil | Reply::Text => Outcome::Refused,
        })
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.client.request.clear();
        encode(&mut self.client.request, &[b"UNLOCK", &self.names[key]]);
        self.client.call("UNLOCK").map(|_| ())
    }
}

/// A number's digits, without an allocation.
fn decimal(mut number: u64, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    loop {
        at -= 1;
        into[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_become_digits() {
        for (number, digits) in [(0, "0"), (30, "30"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(super::decimal(number, &mut [0; 20]), digits.as_bytes());
        }
    }
}
