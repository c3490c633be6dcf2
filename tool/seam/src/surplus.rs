//! Surplus answers: a server answers a request twice, or before it gets one. After that,
//! every answer on the connection belongs to an earlier request than the client assumes, so
//! that times and results are wrong.
//!
//! The number of answers stays one too high until the connection ends, so that the check
//! can wait. After each answer the client only checks for bytes that the same read(2)
//! returned, which takes no further call. The rest is found when the connection ends
//! (`at_end`), after the run and at no cost to a request. Answers with numbers (LDAP) are
//! also checked by their number.

use crate::{CallError, Result, SetupError};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::fmt::Display;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The message about such an answer.
pub const SAID: &str = "the server sent an answer that no request had asked for";

/// If a server keeps its side open for longer, it is assumed to send nothing more.
pub const END_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait for a server that sends before it is asked; such a server sends as soon
/// as it has accepted.
const FIRST_WORD: Duration = Duration::from_millis(50);

/// The failure, in the name of a request.
#[cold]
pub fn error(call: &'static str) -> CallError {
    CallError::saying(call, Errno::PROTO, SAID)
}

/// The state of a connection with no outstanding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Quiet,
    /// It has ended the connection.
    Ended,
    /// Bytes.
    Speaks,
}

/// The state of a socket now. Makes one system call, which does not wait.
pub fn state(socket: impl AsFd) -> State {
    match recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((count, _)) if count > 0 => State::Speaks,
        Err(Errno::AGAIN | Errno::INTR) => State::Quiet,
        _ => State::Ended,
    }
}

/// Whether bytes wait to be read, as [`state`] sees it.
pub fn is_waiting(socket: impl AsFd) -> bool {
    state(socket) == State::Speaks
}

/// Ends a connection on which every request has been answered: shuts down our side, and
/// reads until the server ends its side. If the server has sent a surplus answer, one
/// answer is still unread.
///
/// # Errors
/// EPROTO in the name of `call` where anything came.
pub fn at_end(socket: impl AsFd, call: &'static str) -> Result<(), CallError> {
    end(socket.as_fd());
    let until = clock::monotonic() + END_PATIENCE.as_nanos() as u64;
    match ends_silently(socket.as_fd(), until) {
        true => Ok(()),
        false => Err(error(call)),
    }
}

/// The first half of `at_end`, for a caller with many connections.
pub fn end(socket: impl AsFd) {
    // One that the server has ended already is no error.
    let _ = shutdown(socket, Shutdown::Write);
}

/// The second half: whether nothing more comes, until a time of `CLOCK_MONOTONIC`.
pub fn ends_silently(socket: impl AsFd, until: u64) -> bool {
    loop {
        match recv(&socket, &mut [0; 1], RecvFlags::DONTWAIT) {
            Ok((count, _)) => return count == 0,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if await_bytes(socket.as_fd(), until) => {}
            // A reset, or the time is up: nothing was received.
            Err(_) => return true,
        }
    }
}

/// Waits until there is something to read, or the end of the connection, and returns
/// whether that came before `until`. The keeper's signals, which end waits for locks, do
/// not end this wait.
pub fn await_bytes(socket: BorrowedFd<'_>, until: u64) -> bool {
    loop {
        let left = until.saturating_sub(clock::monotonic());
        match poll_for(socket, left) {
            Ok(has_come) => return has_come,
            Err(Errno::INTR) if left > 0 => {}
            Err(_) => return false,
        }
    }
}

/// Waits for at most so many nanoseconds; any signal ends the wait.
///
/// # Errors
/// EINTR, and the system's.
pub fn poll_for(socket: BorrowedFd<'_>, left_ns: u64) -> Result<bool, Errno> {
    let timeout = Timespec {
        tv_sec: (left_ns / 1_000_000_000) as i64,
        tv_nsec: (left_ns % 1_000_000_000) as _,
    };
    let ready = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout))?;
    Ok(ready > 0)
}

/// Refuses a server that sends before it is asked: it has another kind of protocol, and its
/// bytes would be read as the first answer.
///
/// # Errors
/// In words for the user.
pub fn refuse_who_speaks_first(stream: &TcpStream, address: impl Display) -> Result<()> {
    let until = clock::monotonic() + FIRST_WORD.as_nanos() as u64;
    match await_bytes(stream.as_fd(), until) && is_waiting(stream) {
        false => Ok(()),
        true => Err(SetupError(format!(
            "the server at {address} answers before it is asked; is it another protocol's?"
        ))),
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// On a busy machine it arrives after the write has returned.
    fn await_word(client: &TcpStream) {
        let arrived = (0..60_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_waiting(client)
        });
        assert!(arrived);
    }

    #[test]
    fn an_answer_too_many_is_found_whenever_it_comes() {
        // It was there; it comes late, when the server sees the end; it is followed
        // by the end at once.
        for case in 0..3 {
            let (client, mut server) = pair();
            let served = std::thread::spawn(move || {
                if case == 1 {
                    let mut end = [0; 1];
                    let read = std::io::Read::read(&mut server, &mut end);
                    assert_eq!(read.unwrap(), 0);
                    std::thread::sleep(Duration::from_millis(20));
                }
                server.write_all(b"+OK\r\n").unwrap();
                (case < 2).then_some(server)
            });
            if case != 1 {
                let _kept = served.join().unwrap();
                await_word(&client);
                assert_eq!(at_end(&client, "GET"), Err(error("GET")), "{case}");
            } else {
                assert!(!is_waiting(&client));
                // As `at_end`, and patient with a busy machine.
                end(&client);
                let until = clock::monotonic() + 120_000_000_000;
                assert!(!ends_silently(&client, until), "{case}");
                served.join().unwrap();
            }
        }
    }

    #[test]
    fn a_server_that_says_nothing_more_is_no_liar() {
        // It ends its side; it never does; it resets.
        let (client, server) = pair();
        drop(server);
        assert_eq!(at_end(&client, "GET"), Ok(()));
        let (client, _server) = pair();
        let start = std::time::Instant::now();
        assert_eq!(at_end(&client, "GET"), Ok(()));
        assert!(start.elapsed() >= END_PATIENCE);
        let (mut client, server) = pair();
        client.write_all(b"unread").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(server);
        assert_eq!(at_end(&client, "GET"), Ok(()));
    }

    #[test]
    fn who_speaks_first_is_refused() {
        for (word, is_refused) in [(&b""[..], false), (b"220 ready\r\n", true)] {
            let (client, mut server) = pair();
            server.write_all(word).unwrap();
            if is_refused {
                await_word(&client);
            }
            let address = client.peer_addr().unwrap();
            let refused = refuse_who_speaks_first(&client, address);
            assert_eq!(refused.is_err(), is_refused, "{refused:?}");
        }
    }
}
