//! The parts of a target: its capabilities as traits, its line in the table, and what many of them
//! share: addresses, logins, TLS, connections and the exchange of requests.
//!
//! Two lives of a target: [`Target::prepare`] makes what all workers share
//! (files, semaphores, memory) in the keeper, before any worker exists;
//! [`Target::join`] makes one worker's own handle, in the worker. The handle's
//! [`Lock::acquire`] and [`Lock::release`] are the measured calls: they do not
//! allocate, log or look at a clock that the lock itself does not need.
//!
//! The targets themselves are in `jostle-targets`, which nothing here knows.

pub mod address;
pub mod argument;
pub mod caller;
pub mod command;
pub mod http_head;
pub mod keeping;
pub mod listener;
pub mod locks;
pub mod login;
pub mod names;
pub mod outcome;
pub mod program;
pub mod promise;
pub mod remote;
pub mod signs;
pub mod steps;
pub mod strangers;
pub mod stream;
pub mod surplus;
pub mod table;
pub mod tls;
pub mod wire;

use jostle_model::plan::{Carrier, Range};
use jostle_model::record::Promise;
use jostle_sys::files::Errno;
use jostle_sys::ledger::Ledger;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use address::Address;
use login::{Credentials, Login};
use program::{LaunchRecipe, Launched};

/// What a part of a target's set-up comes to.
pub type Result<T, E = SetupError> = std::result::Result<T, E>;

/// The words in which most targets are written.
pub mod prelude {
    pub use crate::address::Address;
    pub use crate::login::{Credentials, Login};
    pub use crate::names::Names;
    pub use crate::program::{Ground, LaunchRecipe, Program, Words, text};
    pub use crate::remote::{Client, RemoteLock};
    pub use crate::signs::{self, Sign, sign};
    pub use crate::table::{Entry, Family, LockCapabilities, capabilities};
    pub use crate::wire::{Asking, Decoded, Reply, Wire, refused, unexpected, wrong_kind};
    pub use crate::{
        CallError, Facts, Keeping, LEASE_FACT, Lock, Mode, Outcome, Result, ServerFigures, Setup,
        SetupError, Target, VERSION_FACT, Wait, argument, facts, no_memory,
    };
}

pub use keeping::Keeping;
pub use locks::Locks;
pub use outcome::{CallError, Mode, Outcome, SetupError, Wait, no_memory, until_granted};
pub use promise::promise;
pub use table::{Entry, Visitor};

/// The fact that states how long a lock lasts if it is neither released nor renewed.
pub const LEASE_FACT: &str = "lease_ns";

/// The fact that states the server's version, in the form of `login::version`.
pub const VERSION_FACT: &str = jostle_model::record::SERVER_VERSION;

/// The fact that states how much earlier than stated a lease may end, because the server's
/// time has steps.
pub const LEASE_STEP_FACT: &str = "lease_step_ns";

/// The fact that states how much later a lease may end, for the same reason.
pub const LEASE_LAG_FACT: &str = "lease_lag_ns";

/// How to get what a build has left out, behind what it is.
pub const HOW_TO_GET: &str = "not in this build; `cargo build --release --features services` \
                              makes it, and packages have it";

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

    /// The fencing token of the last grant, if the target sends tokens: a number that grows
    /// with every grant of the lock.
    #[inline]
    fn token(&self) -> Option<u64> {
        None
    }

    /// The time, by `CLOCK_MONOTONIC`, at which the lease of the last grant was requested;
    /// None if the granted request itself requested it.
    fn leased_at_ns(&self) -> Option<u64> {
        None
    }

    /// Time between two tries of a wait, for a lock whose wait is nothing but tries: each of them
    /// is a request by itself. None if it waits otherwise.
    fn polls_every_ns(&self) -> Option<u64> {
        None
    }

    /// Whether a wait that a signal ended is certainly given up, and the handle can be used
    /// further. False: only the end of the handle gives it up.
    fn gives_up(&self) -> bool {
        true
    }

    /// The process group of the program that owns what this handle locks; None if that is
    /// the handle's own process.
    fn owner_group(&self) -> Option<u32> {
        None
    }

    /// What this lock promises its owners, where only the lock itself knows; None: what the table
    /// of targets says.
    fn promise(&self) -> Option<Promise> {
        None
    }

    /// How held locks are kept; None if they need no renewal.
    fn keeping(&self) -> Option<Keeping> {
        None
    }

    /// Renews the leases of these locks, which it holds, or the lease of its session, for
    /// which `keys` do not matter. Appends to `lapsed` the keys that it no longer owned.
    /// False if its session had ended, and every lock with it.
    ///
    /// # Errors
    /// The call that failed. The state of the locks is then unknown.
    fn renew(&mut self, _keys: &[usize], _lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        Ok(true)
    }

    /// Whether the connection of its session has ended, as far as this machine knows.
    fn is_cut_off(&self) -> bool {
        false
    }

    /// Takes its session up again on a new connection, as the field's libraries do after the
    /// old one has failed: with the next server, where the service has several. False if it has no session that outlives a connection, or the
    /// session has ended. An attempt that failed goes on with the next [`Lock::acquire`].
    ///
    /// # Errors
    /// In words: no server can be reached yet.
    fn resume(&mut self) -> Result<bool, SetupError> {
        Ok(false)
    }

    /// The traffic between the worker and its server for its locks; None if there is no
    /// server.
    fn traffic(&self) -> Option<Traffic> {
        None
    }

    /// Its connection and protocol, for a generator thread that drives many of them
    /// (`--as tasks`). None where the two cannot be told apart.
    fn into_dialled(self: Box<Self>) -> Option<Dialled> {
        None
    }

    /// Ends the handle's connection or session with a server, after the run and after every
    /// clock has been read. Any answer that arrives now belongs to no request.
    ///
    /// # Errors
    /// EPROTO where there was one.
    fn part(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    /// Makes many calls. Targets with `pipeline` in the table send each without waiting for
    /// the answer to the one before. Ends early only when interrupted; it is then unknown
    /// which locks were granted.
    ///
    /// # Errors
    /// The call that failed; EAGAIN where a lock was refused, since the calls
    /// that follow rely on it.
    fn batch(&mut self, calls: Calls, wait: Wait) -> Result<Outcome, CallError> {
        for nth in 0..calls.count {
            let key = calls.key(nth);
            if calls.kind != BatchKind::Releases {
                match self.acquire(key, Mode::Exclusive, wait)? {
                    Outcome::Granted | Outcome::GrantedFromDead => {}
                    Outcome::Refused => return Err(CallError::new("acquire", Errno::AGAIN)),
                    Outcome::Interrupted => return Ok(Outcome::Interrupted),
                }
            }
            if calls.kind != BatchKind::Acquires {
                match self.release(key, Mode::Exclusive) {
                    Err(error) if error.is_interrupted() => return Ok(Outcome::Interrupted),
                    released => released?,
                }
            }
        }
        Ok(Outcome::Granted)
    }
}

/// The traffic between a worker and its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How often the worker sent something that the server answers.
    pub round_trips: u64,
    /// Bytes of both directions, without the headers of TCP and below.
    pub bytes: u64,
    /// How often the worker's session went on at another server of the service.
    pub failovers: u64,
}

impl Traffic {
    /// Counts bytes sent.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.round_trips += 1;
        self.bytes += bytes as u64;
    }

    /// Counts bytes received.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

/// Many calls in a row, exclusive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Their kind.
    pub kind: BatchKind,
    /// The first lock.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// The kind of work in a batch of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
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
            BatchKind::Pairs => 2 * self.count,
            BatchKind::Acquires | BatchKind::Releases => self.count,
        }
    }

    /// The lock of call (or pair) number `nth`.
    #[inline]
    fn key(&self, nth: usize) -> usize {
        match self.kind {
            BatchKind::Pairs => self.first,
            BatchKind::Acquires | BatchKind::Releases => self.first + nth,
        }
    }
}

/// A target's setup.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The text behind the colon of the target as typed.
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
    /// Replicas that must have a lock before it counts as granted.
    pub wait_replicas: usize,
    /// Whether a worker holds many of the locks at the same time.
    pub holds_many: bool,
    /// Whether workers renew the leases of what they hold ([`Lock::renew`]).
    pub kept: bool,
    /// Whether workers that lose their connection take up their sessions on new ones
    /// ([`Lock::resume`]), even where there is one server only.
    pub stays: bool,
    /// The lease that was asked for, for targets with leases; None: the target's default.
    /// It is rounded up to a unit that the service accepts (seconds or milliseconds).
    pub lease: Option<Duration>,
    /// The number from which several hosts make the same lock names; None: only this host
    /// uses the names.
    pub common_name: Option<u64>,
    /// The file with name and password for servers that this program does not launch.
    pub credentials: Option<&'a Path>,
    /// For targets with choices of their own.
    pub seed: u64,
    /// Launches the servers that targets bring along.
    pub launcher: &'a dyn Launcher,
}

impl Setup<'_> {
    /// The server that the user named, else one that is launched for the run, with this user
    /// if it has names, and then its process too.
    ///
    /// # Errors
    /// In words for the user.
    pub fn server(
        &self,
        named: impl FnOnce(&str, Option<&Path>) -> Result<Login, SetupError>,
        recipe: &dyn LaunchRecipe,
        user: Option<&str>,
    ) -> Result<(Login, Option<u32>), SetupError> {
        if let Some(place) = self.argument {
            return Ok((named(place, self.credentials)?, None));
        }
        let launched = self.launcher.follow(recipe)?;
        let login = Login::of_launched(launched.address, user, &launched.secret);
        Ok((login, Some(launched.pid)))
    }

    /// The servers of a cluster, whose members these recipes launch.
    ///
    /// # Errors
    /// In words for the user.
    pub fn servers<R: LaunchRecipe>(
        &self,
        named: impl FnOnce(&str) -> Result<Vec<Address>, String>,
        variables: [&str; 2],
        members: impl FnOnce(usize) -> Result<Vec<R>, SetupError>,
    ) -> Result<(Vec<Address>, Credentials, Option<u32>), SetupError> {
        if let Some(places) = self.argument {
            let own = Credentials::find(self.credentials, variables)?;
            return Ok((named(places).map_err(SetupError)?, own, None));
        }
        let members = members(self.members)?;
        let recipes: Vec<&dyn LaunchRecipe> = members.iter().map(|one| one as _).collect();
        let launched = self.launcher.follow_all(&recipes)?;
        let pid = launched.first().map(|first| first.pid);
        let addresses = launched.into_iter().map(|one| Address::Tcp(one.address));
        Ok((addresses.collect(), Credentials::default(), pid))
    }

    /// Connections that a launched server takes: for the workers and some more, but not fewer
    /// than usual.
    pub fn connections(&self, usual: usize) -> usize {
        const SPARE: usize = 100;
        usual.max(self.workers + SPARE)
    }

    /// The lease of a lock: as asked for, else this one, or the long one where a worker holds
    /// its locks while it acquires a million others, and nobody renews them.
    pub fn lease_or(&self, usual: Duration, long: Duration) -> Duration {
        let is_long = self.holds_many && !self.kept;
        self.lease.unwrap_or(if is_long { long } else { usual })
    }
}

/// Launches servers for the run. The keeper implements this, and also ends the servers.
/// Targets know a server's name and protocol, and do not link its code.
pub trait Launcher: std::fmt::Debug {
    /// Launches the server of this name and gives its address: `HOST:PORT`, or
    /// the path of its socket where the name is followed by one, as in
    /// `lockd+unix:PATH`.
    ///
    /// # Errors
    /// In words for the user.
    fn launch(&self, server: &str) -> Result<String, SetupError>;

    /// The password that a jostled of [`Launcher::launch`] asks for, so that other users of
    /// this machine are kept out. None: it asks for none.
    fn secret(&self) -> Option<String> {
        None
    }

    /// Launches somebody else's server in a directory of its own, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// In words for the user, with what the server logged last.
    fn follow(&self, recipe: &dyn LaunchRecipe) -> Result<Launched, SetupError>;

    /// Follows the servers of a cluster, each of which may wait for the others.
    ///
    /// # Errors
    /// In words for the user, with what a server logged last.
    fn follow_all(&self, recipes: &[&dyn LaunchRecipe]) -> Result<Vec<Launched>, SetupError> {
        recipes.iter().map(|recipe| self.follow(*recipe)).collect()
    }

    /// The launched servers' processes that still run, without their descendants.
    fn launched(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The command line of the program that only answers lines, for `echo+pipe`.
    fn answering_program(&self) -> Vec<String>;
}

/// A worker's connection and protocol, for a generator that drives many connections.
#[derive(Debug)]
pub struct Dialled {
    /// The socket, blocking as it comes.
    pub stream: stream::Stream,
    /// Its protocol.
    pub wire: Box<dyn wire::Wire>,
}

/// Numbers by name, as a result file has them.
pub type Facts = BTreeMap<String, f64>;

/// Those that are known.
pub fn facts<const N: usize>(known: [(&str, Option<f64>); N]) -> Facts {
    let known = known.into_iter();
    known
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Figures that a server reports about itself.
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

impl ServerFigures {
    /// Figures of a server that counts neither locks nor requests.
    pub fn of_process(pid: Option<u32>) -> ServerFigures {
        ServerFigures {
            pid,
            ..ServerFigures::default()
        }
    }
}

/// Something with locks that workers contend for.
pub trait Target: std::fmt::Debug + Sized + Sync + 'static {
    /// A worker's handle.
    type Lock: Lock;

    /// Its line in the table.
    const ENTRY: Entry;

    /// Stack of a worker that is a thread, in bytes: the loop needs a few hundred, and
    /// clients of servers more.
    const THREAD_STACK: usize = match Self::ENTRY.is_remote() {
        true => tls::STACK,
        false => 64 << 10,
    };

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

    /// Another handle of that worker, for lock number `key` alone, made during the run: the
    /// session of a client that takes this lock once.
    ///
    /// # Errors
    /// The call that failed.
    fn session(&self, worker: usize, _key: usize) -> Result<Self::Lock, CallError> {
        let opened = self.join(worker);
        opened.map_err(|SetupError(text)| wire::refused("open", text.as_bytes()))
    }

    /// Removes what killed workers left on a server that outlives the run.
    ///
    /// # Errors
    /// In words for the user.
    fn remove_leftovers(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// Ends what [`Target::prepare`] began, and reports its errors. Called when all workers
    /// have ended, after a complete run.
    ///
    /// # Errors
    /// In words for the user.
    fn finish(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// The specimen's own record of the run that has just ended, by name. The keeper reads
    /// it when all workers have ended.
    fn truth(&self) -> Facts {
        Facts::new()
    }

    /// The server's counts, asked before and after a run; None where there is no server.
    ///
    /// # Errors
    /// In words for the user, where it cannot be asked.
    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(None)
    }

    /// Clients of the server other than our workers, in words, asked when the workers have
    /// ended and a run went wrong.
    ///
    /// # Errors
    /// Why there is no list of them.
    fn strangers(&self) -> Result<Vec<String>, signs::NoSigns> {
        Err(signs::NoSigns::NotAsked)
    }

    /// The server's signs, asked before the first worker and, where a run went wrong, after the
    /// last.
    ///
    /// # Errors
    /// Why it says nothing.
    fn signs(&self) -> signs::Told {
        Err(signs::NoSigns::NotAsked)
    }

    /// Who owns the locks now, by the kernel's own account, and which bytes workers want
    /// (`owners`, `wanted_bytes`). None where the kernel has no such account.
    fn owners(&self) -> Option<signs::Signs> {
        None
    }

    /// Who has the locks and is no worker, by the server's account ([`signs::sign::HOLDERS`]):
    /// asked over a connection that is kept open for the next time, within [`signs::DEADLINE`].
    /// It must not wait for the locks themselves.
    ///
    /// # Errors
    /// Why nobody tells.
    fn holders(&self, _connection: &mut Option<remote::Client>) -> signs::Told {
        Err(signs::NoSigns::NotAsked)
    }

    /// Facts about the set-up (slots, collisions), by name.
    fn facts(&self) -> Facts {
        Facts::new()
    }
}
