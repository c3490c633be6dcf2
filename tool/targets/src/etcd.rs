//! `etcd`: the lock of etcd's own client library (`concurrency.Mutex`). A worker has a
//! session, which is a lease of its own; it puts a key under the lock's prefix with that
//! lease, and owns the lock when no key there is older. Otherwise it watches the key just
//! before its own. The key's create revision is the fencing token.
//!
//! `rpc` has the calls, `messages` their messages, and `server` the queries to a server
//! before the first lock.

mod carrier;
mod failure;
#[cfg(test)]
mod fake;
mod launch;
mod messages;
mod rpc;
mod server;

use crate::address::{Address, Members};
use crate::login::Credentials;
use crate::names::Names;
use crate::program::{LaunchRecipe, Program};
use crate::signs::{self, Signs};
use crate::table::{Entry, Family, LockCapabilities};
use crate::wire::refused;
use crate::{
    CallError, Keeping, LEASE_FACT, Lock, Mode, Outcome, ServerFigures, Setup, SetupError, Target,
    Traffic, VERSION_FACT, Wait,
};
use failure::Failure;
use jostle_sys::clock;
use jostle_sys::files::Errno;
pub use launch::Launch;
use launch::PROGRAM;
use messages::{
    CREATE, Compare, DELETE, DeleteRangeRequest, DeleteRangeResponse, Empty, KeepAliveResponse,
    KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, SortOrder, SortTarget, TxnRequest, TxnResponse, WatchCreate,
    WatchRequest, WatchResponse,
};
use rpc::Channel;
use server::{admitted, any, granted, status, told};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The lease of a session, in seconds, as the library has it.
const TTL_S: i64 = 60;

/// The shortest lease that a server with the default election timeout grants.
const LEAST_TTL_S: u128 = 2;

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const KEEP_ALIVE_CALL: &str = "LeaseKeepAlive";
const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// As etcdctl names a server with TLS.
const TLS_SCHEME: &str = "https";

/// Where name and password stand that etcdctl would take.
const VARIABLES: [&str; 2] = ["ETCDCTL_USER", "ETCDCTL_PASSWORD"];

/// An etcd.
#[derive(Debug)]
pub struct Etcd {
    servers: Members,
    own: Credentials,
    names: Names,
    ttl_s: i64,
    /// Its process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
    /// Whether workers take up their sessions on new connections.
    stays: bool,
}

impl Target for Etcd {
    type Lock = EtcdLock;

    /// For HTTP/2.
    const THREAD_STACK: usize = 512 << 10;

    const ENTRY: Entry = Entry {
        name: "etcd",
        aliases: &[],
        argument: Some("//HOST:PORT[,HOST:PORT...][?tls]"),
        check_argument: |argument| {
            argument.map_or(Ok(()), |place| {
                Address::several(place, Some(TLS_SCHEME)).map(|_| ())
            })
        },
        family: Family::Service,
        summary: "etcd by its library's recipe: a key with a lease, waits for the key before it",
        details: "Without an address, a server launched for the run (the first etcd in $PATH; Debian \
                  package etcd-server), or a cluster of as many as --members says; workers take its \
                  members in turn. Needs etcd 3.1 or later; the result states the version. As \
                  concurrency.Mutex of etcd's library: one session for each worker, a lease of 60 s \
                  that is kept alive every 20 s; a transaction puts the worker's key, if it is not \
                  there, and gets the oldest; a worker that is not first watches the key just before \
                  its own, and then gets both again; release deletes the key. Durable; replicated \
                  where the server is a cluster's; the create revision is the fencing token; served \
                  in order of revision. The lease frees a dead owner's lock. A worker that holds for \
                  longer renews meanwhile, unless --renew no. Name and password of a server with \
                  authentication are $ETCDCTL_USER and $ETCDCTL_PASSWORD, or those of --credentials. \
                  etcd:https://HOST:PORT asks for TLS, ?ca=FILE behind the last of them for TLS with \
                  that authority.",
        lock: LockCapabilities {
            timeout: true,
            excludes: true,
            fifo: true,
            remote: true,
            durable: true,
            replicated: true,
            clusters: true,
            fenced: true,
            usual_lease: Some(Duration::from_secs(TTL_S as u64)),
            renews: true,
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
        argument.map_or(Ok(()), |place| {
            let servers = Address::several(place, Some(TLS_SCHEME)).map_err(SetupError)?;
            let own = Credentials::find(file, VARIABLES)?;
            any(Members::look(servers).all(), |server| status(server, &own)).map(drop)
        })
    }

    fn launches() -> Option<&'static Program> {
        Some(&PROGRAM)
    }

    fn prepare(setup: &Setup<'_>) -> Result<Etcd, SetupError> {
        let mut own = Credentials::default();
        let (servers, pid) = match setup.argument {
            Some(place) => {
                own = Credentials::find(setup.credentials, VARIABLES)?;
                (
                    Address::several(place, Some(TLS_SCHEME)).map_err(SetupError)?,
                    None,
                )
            }
            None => {
                let members = Launch::members(setup.members)?;
                let recipes: Vec<&dyn LaunchRecipe> = members.iter().map(|one| one as _).collect();
                let launched = setup.launcher.follow_all(&recipes)?;
                let pid = launched.first().map(|first| first.pid);
                let addresses = launched.into_iter().map(|one| Address::Tcp(one.address));
                (addresses.collect(), pid)
            }
        };
        let servers = Members::look(servers);
        let told = any(servers.all(), |server| status(server, &own))?;
        let asked_s = setup.lease.map_or(TTL_S, |lease| {
            lease.as_millis().div_ceil(1_000).max(LEAST_TTL_S) as i64
        });
        let ttl_s = any(servers.all(), |server| granted(server, &own, asked_s))?;
        Ok(Etcd {
            servers,
            own,
            names: Names::new(setup)?,
            ttl_s,
            pid,
            version: crate::login::version(&told.version),
            stays: setup.stays,
        })
    }

    fn join(&self, worker: usize) -> Result<EtcdLock, SetupError> {
        let servers = self.servers.for_worker(worker);
        let mut lock = any(&servers, |server| {
            EtcdLock::open(admitted(server, &self.own)?, server, self.names, self.ttl_s)
        })?;
        if self.stays {
            lock.channel.wait_for(lock.lease());
        }
        if self.stays || servers.len() > 1 {
            lock.place = Some((servers, self.own.clone()));
        }
        Ok(lock)
    }

    /// Removes the keys of killed workers, which would otherwise stay until their leases end.
    fn remove_leftovers(&self) -> Result<(), SetupError> {
        let prefix = self.names.prefix().to_vec();
        let request = DeleteRangeRequest {
            range_end: after(&prefix),
            key: prefix,
        };
        any(self.servers.all(), |server| {
            let channel = admitted(server, &self.own)?;
            let removed = channel.call::<DeleteRangeResponse>(DELETE_RANGE, &request, false);
            removed.map(drop).map_err(|failure| told(server, &failure))
        })
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(Some(ServerFigures {
            pid: self.pid,
            ..ServerFigures::default()
        }))
    }

    fn signs(&self) -> Signs {
        let (mut leader, mut silent) = (None, Vec::new());
        for server in self.servers.all() {
            let told = server.accepts().then(|| status(server, &self.own));
            match told {
                Some(Ok(told)) => leader = Some(format!("{:x}", told.leader)),
                _ => silent.push(server.to_string()),
            }
        }
        let leader = leader.map(|leader| (signs::LEADER, leader));
        let silent = (signs::SILENT, silent.join(", "));
        leader.into_iter().chain([silent]).collect()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        let lease = (LEASE_FACT.to_owned(), self.ttl_s as f64 * 1e9);
        let version = self
            .version
            .map(|version| (VERSION_FACT.to_owned(), version));
        version.into_iter().chain([lease]).collect()
    }
}

/// The end of the range of all keys that begin so.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    // Ours end with a colon or a slash.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

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
    /// What was said on earlier connections, and on this one before the first lock.
    earlier: Traffic,
    before: Traffic,
    /// The session was taken up again since the last request that was answered.
    is_resumed: bool,
    /// Where the session can be taken up again, and who asks; None: it ends with its
    /// connection.
    place: Option<(Vec<Address>, Credentials)>,
}

impl EtcdLock {
    fn open(
        channel: Channel,
        address: &Address,
        names: Names,
        ttl_s: i64,
    ) -> Result<EtcdLock, SetupError> {
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

    /// What all keys of a lock begin with.
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

    /// What is left of this time since the last renewal.
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
            Ok(false) => Err(LAPSED),
            // The wait that follows ends by itself.
            Err(Failure::Interrupted) => Ok(()),
            Err(failure) => Err(failed(KEEP_ALIVE_CALL, &failure)),
        }
    }

    /// Puts our key unless it exists. Returns its create revision, and whether it is the
    /// oldest.
    fn enter(&self, key: usize) -> Result<(i64, bool), CallError> {
        let own = self.own(key);
        let op = |request| RequestOp {
            request: Some(request),
        };
        let oldest = || {
            let prefix = self.prefix(key);
            op(Request::Range(RangeRequest {
                range_end: after(&prefix),
                key: prefix,
                limit: 1,
                sort_order: SortOrder::Ascend.into(),
                sort_target: SortTarget::Create.into(),
                max_create_revision: 0,
            }))
        };
        let put = PutRequest {
            key: own.clone(),
            lease: self.lease,
        };
        let request = TxnRequest {
            compare: vec![Compare {
                target: CREATE,
                key: own.clone(),
                create_revision: Some(0),
            }],
            success: vec![op(Request::Put(put)), oldest()],
            failure: vec![op(Request::Range(of(own))), oldest()],
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
        let found: RangeResponse = self.ask("Range", RANGE, &of(self.own(key)), false)?;
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
        let request = of_own(self.own(key));
        // The keeper cannot interrupt this call: a key that stayed would block the lock.
        let answer: DeleteRangeResponse = self.ask("DeleteRange", DELETE_RANGE, &request, false)?;
        Ok(answer.deleted > 0)
    }

    /// Deletes our key after a failure, if the server still does that. The failure itself is
    /// what is reported, and the keeper need not wait.
    fn retreat(&self, key: usize) {
        let request = of_own(self.own(key));
        let _ = self
            .channel
            .call::<DeleteRangeResponse>(DELETE_RANGE, &request, true);
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
fn of(key: Vec<u8>) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

/// The deletion of one key.
fn of_own(key: Vec<u8>) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key,
        range_end: Vec::new(),
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
        Failure::Late => CallError {
            said: Some("the server has not answered in time"),
            ..CallError::new(call, Errno::TIME)
        },
        Failure::Foreign(_) | Failure::Said(_) => said(Errno::PROTO),
    }
}

/// Our key was not there any more when it was to be deleted.
const LAPSED: CallError = CallError {
    call: "DeleteRange",
    errno: Errno::TIMEDOUT.raw_os_error(),
    said: Some("the session's lease was over before the release"),
};

impl Lock for EtcdLock {
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        self.renew_in_time()?;
        // A key that stayed would block the lock for as long as our lease lives. Even an
        // attempt to put it that failed may have put it.
        let queued = self.queue(key, wait);
        let (revision, waited) = queued.inspect_err(|error| {
            // Another server goes on with the key.
            if self.place.is_none() || !error.is_of_this_server() {
                self.retreat(key);
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
    fn resume(&mut self) -> Result<bool, SetupError> {
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
        revoked
            .map(drop)
            .map_err(|failure| failed("LeaseRevoke", &failure))
    }
}

#[cfg(test)]
mod live_tests {
    use super::fake::{Calls, Says};
    use super::messages::{Header, ResponseOp};
    use super::*;
    use prost::Message;
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    fn message(message: &impl Message) -> Says {
        Says::Message(message.encode_to_vec())
    }

    fn kept(ttl_s: i64) -> Says {
        message(&KeepAliveResponse { id: 7, ttl_s })
    }

    /// Our key has been put, and an older one is there.
    fn second() -> Says {
        let elder = KeyValue {
            key: b"elder".to_vec(),
            create_revision: 3,
        };
        let found = RangeResponse {
            header: None,
            kvs: vec![elder],
        };
        message(&TxnResponse {
            header: Some(Header { revision: 5 }),
            succeeded: true,
            responses: vec![
                ResponseOp { range: None },
                ResponseOp { range: Some(found) },
            ],
        })
    }

    /// A session with such a lease, at a server that answers so. The paths of the calls.
    fn session(ttl_s: i64, says: fn(&str) -> Says) -> (EtcdLock, Receiver<String>) {
        let Calls { address, paths } = fake::answers_calls(says);
        let address = Address::Tcp(address);
        let channel = Channel::open(&address).unwrap();
        let lock = EtcdLock {
            earlier: Traffic::default(),
            before: channel.traffic(),
            is_resumed: false,
            channel,
            names: Names::of_run(7),
            lease: 7,
            keeping: Keeping::session(KEEP_ALIVE_CALL, ttl_s as u64 * 1_000_000_000),
            renewed_ns: clock::monotonic(),
            is_over: false,
            token: None,
            place: None,
        };
        (lock, paths)
    }

    fn age(lock: &mut EtcdLock, age_ms: u64) {
        lock.renewed_ns = clock::monotonic().saturating_sub(age_ms * 1_000_000);
    }

    #[test]
    fn a_slow_answer_renews_while_the_lease_lives() {
        // Slower than a third of the lease, in which the next renewal is due.
        let (mut lock, _paths) = session(6, |_| {
            Says::Later(Duration::from_millis(2_200), Box::new(kept(6)))
        });
        age(&mut lock, 2_001);
        let before = clock::monotonic();
        assert_eq!(lock.renew_in_time(), Ok(()));
        assert!(lock.renewed_ns >= before);
    }

    #[test]
    fn a_lease_that_is_over_is_told_from_a_silent_server() {
        let (mut lock, _paths) = session(3, |_| kept(0));
        age(&mut lock, 10_000);
        assert_eq!(lock.renew_in_time(), Err(LAPSED));
    }

    #[test]
    fn a_watch_ends_when_the_next_renewal_is_due() {
        let (mut lock, _paths) = session(60, |_| Says::Nothing);
        let wait = Wait::Block {
            last_resort_ns: u64::MAX,
        };
        // Soon, and by now.
        for aged in [19_800, 20_000] {
            age(&mut lock, aged);
            let start = Instant::now();
            let seen = lock.watch(b"elder".to_vec(), 5, wait).unwrap();
            assert!(seen.is_none());
            assert!(start.elapsed() < Duration::from_secs(5));
        }
    }

    #[test]
    fn a_failed_wait_takes_its_key_out_of_the_queue() {
        let wait = Wait::Block {
            last_resort_ns: u64::MAX,
        };
        let refusing: fn(&str) -> Says = |path| match path {
            TXN => second(),
            RANGE => Says::Status(14, "no leader"),
            _ => message(&DeleteRangeResponse { deleted: 1 }),
        };
        // The second server does not let the key be deleted either.
        let broken: fn(&str) -> Says = |path| match path {
            TXN => second(),
            RANGE => Says::Status(14, "no leader"),
            _ => Says::Status(14, "not now"),
        };
        for says in [refusing, broken] {
            let (mut lock, paths) = session(60, says);
            let error = lock.acquire(0, Mode::Exclusive, wait).unwrap_err();
            assert_eq!(error.call, "Range");
            assert!(error.said.unwrap_or_default().contains("no leader"));
            let asked: Vec<String> = paths.try_iter().collect();
            assert_eq!(asked, [TXN, RANGE, DELETE_RANGE]);
        }
    }
}
