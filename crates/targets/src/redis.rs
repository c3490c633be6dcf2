//! `redis`: the lock that Redis's documentation describes for one instance
//! ("Distributed Locks with Redis"): SET with NX, a random value and a lease;
//! released by a script that deletes the key only if it still holds the value.
//! The recipe does not queue: who finds the lock taken asks again.

use crate::lockd_lock::{NAME_BYTES, Names};
use crate::remote::{Address, Client, Reply, info_figure};
use crate::table::{Entry, Family, LockCapabilities};
use crate::{
    CallError, Calls, Kind, Lock, Mode, Outcome, ServerFigures, Setup, SetupError, Target, Wait,
};
use jostle_resp::request::encode;
use jostle_sys::files::Errno;
use jostle_sys::{clock, signal};
use std::collections::BTreeMap;

/// Where a Redis listens that was not told otherwise.
const USUAL: &str = "//127.0.0.1:6379";

/// Between two tries. The documentation asks for "a random delay"; one of the
/// order of a hand-off keeps the poll from hiding the lock.
const POLL_NS: u64 = 1_000_000;

/// The lease: the documentation's example.
const LEASE_MS: &[u8] = b"30000";

/// Deletes KEYS[1] if it still holds ARGV[1].
const RELEASE: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// A Redis.
#[derive(Debug)]
pub struct Redis {
    address: Address,
    names: Names,
    run: u64,
}

/// One worker's connection.
#[derive(Debug)]
pub struct RedisLock {
    client: Client,
    names: Names,
    value: Vec<u8>,
    script: Vec<u8>,
}

impl Target for Redis {
    type Lock = RedisLock;

    const ENTRY: Entry = Entry {
        name: "redis",
        aliases: &[],
        argument: Some("//HOST:PORT"),
        check_argument: |argument| Address::tcp(argument.unwrap_or(USUAL)).map(|_| ()),
        family: Family::Service,
        summary: "Redis by the recipe of its documentation: SET NX PX, release by a script",
        details: "Without an address, 127.0.0.1:6379. SET key value NX PX 30000 with a value of each worker's own; released by a script \
                  that compares and deletes. A worker that finds the lock taken asks again every \
                  1 ms (`poll_ns` in the result): there is no queue, and none that asks later is \
                  kept behind. Durable and replicated as the server is set up to be; not fenced. \
                  The lease frees a dead owner's lock after 30 s, and lets a second owner in where \
                  the first holds longer than that.",
        lock: LockCapabilities {
            shared: false,
            timeout: true,
            ranges: false,
            open_each: false,
            excludes: true,
            survives_owner: false,
            fifo: false,
            pipeline: true,
        },
        no_threads: None,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Redis, SetupError> {
        let address = Address::tcp(setup.argument.unwrap_or(USUAL)).map_err(SetupError)?;
        Client::connect(&address)?.ask(&[b"PING"])?;
        Ok(Redis {
            address,
            names: Names::new(setup),
            run: setup.seed,
        })
    }

    fn join(&self, worker: usize) -> Result<RedisLock, SetupError> {
        let mut client = Client::connect(&self.address)?;
        let script = client.ask(&[b"SCRIPT", b"LOAD", RELEASE])?;
        let value = format!("{:016x}{worker:08x}", self.run).into_bytes();
        Ok(RedisLock {
            client,
            names: self.names.clone(),
            value,
            script,
        })
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        BTreeMap::from([("poll_ns".to_owned(), POLL_NS as f64)])
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        let info = Client::connect(&self.address)?.ask(&[b"INFO"])?;
        Ok(Some(ServerFigures {
            // Redis counts commands, not locks.
            grants: None,
            pid: self.address.process(&info),
            memory_bytes: info_figure(&info, "used_memory"),
        }))
    }
}

impl RedisLock {
    #[inline]
    fn try_once(&mut self, key: usize) -> Result<Reply, CallError> {
        self.client.request.clear();
        self.put_set(key);
        self.client.call("SET")
    }

    #[inline]
    fn put_set(&mut self, key: usize) {
        let mut name = [0; NAME_BYTES];
        let name = self.names.write(key, &mut name);
        let words: [&[u8]; 6] = [b"SET", name, &self.value, b"NX", b"PX", LEASE_MS];
        encode(&mut self.client.request, &words);
    }

    #[inline]
    fn put_release(&mut self, key: usize) {
        let mut name = [0; NAME_BYTES];
        let name = self.names.write(key, &mut name);
        let words: [&[u8]; 5] = [b"EVALSHA", &self.script, b"1", name, &self.value];
        encode(&mut self.client.request, &words);
    }
}

impl Lock for RedisLock {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        loop {
            match self.try_once(key)? {
                Reply::Text | Reply::Integer(_) => return Ok(Outcome::Granted),
                Reply::Interrupted => return Ok(Outcome::Interrupted),
                Reply::Nil => {}
            }
            let left = match wait {
                Wait::Try => 0,
                Wait::Until(until) => until.saturating_sub(clock::monotonic()),
                Wait::Block { .. } => POLL_NS,
            };
            match left {
                0 => return Ok(Outcome::Refused),
                _ if signal::interrupted() => return Ok(Outcome::Interrupted),
                left => clock::sleep(left.min(POLL_NS), signal::interrupted),
            }
        }
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.client.request.clear();
        self.put_release(key);
        self.client.call("EVALSHA").map(|_| ())
    }

    fn batch(&mut self, calls: Calls, _wait: Wait) -> Result<Outcome, CallError> {
        self.client.request.clear();
        for nth in 0..calls.count {
            if calls.kind != Kind::Releases {
                self.put_set(calls.key(nth));
            }
            if calls.kind != Kind::Acquires {
                self.put_release(calls.key(nth));
            }
        }
        let whole = self
            .client
            .exchange("SET", calls.replies(), |_, reply| match reply {
                // A key that was not there any more when it was to be deleted:
                // its lease was over.
                Reply::Nil | Reply::Integer(0) => Err(CallError::new("SET", Errno::AGAIN)),
                _ => Ok(()),
            })?;
        Ok(if whole {
            Outcome::Granted
        } else {
            Outcome::Interrupted
        })
    }
}
