//! A request that is being executed.

use jostle_resp::{Args, Writer};

use super::hints::usage;
use super::table::find;
use crate::server::conn::Conn;
use crate::table::Time;

/// One request being executed.
pub(crate) struct Call<'a> {
    pub(crate) conn: &'a mut Conn,
    pub(crate) args: &'a Args,
    pub(crate) request: &'a [u8],
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) now: Time,
}

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        // The arity was checked; an argument beyond the last is empty.
        self.args.get(self.request, index).unwrap_or_default()
    }

    pub(super) fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        let (args, request) = (self.args, self.request);
        (from..args.len()).filter_map(move |index| args.get(request, index))
    }

    #[inline]
    pub(super) fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.conn.protocol)
    }

    /// Keys and texts, one pair after another.
    pub(super) fn texts(&mut self, pairs: &[(&str, &[u8])]) {
        let mut reply = self.reply();
        for (key, text) in pairs {
            reply.bulk(key.as_bytes());
            reply.bulk(text);
        }
    }

    /// A key and a number.
    pub(super) fn number(&mut self, key: &str, number: i64) {
        let mut reply = self.reply();
        reply.bulk(key.as_bytes());
        reply.integer(number);
    }

    pub(super) fn error(&mut self, text: &str) {
        self.conn.errors += 1;
        self.reply().error(text);
    }

    /// The error of a word that has no place at this index.
    #[cold]
    pub(super) fn wrong_word(&self, index: usize) -> String {
        let at = self.arg(index);
        let shown = at[..at.len().min(64)].escape_ascii();
        format!("ERR syntax error at '{shown}': {}", self.usage())
    }

    /// The error of an unknown subcommand, as Redis begins it.
    #[cold]
    pub(super) fn wrong_subcommand(&self) -> String {
        let name = self.arg(0).escape_ascii();
        let start = "ERR unknown subcommand or wrong number of arguments for";
        format!("{start} '{name}': {}", self.usage())
    }

    fn usage(&self) -> String {
        find(self.arg(0)).map(usage).unwrap_or_default()
    }
}
