//! The targets that jostle measures: one table, and one file for each target. What a target is
//! stands in `jostle-seam`.
//!
//! A new target is a file with an `impl Target` and one line in the table below. Help, man
//! page, `tool/docs/targets.md` and the conformance tests are made from that table.

pub mod answering;
pub mod endpoint;
mod exec;
mod http;
mod ldap;
mod procd;
mod spec;
mod tcp;
mod unix;

mod file_set;
mod holders;
mod librarian;
mod lines;
mod lock_requests;
mod lockd_lock;
mod mutex;
mod record_lock;
mod semaphore;
mod shared_object;
mod specimen;
mod whereabouts;
pub mod who;

pub use file_set::WORKER;
pub use jostle_seam::caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
pub use jostle_seam::*;
pub use spec::{Spec, all_installed};

// The order is the order of `jostle targets`. `as dyn`: a server or another program keeps
// the lock.
lines::targets! {
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
    lockd::Lockd as dyn,
    lockd_unix::LockdUnix as dyn,
    redis::Redis as dyn,
    redisson::Redisson as dyn,
    memcached::Memcached as dyn,
    nats::Nats as dyn,
    mariadb::Mariadb as dyn,
    #[cfg(feature = "services")] etcd::Etcd as dyn,
    zookeeper::Zookeeper as dyn,
    consul::Consul as dyn,
    #[cfg(feature = "services")] postgres::Postgres as dyn,
    #[cfg(feature = "services")] postgres_try::PostgresTry as dyn,
    pipe::Pipe as dyn,
    null::Null,
    echo::Echo as dyn,
    echo_unix::EchoUnix as dyn,
    echo_pipe::EchoPipe as dyn,
    delay::Delay,
    stall::Stall,
    chained::Chained,
    cliff::Cliff,
    busted::Busted,
    unfair::Unfair,
}

/// Targets that connections are opened to, and that are no locks.
pub static CONNECTIONS: &[&Entry] = &[&tcp::ENTRY, &unix::ENTRY];

/// Targets that answer requests, and are no locks.
pub static REQUESTS: &[&RequestTarget] = &[
    &exec::TARGET,
    &procd::TARGET,
    &procd::THIN,
    &ldap::TARGET,
    #[cfg(feature = "services")]
    &ldap::TLS_TARGET,
    &http::TARGET,
    #[cfg(feature = "services")]
    &http::TLS_TARGET,
];

/// Targets that this build has not, and what they are.
pub static LEFT_OUT: &[(&str, &str)] = &[
    #[cfg(not(feature = "services"))]
    ("etcd", "etcd by its library's recipe"),
    #[cfg(not(feature = "services"))]
    ("postgres", "PostgreSQL's advisory locks"),
    #[cfg(not(feature = "services"))]
    ("postgres-try", "the same locks polled"),
    #[cfg(not(feature = "services"))]
    ("ldaps", "LDAP over TLS"),
    #[cfg(not(feature = "services"))]
    ("https", "a web server over TLS"),
];

/// Every target, locks first. The tables pass through `black_box`, because the optimiser would
/// otherwise unroll each search over all names, which adds half a minute to release builds.
pub fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    let (locks, others, requests) = std::hint::black_box((TABLE, CONNECTIONS, REQUESTS));
    let requests = requests.iter().map(|target| &target.entry);
    locks.iter().chain(others).copied().chain(requests)
}

/// Prepares any target for requests, locks too: one request is an acquisition and a release.
///
/// # Errors
/// In words for the user, with the remedy.
pub fn prepare_requests(
    entry: &Entry,
    setup: &RequestSetup<'_>,
) -> Result<Box<dyn Requests>, SetupError> {
    match requests(entry) {
        Some(target) => (target.prepare)(setup),
        None => lock_requests::prepare(entry, setup.base),
    }
}

/// The line of an entry in [`REQUESTS`]; None of a lock.
pub fn requests(entry: &Entry) -> Option<&'static RequestTarget> {
    let mut targets = REQUESTS.iter().copied();
    targets.find(|target| target.entry.name == entry.name)
}
