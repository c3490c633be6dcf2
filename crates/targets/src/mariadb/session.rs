//! How a session with MariaDB begins: the server's greeting, and the answer to it.

use super::wire::{complaint, decode, packet, query};
use crate::SetupError;
use crate::login::{Login, version};
use crate::remote::Client;
use crate::wire::{Decoded, Reply};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION and PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x8000 | 0x8_0000;
const WITH_DATABASE: u32 = 0x8;

/// utf8mb4_general_ci.
const CHARSET: u8 = 45;

const NATIVE: &[u8] = b"mysql_native_password";

/// Too many connections (ER_CON_COUNT_ERROR).
const FULL: u16 = 1040;

/// Connects, and is let in. The number is the server's version, 10.011 for 10.11.
///
/// # Errors
/// In words for the user: who does not answer, or why it refuses.
pub fn open(login: &Login) -> Result<(Client, Option<f64>), SetupError> {
    let mut client = Client::connect(&login.address)?;
    client.be_patient()?;
    let version = authenticate(&mut client, login)
        .map_err(|said| SetupError(format!("MariaDB at {}: {said}", login.address)))?;
    client.be_endless()?;
    Ok((client, version))
}

fn authenticate(client: &mut Client, login: &Login) -> Result<Option<f64>, String> {
    let password = login.password.as_deref().unwrap_or_default();
    // The server speaks first.
    client.request.clear();
    let greeting = heard(client)?;
    let (version, salt) = greeted(&greeting).ok_or("its greeting is none of MariaDB's")?;
    client.request = framed(1, &response(login, &scrambled(password, &salt)));
    let mut answer = heard(client)?;
    if let Some(asked) = answer.strip_prefix(b"\xfe") {
        // Another way, or the same with another salt; the third packet from the server.
        let mut words = asked.splitn(2, |byte| *byte == 0);
        let (way, salt) = (words.next().unwrap_or_default(), words.next());
        if way != NATIVE {
            return Err(format!(
                "it lets {} in by {}, which jostle does not have; let the user in by \
                 mysql_native_password",
                login.user.as_deref().unwrap_or("root"),
                String::from_utf8_lossy(way)
            ));
        }
        let salt = salt
            .and_then(|salt| salt.get(..20))
            .ok_or("it sent no salt")?;
        client.request = framed(3, &scrambled(password, salt));
        answer = heard(client)?;
    }
    match answer.first() {
        Some(0) => Ok(version),
        _ => Err("its answer to the password is none of MariaDB's".to_owned()),
    }
}

/// The payload of the next packet.
fn heard(client: &mut Client) -> Result<Vec<u8>, String> {
    match client.call("log in", true, one_packet) {
        Ok(Some(Reply::Text(payload))) if payload.first() == Some(&0xff) => Err(refusal(payload)),
        Ok(Some(Reply::Text(payload))) => Ok(payload.to_vec()),
        Ok(_) => Err("no answer to the log-in".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn one_packet<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let whole = packet(input, call)?;
    Ok(whole.map(|(payload, length)| (Reply::Text(payload), length)))
}

fn refusal(payload: &[u8]) -> String {
    let number = payload.get(1..3).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let remedy = match number {
        Some(FULL) => "; fewer workers (-w), or raise its max_connections",
        Some(1044 | 1045 | 1698) => {
            "; set $MYSQL_USER and $MYSQL_PWD, or write USER:PASSWORD@HOST:PORT"
        }
        _ => "",
    };
    let text = String::from_utf8_lossy(complaint(payload));
    format!("{text} ({}){remedy}", number.unwrap_or_default())
}

/// Version and salt of a greeting of version 10.
fn greeted(greeting: &[u8]) -> Option<(Option<f64>, Vec<u8>)> {
    let rest = greeting.strip_prefix(b"\x0a")?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    // What old clients took for a version stands before it.
    let text = text.strip_prefix("5.5.5-").unwrap_or(text);
    let text = text.split('-').next().unwrap_or(text);
    // The connection's number, then the salt in two parts.
    let first = rest.get(end + 5..end + 13)?;
    let second = rest.get(end + 32..end + 44)?;
    Some((version(text), [first, second].concat()))
}

fn response(login: &Login, password: &[u8]) -> Vec<u8> {
    let database = login.path.as_deref();
    let capabilities = match database {
        Some(_) => CAPABILITIES | WITH_DATABASE,
        None => CAPABILITIES,
    };
    let mut out = Vec::new();
    out.extend_from_slice(&capabilities.to_le_bytes());
    out.extend_from_slice(&(1u32 << 24).to_le_bytes());
    out.push(CHARSET);
    out.extend_from_slice(&[0; 23]);
    out.extend_from_slice(login.user.as_deref().unwrap_or("root").as_bytes());
    out.push(0);
    out.push(password.len() as u8);
    out.extend_from_slice(password);
    if let Some(database) = database {
        out.extend_from_slice(database.as_bytes());
        out.push(0);
    }
    out.extend_from_slice(NATIVE);
    out.push(0);
    out
}

/// As mysql_native_password proves a password: SHA1(p) xor SHA1(salt, SHA1(SHA1(p))).
fn scrambled(password: &str, salt: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let sha1 = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
    let once = sha1(password.as_bytes());
    let twice = sha1(once.as_ref());
    let mask = sha1(&[salt, twice.as_ref()].concat());
    let both = once.as_ref().iter().zip(mask.as_ref());
    both.map(|(one, other)| one ^ other).collect()
}

fn framed(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..3], &[number], payload].concat()
}

/// The first column of the last row of a query.
///
/// # Errors
/// In words for the user.
pub fn ask(client: &mut Client, text: &str) -> Result<String, SetupError> {
    client.be_patient()?;
    client.request.clear();
    query(&mut client.request, |out| {
        out.extend_from_slice(text.as_bytes())
    });
    let answer = match client.call("query", true, decode) {
        Ok(Some(Reply::Text(column))) => Ok(String::from_utf8_lossy(column).into_owned()),
        Ok(Some(Reply::Error(said))) => Err(String::from_utf8_lossy(said).into_owned()),
        Ok(_) => Ok(String::new()),
        Err(error) => Err(error.to_string()),
    };
    let answer = answer.map_err(|said| SetupError(format!("MariaDB: {said}")));
    client.be_endless().and(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_has_version_and_salt() {
        let greeting = [
            &b"\x0a5.5.5-10.11.19-MariaDB-0+deb12u1\0"[..],
            b"\x07\0\0\0abcdefgh\0",
            &[0; 2 + 1 + 2 + 2 + 1 + 10],
            b"ijklmnopqrst\0mysql_native_password\0",
        ]
        .concat();
        let (version, salt) = greeted(&greeting).unwrap();
        assert_eq!(version, Some(10.011));
        assert_eq!(salt, b"abcdefghijklmnopqrst");
        for cut in 0..greeting.len() - 24 {
            assert_eq!(greeted(&greeting[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_password_is_proved_and_not_sent() {
        assert!(scrambled("", b"salt").is_empty());
        let proof = scrambled("secret", b"abcdefghijklmnopqrst");
        assert_eq!(proof.len(), 20);
        // Who knows SHA1(SHA1(p)) can check it, and take nothing from it.
        let sha1 = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec();
        let known = sha1(&sha1(b"secret"));
        let mask = sha1(&[&b"abcdefghijklmnopqrst"[..], &known].concat());
        let once: Vec<u8> = proof.iter().zip(&mask).map(|(a, b)| a ^ b).collect();
        assert_eq!(sha1(&once), known);
    }
}
