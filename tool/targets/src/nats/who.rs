//! Who has a lock in a bucket of NATS: nobody can know, since a message has no sender; but its
//! value is told, and what is left of its lease.

use super::frames::is_marker;
use super::{NO_STREAM, Server, named};
use crate::who::{Answer, Question, Refusal, Told, in_brief};
use jostle_model::who::Party;
use serde_json::json;

/// The error code for a subject without a message.
const NO_MESSAGE: u64 = 10_037;

pub(crate) fn who(question: &Question<'_>) -> Told {
    let Some((bucket, key)) = question.name.split_once('/') else {
        let said = format!("`{}`: write BUCKET/KEY", question.name);
        return Err(Refusal::Usage(said));
    };
    let is_plain = |c: char| !c.is_whitespace() && !".*>".contains(c);
    if bucket.is_empty() || key.is_empty() || !bucket.chars().all(is_plain) {
        return Err(Refusal::Usage(format!("`{bucket}` is no name of a bucket")));
    }
    let server = Server(named(question.argument, question.credentials)?);
    let mut session = server.session()?;
    let get = format!("STREAM.MSG.GET.KV_{bucket}");
    let wanted = json!({ "last_by_subj": format!("$KV.{bucket}.{key}") });
    let answer = session.ask(&get, &wanted.to_string())?;
    match answer["error"]["err_code"].as_u64() {
        Some(NO_MESSAGE) => return Ok(Answer::new(Vec::new(), Vec::new())),
        Some(NO_STREAM) => return Err(server.told(format!("it has no bucket {bucket}")).into()),
        Some(_) => return Err(server.refused(&get, &answer).into()),
        None => {}
    }
    let message = &answer["message"];
    let text = |name| bytes(message[name].as_str().unwrap_or_default());
    if is_marker(&text("hdrs")) {
        return Ok(Answer::new(Vec::new(), Vec::new()));
    }
    let info = session.ask(&format!("STREAM.INFO.KV_{bucket}"), "")?;
    let lease_ms = info["config"]["max_age"].as_u64().unwrap_or(0) / 1_000_000;
    let since_ms = message["time"].as_str().and_then(ms).and_then(|at| {
        // Older servers do not tell their own time.
        let own = info["ts"].as_str().and_then(ms);
        let here = || server.0.address.is_local().then(now_ms);
        Some(own.or_else(here)?.saturating_sub(at))
    });
    let holder = Party {
        on: Some(question.name.to_owned()),
        token: message["seq"].as_i64(),
        since_ms,
        left_ms: since_ms
            .filter(|_| lease_ms > 0)
            .map(|age| lease_ms.saturating_sub(age)),
        note: Some(format!(
            "a message has no sender; its value: {}",
            in_brief(&text("data"))
        )),
        ..Party::default()
    };
    let answer = Answer::new(vec![holder], Vec::new());
    Ok(answer.noting("who waits cannot be known: clients watch the bucket, or ask again"))
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64
}

/// Milliseconds since 1970 of `2026-11-28T22:10:12.5Z`.
fn ms(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // Years that begin with March, whose months have as many days as this formula gives.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let since_1970 = days.checked_sub(719_469)?;
    let seconds = since_1970 * 86_400 + number(11, 13)? * 3_600 + number(14, 16)? * 60;
    let fraction: f64 = text.get(17..)?.trim_end_matches('Z').parse().ok()?;
    Some(seconds * 1_000 + (fraction * 1_000.0) as u64)
}

/// Of base64 (RFC 4648); what is none ends it.
fn bytes(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte| DIGITS.iter().position(|known| *known == byte);
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for value in text.bytes().map_while(digit) {
        (bits, count) = (bits << 6 | value as u32, count + 6);
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bytes_are_read_as_servers_write_them() {
        assert_eq!(ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(ms("2000-02-29T12:00:01.5Z"), Some(951_825_601_500));
        assert_eq!(
            ms("2026-11-28T22:10:12.123456789Z"),
            Some(1_795_903_812_123)
        );
        assert_eq!(ms("yesterday"), None);
        assert_eq!(bytes("YnVpbGQ3"), b"build7");
        assert_eq!(bytes("YnVpbGQ="), b"build");
        assert_eq!(bytes(""), b"");
    }
}
