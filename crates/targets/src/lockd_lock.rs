//! What `lockd` and `lockd+unix` share: a worker's connection to jostled.

use crate::remote::{Address, Client, Reply, info_figure};
use crate::{CallError, Calls, Kind, Lock, Mode, Outcome, ServerFigures, Setup, SetupError, Wait};
use jostle_resp::request::encode;
use jostle_sys::clock;
use jostle_sys::files::Errno;

/// A server, and the names of this run's locks on it.
#[derive(Debug)]
pub struct Daemon {
    address: Address,
    names: Names,
}

impl Daemon {
    /// Asks the server whether it is a jostled.
    pub fn prepare(address: Address, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        let daemon = Daemon {
            address,
            names: Names::new(setup),
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
            memory_bytes: info_figure(&info, "table_memory"),
        })
    }
}

/// Names that no other run has, so that runs side by side do not meet. They
/// are written as they are needed: a million of them for each worker would take
/// longer to make than to lock.
#[derive(Clone, Debug)]
pub struct Names {
    prefix: Vec<u8>,
}

/// Bytes of a ledger's name that go into a lock's, at most.
const LONGEST_RUN: usize = 40;

/// Room for a name: `jostle:`, the run, a colon and a number's digits.
pub const NAME_BYTES: usize = 7 + LONGEST_RUN + 1 + 20;

impl Names {
    /// From the ledger's directory, which is this run's alone.
    pub fn new(setup: &Setup<'_>) -> Names {
        let run = setup
            .ledger
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let run = run.trim_start_matches("jostle-");
        // Its end is what tells runs apart.
        let cut = run.len().saturating_sub(LONGEST_RUN);
        let mut prefix = b"jostle:".to_vec();
        prefix.extend_from_slice(&run.as_bytes()[cut..]);
        prefix.push(b':');
        Names { prefix }
    }

    /// The name of lock number `key`.
    #[inline]
    pub fn write<'a>(&self, key: usize, into: &'a mut [u8; NAME_BYTES]) -> &'a [u8] {
        let mut digits = [0; 20];
        let digits = decimal(key as u64, &mut digits);
        let prefix = self.prefix.len();
        into[..prefix].copy_from_slice(&self.prefix);
        into[prefix..prefix + digits.len()].copy_from_slice(digits);
        &into[..prefix + digits.len()]
    }
}

/// One worker's connection. What it holds goes with it.
#[derive(Debug)]
pub struct DaemonLock {
    client: Client,
    names: Names,
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
        let mut name = [0; NAME_BYTES];
        let mut words = [command, self.names.write(key, &mut name), b"", b"", b""];
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
        let mut name = [0; NAME_BYTES];
        let name = self.names.write(key, &mut name);
        self.client.request.clear();
        encode(&mut self.client.request, &[b"UNLOCK", name]);
        self.client.call("UNLOCK").map(|_| ())
    }

    fn batch(&mut self, calls: Calls, _wait: Wait) -> Result<Outcome, CallError> {
        self.client.request.clear();
        for nth in 0..calls.count {
            let mut name = [0; NAME_BYTES];
            let name = self.names.write(calls.key(nth), &mut name);
            if calls.kind != Kind::Releases {
                encode(&mut self.client.request, &[b"LOCK", name]);
            }
            if calls.kind != Kind::Acquires {
                encode(&mut self.client.request, &[b"UNLOCK", name]);
            }
        }
        let whole = self
            .client
            .exchange("LOCK", calls.replies(), |_, reply| match reply {
                Reply::Integer(_) => Ok(()),
                _ => Err(CallError::new("LOCK", Errno::AGAIN)),
            })?;
        Ok(if whole {
            Outcome::Granted
        } else {
            Outcome::Interrupted
        })
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
    use super::{NAME_BYTES, Names};

    #[test]
    fn names_carry_their_number() {
        let names = Names {
            prefix: b"jostle:12-3:".to_vec(),
        };
        let mut room = [0; NAME_BYTES];
        assert_eq!(names.write(0, &mut room), b"jostle:12-3:0");
        assert_eq!(names.write(999_999, &mut room), b"jostle:12-3:999999");
    }

    #[test]
    fn numbers_become_digits() {
        for (number, digits) in [(0, "0"), (30, "30"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(super::decimal(number, &mut [0; 20]), digits.as_bytes());
        }
    }
}
