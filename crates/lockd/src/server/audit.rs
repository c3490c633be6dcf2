//! The audit: commands that take something from other clients, and failed logins.

use super::Server;
use super::conn::Conn;
use crate::log;

/// The most failed logins logged in one second. Any client that can connect can cause
/// them, and a slow log must not stop the daemon.
const FAILURES: u64 = 20;

/// How many failed logins were noted lately.
#[derive(Debug, Default)]
pub(super) struct Failures {
    second: u64,
    noted: u64,
    left_out: u64,
}

impl Failures {
    /// `Some` if one more failed login is to be logged, with the number left out before it.
    fn note(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            (self.second, self.noted) = (second, 0);
        }
        if self.noted == FAILURES {
            self.left_out += 1;
            return None;
        }
        self.noted += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Server {
    /// Notes what a client did.
    pub(super) fn audit(&self, conn: &Conn, event: &str, more: &[(&str, String)]) {
        let user = conn.user.as_ref().map_or("", |user| &user.name);
        let mut fields = vec![
            ("user", user.to_owned()),
            ("client", conn.id.number().to_string()),
            ("address", conn.address()),
        ];
        fields.extend(more.iter().map(|(key, value)| (*key, value.clone())));
        log::audit(event, &fields);
    }

    /// Notes a wrong password.
    pub(super) fn audit_failure(&mut self, conn: &Conn, name: &[u8]) {
        let second = self.clock.0 / 1_000_000_000;
        let Some(left_out) = self.failures.note(second) else {
            return;
        };
        let shown = name[..name.len().min(128)].escape_ascii().to_string();
        let mut fields = vec![("as", shown)];
        if left_out > 0 {
            fields.push(("left_out_before", left_out.to_string()));
        }
        self.audit(conn, "authentication failed", &fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_beyond_a_number_a_second_are_counted() {
        let mut failures = Failures::default();
        let noted = (0..100).filter(|_| failures.note(7).is_some()).count();
        assert_eq!(noted as u64, FAILURES);
        assert_eq!(failures.note(8), Some(100 - FAILURES));
        assert_eq!(failures.note(8), Some(0));
    }
}
