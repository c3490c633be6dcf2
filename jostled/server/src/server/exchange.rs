//! One client's turn: read, execute, answer.

use jostle_resp::{Limits, Progress, Writer};

use super::Server;
use super::commands::{self, Call};
use super::conn::{Conn, Phase};
use super::parts::SCRATCH;
use super::stream::Received;
use super::turn::GATHERED_BYTES;
use crate::table::Time;

/// Replies gathered before they are sent although more commands are there.
const OUT_BATCH: usize = 256 * 1024;
/// The weight of an error, in bytes of input: as much as some sixteen plain commands. Its text is
/// formatted each time, and may be many times as long as the request.
const ERROR: usize = 256;

impl Server {
    /// Reads, executes and answers. False: the connection is to be closed.
    pub(super) fn serve(&mut self, conn: &mut Conn) -> bool {
        // One read a turn, so that nobody has to wait for a client that sends
        // without end.
        if conn.can_read(self.config.max_request) && !self.receive(conn) {
            return false;
        }
        if self.turn.gather && conn.pending() > 0 && !conn.is_stuck() {
            self.turn.unsent.push(conn.id);
            return true;
        }
        self.flush(conn)
    }

    /// Reads once and handles the result. False: the connection is lost.
    fn receive(&mut self, conn: &mut Conn) -> bool {
        let mut scratch = std::mem::take(&mut self.work.scratch);
        let received = conn.stream.receive(&mut scratch);
        // The clock is read after the bytes: they were all sent before this time.
        let now = self.now();
        let alive = match received {
            Ok(Received::Bytes(bytes)) => {
                self.stats.bytes_in += bytes as u64;
                // A read that brings less than it could has emptied the socket,
                // but TLS gives what it has decrypted piece by piece.
                conn.intake.readable =
                    bytes == scratch.len() || conn.intake.hung_up || conn.stream.is_tls();
                self.take_input(conn, &scratch[..bytes], now);
                true
            }
            Ok(Received::Nothing) => {
                conn.intake.readable = false;
                true
            }
            Ok(Received::End) => {
                conn.intake.ended = true;
                // A client that waits is gone. Otherwise the replies that it is owed
                // are still sent.
                !conn.waits()
            }
            Err(_) => false,
        };
        self.note_incomplete(conn, now);
        self.work.scratch = scratch;
        alive
    }

    /// Executes the bytes that have arrived, straight from the read buffer if no input
    /// was left over. Bytes behind a LOCK that waits are kept. (For a client that
    /// waits, the table must not be touched here: it might grant, and the connection
    /// would not be in its slot.)
    fn take_input(&mut self, conn: &mut Conn, bytes: &[u8], now: Time) {
        if conn.waits() {
            conn.intake.input.extend_from_slice(bytes);
        } else if conn.intake.input.is_empty() {
            let used = self.execute(conn, bytes, now);
            conn.intake.input.extend_from_slice(&bytes[used..]);
        } else {
            conn.intake.input.extend_from_slice(bytes);
            self.execute_input(conn, now);
        }
    }

    pub(super) fn execute_input(&mut self, conn: &mut Conn, now: Time) {
        let input = std::mem::take(&mut conn.intake.input);
        let used = self.execute(conn, &input, now);
        conn.intake.input = input;
        conn.consume(used);
    }

    /// Records since when the client has owed the rest of a request, or its login.
    pub(super) fn note_incomplete(&self, conn: &mut Conn, now: Time) {
        let partial = !conn.intake.input.is_empty() && !conn.waits();
        if partial || !conn.authenticated {
            // A complete request restarts this time, except for a client that is not
            // authenticated.
            if partial && conn.authenticated && conn.profile.last_request == now {
                conn.profile.incomplete_since = Some(now);
            }
            conn.profile.incomplete_since.get_or_insert(now);
        } else {
            conn.profile.incomplete_since = None;
        }
    }

    /// Executes the requests in `bytes` until one waits or is incomplete; returns the
    /// number of bytes used.
    pub(super) fn execute(&mut self, conn: &mut Conn, bytes: &[u8], now: Time) -> usize {
        self.provide_tokens();
        let limits = Limits {
            bytes: self.config.max_request,
            ..Default::default()
        };
        let mut decoder = std::mem::take(&mut self.work.decoder);
        let mut out = std::mem::take(&mut self.work.out);
        decoder.clear();
        let mut used = 0;
        conn.intake.more = false;
        conn.errors = 0;
        while !conn.waits()
            && !conn.intake.closing
            && bytes.len() - used >= conn.intake.needed.max(1)
        {
            // Input that was kept, behind a wait, may be more than one read brings.
            let weight = used + conn.errors * ERROR;
            if std::mem::take(&mut self.work.long) || weight >= SCRATCH {
                conn.intake.more = true;
                break;
            }
            let request = &bytes[used..];
            match decoder.decode(&self.table, request, limits) {
                Ok(Progress::Complete { used: length }) => {
                    used += length;
                    conn.intake.needed = 0;
                    let args = decoder.args();
                    if !args.is_empty() {
                        let call = Call {
                            conn,
                            args,
                            request,
                            out: &mut out,
                            now,
                        };
                        commands::execute(self, call);
                        // A request that waits is executed later.
                        if let Phase::Parked(parked) = &mut conn.phase {
                            parked.length = length;
                            used -= length;
                        } else if matches!(conn.phase, Phase::Unchecked) {
                            used -= length;
                        }
                    }
                }
                Ok(Progress::Incomplete { needed }) => conn.intake.needed = needed,
                Err(error) => {
                    self.stats.protocol_errors += 1;
                    self.stats.closed_request += 1;
                    let text = format!("ERR Protocol error: {error}");
                    Writer::new(&mut out, conn.protocol).error(&text);
                    conn.intake.closing = true;
                }
            }
            if out.len() > OUT_BATCH {
                let kept = self.table.keeps_journal() && self.keep_back(conn, &mut out);
                if !kept && !self.send(conn, &mut out, now) {
                    conn.intake.closing = true;
                }
            }
        }
        self.work.long = false;
        self.work.extra += (conn.errors * ERROR / 16) as u64;
        if used > 0 {
            conn.profile.last_request = now;
        }
        let kept = self.table.keeps_journal() && self.keep_back(conn, &mut out);
        self.deliver_grants();
        let gather = self.turn.gather || conn.pending() > 0;
        if kept {
            // It is sent when the store has it.
        } else if gather && out.len() <= GATHERED_BYTES {
            self.turn.gathered += out.len();
            self.stats.bytes_out += out.len() as u64;
            conn.output.append(&mut out);
        } else if !out.is_empty() {
            self.send(conn, &mut out, now);
        }
        self.work.out = out;
        self.work.decoder = decoder;
        used
    }

    /// Sends `out`, as far as it goes, and keeps the rest with the connection.
    /// False if that is more than allowed; the connection is then useless.
    pub(super) fn send(&mut self, conn: &mut Conn, out: &mut Vec<u8>, now: Time) -> bool {
        self.stats.bytes_out += out.len() as u64;
        // What was kept back goes first.
        let mut sent = Ok(0);
        let room = conn.is_stuck() || self.push(conn);
        if !room {
            sent = Err(());
        } else if conn.pending() == 0 && !conn.stream.wants_write() {
            sent = conn.stream.transmit(out).map_err(|_| ());
        }
        if let Ok(sent) = sent
            && sent < out.len()
        {
            conn.output.extend_from_slice(&out[sent..]);
            conn.profile.stuck_since.get_or_insert(now);
        }
        out.clear();
        let fits = conn.pending() <= self.config.max_output;
        if !fits {
            self.stats.closed_output += 1;
            // Replies that the client has not read are dropped.
            conn.output.clear();
            conn.sent = 0;
        }
        if !fits || sent.is_err() {
            conn.intake.ended = true;
            conn.intake.closing = true;
        }
        fits && sent.is_ok()
    }

    /// Sends what was kept, as far as it goes; false if the client is gone.
    fn push(&mut self, conn: &mut Conn) -> bool {
        if conn.pending() == 0 && !conn.stream.wants_write() {
            return true;
        }
        // A client that gave up just now must not take a lease with it.
        if !conn.fresh_leases.is_empty() && conn.stream.peer_is_gone() {
            return false;
        }
        conn.flush(self.now()).is_ok()
    }

    /// Sends what waits; false if the connection is over.
    pub(super) fn flush(&mut self, conn: &mut Conn) -> bool {
        if !self.push(conn) {
            return false;
        }
        if conn.pending() > self.config.max_output {
            self.stats.closed_output += 1;
            return false;
        }
        let sent = conn.pending() == 0 && !conn.stream.wants_write() && conn.held() == 0;
        let over = conn.intake.closing || (conn.intake.ended && !conn.intake.more);
        !(over && (sent || conn.waits()))
    }
}
