//! `lib`: a lock of the user's own, in a shared library with the functions of
//! `jostle_lock.h`. Locks in other languages use `pipe`.
//!
//! Neither the parent nor the keeper loads the library. A `Librarian` loads it before and
//! after the run, and each worker loads it after its fork.

use crate::librarian::{Librarian, checked};
use crate::shared_object::{self, Typed};
use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{CallError, Lock, Mode, Outcome, Result, Setup, SetupError, Target, Wait};
use jostle_sys::files::Errno;
use jostle_sys::library::{Handle, Library};
use jostle_sys::shared::Region;
use jostle_sys::{process, signal};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Results of `jostle_acquire`.
const REFUSED: i32 = 0;
const GRANTED: i32 = 1;
const GRANTED_FROM_DEAD: i32 = 2;

/// Values of `deadline_ns`.
const TRY: i64 = 0;
const FOR_EVER: i64 = -1;

/// The largest errno, as for system calls.
const MOST_ERRNO: i32 = 4_095;

/// How much of the shared memory a worker touches before its window.
const TOUCHED_BYTES: usize = 2 << 20;

/// The library, and what its workers share.
#[derive(Debug)]
pub(crate) struct OwnLibrary {
    typed: Typed,
    shared: Arc<Region>,
    /// Calls `jostle_finish`; None once that is done.
    librarian: Mutex<Option<Librarian>>,
    /// The process that prepared. It must not load the library.
    keeper: u32,
}

/// One worker's handle.
#[derive(Debug)]
pub(crate) struct OwnLock {
    handle: Handle,
    name: String,
    /// The last result that the header does not define, and the message about it.
    said: Option<(i32, &'static str)>,
}

impl Target for OwnLibrary {
    type Lock = OwnLock;

    // A user's lock may call functions, such as printf, that need more stack than ours.
    const THREAD_STACK: usize = 1 << 20;

    const ENTRY: Entry = Entry {
        name: "lib",
        argument: Some("PATH.so[?ARGS]"),
        check_argument: |argument| Typed::parse(argument).map(drop),
        reach: |argument, _| reach(argument),
        family: Family::Own,
        summary: "your own lock: a shared library with the functions of jostle_lock.h",
        details: "The library is loaded by each worker after it was forked, and by one process \
                  more, which prepares what they share. Nothing is known about it beforehand: \
                  shared mode, timeouts and threads are passed on, and the library answers -ENOTSUP \
                  to what it does not have. ARGS is handed to it as it stands. A crash is a death \
                  of its worker, named by the signal. tool/docs/own-locks.md is a walk through it; \
                  tool/own-locks/ has the header and examples in C, C++, Rust and Go.",
        // Exclusion is assumed: the witness finds the violations.
        lock: capabilities!(LockCapabilities::TIMED; shared),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<OwnLibrary> {
        let typed = Typed::parse(setup.argument).map_err(SetupError)?;
        let (workers, keys) = (number(setup.workers)?, number(setup.keys)?);
        let bytes = shared_bytes(&typed, workers, keys)?;
        let shared = Region::new(bytes.max(1)).map_err(|error| {
            SetupError(format!(
                "its jostle_shared_bytes asks for {bytes} bytes of shared memory: {error}; \
                 fewer keys or workers, or raise the memory limit"
            ))
        })?;
        let mut librarian = prepared(&typed, &shared, workers, keys)?;
        librarian.result()?;
        Ok(OwnLibrary {
            typed,
            shared: Arc::new(shared),
            librarian: Mutex::new(Some(librarian)),
            keeper: std::process::id(),
        })
    }

    fn join(&self, worker: usize) -> Result<OwnLock> {
        let path = &self.typed.path;
        if std::process::id() != self.keeper {
            process::print_to_stderr()
                .map_err(|error| SetupError(format!("cannot divert its output: {error}")))?;
        }
        self.shared
            .populate(0, self.shared.len().min(TOUCHED_BYTES));
        let library = Library::load(path).map_err(|error| SetupError(error.to_string()))?;
        let library = checked(library).map_err(SetupError)?;
        let handle = library.join(&self.shared, number(worker)?);
        let handle = handle.map_err(|error| {
            SetupError(format!(
                "its jostle_join returned NULL for worker {worker}: {error}"
            ))
        })?;
        Ok(OwnLock {
            handle,
            name: path.display().to_string(),
            said: None,
        })
    }

    fn finish(&self) -> Result<()> {
        self.conclude()
    }
}

fn reach(argument: &str) -> Result<()> {
    let typed = Typed::parse(Some(argument)).map_err(SetupError)?;
    shared_object::check(&typed.path).map_err(SetupError)?;
    let mut librarian = Librarian::start(|mut reporter| {
        let loaded = reporter.load(&typed.path);
        reporter.end(&loaded.map(|_| 0));
    })?;
    librarian.result().map(drop)
}

impl OwnLibrary {
    /// Has `jostle_finish` called, once.
    fn conclude(&self) -> Result<()> {
        let mut place = self
            .librarian
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(mut librarian) = place.take() else {
            return Ok(());
        };
        librarian.go_on();
        librarian.result().map(drop)
    }
}

impl Drop for OwnLibrary {
    fn drop(&mut self) {
        // Only the process that prepared has a librarian. After a failed run, the error
        // of the run is the one to report.
        if std::process::id() == self.keeper {
            let _ = self.conclude();
        }
    }
}

fn number(count: usize) -> Result<u32> {
    u32::try_from(count)
        .map_err(|_| SetupError(format!("{count} are more than jostle_lock.h can count")))
}

/// Asks the library for the size of its shared memory, in a separate process: the memory
/// must be mapped before the process that prepares it is forked.
fn shared_bytes(typed: &Typed, workers: u32, keys: u32) -> Result<usize> {
    let mut librarian = Librarian::start(|mut reporter| {
        let bytes = reporter.load(&typed.path).map(|library| {
            reporter.begin("jostle_shared_bytes");
            library.shared_bytes(&typed.args, workers, keys) as u64
        });
        reporter.end(&bytes);
    })?;
    let bytes = librarian.result()?;
    // The page that rounds it up, too.
    let fits = usize::try_from(bytes).ok().filter(|n| *n < usize::MAX >> 2);
    fits.ok_or_else(|| {
        SetupError(format!(
            "its jostle_shared_bytes asks for {bytes} bytes, more than any machine has"
        ))
    })
}

fn prepared(typed: &Typed, shared: &Region, workers: u32, keys: u32) -> Result<Librarian> {
    let path = &typed.path;
    Librarian::start(|mut reporter| {
        let library = reporter.load(path).and_then(|library| {
            reporter.begin("jostle_prepare");
            let result = library.prepare(shared, &typed.args, workers, keys);
            judged_prepare(result, &typed.args).map(|()| library)
        });
        reporter.end(&library.as_ref().map(|_| 0).map_err(String::clone));
        if let Ok(library) = library
            && reporter.wait()
        {
            reporter.begin("jostle_finish");
            library.finish(shared);
            reporter.end(&Ok(0));
        }
    })
}

fn judged_prepare(result: i32, args: &CStr) -> Result<(), String> {
    match (errno(result), result) {
        (_, 0) => Ok(()),
        (Some(errno), _) => Err(format!(
            "its jostle_prepare failed with the arguments `{}`: {}",
            args.to_string_lossy(),
            std::io::Error::from(errno)
        )),
        (None, other) => Err(format!(
            "its jostle_prepare returned {other}, which is neither 0 nor a negative errno"
        )),
    }
}

/// The errno that a negative result stands for.
fn errno(result: i32) -> Option<Errno> {
    (-MOST_ERRNO..0)
        .contains(&result)
        .then(|| Errno::from_raw_os_error(-result))
}

impl Lock for OwnLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let deadline_ns = match wait {
            Wait::Try => TRY,
            Wait::Block { .. } => FOR_EVER,
            // Zero would be a try.
            Wait::Until(time) => i64::try_from(time).unwrap_or(i64::MAX).max(1),
        };
        loop {
            let shared = mode == Mode::Shared;
            match self.handle.acquire(key as u32, shared, deadline_ns) {
                GRANTED => return Ok(Outcome::Granted),
                REFUSED if deadline_ns != FOR_EVER => return Ok(Outcome::Refused),
                other => match self.judge(other, mode, deadline_ns)? {
                    // Not the keeper's signal: another signal, or a library that returns at
                    // intervals.
                    Outcome::Interrupted if !signal::interrupted() => {}
                    outcome => return Ok(outcome),
                },
            }
        }
    }

    #[inline]
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        match self.handle.release(key as u32, mode == Mode::Shared) {
            0 => Ok(()),
            other => Err(self.failed("jostle_release", other, "0 or a negative errno", None)),
        }
    }

    #[inline]
    fn token(&self) -> Option<u64> {
        self.handle.token()
    }
}

impl OwnLock {
    /// The rare results of `jostle_acquire`.
    #[cold]
    fn judge(&mut self, result: i32, mode: Mode, deadline_ns: i64) -> Result<Outcome, CallError> {
        const ALLOWED: &str = "1, 2, a negative errno, or 0 where it need not wait for ever";
        match result {
            GRANTED_FROM_DEAD => Ok(Outcome::GrantedFromDead),
            _ if errno(result) == Some(Errno::INTR) => Ok(Outcome::Interrupted),
            other => Err(self.failed("jostle_acquire", other, ALLOWED, lacks(mode, deadline_ns))),
        }
    }

    #[cold]
    fn failed(
        &mut self,
        call: &'static str,
        result: i32,
        allowed: &str,
        lacks: Option<&str>,
    ) -> CallError {
        let name = &self.name;
        let (errno, text) = match errno(result) {
            // Linux calls it EOPNOTSUPP.
            Some(Errno::NOTSUP) => {
                let said = lacks.map(|what| format!("{name} has no {what}"));
                (Errno::NOTSUP, said)
            }
            Some(errno) => (errno, None),
            None => {
                let said = format!("{name} returned {result}; jostle_lock.h allows {allowed}");
                (Errno::PROTO, Some(said))
            }
        };
        CallError {
            said: text.map(|text| self.kept(result, text)),
            ..CallError::new(call, errno)
        }
    }

    /// A text that outlives the call. It is never freed. The leak stays small: in most
    /// workloads an error ends its worker, and a repeated result reuses its text.
    fn kept(&mut self, result: i32, text: String) -> &'static str {
        match self.said {
            Some((of, said)) if of == result && said == text => said,
            _ => {
                let said: &'static str = Box::leak(text.into_boxed_str());
                self.said = Some((result, said));
                said
            }
        }
    }
}

/// The optional feature that this acquisition needs and the library may lack, with the
/// remedy.
fn lacks(mode: Mode, deadline_ns: i64) -> Option<&'static str> {
    match mode {
        Mode::Shared => Some("shared mode (-ENOTSUP); leave --shared out"),
        Mode::Exclusive if deadline_ns > TRY => {
            Some("timeout (-ENOTSUP); leave --acquire-timeout out")
        }
        Mode::Exclusive => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_results_are_errors_of_the_system() {
        assert_eq!(errno(-4), Some(Errno::INTR));
        assert_eq!(errno(-4_095).map(Errno::raw_os_error), Some(4_095));
        for none in [0, 1, 7, -4_096, i32::MIN] {
            assert_eq!(errno(none), None, "{none}");
        }
    }

    #[test]
    fn a_failure_of_prepare_quotes_the_arguments() {
        assert_eq!(judged_prepare(0, c""), Ok(()));
        let error = judged_prepare(-22, c"slots=x").unwrap_err();
        assert!(error.contains("`slots=x`: Invalid argument"), "{error}");
        let error = judged_prepare(3, c"").unwrap_err();
        assert!(error.contains("returned 3"), "{error}");
    }
}
