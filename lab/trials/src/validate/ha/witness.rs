//! The witness: owners tell it until when they rely on a lock, and it compares what they told. It
//! knows nothing of jostled, and has one thread.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::UdpSocket;

/// What it has found.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    /// Grants that somebody relied on.
    pub grants: u64,
    /// Two owners of one name at a time.
    pub overlaps: Vec<String>,
    /// A later owner has a smaller token, or the same one.
    pub falls: Vec<String>,
}

/// One owner's time, in nanoseconds: from when on it knew of its grant, and until when it relies
/// on it.
#[derive(Clone, Copy)]
struct Span {
    token: u64,
    from: u64,
    until: u64,
}

/// What owners told, by the names of locks.
#[derive(Default)]
struct Ledger {
    names: BTreeMap<String, Vec<Span>>,
}

impl Ledger {
    /// `in NAME TOKEN FROM UNTIL`: a grant, or the renewal of one; `out NAME TOKEN AT`: its end.
    fn note(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (kind, name) = (words.next()?, words.next()?);
        let mut number = || words.next()?.parse::<u64>().ok();
        let (token, at) = (number()?, number()?);
        let spans = self.names.entry(name.to_owned()).or_default();
        let known = spans.iter_mut().rev().find(|span| span.token == token);
        match (kind, known) {
            ("in", Some(span)) => span.until = span.until.max(number()?),
            ("in", None) => spans.push(Span {
                token,
                from: at,
                until: number()?,
            }),
            ("out", Some(span)) => span.until = span.until.min(at),
            _ => return None,
        }
        Some(())
    }

    fn judged(mut self) -> Found {
        let mut found = Found::default();
        for (name, spans) in &mut self.names {
            found.grants += spans.len() as u64;
            spans.sort_by_key(|span| span.from);
            // The one that is relied on longest, and the greatest token.
            let mut last = spans[0];
            let mut greatest = spans[0].token;
            for span in &spans[1..] {
                let both = format!("{name}: {last:?}, {span:?}");
                if span.from < last.until {
                    found.overlaps.push(both.clone());
                }
                if span.token <= greatest {
                    found.falls.push(both);
                }
                greatest = greatest.max(span.token);
                if span.until > last.until {
                    last = *span;
                }
            }
        }
        found
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [from, until] = [self.from, self.until].map(|ns| ns as f64 / 1e9);
        write!(f, "token {} from {from:.3} to {until:.3} s", self.token)
    }
}

/// Notes what it is told at this port, and acknowledges it; `end` ends it, and it prints what it
/// found.
pub(super) fn run(port: u16) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    let (mut ledger, mut buffer) = (Ledger::default(), [0; 1024]);
    loop {
        let (size, from) = socket.recv_from(&mut buffer)?;
        let line = std::str::from_utf8(&buffer[..size])?;
        if line == "end" {
            break;
        }
        ensure!(ledger.note(line).is_some(), "`{line}` makes no sense");
        socket.send_to(b"noted", from)?;
    }
    println!("{}", serde_json::to_string(&ledger.judged())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_owners_at_a_time_and_tokens_that_fall_are_found() {
        let table: [(&[&str], usize, usize); 6] = [
            // Released before it is granted again; and one that ran out.
            (
                &["in a 1 10 90", "out a 1 20", "in a 2 21 60", "in a 3 60 80"],
                0,
                0,
            ),
            // Other names have nothing to do with it.
            (&["in a 5 10 90", "in b 4 20 60"], 0, 0),
            (&["in a 1 10 90", "in a 2 89 95"], 1, 0),
            // A renewal lengthens the first; it is known after the second has begun.
            (&["in a 1 10 30", "in a 2 40 95", "in a 1 25 50"], 1, 0),
            // The first one is relied on longer than the second.
            (&["in a 1 0 99", "in a 2 10 20", "in a 3 50 60"], 2, 0),
            (&["in a 2 10 20", "in a 1 20 30", "in a 3 40 50"], 0, 1),
        ];
        for (lines, overlaps, falls) in table {
            let mut ledger = Ledger::default();
            assert!(lines.iter().all(|line| ledger.note(line).is_some()));
            let found = ledger.judged();
            assert_eq!(
                (found.overlaps.len(), found.falls.len()),
                (overlaps, falls),
                "{lines:?}"
            );
        }
        for line in ["in a 1 10", "out a 1 10", "on a 1 10 20", ""] {
            assert!(Ledger::default().note(line).is_none(), "{line}");
        }
    }
}
