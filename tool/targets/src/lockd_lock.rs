//! What `lockd` and `lockd+unix` share: a worker's connection to jostled.

use crate::address::Address;
use crate::keeping::whole_millis;
use crate::login::Credentials;
use crate::names::Names;
use crate::remote::{Client, RemoteLock, info_figure};
use crate::signs::{self, Signs};
use crate::strangers::strangers;
use crate::wire::{Answer, Asking, Reply, Request, Wire, refused, wrong_kind};
use crate::{CallError, Dialled, Keeping, LEASE_FACT, Mode, ServerFigures, Setup, SetupError};
use jostle_resp::request::encode;
use jostle_sys::files::Errno;
use std::collections::BTreeMap;

/// A worker's lock on a jostled.
pub(crate) type DaemonLock = RemoteLock<DaemonWire>;

/// The variables with the user and password for a server, the same as jostled's own. A
/// command line would be visible to every user, and is stored in results.
const VARIABLES: [&str; 2] = ["JOSTLED_USER", "JOSTLED_PASSWORD"];

/// For a server that was launched for the run with this password.
fn of_launched(password: Option<String>) -> Credentials {
    Credentials {
        user: None,
        password,
    }
}

/// A server, and the names of this run's locks on it.
pub(crate) struct Daemon {
    address: Address,
    own: Credentials,
    names: Names,
    keys: usize,
    /// The leases of the locks; None: the locks belong to their connections.
    lease_ms: Option<u64>,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "jostled at {}", self.address)
    }
}

impl Daemon {
    /// Asks a server that was launched for the run whether it is a jostled.
    pub(crate) fn prepare(address: Address, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        Daemon::asked(address, of_launched(setup.launcher.secret()), setup)
    }

    /// The same of a server of the user's own, which may want a password.
    pub(crate) fn prepare_named(address: Address, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        let own = Credentials::find(setup.credentials, VARIABLES)?;
        Daemon::asked(address, own, setup)
    }

    fn asked(address: Address, own: Credentials, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        let daemon = Daemon {
            address,
            own,
            names: Names::new(setup)?,
            keys: setup.keys,
            // `recover` asks every target for a lease, but does not renew it (`kept` is
            // false). The locks then belong to their connection, which is what its faults
            // strike.
            lease_ms: setup.lease.filter(|_| setup.kept).map(whole_millis),
        };
        daemon.figures()?;
        Ok(daemon)
    }

    fn client(&self) -> Result<Client, SetupError> {
        Client::admitted(&self.address, &self.own)
    }

    /// Launches this server on a socket among the run's own files.
    pub(crate) fn launch_unix(server: &str, setup: &Setup<'_>) -> Result<Daemon, SetupError> {
        let path = setup.ledger.path().join(format!("{server}.socket"));
        let server = format!("{server}:{}", path.display());
        let address = Address::Unix(setup.launcher.launch(&server)?.into());
        Daemon::prepare(address, setup)
    }

    pub(crate) fn join(&self) -> Result<DaemonLock, SetupError> {
        let client = self.client()?;
        Ok(RemoteLock::new(client, self.wire()))
    }

    pub(crate) fn dial(&self) -> Result<Dialled, SetupError> {
        Ok(Dialled {
            stream: self.client()?.into_stream(),
            wire: Box::new(self.wire()),
        })
    }

    fn wire(&self) -> DaemonWire {
        DaemonWire {
            names: self.names,
            leased: self.lease_ms.map(|lease_ms| Leased {
                digits: lease_ms.to_string().into_bytes(),
                keeping: Keeping::each(RENEW, lease_ms * 1_000_000),
                tokens: vec![0; self.keys],
            }),
        }
    }

    /// The lease, where there is one.
    pub(crate) fn facts(&self) -> BTreeMap<String, f64> {
        let lease = self.lease_ms.map(|lease_ms| lease_ms as f64 * 1e6);
        lease
            .map(|ns| (LEASE_FACT.to_owned(), ns))
            .into_iter()
            .collect()
    }

    /// The figures that the server reports under these names. A figure that it does not
    /// report is left out; if it does not answer, all are.
    pub(crate) fn noted(&self, names: &[&str]) -> BTreeMap<String, f64> {
        let info = self.client().and_then(|mut client| client.ask(&[b"INFO"]));
        let info = info.unwrap_or_default();
        let figure = |name: &&str| Some(((*name).to_owned(), info_figure(&info, name)? as f64));
        names.iter().filter_map(figure).collect()
    }

    pub(crate) fn signs(&self) -> Signs {
        let info = self.client().and_then(|mut client| client.ask(&[b"INFO"]));
        let uptime_s = info_figure(&info.unwrap_or_default(), "uptime_in_seconds");
        let known = uptime_s.map(|s| (signs::UPTIME, s.to_string()));
        known.into_iter().collect()
    }

    pub(crate) fn strangers(&self) -> Vec<String> {
        strangers(self.client())
    }

    pub(crate) fn figures(&self) -> Result<ServerFigures, SetupError> {
        let info = self.client()?.ask(&[b"INFO"])?;
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
            ..ServerFigures::default()
        })
    }
}

/// LOCK and UNLOCK. A connection's locks are released when it ends, unless they have leases.
#[derive(Clone, Debug)]
pub struct DaemonWire {
    names: Names,
    leased: Option<Leased>,
}

/// What leases take: LOCK with TTL, and RENEW.
#[derive(Clone, Debug)]
struct Leased {
    /// The lease in milliseconds.
    digits: Vec<u8>,
    keeping: Keeping,
    /// The token of our last grant of each lock.
    tokens: Vec<u64>,
}

const RENEW: &str = "RENEW";

/// The lock was not ours any more when it was to be given up.
const LAPSED: CallError = CallError {
    call: "UNLOCK",
    errno: Errno::TIMEDOUT.raw_os_error(),
    said: Some("the lease was over before the release"),
};

/// Whether an error says that a lease has ended.
fn has_lapsed(text: &[u8]) -> bool {
    text.starts_with(b"NOTOWNER") || text.starts_with(b"NOTHELD")
}

impl Wire for DaemonWire {
    fn name(&self, request: Request) -> &'static str {
        match request {
            Request::Acquire => "LOCK",
            Request::Release => "UNLOCK",
        }
    }

    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        let (command, timeout): (&[u8], _) = match asking {
            Asking::Try => (b"TRYLOCK", None),
            Asking::Block => (b"LOCK", None),
            // Rounded up, so that the wait is not shorter than the user's timeout.
            Asking::Within { left_ns } => (
                b"LOCK",
                Some(decimal(left_ns.div_ceil(1_000_000), &mut digits)),
            ),
        };
        let name = self.names.name(key);
        let mut words: [&[u8]; 7] = [command, &name, b"", b"", b"", b"", b""];
        let mut count = 2;
        let mut push = |word| {
            words[count] = word;
            count += 1;
        };
        if let Some(leased) = &self.leased {
            push(b"TTL".as_slice());
            push(&leased.digits);
        }
        if let Some(timeout) = timeout {
            push(b"WAIT".as_slice());
            push(timeout);
        }
        if mode == Mode::Shared {
            push(b"SHARED".as_slice());
        }
        encode(out, &words[..count]);
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        encode(out, &[b"UNLOCK", &self.names.name(key)]);
    }

    #[inline]
    fn acquired(&mut self, key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        match reply {
            Reply::Integer(token) => {
                if let Some(leased) = &mut self.leased {
                    leased.tokens[key] = token as u64;
                }
                Ok(Answer::Granted)
            }
            Reply::Nil => Ok(Answer::Taken),
            Reply::Error(text) => Err(refused("LOCK", text)),
            Reply::Text(_) => Err(wrong_kind("LOCK")),
        }
    }

    #[inline]
    fn token(&self, granted: Reply<'_>) -> Option<u64> {
        match granted {
            // A jostled counts up to 2^63.
            Reply::Integer(token) => Some(token as u64),
            _ => None,
        }
    }

    #[inline]
    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Integer(1) => Ok(()),
            Reply::Error(text) if self.leased.is_some() && has_lapsed(text) => Err(LAPSED),
            Reply::Error(text) => Err(refused("UNLOCK", text)),
            _ => Err(wrong_kind("UNLOCK")),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.leased.as_ref()?.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        let Some(leased) = &self.leased else { return };
        let mut token = [0; 20];
        let words: [&[u8]; 5] = [
            b"RENEW",
            &self.names.name(key),
            decimal(leased.tokens[key], &mut token),
            b"TTL",
            &leased.digits,
        ];
        encode(out, &words);
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match reply {
            Reply::Integer(1) => Ok(true),
            Reply::Error(text) if has_lapsed(text) => Ok(false),
            Reply::Error(text) => Err(refused(RENEW, text)),
            _ => Err(wrong_kind(RENEW)),
        }
    }

    fn polls_every_ns(&self) -> Option<u64> {
        None
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
