//! What jostle measures: the capabilities as traits, one table, and one file
//! for each target.
//!
//! Two lives of a target: [`Target::prepare`] makes what all workers share
//! (files, semaphores, memory) in the keeper, before any worker exists;
//! [`Target::join`] makes one worker's own handle, in the worker. The handle's
//! [`Lock::acquire`] and [`Lock::release`] are the measured calls: they do not
//! allocate, log or look at a clock that the lock itself does not need.
//!
//! A new target is a file with an `impl Target` and one line in the table
//! below. Help, man page, `docs/targets.md` and the conformance tests walk it.

pub mod address;
pub mod answering;
pub mod caller;
pub mod endpoint;
mod exec;
mod http;
mod keeping;
mod ldap;
mod procd;
pub mod program;
pub mod remote;
mod spec;
pub mod stepped;
pub mod stream;
pub mod surplus;
pub mod table;
mod tcp;
mod tls;
mod unix;
pub mod wire;

mod argument;
mod command;
mod file_set;
mod http_head;
mod librarian;
mod listener;
mod lock_requests;
mod lockd_lock;
mod login;
mod mutex;
mod names;
mod record_lock;
mod semaphore;
mod shared_object;
mod specimen;
mod steps;
mod whereabouts;

use jostle_model::plan::{Carrier, Range};
use jostle_sys::files::Errno;
use jostle_sys::ledger::Ledger;
use jostle_sys::signal;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use program::{Launched, Program, Recipe};

pub use caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
pub use keeping::Keeping;
pub use spec::Spec;
pub use table::{Entry, Visitor};

// The order is the order of `jostle targets`.
table::targets! {
    flock::Flock,
    ofd::Ofd,
    posix::Posix,
    lockfile::Lockfile,
    sysv::Sysv,
    sysv_undo::SysvUndo,
    posix_sem::PosixSem,
    futex::Futex,
    spin::Spin,
    pthread::Pthread,
    pthread_robust::PthreadRobust,
    pthread_pi::PthreadPi,
    own_library::OwnLibrary,
    lockd::Lockd,
    lockd_unix::LockdUnix,
    redis::Redis,
    redisson::Redisson,
    memcached::Memcached,
    nats::Nats,
    mariadb::Mariadb,
    #[cfg(feature = "etcd")] etcd::Etcd,
    zookeeper::Zookeeper,
    consul::Consul,
    #[cfg(feature = "postgres")] postgres::Postgres,
    #[cfg(feature = "postgres")] postgres_try::PostgresTry,
    pipe::Pipe,
    null::Null,
    echo::Echo,
    echo_unix::EchoUnix,
    echo_pipe::EchoPipe,
    delay::Delay,
    stall::Stall,
    chained::Chained,
    cliff::Cliff,
    busted::Busted,
    unfair::Unfair,
}

/// The name among a target's facts of how long a lock lasts that nobody gives up.
pub const LEASE_FACT: &str = "lease_ns";

/// The name among a target's facts of its server's version, as `login::version` has it.
pub const VERSION_FACT: &str = jostle_model::record::SERVER_VERSION;

/// The name among a target's facts of how much earlier a lease may end, since the server
/// counts in steps.
pub const LEASE_STEP_FACT: &str = "lease_step_ns";

/// The name among a target's facts of how much later a lease may end, for the same reason.
pub const LEASE_LAG_FACT: &str = "lease_lag_ns";

/// Targets that connections are opened to, and that are no locks.
pub static CONNECTIONS: &[&Entry] = &[&tcp::ENTRY, &unix::ENTRY];

/// Targets that answer requests, and are no locks.
pub static REQUESTS: &[&RequestTarget] = &[
    &exec::TARGET,
    &procd::TARGET,
    &procd::THIN,
    &ldap::TARGET,
    &ldap::TLS_TARGET,
    &http::TARGET,
    &http::TLS_TARGET,
];

/// Every target, locks first.
pub fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    let requests = REQUESTS.iter().map(|target| &target.entry);
    TABLE.iter().chain(CONNECTIONS).copied().chain(requests)
}

/// The line of an entry in [`REQUESTS`]; None of a lock.
pub fn requests(entry: &Entry) -> Option<&'static RequestTarget> {
    let mut targets = REQUESTS.iter().copied();
    targets.find(|target| target.entry.name == entry.name)
}

/// How an acquisition excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One owner.
    Exclusive,
    /// Many owners, unless one is exclusive.
    Shared,
}

/// How long an attempt may take. Times are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Try,
    /// Until granted. The keeper interrupts waiters with a signal when the run
    /// is over; a lock whose wait no signal ends gives up at `last_resort_ns`.
    Block {
        /// After the end of the run, when nobody waits for a grant any more.
        last_resort_ns: u64,
    },
    /// Until this time: the user's `--acquire-timeout`.
    Until(u64),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller owns the lock.
    Granted,
    /// The caller owns the lock, and its last owner died holding it.
    GrantedFromDead,
    /// A try found it taken, or the time was up.
    Refused,
    /// The keeper ended the wait.
    Interrupted,
}

/// A call that failed: which one, and the system's number for why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {}", said.map_or_else(|| io::Error::from_raw_os_error(*errno).to_string(), str::to_owned))]
pub struct CallError {
    /// The system or library call, or the request.
    pub call: &'static str,
    /// Its errno; EPROTO where a server refused.
    pub errno: i32,
    /// What a server said.
    pub said: Option<&'static str>,
}

impl CallError {
    /// With the system's number for why.
    pub fn new(call: &'static str, errno: Errno) -> CallError {
        CallError {
            call,
            errno: errno.raw_os_error(),
            said: None,
        }
    }

    /// A call that the system refused.
    #[cold]
    pub fn from_system(call: &'static str, error: &io::Error) -> CallError {
        if let Some(failure) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return wire::refused(call, tls::told(failure).as_bytes());
        }
        CallError {
            call,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            said: None,
        }
    }

    /// Whether the keeper ended the wait, which is no failure of the target.
    #[cold]
    pub fn is_interrupted(&self) -> bool {
        self.errno == Errno::INTR.raw_os_error()
    }

    /// For a wait that the table says the lock does not have.
    #[cold]
    fn unsupported(call: &'static str) -> CallError {
        CallError::new(call, Errno::OPNOTSUPP)
    }
}

/// What an attempt comes to whose call ends with EINTR on any signal: only
/// the keeper's ends the wait.
#[inline]
fn until_granted(
    call: &'static str,
    mut attempt: impl FnMut() -> Result<(), Errno>,
) -> Result<Outcome, CallError> {
    loop {
        return match attempt() {
            Ok(()) => Ok(Outcome::Granted),
            Err(Errno::INTR) if !signal::interrupted() => continue,
            Err(Errno::INTR) => Ok(Outcome::Interrupted),
            // EACCES is what fcntl(2) may say instead of EAGAIN.
            Err(Errno::AGAIN | Errno::ACCESS | Errno::TIMEDOUT) => Ok(Outcome::Refused),
            Err(errno) => Err(CallError::new(call, errno)),
        };
    }
}

/// A target could not be set up, in words for the user: what failed, the
/// system's own message, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// Shared memory could not be had.
fn no_memory(error: io::Error) -> SetupError {
    SetupError(format!(
        "cannot make shared memory: {error}; use fewer keys, or raise the memory limit"
    ))
}

/// One worker's handle on `keys` locks.
pub trait Lock {
    /// Tries to become an owner of lock number `key`.
    ///
    /// # Errors
    /// The call that failed; a wait that a signal ended is no error.
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError>;

    /// Gives up lock number `key`, held in `mode`.
    ///
    /// # Errors
    /// The call that failed; EINTR where the keeper ended the wait for a server's answer
    /// ([`CallError::is_interrupted`]), so that nobody knows whether the lock is free.
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError>;

    /// The fencing token that came with the last grant, where the target sends any:
    /// a number that grows with every grant of the lock.
    #[inline]
    fn token(&self) -> Option<u64> {
        None
    }

    /// When the lease that the last grant rests on was asked for, where that was not by
    /// the request that was granted; by `CLOCK_MONOTONIC`.
    fn leased_at_ns(&self) -> Option<u64> {
        None
    }

    /// What its locks need so that they stay its own while they are held; None where
    /// nothing has to be renewed.
    fn keeping(&self) -> Option<Keeping> {
        None
    }

    /// Renews the leases of these locks, which it holds, or that of its session, whatever
    /// `keys` are. Appends to `lapsed` those of `keys` that were not its own any more.
    /// False where its session had ended, and with it every lock.
    ///
    /// # Errors
    /// The call that failed, which says nothing of the locks.
    fn renew(&mut self, _keys: &[usize], _lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        Ok(true)
    }

    /// What it and its server have said to each other for its locks; None where there is
    /// no server.
    fn traffic(&self) -> Option<Traffic> {
        None
    }

    /// Ends what the handle has with a server, once the run is over and every clock
    /// has been read. An answer that is still to come was never asked for.
    ///
    /// # Errors
    /// EPROTO where there was one.
    fn part(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    /// Makes many calls, the next without waiting for the answer to the one
    /// before where the target takes them so (`pipeline` in the table). Ends
    /// early only when interrupted; what was granted before is then unknown.
    ///
    /// # Errors
    /// The call that failed; EAGAIN where a lock was refused, since the calls
    /// that follow rely on it.
    fn batch(&mut self, calls: Calls, wait: Wait) -> Result<Outcome, CallError> {
        for nth in 0..calls.count {
            let key = calls.key(nth);
            if calls.kind != Kind::Releases {
                match self.acquire(key, Mode::Exclusive, wait)? {
                    Outcome::Granted | Outcome::GrantedFromDead => {}
                    Outcome::Refused => return Err(CallError::new("acquire", Errno::AGAIN)),
                    Outcome::Interrupted => return Ok(Outcome::Interrupted),
                }
            }
            if calls.kind != Kind::Acquires {
                match self.release(key, Mode::Exclusive) {
                    Err(error) if error.is_interrupted() => return Ok(Outcome::Interrupted),
                    released => released?,
                }
            }
        }
        Ok(Outcome::Granted)
    }
}

/// What a worker and its server have said to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Times that the worker sent something, to be answered.
    pub round_trips: u64,
    /// Bytes of both directions, without the headers of TCP and below.
    pub bytes: u64,
}

impl Traffic {
    /// So much was sent.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.round_trips += 1;
        self.bytes += bytes as u64;
    }

    /// So much came back.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

/// Many calls in a row, exclusive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// What they do.
    pub kind: Kind,
    /// The first lock.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// What a batch of calls does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Acquires and releases the one lock, again and again.
    Pairs,
    /// Acquires each lock from the first on.
    Acquires,
    /// Releases each lock from the first on.
    Releases,
}

impl Calls {
    /// Answers that a server gives to them.
    fn replies(&self) -> usize {
        match self.kind {
            Kind::Pairs => 2 * self.count,
            Kind::Acquires | Kind::Releases => self.count,
        }
    }

    /// The lock of call (or pair) number `nth`.
    #[inline]
    fn key(&self, nth: usize) -> usize {
        match self.kind {
            Kind::Pairs => self.first,
            Kind::Acquires | Kind::Releases => self.first + nth,
        }
    }
}

/// What a target needs to know to set itself up.
#[derive(Debug)]
pub struct Setup<'a> {
    /// What follows the colon of the target as typed.
    pub argument: Option<&'a str>,
    /// Where things that must not outlive the run are made and recorded.
    pub ledger: &'a Ledger,
    /// How many workers will join.
    pub workers: usize,
    /// How many locks.
    pub keys: usize,
    /// Whether some requests are for shared mode.
    pub shared: bool,
    /// Whether requests wait for a time.
    pub timed: bool,
    /// Processes or threads.
    pub carrier: Carrier,
    /// Byte ranges, for record locks.
    pub range: Range,
    /// Open and close the file around every acquisition.
    pub open_each: bool,
    /// Semaphores that several keys are hashed to.
    pub slots: usize,
    /// Servers of the cluster, where a launched service is one.
    pub members: usize,
    /// Whether a worker holds many of the locks at the same time.
    pub holds_many: bool,
    /// Whether workers renew the leases of what they hold ([`Lock::renew`]).
    pub kept: bool,
    /// The lease that locks should have, where the target's have one; None: the
    /// target's own. Whole seconds and milliseconds alike are rounded up to what the
    /// service takes.
    pub lease: Option<Duration>,
    /// What the names of locks are made of that several hosts know; None: only
    /// this one has to.
    pub common_name: Option<u64>,
    /// The file with name and password for servers that this program does not launch.
    pub credentials: Option<&'a Path>,
    /// For targets with choices of their own.
    pub seed: u64,
    /// Launches the servers that targets bring along.
    pub launcher: &'a dyn Launcher,
}

/// Whoever can launch a server for the run; the keeper, which also ends it.
/// Targets know a server's name and its protocol, not its code.
pub trait Launcher: std::fmt::Debug {
    /// Launches the server of this name and gives its address: `HOST:PORT`, or
    /// the path of its socket where the name is followed by one, as in
    /// `lockd+unix:PATH`.
    ///
    /// # Errors
    /// In words for the user.
    fn launch(&self, server: &str) -> Result<String, SetupError>;

    /// Launches somebody else's server in a directory of its own, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// In words for the user, with what the server logged last.
    fn follow(&self, recipe: &dyn Recipe) -> Result<Launched, SetupError>;

    /// The same with the servers of a cluster, each of which may wait for the others.
    ///
    /// # Errors
    /// In words for the user, with what a server logged last.
    fn follow_all(&self, recipes: &[&dyn Recipe]) -> Result<Vec<Launched>, SetupError> {
        recipes.iter().map(|recipe| self.follow(*recipe)).collect()
    }

    /// The processes of what it has launched and that still run, without their
    /// descendants.
    fn launched(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The words of the program that only answers lines, as `echo+pipe` starts it.
    fn answering_program(&self) -> Vec<String>;
}

/// A worker's connection that somebody else drives.
#[derive(Debug)]
pub struct Dialled {
    /// The socket, blocking as it comes.
    pub stream: stream::Stream,
    /// What is said on it.
    pub wire: Box<dyn wire::Wire>,
}

/// What a server tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFigures {
    /// Locks granted, or requests answered, since it started.
    pub grants: Option<u64>,
    /// Binds that a directory server completed.
    pub binds: Option<u64>,
    /// Unbinds that it completed.
    pub unbinds: Option<u64>,
    /// Its process, if it is one of this machine.
    pub pid: Option<u32>,
    /// Memory in which it keeps locks.
    pub memory_bytes: Option<u64>,
}

/// Something with locks that workers contend for.
pub trait Target: Sized + Sync + 'static {
    /// A worker's handle.
    type Lock: Lock;

    /// Stack of a worker that is a thread, in bytes: the loop needs a few hundred, and
    /// some clients more.
    const THREAD_STACK: usize = 64 * 1024;

    /// Its line in the table.
    const ENTRY: Entry;

    /// Whether a server that this program does not launch is there, and takes us with the
    /// credentials of the file, or else of the environment.
    ///
    /// # Errors
    /// In words for the user: who does not answer, and where.
    fn reach(_argument: Option<&str>, _file: Option<&Path>) -> Result<(), SetupError> {
        Ok(())
    }

    /// The program that has to be installed for this target to launch its server.
    fn launches() -> Option<&'static Program> {
        None
    }

    /// Makes what all workers share. Everything that could outlive the run is
    /// recorded in the ledger, which removes it; `drop` need not.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn prepare(setup: &Setup<'_>) -> Result<Self, SetupError>;

    /// The handle of worker number `worker`, made by the worker itself.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn join(&self, worker: usize) -> Result<Self::Lock, SetupError>;

    /// Another handle of that worker, for lock number `key` alone, made while the run is
    /// on: what somebody opens who wants this lock once.
    ///
    /// # Errors
    /// The call that failed.
    fn session(&self, worker: usize, _key: usize) -> Result<Self::Lock, CallError> {
        let opened = self.join(worker);
        opened.map_err(|SetupError(text)| wire::refused("open", text.as_bytes()))
    }

    /// A connection for worker number `worker` and its protocol, for whoever
    /// drives many of them at once (`--as tasks`). None where there is no
    /// server.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn dial(&self, _worker: usize) -> Result<Option<Dialled>, SetupError> {
        Ok(None)
    }

    /// Removes from a server that outlives the run what workers left there that
    /// did not come to their end.
    ///
    /// # Errors
    /// In words for the user.
    fn remove_leftovers(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// Ends what [`Target::prepare`] has begun and must not fail unseen; called once
    /// all workers are gone, after a run that came to its end.
    ///
    /// # Errors
    /// In words for the user.
    fn finish(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// What a specimen knows to be true of the run that has just ended, by
    /// name; read by the keeper when all workers are gone.
    fn truth(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// What the server counts, asked before and after a run; None where there
    /// is no server.
    ///
    /// # Errors
    /// In words for the user, where it cannot be asked.
    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(None)
    }

    /// Facts about the set-up (slots, collisions), by name.
    fn facts(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}
