//! Who has a lock of jostled, of a Redis, and of Redisson.

use super::{Answer, Question, Refusal, Told, in_brief};
use crate::prelude::*;
use crate::{lockd_lock, redis};
use jostle_model::who::Party;
use jostle_resp::value::Value;
use std::collections::BTreeMap;

/// The fields of a map, or of a list in which each name is followed by its value.
fn fields(value: &Value) -> BTreeMap<String, Value> {
    let name = |value: &Value| value.as_text().unwrap_or_default().to_owned();
    match value {
        Value::Array(list) => list
            .chunks_exact(2)
            .map(|p| (name(&p[0]), p[1].clone()))
            .collect(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| (name(key), value.clone()))
            .collect(),
        _ => BTreeMap::new(),
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

pub(super) fn lockd(address: Result<Address, String>, question: &Question<'_>) -> Told {
    let login = Login {
        address: address.map_err(Refusal::Usage)?,
        own: Credentials::find(question.credentials, lockd_lock::VARIABLES)?,
        path: None,
    };
    let mut client = Client::admitted(&login)?;
    let name = question.name;
    if name.is_empty() {
        let holders = list(client.value(&[b"HOLDERS"])?);
        return Ok(Answer::new(
            holders.iter().map(|one| party(one, "")).collect(),
            Vec::new(),
        ));
    }
    let holders = list(client.value(&[b"HOLDER", name.as_bytes()])?);
    let holders = holders.iter().map(|one| party(one, name)).collect();
    // For administrators.
    match client.value(&[b"WAITERS", name.as_bytes()]) {
        Ok(waiters) => {
            let waiters = list(waiters);
            Ok(Answer::new(
                holders,
                waiters.iter().map(|one| party(one, name)).collect(),
            ))
        }
        Err(error) => {
            let note = format!("who waits is not shown: {error}");
            Ok(Answer::new(holders, Vec::new()).noting(note))
        }
    }
}

/// A holder or a waiter.
fn party(value: &Value, name: &str) -> Party {
    let fields = fields(value);
    let number = |name: &str| fields.get(name).and_then(Value::as_integer);
    let text = |name: &str| {
        let text = fields.get(name).and_then(Value::as_text);
        text.filter(|text| !text.is_empty())
    };
    let client = number("client").unwrap_or(0);
    let ms = |name: &str| number(name).and_then(|ms| u64::try_from(ms).ok());
    let who = match (text("name"), text("address")) {
        (Some(name), _) => in_brief(name.as_bytes()),
        (None, Some(address)) => format!("client {client} at {address}"),
        (None, None) => format!("session {client}"),
    };
    Party {
        who: Some(who),
        session: Some(client.to_string()),
        address: text("address").map(str::to_owned),
        mode: text("mode").map(str::to_owned),
        on: Some(text("lock").unwrap_or(name).to_owned()),
        token: number("token"),
        since_ms: ms("held-ms").or(ms("waited-ms")),
        left_ms: ms("ttl-ms").filter(|_| fields.contains_key("token")),
        ..Party::default()
    }
}

fn redis_client(question: &Question<'_>) -> Result<Client, Refusal> {
    let login = redis::named(question.argument, question.credentials)?;
    Ok(Client::admitted(&login)?)
}

/// The type of a key and what is left of its lease.
fn key(client: &mut Client, name: &str) -> Result<(String, Option<u64>), Refusal> {
    let kind = client.value(&[b"TYPE", name.as_bytes()])?;
    let left = client.value(&[b"PTTL", name.as_bytes()])?;
    let left = left.as_integer().and_then(|ms| u64::try_from(ms).ok());
    Ok((kind.as_text().unwrap_or_default().to_owned(), left))
}

/// A value names nobody, and a list of clients is no evidence.
pub(super) fn redis(question: &Question<'_>) -> Told {
    let mut client = redis_client(question)?;
    let (kind, left_ms) = key(&mut client, question.name)?;
    let note = match &*kind {
        "none" => return Ok(Answer::new(Vec::new(), Vec::new())),
        "string" => match client.value(&[b"GET", question.name.as_bytes()])? {
            Value::Bulk(value) => format!("a value names nobody: {}", in_brief(&value)),
            _ => return Ok(Answer::new(Vec::new(), Vec::new())),
        },
        "hash" => "a hash, as Redisson makes it: ask redisson:... for it".to_owned(),
        other => format!("a {other}, which is no lock of the usual recipe"),
    };
    let holder = Party {
        left_ms,
        note: Some(note),
        ..Party::default()
    };
    let answer = Answer::new(vec![holder], Vec::new());
    Ok(answer.noting("who waits cannot be known: clients ask again and again"))
}

/// A hash whose fields name client and thread.
pub(super) fn redisson(question: &Question<'_>) -> Told {
    let mut client = redis_client(question)?;
    let (kind, left_ms) = key(&mut client, question.name)?;
    match &*kind {
        "none" => return Ok(Answer::new(Vec::new(), Vec::new())),
        "hash" => {}
        other => {
            let said = format!("{} is a {other}, and no lock of Redisson", question.name);
            return Err(Refusal::Unknown(said));
        }
    }
    let all = fields(&client.value(&[b"HGETALL", question.name.as_bytes()])?);
    let mode = all.get("mode").and_then(Value::as_text);
    let is_read = mode == Some("read");
    let owners = all.keys().filter_map(|field| field.split_once(':'));
    if owners.clone().next().is_none() {
        let said = format!("{} is a hash, and no lock of Redisson", question.name);
        return Err(Refusal::Unknown(said));
    }
    let holders = owners.map(|(client, thread)| Party {
        who: Some(format!(
            "client {client} thread {}",
            thread.replace(":write", "")
        )),
        mode: Some(crate::holders::mode(is_read)),
        left_ms,
        ..Party::default()
    });
    let answer = Answer::new(holders.collect(), Vec::new());
    let kind = mode.map_or("redisson_lock__channel", |_| "redisson_rwlock");
    let channel = format!("{kind}:{{{}}}", question.name);
    let waiting = list(client.value(&[b"PUBSUB", b"NUMSUB", channel.as_bytes()])?);
    let waiting = waiting.get(1).and_then(Value::as_integer).unwrap_or(0);
    Ok(answer.noting(format!(
        "{waiting} connections are subscribed to its release; how many threads wait there cannot be known"
    )))
}
