//! Who has a lock of ZooKeeper: the first of the nodes below its path that have a number, and the
//! session whose node that is. Nodes of Curator, kazoo and others are known by their numbers.

use super::jute::{self, Reader, error, op};
use super::session::Session;
use super::{TIMEOUT, VARIABLES};
use crate::address::{Address, Members};
use crate::holders::mode;
use crate::login::Credentials;
use crate::who::{Answer, Question, Refusal, Told, in_brief};
use jostle_model::who::Party;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Digits that the server appends to the name of a node.
const DIGITS: usize = 10;
/// Marks of nodes that share the lock: of Curator and of kazoo.
const SHARED: [&str; 2] = ["__READ__", "__rlock__"];

pub(crate) fn who(question: &Question<'_>) -> Told {
    let path = question.name.trim_end_matches('/');
    if !path.starts_with('/') {
        return Err(Refusal::Usage(format!(
            "`{}`: a path begins with /",
            question.name
        )));
    }
    let servers = Address::several(question.argument, None).map_err(Refusal::Usage)?;
    let own = Credentials::find(question.credentials, VARIABLES)?;
    let mut session = Session::open(Members::look(servers).all(), TIMEOUT, &own)?;
    let answer = queue(&mut session, path);
    session.close()?;
    answer
}

fn queue(session: &mut Session, path: &str) -> Told {
    let asks = |path: String| {
        move |_: usize, out: &mut Vec<u8>| {
            jute::sized(out, |out| out.extend_from_slice(path.as_bytes()));
            out.push(0);
        }
    };
    let (mut nodes, mut is_there) = (Vec::new(), true);
    session.ask(op::GET_CHILDREN, 1, asks(path.to_owned()), |_, frame| {
        is_there = frame.error != error::NO_NODE;
        if ![0, error::NO_NODE].contains(&frame.error) {
            return Err(refusal(path, frame.error));
        }
        Reader(frame.body).strings(|name| {
            let name = String::from_utf8_lossy(name).into_owned();
            nodes.extend(number(&name).map(|number| (number, name)));
        });
        Ok(())
    })?;
    if !is_there {
        let note = format!("there is no node {path}: nobody has used the lock, or all have left");
        return Ok(Answer::new(Vec::new(), Vec::new()).noting(note));
    }
    nodes.sort();
    let (mut holders, mut waiters) = (Vec::new(), Vec::<Party>::new());
    for (_, name) in nodes {
        let node = format!("{path}/{name}");
        let is_shared = SHARED.iter().any(|mark| name.contains(mark));
        let mut found = None;
        session.ask(
            op::GET_DATA,
            1,
            asks(node.clone()),
            |_, frame| match frame.error {
                0 => {
                    found = party(&node, is_shared, frame.body);
                    Ok(())
                }
                // It has left meanwhile.
                error::NO_NODE => Ok(()),
                code => Err(refusal(&node, code)),
            },
        )?;
        let Some(party) = found else { continue };
        let shares = |one: &Party| is_shared && one.mode == party.mode;
        match waiters.is_empty() && holders.iter().all(shares) {
            true => holders.push(party),
            false => waiters.push(party),
        }
    }
    Ok(Answer::new(holders, waiters))
}

fn refusal(path: &str, code: i32) -> String {
    match code {
        error::NO_AUTH => format!(
            "{path} may not be read; set ${} and ${}",
            VARIABLES[0], VARIABLES[1]
        ),
        code => format!("{path}: error {code}"),
    }
}

/// The number at the end of a node's name.
fn number(name: &str) -> Option<u32> {
    let digits = name.get(name.len().checked_sub(DIGITS)?..)?;
    digits.parse().ok()
}

/// From its data, which may be absent, and its status.
fn party(node: &str, is_shared: bool, body: &[u8]) -> Option<Party> {
    let (data, mut status) = match body.strip_prefix(&[0xff; 4]) {
        Some(rest) => (&b""[..], Reader(rest)),
        None => {
            let mut reader = Reader(body);
            (reader.bytes()?, reader)
        }
    };
    let token = status.long()?;
    let (_, created_ms) = (status.long()?, status.long()?);
    let (_, _, _, _) = (status.long()?, status.int()?, status.int()?, status.int()?);
    let session = status.long()?;
    let created = UNIX_EPOCH + Duration::from_millis(u64::try_from(created_ms).ok()?);
    // By the server's clock; with that of another machine it may be in the future.
    let since = SystemTime::now()
        .duration_since(created)
        .unwrap_or_default();
    let says = (!data.is_empty()).then(|| format!("its node has the data {}", in_brief(data)));
    Some(Party {
        who: (session != 0).then(|| format!("session 0x{session:x}")),
        session: (session != 0).then(|| format!("0x{session:x}")),
        mode: Some(mode(is_shared)),
        on: Some(node.to_owned()),
        token: Some(token),
        since_ms: Some(since.as_millis() as u64),
        note: match session {
            0 => Some("its node is of no session, and stays until it is deleted".to_owned()),
            _ => says,
        },
        ..Party::default()
    })
}
