//! `redisson`: the lock of the Java library Redisson. A lock is a hash whose only field
//! names the owner, and has a lease. Scripts take and release it. A worker that finds it
//! taken subscribes to the lock's channel, on which releases are published. It tries again
//! after a message, or when the lease that the script reported has ended. A release leaves
//! a key, its latch, which one more request removes.
//!
//! One connection carries both commands and messages, which requires version 3 of Redis's
//! protocol. `wire` has the sequence of requests and answers.

mod wire;

use crate::prelude::*;
use crate::program::secret;
use crate::redis::{Recipe, Redis, RedisTarget, TLS_SCHEME, USUAL_LEASE};
use jostle_resp::request::encode;
use wire::RedissonWire;

/// Gives the lock to ARGV[2] for ARGV[1] ms and returns nothing, if the lock is free or
/// ARGV[2] owns it already. Otherwise returns the rest of its lease.
const TAKE: &[u8] = b"local lock, lease, worker = KEYS[1], ARGV[1], ARGV[2]
if redis.call('hexists', lock, worker) == 1 or redis.call('exists', lock) == 0 then
  redis.call('hincrby', lock, worker, 1)
  redis.call('pexpire', lock, lease)
  return false
end
return redis.call('pttl', lock)";

/// Removes one acquisition of ARGV[3] from the lock. If that was the last one, deletes the
/// lock and publishes ARGV[1] on KEYS[2]. Returns nothing if ARGV[3] does not own the lock.
/// The result stays for ARGV[4] ms in KEYS[3], the latch of this release, so that a
/// repeated request for the same release returns it again.
const GIVE: &[u8] = b"local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local word, lease, worker, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local done = redis.call('get', latch)
if done then
  return tonumber(done)
end
if redis.call('hexists', lock, worker) == 0 then
  return false
end
local is_free = 0
if redis.call('hincrby', lock, worker, -1) > 0 then
  redis.call('pexpire', lock, lease)
else
  redis.call('del', lock)
  redis.call('publish', channel, word)
  is_free = 1
end
redis.call('set', latch, is_free, 'px', keep)
return is_free";

/// Renews the lease of ARGV[2]'s lock to ARGV[1] ms from now, and returns whether ARGV[2]
/// still owned it.
const KEEP: &[u8] = b"local lock, lease, worker = KEYS[1], ARGV[1], ARGV[2]
if redis.call('hexists', lock, worker) == 0 then
  return 0
end
redis.call('pexpire', lock, lease)
return 1";

/// A Redis.
pub type Redisson = RedisTarget<Library>;

/// The library's recipe.
#[derive(Debug)]
pub struct Library;

impl Recipe for Library {
    type Lock = RemoteLock<RedissonWire>;

    const ENTRY: Entry = Entry {
        name: "redisson",
        check_argument: |argument| argument::service_or(argument, Some(TLS_SCHEME)),
        reach: Redis::ENTRY.reach,
        program: Redis::ENTRY.program,
        summary: "Redis by Redisson's recipe: scripts on a hash, waiters subscribe to its release",
        details: "Without an address, a server launched for the run (Debian package redis-server), which \
                  keeps nothing on disk. As RLock of the Java library Redisson: a script adds the \
                  worker to a hash with a lease of 30 s if nobody else is in it, and otherwise returns \
                  what is left of the lease; a worker that finds the lock taken subscribes to the \
                  lock's channel, and tries again at once, after each message there, and when that \
                  lease is over; a release deletes the hash, publishes, and \
                  leaves a key that one more request removes. All waiters of a lock are \
                  woken, and none is served in order. Durable and replicated as the server is set up \
                  to be; not fenced. The lease frees a dead owner's lock after 30 s (in `hold` after \
                  600 s). Redisson's watchdog renews it every 10 s while a lock is held; jostle does \
                  so, too, in `hold --for`, and unless --renew no in `contend` and `recover`. The password of a server that \
                  wants one is $REDISCLI_AUTH. redisson:rediss://HOST:PORT asks for TLS, ?ca=FILE behind it for \
                  TLS with that authority. Needs Redis 6 or later.",
        lock: capabilities!(LockCapabilities::SERVICE; usual_lease: Some(USUAL_LEASE), renews,
            answering: Some("echo")),
        ..Entry::SERVICE
    };

    const POLL_NS: Option<u64> = None;

    /// The lock's, and its latch's.
    const DELETIONS: u64 = 2;

    /// On a connection that knows the scripts, and on which messages may come.
    fn join(server: &Redisson, _worker: usize) -> Result<RemoteLock<RedissonWire>> {
        let mut client = server.client()?;
        let mut load = |script| client.ask(&[b"SCRIPT", b"LOAD", script]);
        let scripts = [load(TAKE)?, load(GIVE)?, load(KEEP)?];
        greet(&mut client)?;
        let wire = RedissonWire::new(server.names, server.lease_ms, scripts, &secret()?);
        Ok(RemoteLock::new(client, wire))
    }
}

/// Asks for the version of the protocol in which messages come between answers.
fn greet(client: &mut Client) -> Result<()> {
    encode(&mut client.request, &[b"HELLO", b"3"]);
    let greeted = client.asked("HELLO", |input, call| {
        let whole = wire::frame(input, call)?;
        Ok(whole.map(|(frame, length)| (frame.reply, length)))
    });
    greeted.map(drop).map_err(|said| {
        SetupError(format!(
            "the server's answer to HELLO 3: {said}; redisson needs Redis 6 or later"
        ))
    })
}
