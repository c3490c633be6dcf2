//! A bench for one target at a time: a ledger of its own, the setup that a test
//! asks for, and handles.

#![allow(dead_code, reason = "not every test binary needs everything")]

use jostle_model::plan::{Carrier, Range};
use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::{Entry, Locks, Outcome, Setup, SetupError, TABLE, Target, Wait};
use jostle_testbed::lock_servers as servers;
use std::path::Path;
use std::time::{Duration, Instant};

/// The choices of a test.
#[derive(Clone)]
pub(crate) struct Bench<'a> {
    pub ledger: &'a Ledger,
    pub argument: Option<&'a str>,
    pub workers: usize,
    pub keys: usize,
    pub range: Range,
    pub open_each: bool,
    pub slots: usize,
    pub holds_many: bool,
    pub kept: bool,
    pub lease: Option<Duration>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(ledger: &'a Ledger) -> Bench<'a> {
        Bench {
            ledger,
            argument: None,
            workers: 4,
            keys: 1,
            range: Range::Same,
            open_each: false,
            slots: 64,
            holds_many: false,
            kept: false,
            lease: None,
        }
    }

    pub(crate) fn try_prepare<T: Target>(&self) -> Result<T, SetupError> {
        T::prepare(&self.setup(T::ENTRY.name))
    }

    /// For the target of this name.
    pub(crate) fn setup(&self, name: &str) -> Setup<'a> {
        Setup {
            argument: self.argument.or(servers::argument(name)),
            ledger: self.ledger,
            workers: self.workers,
            keys: self.keys,
            shared: false,
            timed: false,
            carrier: Carrier::Threads,
            range: self.range,
            open_each: self.open_each,
            slots: self.slots,
            members: 1,
            wait_replicas: 0,
            holds_many: self.holds_many,
            kept: self.kept,
            stays: false,
            lease: self.lease,
            common_name: None,
            credentials: None,
            seed: 7,
            launcher: &servers::InProcess,
        }
    }

    /// The lock of an entry, as an object.
    pub(crate) fn locks(&self, entry: &Entry) -> Box<dyn Locks> {
        jostle_targets::prepare(entry, &self.setup(entry.name))
            .unwrap_or_else(|error| panic!("{}: {error}", entry.name))
    }

    pub(crate) fn prepare<T: Target>(&self) -> T {
        self.try_prepare()
            .unwrap_or_else(|error| panic!("{}: {error}", T::ENTRY.name))
    }
}

/// Makes a ledger in a directory of the test's own, and sweeps it.
pub(crate) fn with_ledger<R>(test: impl FnOnce(&Ledger, &Path) -> R) -> R {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let result = test(&ledger, place.path());
    ledger.sweep().unwrap();
    result
}

pub(crate) const GRANTED: Result<Outcome, jostle_targets::CallError> = Ok(Outcome::Granted);
pub(crate) const REFUSED: Result<Outcome, jostle_targets::CallError> = Ok(Outcome::Refused);

/// Waits for as long as a test may take.
pub(crate) fn block() -> Wait {
    Wait::Block {
        last_resort_ns: monotonic() + 120_000_000_000,
    }
}

/// The targets that a test can prepare: `lib` forks a process that loads the library,
/// which takes a process with a single thread. The whole binary's tests have it.
pub(crate) fn prepared_here() -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().copied().filter(|entry| !needs_argument(entry))
}

/// Names nothing without what follows its colon.
pub(crate) fn needs_argument(entry: &Entry) -> bool {
    entry.name == "lib"
}

/// Whether two handles in one process contend as two workers would.
pub(crate) fn contends_in_one_process(entry: &Entry) -> bool {
    // The locks of POSIX belong to the process; what `sysv-undo` forbids
    // threads is the undoing alone. What only answers lets everybody in, always.
    entry.lock.excludes && !["posix", "echo", "echo+unix", "echo+pipe"].contains(&entry.name)
}

/// Between two looks at what a server counts.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Waits until a server's count is this: it counts what it has done already, so that a
/// client may be faster.
pub(crate) fn until<C: PartialEq + std::fmt::Debug>(expected: &C, counted: &dyn Fn() -> C) {
    let start = Instant::now();
    loop {
        let found = counted();
        if found == *expected {
            return;
        }
        let late = start.elapsed() > Duration::from_secs(120);
        assert!(!late, "{found:?} instead of {expected:?}");
        std::thread::sleep(LOOK);
    }
}

/// Waits until the count is as expected, and expects that no more comes.
pub(crate) fn settles<C: PartialEq + std::fmt::Debug>(expected: &C, counted: &dyn Fn() -> C) {
    until(expected, counted);
    std::thread::sleep(LOOK);
    assert_eq!(counted(), *expected, "more came later");
}
