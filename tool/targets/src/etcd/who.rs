//! Who has a lock of etcd: the oldest key below its name, and the lease of that key.

use super::rpc::Channel;
use super::server::{admitted, told};
use super::{TLS_SCHEME, VARIABLES};
use crate::address::{Address, Members, any};
use crate::login::Credentials;
use crate::who::{Answer, Question, Refusal, Told};

use jostle_etcd::after;
use jostle_etcd::messages::{KeyValue, RANGE, RangeRequest, RangeResponse, SortOrder, SortTarget};
use jostle_model::who::Party;
use prost::Message;

const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
/// Keys that are looked at.
const AT_MOST: i64 = 1_000;

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TimeToLive {
    #[prost(int64, tag = "3")]
    left_s: i64,
}

pub(crate) fn who(question: &Question<'_>) -> Told {
    let servers = Address::several(question.argument, Some(TLS_SCHEME)).map_err(Refusal::Usage)?;
    let own = Credentials::find(question.credentials, VARIABLES)?;
    let prefix = format!("{}/", question.name.trim_end_matches('/')).into_bytes();
    let parties = any(Members::look(servers).all(), |server| {
        let channel = admitted(server, &own)?;
        let request = RangeRequest {
            range_end: after(&prefix),
            key: prefix.clone(),
            limit: AT_MOST,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            ..RangeRequest::default()
        };
        let keys = channel.call::<RangeResponse>(RANGE, &request, false);
        let keys = keys
            .map_err(|failure| told(server, &failure))?
            .kvs
            .into_iter();
        // What other locks have below this name has more parts.
        let keys =
            keys.filter(|key| key.key[prefix.len()..] == *format!("{:x}", key.lease).as_bytes());
        Ok(keys.map(|key| party(&channel, &key)).collect::<Vec<_>>())
    })?;
    let mut parties = parties.into_iter();
    let holder = parties.next().into_iter().collect();
    let answer = Answer::new(holder, parties.collect());
    Ok(match answer.holders.is_empty() {
        true => answer,
        false => {
            answer.noting("etcd keeps no client of a lease: which program has it cannot be known")
        }
    })
}

fn party(channel: &Channel, key: &KeyValue) -> Party {
    let lease = channel.call::<TimeToLive>(TIME_TO_LIVE, &Lease { id: key.lease }, false);
    let left = lease
        .ok()
        .and_then(|lease| u64::try_from(lease.left_s).ok());
    Party {
        who: Some(format!("lease {:x}", key.lease)),
        session: Some(format!("{:x}", key.lease)),
        mode: Some(crate::holders::mode(false)),
        on: Some(String::from_utf8_lossy(&key.key).into_owned()),
        token: Some(key.create_revision),
        left_ms: left.map(|s| s * 1_000),
        ..Party::default()
    }
}
