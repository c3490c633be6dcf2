//! `echo+pipe`: a program that only answers, asked as `pipe` asks. What is measured
//! on it is the way through the two pipes.

use crate::pipe::{LOCK, NO_THREADS, Pipe, PipeLock};
use crate::table::{Entry, capabilities};
use crate::{Setup, SetupError, Target};
use std::io::{self, BufRead, Read, Write};

/// The target.
#[derive(Debug)]
pub(crate) struct EchoPipe(Pipe);

impl Target for EchoPipe {
    type Lock = PipeLock;

    const ENTRY: Entry = Entry {
        name: "echo+pipe",
        summary: "a program that only answers and excludes nobody: what bounds `pipe`",
        details: "This program itself, started for each worker as `pipe` starts a command, and \
                  asked as it is; it answers each line at once, whoever owns what. What it costs \
                  alone is measured before the first run of a `pipe`, in turns with it. As a \
                  lock it is broken on purpose, and the witness must say so.",
        lock: capabilities!(LOCK; survives_owner: false),
        no_threads: Some(NO_THREADS),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<EchoPipe, SetupError> {
        let words = setup.launcher.answering_program();
        Ok(EchoPipe(Pipe::new(words, setup)))
    }

    fn join(&self, worker: usize) -> Result<PipeLock, SetupError> {
        self.0.start(worker)
    }
}

/// The program: answers lines until its input ends.
///
/// # Errors
/// The system's; InvalidData for a line that is no request.
pub fn answer(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = io::BufReader::new(input);
    let mut line = Vec::with_capacity(64);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let answer: &[u8] = match line.first() {
            Some(b'A') => b"G\n",
            Some(b'U') => b"K\n",
            Some(b'H') => b"READY shared timeout\n",
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        output.write_all(answer)?;
        output.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_granted_at_once() {
        let mut output = Vec::new();
        let input = b"HELLO jostle/1 0 1\nA 0 x -1\nA 0 s 0\nU 0\n";
        answer(&input[..], &mut output).unwrap();
        assert_eq!(output, b"READY shared timeout\nG\nG\nK\n");
        assert!(answer(&b"what\n"[..], &mut output).is_err());
    }
}
