//! `etcd`: the lock of etcd's own client library (`concurrency.Mutex`). A worker has a
//! session, which is a lease of its own; it puts a key under the lock's prefix with that
//! lease, and owns the lock when no key there is older. Otherwise it watches the key just
//! before its own. The key's create revision is the fencing token.
//!
//! `rpc` has the calls, `server` the queries to a server before the first lock, and `target`
//! what the workers share.

mod launch;
mod rpc;
mod server;
mod target;
pub(crate) mod who;

use crate::Traffic;
use crate::address::any;
use crate::prelude::*;
use jostle_etcd::Failure;
use jostle_etcd::after;
use jostle_etcd::messages::{
    CREATE, Compare, DELETE, DELETE_RANGE, DeleteRangeRequest, DeleteRangeResponse, Empty,
    KeepAliveResponse, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, PutRequest,
    RANGE, RangeRequest, RangeResponse, Request, RequestOp, SortOrder, SortTarget, TXN, TxnRequest,
    TxnResponse, WatchCreate, WatchRequest, WatchResponse,
};
use jostle_sys::clock;
use jostle_sys::files::Errno;
pub use launch::Launch;
use rpc::Channel;
use server::{admitted, told};
use std::time::Duration;
pub use target::Etcd;

/// The lease of a session, in seconds, as the library has it.
const TTL_S: i64 = 60;

/// The shortest lease that a server with the default election timeout grants.
const LEAST_TTL_S: u128 = 2;

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const KEEP_ALIVE_CALL: &str = "LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// As etcdctl names a server with TLS.
const TLS_SCHEME: &str = "https";

/// Where name and password stand that etcdctl would take.
const VARIABLES: [&str; 2] = ["ETCDCTL_USER", "ETCDCTL_PASSWORD"];

/// One worker's session.
#[derive(Debug)]
pub struct EtcdLock {
    channel: Channel,
    names: Names,
    lease: i64,
    keeping: Keeping,
    renewed_ns: u64,
    /// The server has said that the lease is over.
    is_over: bool,
    token: Option<u64>,
    /// The traffic on earlier connections, and on this one before the first lock.
    earlier: Traffic,
    before: Traffic,
    /// The session was taken up again since the last request that was answered.
    is_resumed: bool,
    /// Where the session can be taken up again, and who asks; None: it ends with its
    /// connection.
    place: Option<(Vec<Address>, Credentials)>,
}

impl EtcdLock {
    fn open(channel: Channel, address: &Address, names: Names, ttl_s: i64) -> Result<EtcdLock> {
        let request = LeaseGrantRequest { ttl_s };
        let asked_ns = clock::monotonic();
        let granted: Result<LeaseGrantResponse, _> = channel.call(GRANT, &request, false);
        let granted = granted.map_err(|failure| told(address, &failure))?;
        Ok(EtcdLock {
            earlier: Traffic::default(),
            before: channel.traffic(),
            is_resumed: false,
            channel,
            names,
            lease: granted.id,
            keeping: Keeping::session(KEEP_ALIVE_CALL, granted.ttl_s.max(1) as u64 * 1_000_000_000),
            renewed_ns: asked_ns,
            is_over: false,
            token: None,
            place: None,
        })
    }

    /// How long the lease lives unless it is renewed.
    fn lease(&self) -> Duration {
        Duration::from_nanos(self.keeping.lease_ns)
    }

    /// The prefix of all keys of a lock.
    fn prefix(&self, key: usize) -> Vec<u8> {
        [&self.names.name(key)[..], b"/"].concat()
    }

    /// Our key of a lock.
    fn own(&self, key: usize) -> Vec<u8> {
        let mut own = self.prefix(key);
        own.extend_from_slice(format!("{:x}", self.lease).as_bytes());
        own
    }

    /// Renews the lease. False if it has ended.
    fn keep_alive(&mut self, limit: Duration) -> Result<bool, Failure> {
        let now = clock::monotonic();
        let request = LeaseRequest { id: self.lease };
        let mut left_s = 0;
        let heard = |answer: KeepAliveResponse| {
            left_s = answer.ttl_s;
            Ok(true)
        };
        self.channel.listen(KEEP_ALIVE, &request, limit, heard)?;
        self.is_over = left_s <= 0;
        if !self.is_over {
            self.renewed_ns = now;
        }
        Ok(!self.is_over)
    }

    /// The rest of this time since the last renewal.
    fn left_of(&self, span_ns: u64) -> Duration {
        let age_ns = clock::monotonic().saturating_sub(self.renewed_ns);
        Duration::from_nanos(span_ns.saturating_sub(age_ns))
    }

    /// Renews the lease if a renewal is due. As long as the lease lives, a slow answer is no
    /// failure: the library, too, asks until it ends.
    fn renew_in_time(&mut self) -> Result<(), CallError> {
        let every_ns = self.keeping.every_ns;
        if !self.left_of(every_ns).is_zero() {
            return Ok(());
        }
        // After its end the server still has to have the time to say so.
        let least = Duration::from_nanos(every_ns);
        match self.keep_alive(self.left_of(self.keeping.lease_ns).max(least)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(LEASE_OVER),
            // The wait that follows ends by itself.
            Err(Failure::Interrupted) => Ok(()),
            Err(failure) => Err(failed(KEEP_ALIVE_CALL, &failure)),
        }
    }

    /// Puts our key unless it exists. Returns its create revision, and whether it is the
    /// oldest.
    fn enter(&self, key: usize) -> Result<(i64, bool), CallError> {
        let own = self.own(key);
        let op = RequestOp::from;
        let oldest = || {
            let prefix = self.prefix(key);
            op(Request::Range(RangeRequest {
                range_end: after(&prefix),
                key: prefix,
                limit: 1,
                sort_order: SortOrder::Ascend.into(),
                sort_target: SortTarget::Create.into(),
                ..RangeRequest::default()
            }))
        };
        let put = PutRequest {
            key: own.clone(),
            lease: self.lease,
            ..PutRequest::default()
        };
        let request = TxnRequest {
            compare: vec![Compare {
                target: CREATE,
                key: own.clone(),
                create_revision: Some(0),
                value: None,
            }],
            success: vec![op(Request::Put(put)), oldest()],
            failure: vec![op(Request::Range(exactly(own))), oldest()],
        };
        let answer: TxnResponse = self.ask("Txn", TXN, &request, false)?;
        let first = |nth: usize| -> Option<&KeyValue> {
            answer.responses.get(nth)?.range.as_ref()?.kvs.first()
        };
        let revision = match answer.succeeded {
            true => answer.header.as_ref().map_or(0, |header| header.revision),
            false => first(0).map_or(0, |own| own.create_revision),
        };
        let is_first = first(1).is_none_or(|oldest| oldest.create_revision == revision);
        Ok((revision, is_first))
    }

    /// Puts our key and waits until it is the oldest. Returns its create revision, too.
    fn queue(&mut self, key: usize, wait: Wait) -> Result<(i64, Waited), CallError> {
        let (revision, is_first) = self.enter(key)?;
        let waited = match (is_first, wait) {
            (true, _) => Waited::First,
            (false, Wait::Try) => Waited::Late,
            (false, _) => self.wait_for_elders(key, revision, wait)?,
        };
        let is_ours = is_first || !matches!(waited, Waited::First) || self.is_there(key)?;
        is_ours.then_some((revision, waited)).ok_or(LAPSED)
    }

    /// Whether our key still exists: it may have been deleted with our lease while we
    /// waited.
    fn is_there(&self, key: usize) -> Result<bool, CallError> {
        let found: RangeResponse = self.ask("Range", RANGE, &exactly(self.own(key)), false)?;
        Ok(!found.kvs.is_empty())
    }

    /// Waits until no key of the lock is older than ours.
    fn wait_for_elders(&mut self, key: usize, own: i64, wait: Wait) -> Result<Waited, CallError> {
        loop {
            let prefix = self.prefix(key);
            let request = RangeRequest {
                range_end: after(&prefix),
                key: prefix,
                limit: 1,
                sort_order: SortOrder::Descend.into(),
                sort_target: SortTarget::Create.into(),
                max_create_revision: own - 1,
                ..RangeRequest::default()
            };
            let found = self.channel.call::<RangeResponse>(RANGE, &request, true);
            let found = match found {
                Err(Failure::Interrupted) => return Ok(Waited::Interrupted),
                Err(failure) => return Err(failed("Range", &failure)),
                Ok(found) => found,
            };
            let Some(elder) = found.kvs.into_iter().next() else {
                return Ok(Waited::First);
            };
            let from = found.header.map_or(0, |header| header.revision);
            if let Some(ended) = self.watch(elder.key, from, wait)? {
                return Ok(ended);
            }
            self.renew_in_time()?;
        }
    }

    /// Waits until this key is deleted or a renewal is due, and then returns None. Returns
    /// Some if the attempt has ended.
    fn watch(&self, key: Vec<u8>, from: i64, wait: Wait) -> Result<Option<Waited>, CallError> {
        let until_ns = match wait {
            Wait::Try => 0,
            Wait::Until(until_ns) => until_ns,
            Wait::Block { last_resort_ns } => last_resort_ns,
        };
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic()));
        if left.is_zero() {
            return Ok(Some(match wait {
                Wait::Block { .. } => Waited::Interrupted,
                Wait::Try | Wait::Until(_) => Waited::Late,
            }));
        }
        let request = WatchRequest {
            create: Some(WatchCreate {
                key,
                start_revision: from,
            }),
        };
        let renewal = self.left_of(self.keeping.every_ns);
        if renewal.is_zero() {
            return Ok(None);
        }
        let limit = left.min(renewal);
        let seen = self
            .channel
            .listen(WATCH, &request, limit, |answer: WatchResponse| {
                if answer.canceled {
                    return Err(Failure::Said(answer.cancel_reason));
                }
                Ok(answer.events.iter().any(|event| event.kind == DELETE))
            });
        match seen {
            Ok(()) | Err(Failure::Late) => Ok(None),
            Err(Failure::Interrupted) => Ok(Some(Waited::Interrupted)),
            Err(failure) => Err(failed("Watch", &failure)),
        }
    }

    /// Deletes our key. Returns whether it existed.
    fn leave(&self, key: usize) -> Result<bool, CallError> {
        // The keeper cannot interrupt this call: a key that stayed would block the lock.
        self.delete(key, false)
    }

    fn delete(&self, key: usize, heeds: bool) -> Result<bool, CallError> {
        let request = DeleteRangeRequest {
            key: self.own(key),
            ..DeleteRangeRequest::default()
        };
        let answer: DeleteRangeResponse = self.ask("DeleteRange", DELETE_RANGE, &request, heeds)?;
        Ok(answer.deleted > 0)
    }

    fn ask<A: prost::Message + Default>(
        &self,
        call: &'static str,
        path: &str,
        request: &impl prost::Message,
        heeds: bool,
    ) -> Result<A, CallError> {
        let answer = self.channel.call(path, request, heeds);
        answer.map_err(|failure| failed(call, &failure))
    }
}

/// How a wait for elder keys ended.
enum Waited {
    First,
    Late,
    Interrupted,
}

/// Of one key.
fn exactly(key: Vec<u8>) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

#[cold]
fn failed(call: &'static str, failure: &Failure) -> CallError {
    let said = |errno: Errno| CallError {
        errno: errno.raw_os_error(),
        ..refused(call, failure.to_string().as_bytes())
    };
    match failure {
        Failure::Ended(_) => said(Errno::CONNRESET),
        Failure::Unavailable(_) => said(Errno::HOSTUNREACH),
        Failure::Interrupted => CallError::new(call, Errno::INTR),
        Failure::Late => {
            CallError::saying(call, Errno::TIME, "the server has not answered in time")
        }
        Failure::Foreign(_) | Failure::Refused(..) | Failure::Long(_) | Failure::Said(_) => {
            said(Errno::PROTO)
        }
    }
}

/// The server knows no lease of this number.
const LEASE_OVER: CallError = CallError::saying(
    KEEP_ALIVE_CALL,
    Errno::TIMEDOUT,
    "the session's lease was over",
);

/// Our key was not there any more, although we had not deleted it.
const LAPSED: CallError = CallError::saying("DeleteRange", Errno::TIMEDOUT, "our key was gone");

impl Lock for EtcdLock {
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        self.renew_in_time()?;
        // A key that stayed would block the lock for as long as our lease lives. Even an
        // attempt to put it that failed may have put it.
        let queued = self.queue(key, wait);
        let (revision, waited) = queued.inspect_err(|error| {
            // Another server goes on with the key.
            if self.place.is_none() || !error.is_of_this_server() {
                // The failure itself is what is reported, and the keeper need not wait.
                let _ = self.delete(key, true);
            }
        })?;
        self.is_resumed = false;
        match waited {
            Waited::Late => self.leave(key).map(|_| Outcome::Refused),
            Waited::Interrupted => self.leave(key).map(|_| Outcome::Interrupted),
            Waited::First => {
                self.token = Some(revision as u64);
                Ok(Outcome::Granted)
            }
        }
    }

    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        self.renew_in_time()?;
        // A deletion whose answer was lost with its connection may have been made. In a
        // session that lives, nothing else removes the key.
        let is_freed =
            self.leave(key)? || (self.is_resumed && self.renew(&[key], &mut Vec::new())?);
        self.is_resumed = false;
        is_freed.then_some(()).ok_or(LAPSED)
    }

    fn token(&self) -> Option<u64> {
        self.token
    }

    fn leased_at_ns(&self) -> Option<u64> {
        Some(self.renewed_ns)
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping)
    }

    /// If the server does not answer for as long as the lease lives, the lease has ended, or
    /// the server's next answer reports its end.
    fn renew(&mut self, _keys: &[usize], _lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        let least = Duration::from_nanos(self.keeping.every_ns);
        let kept = self.keep_alive(self.left_of(self.keeping.lease_ns).max(least));
        self.is_resumed &= kept.is_err();
        kept.map_err(|failure| failed(KEEP_ALIVE_CALL, &failure))
    }

    fn is_cut_off(&self) -> bool {
        self.channel.has_ended()
    }

    /// The lease and its keys do not depend on the connection.
    fn resume(&mut self) -> Result<bool> {
        let Some((servers, own)) = self.place.as_mut().filter(|_| !self.is_over) else {
            return Ok(false);
        };
        servers.rotate_left(1);
        let mut channel = any(servers, |server| admitted(server, own))?;
        channel.be_as_patient_as(&self.channel);
        self.earlier = Lock::traffic(self).unwrap_or_default();
        self.before = channel.traffic();
        self.channel = channel;
        self.is_resumed = true;
        Ok(true)
    }

    fn traffic(&self) -> Option<Traffic> {
        let (earlier, now) = (self.earlier, self.channel.traffic());
        Some(Traffic {
            round_trips: earlier.round_trips + now.round_trips - self.before.round_trips,
            bytes: earlier.bytes + now.bytes - self.before.bytes,
            ..earlier
        })
    }

    /// Ends the session.
    fn part(&mut self) -> Result<(), CallError> {
        if self.is_over {
            return Ok(());
        }
        let request = LeaseRequest { id: self.lease };
        let revoked: Result<Empty, Failure> = self.channel.call(REVOKE, &request, false);
        let revoked = revoked.map(drop);
        revoked.map_err(|failure| failed("LeaseRevoke", &failure))
    }
}

#[cfg(test)]
mod live_tests;
