//! The common part of `lockd`, `lockd+unix`, `echo` and `echo+unix`: a worker's connection to
//! jostled, or to a server that only answers like one.

use crate::keeping::whole_millis;
use crate::prelude::*;
use crate::remote::info_figure;
use crate::signs::{NoSigns, Told};
use crate::strangers::strangers;
use crate::wire::Answer;
use crate::{echo, echo_unix, lockd, lockd_unix};
use jostle_resp::request::encode;
use jostle_sys::clock;

/// A worker's lock on a jostled.
pub(crate) type DaemonLock = RemoteLock<DaemonWire>;

/// The variables with the user and password for a server, the same as jostled's own. A
/// command line would be visible to every user, and is stored in results.
pub(crate) const VARIABLES: [&str; 2] = ["JOSTLED_USER", "JOSTLED_PASSWORD"];

/// A jostled, or a server that only answers like one (`ANSWERS`), over TCP or a Unix socket.
#[derive(Debug)]
pub struct JostledTarget<const UNIX: bool, const ANSWERS: bool>(Daemon);

impl<const UNIX: bool, const ANSWERS: bool> Target for JostledTarget<UNIX, ANSWERS> {
    type Lock = DaemonLock;

    const ENTRY: Entry = match (UNIX, ANSWERS) {
        (false, false) => lockd::ENTRY,
        (true, false) => lockd_unix::ENTRY,
        (false, true) => echo::ENTRY,
        (true, true) => echo_unix::ENTRY,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Self> {
        let name = Self::ENTRY.name;
        let daemon = match (setup.argument, UNIX) {
            (Some(path), true) => Daemon::named(Address::Unix(path.into()), setup),
            (Some(place), false) if !ANSWERS => Daemon::named(lockd::address(place)?, setup),
            // On a socket among the run's own files.
            (None, true) => {
                let path = setup.ledger.path().join(format!("{name}.socket"));
                let path = setup
                    .launcher
                    .launch(&format!("{name}:{}", path.display()))?;
                Daemon::launched(Address::Unix(path.into()), setup)
            }
            (fault, false) => {
                let fault = fault.map_or(String::new(), |fault| format!(":{fault}"));
                let place = setup.launcher.launch(&format!("{name}{fault}"))?;
                Daemon::launched(lockd::address(&place)?, setup)
            }
        };
        daemon.map(JostledTarget)
    }

    fn join(&self, _worker: usize) -> Result<DaemonLock> {
        Ok(RemoteLock::new(self.0.client()?, self.0.wire()))
    }

    fn truth(&self) -> Facts {
        match (UNIX, ANSWERS) {
            (false, true) => self.0.noted(["answered", "slowed_ns", "lost", "doubled"]),
            _ => Facts::new(),
        }
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        self.0.figures().map(Some)
    }

    fn strangers(&self) -> Result<Vec<String>, NoSigns> {
        strangers(&self.0.login.address, self.0.client())
    }

    fn signs(&self) -> Told {
        signs::asked(&self.0.login.address, || {
            let info = self.0.info()?;
            let number = |name| info_figure(&info, name).map(Sign::from);
            Ok(signs::known([
                (sign::LIFE, number("process_id")),
                // By the monotonic clock, as its leases.
                (sign::UPTIME_S, number("uptime_in_seconds")),
                (sign::OWN_NAMES, Some(true.into())),
            ]))
        })
    }

    /// The lease, where there is one.
    fn facts(&self) -> Facts {
        let lease_ns = self.0.lease_ms.map(|lease_ms| lease_ms as f64 * 1e6);
        facts([(LEASE_FACT, lease_ns)])
    }
}

/// A server, and the names of this run's locks on it.
#[derive(Debug)]
pub(crate) struct Daemon {
    login: Login,
    names: Names,
    keys: usize,
    /// The leases of the locks; None: the locks belong to their connections.
    lease_ms: Option<u64>,
}

impl Daemon {
    /// Asks a server that was launched for the run whether it is a jostled.
    fn launched(address: Address, setup: &Setup<'_>) -> Result<Daemon> {
        let own = Credentials {
            user: None,
            password: setup.launcher.secret(),
        };
        Daemon::asked(address, own, setup)
    }

    /// Asks a server of the user's own, which may want a password.
    fn named(address: Address, setup: &Setup<'_>) -> Result<Daemon> {
        let own = Credentials::find(setup.credentials, VARIABLES)?;
        Daemon::asked(address, own, setup)
    }

    fn asked(address: Address, own: Credentials, setup: &Setup<'_>) -> Result<Daemon> {
        let daemon = Daemon {
            login: Login {
                address,
                own,
                path: None,
            },
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

    fn client(&self) -> Result<Client> {
        Client::admitted(&self.login)
    }

    fn info(&self) -> Result<Vec<u8>> {
        self.client()?.ask(&[b"INFO"])
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

    /// The figures that the server reports under these names. A figure that it does not
    /// report is left out; if it does not answer, all are.
    fn noted<const N: usize>(&self, names: [&str; N]) -> Facts {
        let info = self.info().unwrap_or_default();
        facts(names.map(|name| (name, info_figure(&info, name).map(|figure| figure as f64))))
    }

    fn figures(&self) -> Result<ServerFigures> {
        let info = self.info()?;
        let grants = info_figure(&info, "grants").ok_or_else(|| {
            SetupError(format!(
                "the server at {} is not a jostled: its INFO counts no grants",
                self.login.address
            ))
        })?;
        Ok(ServerFigures {
            grants: Some(grants),
            pid: self.login.address.process(&info),
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

/// The requests for leases: LOCK with TTL, and RENEW.
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
const LAPSED: CallError = CallError::lost("UNLOCK");

/// Whether an error says that a lease has ended.
fn has_lapsed(text: &[u8]) -> bool {
    text.starts_with(b"NOTOWNER") || text.starts_with(b"NOTHELD")
}

impl Wire for DaemonWire {
    fn names(&self) -> [&'static str; 2] {
        ["LOCK", "UNLOCK"]
    }

    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, asking: Asking, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let (command, timeout): (&[u8], _) = match asking {
            Asking::Try => (b"TRYLOCK", None),
            Asking::Block => (b"LOCK", None),
            // Rounded up, so that the wait is not shorter than the user's timeout.
            Asking::Until(time) => {
                let left_ns = time.saturating_sub(clock::monotonic());
                (b"LOCK", Some(digits.format(left_ns.div_ceil(1_000_000))))
            }
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
            push(timeout.as_bytes());
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
            other => Err(unexpected("LOCK", other)),
        }
    }

    #[inline]
    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Integer(1) => Ok(()),
            Reply::Error(text) if self.leased.is_some() && has_lapsed(text) => Err(LAPSED),
            other => Err(unexpected("UNLOCK", other)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.leased.as_ref()?.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        let Some(leased) = &self.leased else { return };
        let (name, mut token) = (self.names.name(key), itoa::Buffer::new());
        let token = token.format(leased.tokens[key]).as_bytes();
        encode(out, &[b"RENEW", &name, token, b"TTL", &leased.digits]);
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match reply {
            Reply::Integer(1) => Ok(true),
            Reply::Error(text) if has_lapsed(text) => Ok(false),
            other => Err(unexpected(RENEW, other)),
        }
    }
}
