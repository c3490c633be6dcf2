//! SIGINT, SIGTERM and SIGHUP: the first asks to stop in good order, a second
//! one ends at once (the keeper still clears away).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The counter that [`Signals::listen`] made, for code that has no [`Signals`].
static HEARD: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Whether signals no longer end this program by themselves.
pub(crate) fn are_heard() -> bool {
    HEARD.get().is_some()
}

/// The exit code that the user asked for, if a signal has come.
pub(crate) fn came() -> Option<u8> {
    exit_code(HEARD.get()?)
}

fn exit_code(came: &AtomicUsize) -> Option<u8> {
    let code = u8::try_from(came.load(Ordering::Relaxed)).ok();
    code.filter(|code| *code > 0)
}

/// The signal that has come.
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen() -> io::Result<Signals> {
        let came = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let code = 128 + signal;
            // In this order: the first signal sets the flag that the second
            // one finds.
            flag::register_conditional_shutdown(signal, code, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&came), code as usize)?;
        }
        let _ = HEARD.set(Arc::clone(&came));
        Ok(Signals(came))
    }

    /// The exit code that the user asked for, if one has come.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        exit_code(&self.0)
    }
}
