//! The command's output passes through jostle unchanged, and the end of it is kept. Where jostle's
//! own output is a terminal, the command has one too.
//!
//! Its figures are read elsewhere (`jostle_stats::printed`).

use jostle_model::judged::Output;
use jostle_stats::printed;
use jostle_sys::terminal;
use rustix::fs::fstat;
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::termios::isatty;
use std::io::{self, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The bytes of a stream that are kept: more than any tool's result takes.
const KEPT: usize = 256 << 10;

/// The bytes that a pipe holds; a terminal holds less ([`TERMINAL`]).
const PIPE: usize = 64 << 10;
const TERMINAL: usize = 4095;

/// The command's ends.
#[derive(Debug)]
pub(super) struct Ends {
    out: OwnedFd,
    err: OwnedFd,
}

impl Ends {
    /// As the command's standard output and standard error.
    pub(super) fn given(&self) -> io::Result<(Stdio, Stdio)> {
        Ok((self.out.try_clone()?.into(), self.err.try_clone()?.into()))
    }
}

/// Jostle's ends.
#[derive(Debug)]
pub(super) struct Copies(Vec<Copy>);

#[derive(Debug)]
struct Copy {
    from: OwnedFd,
    to: OwnedFd,
    is_terminal: bool,
}

/// Both ends. Streams that go to one file share a pipe, so that their text keeps its order.
///
/// # Errors
/// The system's.
pub(super) fn open() -> io::Result<(Ends, Copies)> {
    let own = [
        stdout().as_fd().try_clone_to_owned()?,
        stderr().as_fd().try_clone_to_owned()?,
    ];
    let [one, other] = [fstat(&own[0])?, fstat(&own[1])?];
    let [out, err] = own;
    let (first, given) = Copy::to(out)?;
    if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) {
        let err = given.try_clone()?;
        return Ok((Ends { out: given, err }, Copies(vec![first])));
    }
    let (second, err) = Copy::to(err)?;
    Ok((Ends { out: given, err }, Copies(vec![first, second])))
}

impl Copy {
    /// With the command's end.
    fn to(to: OwnedFd) -> io::Result<(Copy, OwnedFd)> {
        let is_terminal = isatty(&to);
        let (from, given) = match is_terminal {
            true => terminal::pair()?,
            false => {
                let (from, given) = io::pipe()?;
                (from.into(), given.into())
            }
        };
        let copy = Copy {
            from,
            to,
            is_terminal,
        };
        copy.resize();
        Ok((copy, given))
    }

    fn resize(&self) {
        if self.is_terminal {
            terminal::resize(&self.from, &self.to);
        }
    }

    /// Copies until the last holder of the other end has closed it, or nobody takes the text.
    fn run(self) -> Copied {
        let full = if self.is_terminal { TERMINAL } else { PIPE };
        let mut copied = Copied::default();
        let mut bytes = vec![0; PIPE];
        let mut wrote = Duration::ZERO;
        // A terminal whose other end is closed has no end of file, but an error.
        while let Ok(n @ 1..) = retry_on_intr(|| read(&self.from, &mut bytes)) {
            let since = Instant::now();
            if n >= full {
                copied.stalled += wrote;
            }
            self.resize();
            copied.keep(&bytes[..n]);
            if write_all(&self.to, &bytes[..n]).is_err() {
                break;
            }
            wrote = since.elapsed();
        }
        copied
    }
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let n = retry_on_intr(|| write(to, bytes))?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// One stream.
#[derive(Debug, Default)]
struct Copied {
    bytes: u64,
    end: Vec<u8>,
    /// Time in which text could not be taken while the command's end was full.
    stalled: Duration,
}

impl Copied {
    fn keep(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.end.extend_from_slice(bytes);
        if self.end.len() > 2 * KEPT {
            self.end.drain(..self.end.len() - KEPT);
        }
    }
}

impl Copies {
    /// Begins to copy.
    pub(super) fn start(self) -> Copying {
        let start = |copy: Copy| std::thread::spawn(move || copy.run());
        Copying(self.0.into_iter().map(start).collect())
    }
}

/// Copying goes on.
#[derive(Debug)]
pub(super) struct Copying(Vec<JoinHandle<Copied>>);

impl Copying {
    /// The output, once everybody who could print has ended.
    pub(super) fn end(self) -> Output {
        let ended = self.0.into_iter().filter_map(|copy| copy.join().ok());
        let mut output = Output::default();
        for copied in ended {
            output.bytes += copied.bytes;
            output.stalled_s += super::rounded(copied.stalled.as_secs_f64());
            let text = String::from_utf8_lossy(&copied.end);
            output.results.extend(printed::read(&text));
            output.no_port = output.no_port.or_else(|| printed::no_port(&text));
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::ioctl_fionread;
    use std::fs::File;
    use std::io::{Read, Write};

    /// A copy, the command's end, and whoever takes the text.
    fn made() -> (Copy, File, File) {
        let (from, given) = io::pipe().unwrap();
        let (taken, to) = io::pipe().unwrap();
        let [from, given, taken, to] = [from.into(), given.into(), taken.into(), to.into()];
        let copy = Copy {
            from,
            to,
            is_terminal: false,
        };
        (copy, File::from(given), File::from(taken))
    }

    #[test]
    fn text_passes_unchanged_its_end_is_kept_and_nobody_waited() {
        let (copy, mut given, mut taken) = made();
        let copying = Copies(vec![copy]).start();
        let sample = "Running 1s test\n";
        given.write_all(sample.as_bytes()).unwrap();
        drop(given);
        let mut text = String::new();
        taken.read_to_string(&mut text).unwrap();
        assert_eq!(text, sample);
        let output = copying.end();
        assert_eq!((output.bytes, output.stalled_s), (sample.len() as u64, 0.0));
        let mut copied = Copied::default();
        (0..5).for_each(|n| copied.keep(&vec![n; KEPT / 2]));
        assert!((KEPT..=2 * KEPT).contains(&copied.end.len()));
        assert_eq!(
            (copied.bytes, copied.end.last()),
            (5 * KEPT as u64 / 2, Some(&4))
        );
    }

    #[test]
    fn a_command_that_had_to_wait_until_its_text_was_taken_is_found() {
        let (copy, mut given, mut taken) = made();
        let from = copy.from.try_clone().unwrap();
        let copying = std::thread::spawn(move || copy.run());
        let writer = std::thread::spawn(move || given.write_all(&[b'x'; 8 * PIPE]).unwrap());
        // Nobody reads, so that jostle waits, and the command's pipe fills.
        while ioctl_fionread(&from).unwrap() < PIPE as u64 {
            std::thread::yield_now();
        }
        drop(from);
        let mut text = Vec::new();
        taken.read_to_end(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text.len(), 8 * PIPE);
        assert!(copying.join().unwrap().stalled > Duration::ZERO);
    }

    #[test]
    fn a_command_whose_text_nobody_takes_is_told() {
        let (copy, mut given, taken) = made();
        drop(taken);
        let copying = std::thread::spawn(move || copy.run());
        // The first text may find the pipe still open.
        while given.write_all(b"x").is_ok() {}
        copying.join().unwrap();
    }
}
