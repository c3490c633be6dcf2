//! How a session with MariaDB begins: the server's greeting, and the answer to it.

use super::wire::{complaint, decode, packet, query};
use crate::login::version;
use crate::prelude::*;
use sha1::{Digest, Sha1};

/// LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION and PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x8000 | 0x8_0000;
const WITH_DATABASE: u32 = 0x8;
const TLS: u32 = 0x800;

/// utf8mb4_general_ci.
const CHARSET: u8 = 45;

const NATIVE: &[u8] = b"mysql_native_password";

/// Too many connections (ER_CON_COUNT_ERROR).
const FULL: u16 = 1040;

/// Connects and authenticates. The number is the server's version, 10.011014 for 10.11.14.
///
/// # Errors
/// In words for the user: who does not answer, or why it refuses.
pub(super) fn open(login: &Login) -> Result<(Client, Option<f64>)> {
    let told = |said: String| SetupError(format!("MariaDB at {}: {said}", login.address));
    let mut client = Client::connect_plainly(&login.address)?;
    // The server speaks first.
    let greeting = heard(&mut client).map_err(told)?;
    let greeting = greeted(&greeting).map_err(told)?;
    let mut number = 1;
    if let Address::Tls(..) = login.address {
        ask_for_tls(&mut client, login, &greeting).map_err(told)?;
        client = client.secure(&login.address)?;
        number += 1;
    }
    authenticate(&mut client, login, &greeting.salt, number).map_err(told)?;
    Ok((client, greeting.version))
}

/// Sends the beginning of the answer to the greeting, which the server reads as a request
/// for TLS. The server sends nothing until TLS begins.
fn ask_for_tls(client: &mut Client, login: &Login, greeting: &Greeting) -> Result<(), String> {
    if greeting.capabilities & TLS == 0 {
        return Err(
            "it does no TLS (`@@have_ssl`); leave TLS out of the address, or set up \
                    ssl_cert and ssl_key there"
                .to_owned(),
        );
    }
    client.request = framed(1, &response_head(login));
    let said = client.tell("SSLRequest");
    said.map_err(|error| error.to_string())
}

/// `number`: the next packet's.
fn authenticate(client: &mut Client, login: &Login, salt: &[u8], number: u8) -> Result<(), String> {
    let password = login.own.password.as_deref().unwrap_or_default();
    client.request = framed(number, &response(login, &scrambled(password, salt)));
    let mut answer = heard(client)?;
    if let Some(asked) = answer.strip_prefix(b"\xfe") {
        // Another way, or the same with another salt.
        let mut words = asked.splitn(2, |byte| *byte == 0);
        let (way, salt) = (words.next().unwrap_or_default(), words.next());
        if way != NATIVE {
            return Err(format!(
                "it lets {} in by {}, which jostle does not have; let the user in by \
                 mysql_native_password",
                login.own.user.as_deref().unwrap_or("root"),
                String::from_utf8_lossy(way)
            ));
        }
        let salt = salt
            .and_then(|salt| salt.get(..20))
            .ok_or("it sent no salt")?;
        client.request = framed(number + 2, &scrambled(password, salt));
        answer = heard(client)?;
    }
    match answer.first() {
        Some(0) => Ok(()),
        _ => Err("its answer to the password is none of MariaDB's".to_owned()),
    }
}

/// The payload of the next packet.
fn heard(client: &mut Client) -> Result<Vec<u8>, String> {
    let payload = client.asked("log in", |input, call| {
        let whole = packet(input, call)?;
        Ok(whole.map(|(payload, length)| (Reply::Text(payload), length)))
    })?;
    match payload.unwrap_or_default() {
        payload if payload.first() == Some(&0xff) => Err(refusal(&payload)),
        payload => Ok(payload),
    }
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

/// The server's first message.
#[derive(Debug, PartialEq)]
struct Greeting {
    version: Option<f64>,
    /// The lower half of what it can do.
    capabilities: u32,
    salt: Vec<u8>,
}

fn greeted(greeting: &[u8]) -> Result<Greeting, String> {
    parts(greeting).ok_or_else(|| "its greeting is none of MariaDB's".to_owned())
}

/// A greeting of version 10.
fn parts(greeting: &[u8]) -> Option<Greeting> {
    let rest = greeting.strip_prefix(b"\x0a")?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    // What old clients took for a version stands before it.
    let text = text.strip_prefix("5.5.5-").unwrap_or(text);
    let text = text.split('-').next().unwrap_or(text);
    // The connection's number, then the salt in two parts.
    let first = rest.get(end + 5..end + 13)?;
    let second = rest.get(end + 32..end + 44)?;
    let capabilities = rest.get(end + 14..end + 16)?;
    Some(Greeting {
        version: version(text),
        capabilities: u32::from(u16::from_le_bytes(capabilities.try_into().ok()?)),
        salt: [first, second].concat(),
    })
}

fn response_head(login: &Login) -> Vec<u8> {
    let mut capabilities = CAPABILITIES;
    if login.path.is_some() {
        capabilities |= WITH_DATABASE;
    }
    if let Address::Tls(..) = login.address {
        capabilities |= TLS;
    }
    let mut out = Vec::new();
    out.extend_from_slice(&capabilities.to_le_bytes());
    out.extend_from_slice(&(1u32 << 24).to_le_bytes());
    out.push(CHARSET);
    out.extend_from_slice(&[0; 23]);
    out
}

fn response(login: &Login, password: &[u8]) -> Vec<u8> {
    let mut out = response_head(login);
    out.extend_from_slice(login.own.user.as_deref().unwrap_or("root").as_bytes());
    out.push(0);
    out.push(password.len() as u8);
    out.extend_from_slice(password);
    if let Some(database) = login.path.as_deref() {
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
    let sha1 = |bytes: &[u8]| Sha1::digest(bytes);
    let once = sha1(password.as_bytes());
    let twice = sha1(&once);
    let mask = sha1(&[salt, &twice[..]].concat());
    let both = once.iter().zip(&mask);
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
pub(super) fn ask(client: &mut Client, text: &str) -> Result<String> {
    query(&mut client.request, |out| {
        out.extend_from_slice(text.as_bytes())
    });
    let answer = client.asked("query", decode);
    let column = answer.map_err(|said| SetupError(format!("MariaDB: {said}")))?;
    Ok(String::from_utf8_lossy(&column.unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_has_version_and_salt() {
        let greeting = [
            &b"\x0a5.5.5-10.11.19-MariaDB-0+deb12u1\0"[..],
            b"\x07\0\0\0abcdefgh\0",
            &[0x02, 0x8a],
            &[0; 1 + 2 + 2 + 1 + 10],
            b"ijklmnopqrst\0mysql_native_password\0",
        ]
        .concat();
        let read = parts(&greeting).unwrap();
        assert_eq!((read.version, read.capabilities), (Some(10.011019), 0x8a02));
        assert_eq!(read.salt, b"abcdefghijklmnopqrst");
        for cut in 0..greeting.len() - 24 {
            assert_eq!(parts(&greeting[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_password_is_proved_and_not_sent() {
        assert!(scrambled("", b"salt").is_empty());
        let proof = scrambled("secret", b"abcdefghijklmnopqrst");
        assert_eq!(proof.len(), 20);
        // A server that knows SHA1(SHA1(p)) can check the proof, but cannot derive the
        // password from it.
        let sha1 = |bytes: &[u8]| Sha1::digest(bytes).to_vec();
        let known = sha1(&sha1(b"secret"));
        let mask = sha1(&[&b"abcdefghijklmnopqrst"[..], &known].concat());
        let once: Vec<u8> = proof.iter().zip(&mask).map(|(a, b)| a ^ b).collect();
        assert_eq!(sha1(&once), known);
    }
}
