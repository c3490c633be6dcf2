//! The wire protocol of Redis, versions 2 and 3, as pure functions of bytes.
//!
//! A server decodes requests ([`request`]) and writes replies ([`reply`]); a
//! client writes requests and decodes replies ([`token`], [`value`]). Nothing
//! here reads a socket or owns a buffer: the caller keeps the bytes that have
//! arrived and asks what they are. Decoders borrow from the caller's buffer, so
//! that a command costs no copy and, in the steady state, no allocation.
//!
//! Not here: the streamed strings and aggregates of RESP3 (`$?`, `*?`), which no
//! server is known to send; they are reported as an error.

pub mod reply;
pub mod request;
pub mod token;
pub mod value;

mod line;

pub use line::{parse_i64, parse_u64};
pub use reply::{Protocol, Writer};
pub use request::{Args, Limits, Progress, RequestError};
pub use token::{Token, TokenError};
pub use value::{Value, ValueError};
