//! SIGINT, SIGTERM and SIGHUP: the first asks to stop in good order, a second
//! one ends at once (the keeper still clears away).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which of them has come.
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
        Ok(Signals(came))
    }

    /// The exit code that the user asked for, if one has come.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed))
            .ok()
            .filter(|code| *code > 0)
    }
}
