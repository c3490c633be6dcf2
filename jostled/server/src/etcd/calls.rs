//! Calls to etcd: requests of [`crate::ha`] as etcd's messages, and what became of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jostle_etcd::Failure;
use jostle_etcd::cluster::Cluster;
use jostle_etcd::messages::Request as Op;
use jostle_etcd::messages::{
    CREATE, Compare, DeleteRangeRequest, PutRequest, RANGE, RangeRequest, RangeResponse, TXN,
    TxnRequest, TxnResponse, VALUE,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Shared, now};
use crate::ha::{Answer, Call, Due, Over, Range, Request, Txn};
use crate::table::Time;

/// After so long a call is given up. Copies of it have been sent long before.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls that are under way.
pub(super) struct Calls {
    cluster: Arc<Cluster>,
    shared: Arc<Shared>,
    flying: JoinSet<(u64, Answer)>,
    /// The number of the latest request, and the members in the order in which it is sent to
    /// them.
    number: u64,
    order: Vec<usize>,
}

impl Calls {
    pub(super) fn new(cluster: Arc<Cluster>, shared: Arc<Shared>) -> Self {
        Self {
            cluster,
            shared,
            flying: JoinSet::new(),
            number: u64::MAX,
            order: Vec::new(),
        }
    }

    /// Sends all that is due; returns until when there is nothing more.
    pub(super) fn send(&mut self, mut due: impl FnMut(Time) -> Due) -> Result<Time, Over> {
        loop {
            match due(now()) {
                Due::Send(call) => self.begin(call),
                Due::Wait(until) => return Ok(until),
                Due::Over(over) => return Err(over),
            }
        }
    }

    fn begin(&mut self, call: Call) {
        if call.number != self.number {
            (self.number, self.order) = (call.number, self.cluster.order());
        }
        let place = |attempt: u32| self.order[attempt as usize % self.order.len()];
        if let Some(before) = call.attempt.checked_sub(1) {
            self.cluster.note_slow(place(before));
        }
        let (cluster, shared) = (Arc::clone(&self.cluster), Arc::clone(&self.shared));
        let (member, number) = (place(call.attempt), call.number);
        self.flying.spawn(async move {
            let answer = timeout(PATIENCE, answer(&cluster, &shared, member, &call.request)).await;
            let answer = answer.unwrap_or(Err(Failure::Late));
            let answer = answer.unwrap_or_else(|failure| {
                if matches!(&*call.request, Request::Txn(_)) {
                    shared.unknown.fetch_add(1, Relaxed);
                }
                shared.note_failure(cluster.place(member), &failure);
                Answer::Unknown
            });
            (number, answer)
        });
    }

    /// The next answer, with its number; `None`: the time has come.
    pub(super) async fn next(&mut self, until: Time) -> Option<(u64, Answer)> {
        let left = Duration::from_nanos(until.0.saturating_sub(now().0));
        match self.flying.is_empty() {
            true => {
                tokio::time::sleep(left).await;
                None
            }
            false => timeout(left, self.flying.join_next()).await.ok()??.ok(),
        }
    }
}

async fn answer(
    cluster: &Cluster,
    shared: &Shared,
    member: usize,
    request: &Request,
) -> Result<Answer, Failure> {
    let (answer, header) = match request {
        Request::Txn(txn) => {
            let answer: TxnResponse = cluster.call(member, TXN, transaction(txn)).await?;
            let kept = match answer.succeeded {
                true => Answer::Committed,
                false => {
                    let found = answer.responses.into_iter().next();
                    let found = found.and_then(|found| found.range?.kvs.into_iter().next());
                    Answer::Refused(found.map(|pair| pair.value))
                }
            };
            shared.batches.fetch_add(1, Relaxed);
            (kept, answer.header)
        }
        Request::Range(range) => {
            let mut asked = read(range);
            let answer = loop {
                let answer = cluster.call::<RangeResponse>(member, RANGE, asked.clone());
                match answer.await {
                    // A shorter page is as good.
                    Err(Failure::Long(_)) if asked.limit > 1 => asked.limit = asked.limit / 16 + 1,
                    answer => break answer?,
                }
            };
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            let pairs = answer.kvs.into_iter().map(|pair| (pair.key, pair.value));
            let page = Answer::Page {
                pairs: pairs.collect(),
                more: answer.more,
                revision,
            };
            (page, answer.header)
        }
    };
    let revision = header.map_or(0, |header| header.revision);
    shared.revision.fetch_max(revision, Relaxed);
    Ok(answer)
}

fn read(range: &Range) -> RangeRequest {
    RangeRequest {
        key: range.from.clone(),
        range_end: range.to.clone().unwrap_or_default(),
        revision: range.revision,
        limit: range.limit,
        ..RangeRequest::default()
    }
}

fn transaction(txn: &Txn) -> TxnRequest {
    let puts = txn.puts.iter().map(|(key, value)| {
        Op::Put(PutRequest {
            key: key.clone(),
            value: value.clone(),
            lease: 0,
        })
    });
    let deletes = txn.deletes.iter().map(|(from, to)| {
        Op::Delete(DeleteRangeRequest {
            key: from.clone(),
            range_end: to.clone().unwrap_or_default(),
        })
    });
    TxnRequest {
        compare: vec![Compare {
            target: if txn.compare.is_some() { VALUE } else { CREATE },
            key: txn.key.clone(),
            create_revision: txn.compare.is_none().then_some(0),
            value: txn.compare.clone(),
        }],
        success: puts.chain(deletes).map(Into::into).collect(),
        failure: vec![
            Op::Range(RangeRequest {
                key: txn.key.clone(),
                ..RangeRequest::default()
            })
            .into(),
        ],
    }
}
