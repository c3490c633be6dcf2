//! The audit: commands that take something from other clients, and failed logins.

use super::Server;
use super::conn::Conn;
use crate::log;

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
