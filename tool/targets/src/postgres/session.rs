//! How a session with PostgreSQL begins: start-up, authentication, statements that are
//! prepared once.

use super::wire::{Complaint, decode, message};
use crate::login::version;
use crate::prelude::*;
use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use std::io;

/// A session of our own has no statement that we did not prepare.
pub(super) const POOLED: &str = "; a lock belongs to a session: where a pooler stands before the server, name the \
                      server itself, or a pool of sessions";

/// As libpq, where nothing is said.
const USUAL_USER: &str = "postgres";

/// As the server's list of sessions names ours.
pub(super) const APPLICATION: &str = "jostle";

/// A statement that is prepared under a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// For requests.
    pub name: &'static str,
    /// With at most one parameter, a bigint.
    pub query: &'static str,
}

/// A session that has begun.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its connection.
    pub client: Client,
    /// The server's version, 15.018 for 15.18.
    pub version: Option<f64>,
    /// The process that serves it, as who answers says.
    pub backend: Option<u32>,
}

impl Opened {
    /// Whether another process serves the session than who answers says: a pooler stands before
    /// the server.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn is_pooled(&mut self) -> Result<bool> {
        let process = ask(&mut self.client, "select pg_backend_pid()")?;
        Ok(self.backend.is_some_and(|pid| pid.to_string() != process))
    }
}

/// Connects and authenticates.
///
/// # Errors
/// In words for the user: who does not answer, or why it refuses.
pub(super) fn open(login: &Login) -> Result<Opened> {
    let mut client = secured(Client::connect_plainly(&login.address)?, &login.address)?;
    let began = authenticate(&mut client, login)
        .map_err(|said| SetupError(format!("PostgreSQL at {}: {said}", login.address)))?;
    Ok(Opened {
        client,
        version: began.version,
        backend: began.backend,
    })
}

/// Requests TLS if the address asks for it, before any other message.
fn secured(mut client: Client, address: &Address) -> Result<Client> {
    let Address::Tls(..) = address else {
        return Ok(client);
    };
    let told = |said: &str| SetupError(format!("PostgreSQL at {address}: {said}"));
    client.request = message_of(|out| {
        frontend::ssl_request(out);
        Ok(())
    })
    .map_err(|said| told(&said))?;
    let answer = client.asked("SSLRequest", |input, _| {
        Ok(input.first().map(|_| (Reply::Text(&input[..1]), 1)))
    });
    match answer.map_err(|said| told(&said))?.as_deref() {
        Some(b"S") => client.secure(address),
        Some(b"N") => Err(told(
            "it does no TLS (`ssl = off`); leave TLS out of the address, or set it up there",
        )),
        _ => Err(told("its answer to a request for TLS is none")),
    }
}

/// The bytes that `write` appends.
fn message_of(write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<Vec<u8>, String> {
    let mut out = BytesMut::new();
    write(&mut out).map_err(|error| error.to_string())?;
    Ok(out.into())
}

fn authenticate<'a>(client: &mut Client, login: &'a Login) -> Result<Exchange<'a>, String> {
    let user = login.own.user.as_deref().unwrap_or(USUAL_USER);
    let database = login.path.as_deref().unwrap_or(user);
    let words = [
        ("user", user),
        ("database", database),
        ("application_name", APPLICATION),
    ];
    client.request = message_of(|out| frontend::startup_message(words, out))?;
    let mut exchange = Exchange {
        user,
        password: login.own.password.as_deref(),
        scram: None,
        version: None,
        backend: None,
    };
    loop {
        let messages = client.asked("start-up", turn)?;
        match exchange.answer(&messages.unwrap_or_default())? {
            Some(request) => client.request = request,
            None => return Ok(exchange),
        }
    }
}

/// All messages up to the one that wants an answer or ends the start-up.
fn turn<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let mut at = 0;
    while let Some((tag, body, length)) = message(&input[at..], call)? {
        at += length;
        let wants = tag == b'R' && !matches!(code(body), Some(auth::OK | auth::SASL_FINAL));
        if wants || matches!(tag, b'Z' | b'E') {
            return Ok(Some((Reply::Text(&input[..at]), at)));
        }
    }
    Ok(None)
}

fn code(body: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(body.get(..4)?.try_into().ok()?))
}

/// The codes of authentication messages.
mod auth {
    pub(super) const OK: u32 = 0;
    pub(super) const CLEARTEXT: u32 = 3;
    pub(super) const MD5: u32 = 5;
    pub(super) const SASL: u32 = 10;
    pub(super) const SASL_CONTINUE: u32 = 11;
    pub(super) const SASL_FINAL: u32 = 12;
}

struct Exchange<'a> {
    user: &'a str,
    password: Option<&'a str>,
    scram: Option<ScramSha256>,
    version: Option<f64>,
    backend: Option<u32>,
}

impl Exchange<'_> {
    /// The answer to send; None when the session has begun.
    fn answer(&mut self, messages: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let mut at = 0;
        loop {
            let next = message(&messages[at..], "start-up").map_err(|error| error.to_string())?;
            let Some((tag, body, length)) = next else {
                return Err("its answer to the start-up is none".to_owned());
            };
            at += length;
            match tag {
                b'Z' => return Ok(None),
                b'E' => {
                    let Complaint { code, text, .. } = Complaint::read(body);
                    let (text, code) =
                        (String::from_utf8_lossy(text), String::from_utf8_lossy(code));
                    return Err(format!("{text} ({code}){}", remedy(&code)));
                }
                b'S' => self.note(body),
                // BackendKeyData begins with the process.
                b'K' => self.backend = code(body),
                b'R' => match self.authenticate(body)? {
                    Some(answer) => return Ok(Some(answer)),
                    None => continue,
                },
                _ => {}
            }
        }
    }

    fn note(&mut self, parameter: &[u8]) {
        let mut words = parameter.split(|byte| *byte == 0);
        if words.next() == Some(b"server_version") {
            let text = words.next().and_then(|text| std::str::from_utf8(text).ok());
            self.version = text.and_then(version);
        }
    }

    fn authenticate(&mut self, body: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let unknown = || "it wants an authentication that jostle does not have".to_owned();
        let (code, rest) = (
            code(body).ok_or_else(unknown)?,
            body.get(4..).unwrap_or_default(),
        );
        let said = |error: std::io::Error| format!("authentication: {error}");
        let password = || {
            self.password
                .ok_or("it wants a password; set $PGPASSWORD, or write USER:PASSWORD@HOST:PORT")
        };
        let request = match code {
            auth::OK => return Ok(None),
            auth::CLEARTEXT => {
                let password = password()?.as_bytes();
                message_of(|out| frontend::password_message(password, out))
            }
            auth::MD5 => {
                let salt = rest.try_into().map_err(|_| unknown())?;
                let hash = md5_hash(self.user.as_bytes(), password()?.as_bytes(), salt);
                message_of(|out| frontend::password_message(hash.as_bytes(), out))
            }
            auth::SASL => {
                let mut words = rest.split(|byte| *byte == 0);
                let has = words.any(|m| m == SCRAM_SHA_256.as_bytes());
                if !has {
                    return Err(unknown());
                }
                let scram = ScramSha256::new(password()?.as_bytes(), ChannelBinding::unsupported());
                let scram = self.scram.insert(scram);
                message_of(|out| {
                    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out)
                })
            }
            auth::SASL_CONTINUE => {
                let scram = self.scram.as_mut().ok_or_else(unknown)?;
                scram.update(rest).map_err(said)?;
                message_of(|out| frontend::sasl_response(scram.message(), out))
            }
            auth::SASL_FINAL => {
                let scram = self.scram.as_mut().ok_or_else(unknown)?;
                scram.finish(rest).map_err(said)?;
                return Ok(None);
            }
            _ => return Err(unknown()),
        };
        request.map(Some)
    }
}

/// The remedy for a refusal.
fn remedy(code: &str) -> &'static str {
    match code {
        "53300" => "; fewer workers (-w), or raise its max_connections",
        "28P01" | "28000" => "; set $PGUSER and $PGPASSWORD, or write USER:PASSWORD@HOST:PORT",
        "3D000" | "42501" => "; name another database: postgres://HOST:PORT/DATABASE",
        _ => "",
    }
}

/// Prepares statements, in one round trip.
///
/// # Errors
/// In words for the user: what the server did not like.
pub(super) fn prepare(client: &mut Client, statements: &[Statement]) -> Result<()> {
    answered(client, "prepare", |out| {
        for Statement { name, query } in statements {
            frontend::parse(name, query, [], out)?;
        }
        frontend::sync(out);
        Ok(())
    })
    .map(drop)
}

/// The first column of the last row of a query.
///
/// # Errors
/// In words for the user.
pub(super) fn ask(client: &mut Client, query: &str) -> Result<String> {
    answered(client, "query", |out| frontend::query(query, out))
}

fn answered(
    client: &mut Client,
    call: &'static str,
    write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
) -> Result<String> {
    let column = message_of(write).and_then(|request| {
        client.request = request;
        client.asked(call, decode)
    });
    let column = column.map_err(|said| {
        let pooled = said.contains("prepared statement").then_some(POOLED);
        SetupError(format!("PostgreSQL: {said}{}", pooled.unwrap_or_default()))
    })?;
    Ok(String::from_utf8_lossy(&column.unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_is_missing_is_asked_for() {
        let mut exchange = Exchange {
            user: "ann",
            password: None,
            scram: None,
            version: None,
            backend: None,
        };
        let wants = b"R\0\0\0\x08\0\0\0\x03";
        let error = exchange.answer(wants).unwrap_err();
        assert!(error.contains("$PGPASSWORD"), "{error}");
        exchange.password = Some("secret");
        let answer = exchange.answer(wants).unwrap();
        assert_eq!(answer.unwrap(), b"p\0\0\0\x0bsecret\0");
        // GSSAPI.
        let error = exchange.answer(b"R\0\0\0\x08\0\0\0\x07").unwrap_err();
        assert!(error.contains("does not have"), "{error}");
    }
}
