//! State that the workers share: servers, login and the names of locks.

use super::launch::{Launch, PROGRAM};
use super::server::{admitted, granted, status, told};
use super::{EtcdLock, LEAST_TTL_S, TLS_SCHEME, TTL_S, VARIABLES};
use crate::address::{Members, any};
use crate::prelude::*;
use crate::signs::{NoSigns, Told};
use jostle_etcd::after;
use jostle_etcd::messages::{DELETE_RANGE, DeleteRangeRequest, DeleteRangeResponse};
use std::time::Duration;

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

    const ENTRY: Entry = Entry {
        name: "etcd",
        argument: Some("//HOST:PORT[,HOST:PORT...][?tls]"),
        check_argument: |argument| argument::servers(argument, Some(TLS_SCHEME)),
        reach: |place, file| {
            let servers = Address::several(place, Some(TLS_SCHEME)).map_err(SetupError)?;
            let own = Credentials::find(file, VARIABLES)?;
            any(Members::look(servers).all(), |server| status(server, &own)).map(drop)
        },
        program: Some(&PROGRAM),
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
        lock: capabilities!(LockCapabilities::TIMED; fifo, remote, durable, replicated, clusters,
            fenced, usual_lease: Some(Duration::from_secs(TTL_S as u64)), renews),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Etcd> {
        let named = |places: &str| Address::several(places, Some(TLS_SCHEME));
        let (servers, own, pid) = setup.servers(named, VARIABLES, Launch::members)?;
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

    fn join(&self, worker: usize) -> Result<EtcdLock> {
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
    fn remove_leftovers(&self) -> Result<()> {
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

    fn server(&self) -> Result<Option<ServerFigures>> {
        Ok(Some(ServerFigures::of_process(self.pid)))
    }

    /// A member that answers with an error, such as one without a leader, is not silent.
    fn signs(&self) -> Told {
        let (mut told, mut silent, mut refused) = (None, Vec::new(), None);
        for server in self.servers.all() {
            match signs::asked(server, || status(server, &self.own)) {
                Ok(status) => told = Some(status),
                Err(NoSigns::Refused(said)) => refused = Some(said),
                Err(_) => silent.push(server.to_string()),
            }
        }
        match (&told, refused) {
            (None, Some(said)) => return Err(NoSigns::Refused(said)),
            (None, None) => return Err(NoSigns::Silent(silent.join(", "))),
            _ => {}
        }
        let leader = told.as_ref();
        let leader = leader.map(|told| format!("{:x}", told.leader).into());
        let header = told.and_then(|told| told.header);
        let life = header.map(|header| format!("cluster {:x}", header.cluster_id).into());
        Ok(signs::known([
            (sign::LIFE, life),
            (sign::LEADER, leader),
            (sign::SILENT_MEMBERS, Some(Sign::Texts(silent))),
            (sign::OWN_NAMES, Some(true.into())),
        ]))
    }

    fn facts(&self) -> Facts {
        facts([
            (LEASE_FACT, Some(self.ttl_s as f64 * 1e9)),
            (VERSION_FACT, self.version),
        ])
    }
}
