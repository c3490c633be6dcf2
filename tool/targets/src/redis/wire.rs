//! A worker's side of the recipe.

use super::sentinels::PATIENCE;
use super::{POLL_NS, Redis, Sentinels};
use crate::prelude::*;
use crate::stream::Stream;
use crate::wire::Answer;
use jostle_resp::request::encode;
use jostle_sys::files::Errno;
use jostle_sys::waited::Patience;
use std::sync::Arc;

const SET: &str = "SET";
const WAIT: &str = "WAIT";
const SCRIPT: &str = "EVALSHA";

/// Deletes KEYS[1] if it still holds ARGV[1].
const RELEASE: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Gives KEYS[1] a lease of ARGV[2] ms from now on if it still holds ARGV[1].
const RENEW: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// How long replicas may take to have a grant, at most, in milliseconds.
const REPLICAS_MS: u64 = 1_000;

/// One worker's side of the recipe.
#[derive(Debug)]
pub struct RedisWire {
    names: Names,
    /// In digits.
    lease_ms: Vec<u8>,
    keeping: Keeping,
    value: Vec<u8>,
    script: Vec<u8>,
    renewal: Vec<u8>,
    group: Option<Arc<Sentinels>>,
    /// What is awaited, and for how long still where there may be another server.
    awaited: (&'static str, Patience),
    /// Replicas that must have what is granted, and the words of the request to wait for them.
    replicas: i64,
    wait: [Vec<u8>; 2],
    /// The lock that is being acquired, and what was asked last.
    key: usize,
    asked: &'static str,
}

impl RedisWire {
    /// For values of this kind, on this connection.
    pub(super) fn new(server: &Redis, value: Vec<u8>, client: &mut Client) -> Result<RedisWire> {
        let [script, renewal] = scripts(client)?;
        let replicas_ms = REPLICAS_MS.min(server.lease_ms / 2).max(1);
        Ok(RedisWire {
            names: server.names,
            lease_ms: server.lease_ms.to_string().into_bytes(),
            // Each lock by itself, by a script.
            keeping: Keeping::each(SCRIPT, server.lease_ms * 1_000_000),
            value,
            script,
            renewal,
            group: server.group.clone(),
            awaited: (SET, Patience::of(PATIENCE)),
            replicas: server.replicas as i64,
            wait: [server.replicas as u64, replicas_ms].map(|n| n.to_string().into_bytes()),
            key: 0,
            asked: SET,
        })
    }
}

/// Teaches a server the scripts; replicas do not learn them from their primary.
fn scripts(client: &mut Client) -> Result<[Vec<u8>; 2]> {
    let mut load = |script| client.ask(&[b"SCRIPT", b"LOAD", script]);
    Ok([load(RELEASE)?, load(RENEW)?])
}

impl Wire for RedisWire {
    fn names(&self) -> [&'static str; 2] {
        [SET, SCRIPT]
    }

    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, _asking: Asking, out: &mut Vec<u8>) {
        self.awaited = (SET, Patience::of(PATIENCE));
        (self.key, self.asked) = (key, SET);
        let name = self.names.name(key);
        let words: [&[u8]; 6] = [b"SET", &name, &self.value, b"NX", b"PX", &self.lease_ms];
        encode(out, &words);
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        self.awaited = (SCRIPT, Patience::of(PATIENCE));
        let name = self.names.name(key);
        let words: [&[u8]; 5] = [b"EVALSHA", &self.script, b"1", &name, &self.value];
        encode(out, &words);
    }

    #[inline]
    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        let next = match (self.asked, reply) {
            (SET, Reply::Text(b"OK")) if self.replicas == 0 => return Ok(Answer::Granted),
            (SET, Reply::Text(b"OK")) => WAIT,
            (WAIT, Reply::Integer(count)) if count >= self.replicas => return Ok(Answer::Granted),
            // The key is deleted again.
            (WAIT, Reply::Integer(_)) => SCRIPT,
            (SET, Reply::Nil) | (SCRIPT, Reply::Integer(_)) => return Ok(Answer::Taken),
            (asked, other) => return Err(unexpected(asked, other)),
        };
        self.asked = next;
        Ok(Answer::Pending)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) {
        if self.asked == SCRIPT {
            return self.release(self.key, Mode::Exclusive, out);
        }
        self.awaited = (WAIT, Patience::of(PATIENCE));
        encode(out, &[WAIT.as_bytes(), &self.wait[0], &self.wait[1]]);
    }

    /// The number in the answer to WAIT is none.
    #[inline]
    fn token(&self, _granted: Reply<'_>) -> Option<u64> {
        None
    }

    #[inline]
    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Integer(0) => Err(LAPSED),
            Reply::Integer(1) => Ok(()),
            other => Err(unexpected(SCRIPT, other)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        self.awaited = (SCRIPT, Patience::of(PATIENCE));
        let name = self.names.name(key);
        let words: [&[u8]; 6] = [
            b"EVALSHA",
            &self.renewal,
            b"1",
            &name,
            &self.value,
            &self.lease_ms,
        ];
        encode(out, &words);
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match reply {
            Reply::Integer(kept @ (0 | 1)) => Ok(kept == 1),
            other => Err(unexpected(SCRIPT, other)),
        }
    }

    fn polls_every_ns(&self) -> Option<u64> {
        Some(POLL_NS)
    }

    fn patience_ns(&self) -> Option<u64> {
        let look = |_: &Arc<Sentinels>| Patience::look(PATIENCE).as_nanos() as u64;
        self.group.as_ref().map(look)
    }

    fn due(&mut self, _out: &mut Vec<u8>) -> Result<(), CallError> {
        let (call, patience) = &mut self.awaited;
        let said = "the server gave no answer within 2 s";
        match patience.is_over() {
            true => Err(CallError::saying(call, Errno::TIME, said)),
            false => Ok(()),
        }
    }

    /// What it holds belongs to its value, not to a connection.
    fn resume(&mut self) -> Result<Option<Stream>> {
        let Some(group) = &self.group else {
            return Ok(None);
        };
        let mut client = group.connect()?;
        scripts(&mut client)?;
        Ok(Some(client.into_stream()))
    }
}

/// The key no longer existed when we released it, or had another value.
const LAPSED: CallError = CallError::lost(SCRIPT);
