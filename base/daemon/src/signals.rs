//! Signals as bytes in a socket, so that an event loop can wait for them together with
//! everything else.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::os::unix::net::UnixStream;

/// The signals that end a daemon.
pub const END: [i32; 2] = [SIGTERM, SIGINT];

/// A socket that has a byte to read for each of these signals that has come. From here on
/// they have no other effect.
///
/// # Errors
/// The system's.
pub fn on(signals: &[i32]) -> io::Result<UnixStream> {
    let (heard, signal) = UnixStream::pair()?;
    for number in signals {
        signal_hook::low_level::pipe::register(*number, signal.try_clone()?)?;
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::{SIGUSR1, SIGUSR2, SIGWINCH};
    use std::io::Read;
    use std::time::Duration;

    #[test]
    fn each_of_its_signals_is_a_byte_and_no_other() {
        let mut heard = on(&[SIGUSR1, SIGUSR2]).unwrap();
        heard
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let _other = on(&[SIGWINCH]).unwrap();
        for number in [SIGUSR1, SIGWINCH, SIGUSR2] {
            signal_hook::low_level::raise(number).unwrap();
        }
        heard.read_exact(&mut [0; 2]).unwrap();
        heard.set_nonblocking(true).unwrap();
        let none = heard.read(&mut [0]).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }
}
