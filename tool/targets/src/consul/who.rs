//! Who has a lock of Consul: the session in the lock's key.

use super::{Server, named};
use crate::who::{Answer, Question, Told, in_brief};
use jostle_model::who::Party;

pub(crate) fn who(question: &Question<'_>) -> Told {
    let server = Server::new(named(question.argument, question.credentials)?)?;
    let name = question.name.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
            (byte as char).to_string()
        }
        other => format!("%{other:02X}"),
    });
    let key = server.json("GET", &format!("/v1/kv/{}", name.collect::<String>()), "")?;
    let Some(session) = key[0]["Session"].as_str() else {
        return Ok(Answer::new(Vec::new(), Vec::new()));
    };
    let sessions = server.json("GET", "/v1/session/list", "")?;
    let mut sessions = sessions.as_array().into_iter().flatten();
    let found = sessions.find(|one| one["ID"] == session);
    let field = |name| {
        found
            .and_then(|one| one[name].as_str())
            .map(|text| in_brief(text.as_bytes()))
    };
    let about = [
        ("named", field("Name")),
        ("of node", field("Node")),
        ("for", field("TTL")),
    ];
    let about = about.into_iter().filter_map(|(word, text)| {
        let text = text.filter(|text| !text.is_empty())?;
        Some(format!("{word} {text}"))
    });
    let about: Vec<String> = about.collect();
    let holder = Party {
        who: Some(format!("session {session}")),
        session: Some(session.to_owned()),
        mode: Some(crate::holders::mode(false)),
        on: Some(question.name.to_owned()),
        token: key[0]["ModifyIndex"].as_i64(),
        note: Some(about.join(", ")).filter(|note| !note.is_empty()),
        ..Party::default()
    };
    let answer = Answer::new(vec![holder], Vec::new());
    Ok(answer.noting("who waits cannot be known: Consul lists no queries that block"))
}
