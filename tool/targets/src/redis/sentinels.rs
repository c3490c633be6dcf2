//! Sentinels, which know which server of a group is the primary. A client asks them as redis-py and
//! Jedis do: the first that knows the group is believed, and the server that it names must call
//! itself a primary.

use super::{Launch, TLS_SCHEME, VARIABLES};
use crate::address::{any, connect_within};
use crate::prelude::*;
use crate::program::Launched;
use crate::stream::Stream;
use jostle_resp::value::Value;
use jostle_sys::waited::Waited;
use jostle_sys::{clock, signal};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The scheme of a group's address.
pub(super) const SCHEME: &str = "redis+sentinel";

/// How long a connection and an answer may take, each: Jedis's default. Without it a client would
/// wait for ever for a primary that is cut off.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a primary is looked for, and the time between two looks.
const SEARCH: Duration = Duration::from_secs(5);
const AGAIN_NS: u64 = 50_000_000;

const USAGE: &str = "write redis+sentinel://NAME@HOST:PORT[,HOST:PORT...], with the name by which the \
                     Sentinels know the group";

/// Checks what follows the colon of `redis`.
pub(super) fn check(argument: Option<&str>) -> Result<(), String> {
    match argument.and_then(|place| place.strip_prefix(SCHEME)) {
        Some(rest) => parsed(rest).map(drop),
        None => argument::service_or(argument, Some(TLS_SCHEME)),
    }
}

/// The Sentinels of a group.
#[derive(Debug)]
pub struct Sentinels {
    name: String,
    places: Vec<Address>,
    /// For the servers, and for Sentinels that ask for it.
    pub(super) own: Credentials,
}

/// The name and the Sentinels in what follows [`SCHEME`].
fn parsed(rest: &str) -> Result<(String, Vec<Address>), String> {
    let behind = rest.strip_prefix("://");
    let parts = behind.and_then(|rest| rest.split_once('@'));
    // The letters that Sentinels allow.
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match parts {
        Some((name, places)) if !name.is_empty() && name.chars().all(is_of_name) => {
            Ok((name.to_owned(), Address::several(places, None)?))
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// As [`Client::connect`], with our patience.
fn reach(address: &Address) -> Result<Client> {
    let failed = |error| SetupError(format!("cannot connect to {address}: {error}"));
    let socket = connect_within(address.to_string(), PATIENCE).map_err(failed)?;
    let mut client = Client::new(address.secured(Stream::Tcp(socket))?);
    client.wait_for(PATIENCE).map_err(failed).map(|()| client)
}

impl Sentinels {
    /// Those of an address of this scheme, which must agree; None of another address.
    pub(super) fn named(place: &str, file: Option<&Path>) -> Result<Option<Sentinels>> {
        let Some(rest) = place.strip_prefix(SCHEME) else {
            return Ok(None);
        };
        let (name, places) = parsed(rest).map_err(SetupError)?;
        let own = Credentials::find(file, VARIABLES)?;
        let sentinels = Sentinels { name, places, own };
        sentinels.agree().map(|()| Some(sentinels))
    }

    /// Those among the members of a launched [`Launch::group`].
    pub fn of_launched(launched: &[Launched]) -> Sentinels {
        let sentinels = &launched[launched.len() / 2..];
        let address = |one: &Launched| Address::Tcp(one.address.clone());
        Sentinels {
            name: Launch::NAME.to_owned(),
            places: sentinels.iter().map(address).collect(),
            own: Credentials {
                user: None,
                password: sentinels.first().map(|one| one.secret.clone()),
            },
        }
    }

    /// The primary by one Sentinel.
    fn ask(&self, sentinel: &Address) -> Result<Address> {
        let wrong = |said: &str| SetupError(format!("the Sentinel {sentinel}: {said}"));
        let name = &self.name;
        let words: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()];
        let mut client = reach(sentinel)?;
        let told = match client.value(&words) {
            // Most have no password, and refuse one.
            Err(SetupError(said)) if said.contains("NOAUTH") => {
                let client = client.logged_in(&self.own);
                client.and_then(|mut client| client.value(&words))
            }
            told => told,
        };
        let Value::Array(parts) = told.map_err(|SetupError(said)| wrong(&said))? else {
            return Err(wrong(&format!("it knows no group `{name}`")));
        };
        let parts: Vec<&str> = parts.iter().filter_map(Value::as_text).collect();
        let place = match parts[..] {
            [host, port] if host.contains(':') => format!("[{host}]:{port}"),
            _ => parts.join(":"),
        };
        let found = Address::tcp(&place).map_err(|said| wrong(&said))?;
        let tls = match sentinel {
            Address::Tls(_, tls) => Some(tls),
            _ => None,
        };
        Ok(found.over(tls.cloned()))
    }

    /// The primary by the first Sentinel that knows the group.
    ///
    /// # Errors
    /// What each of them said.
    pub fn primary(&self) -> Result<Address> {
        any(&self.places, |sentinel| self.ask(sentinel))
    }

    /// A connection to the primary, by one look.
    pub(super) fn connect(&self) -> Result<Client> {
        let address = self.primary()?;
        let mut client = reach(&address)?.logged_in(&self.own)?;
        match client.value(&[b"ROLE"])? {
            Value::Array(parts) if parts.first().and_then(Value::as_text) == Some("master") => {
                Ok(client)
            }
            _ => Err(SetupError(format!(
                "{address} is no primary, although the Sentinels name it as that of `{}`; has a \
                 failover stopped half-way?",
                self.name
            ))),
        }
    }

    /// Checks that all Sentinels that answer name one primary: else they would send clients to
    /// different servers, each with locks of its own.
    fn agree(&self) -> Result<()> {
        let named = self.places.iter().filter_map(|sentinel| {
            let primary = self.ask(sentinel).ok()?.to_string();
            Some((format!("{sentinel} names {primary}"), primary))
        });
        let (each, primaries): (Vec<String>, BTreeSet<String>) = named.unzip();
        match primaries.len() {
            0 => self.primary().map(drop),
            1 => Ok(()),
            _ => Err(SetupError(format!(
                "the Sentinels of `{}` disagree on its primary: {}; wait for the end of a failover, \
                 or correct the `sentinel monitor` lines of those that are wrong",
                self.name,
                each.join(", ")
            ))),
        }
    }

    /// As [`Sentinels::connect`], for as long as a failover may take.
    pub(super) fn find(&self) -> Result<Client> {
        let mut waited = Waited::begin();
        loop {
            match self.connect() {
                // A look may take as long as its connections and answers.
                Err(_) if waited.so_far_by(3 * PATIENCE) < SEARCH && !signal::interrupted() => {
                    clock::sleep(AGAIN_NS, signal::interrupted);
                }
                found => return found,
            }
        }
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that answers everything so.
    fn answers(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                // A request comes whole.
                while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        address
    }

    /// A Sentinel that names this address.
    fn names(host: &str, port: &str) -> String {
        let [host, port] = [host, port].map(|text| format!("${}\r\n{text}\r\n", text.len()));
        answers(format!("*2\r\n{host}{port}"))
    }

    fn group(places: &[&str]) -> Sentinels {
        let (name, places) = parsed(&format!("://main@{}", places.join(","))).unwrap();
        let own = Credentials::default();
        Sentinels { name, places, own }
    }

    #[test]
    fn the_first_sentinel_that_knows_the_group_is_believed_and_those_that_disagree_are_named() {
        let stranger = answers("*-1\r\n".to_owned());
        let server = answers("-ERR unknown command 'SENTINEL'\r\n".to_owned());
        let (one, other) = (names("::1", "1"), names("h", "2"));
        let all = group(&["127.0.0.1:1", &stranger, &one, &other]);
        assert_eq!(all.primary().unwrap().to_string(), "[::1]:1");
        assert_eq!(group(&[&one, &stranger, &server, &one]).agree(), Ok(()));
        for (places, says) in [
            (
                &[&*one, &other, &stranger][..],
                &*format!("{one} names [::1]:1, {other} names h:2;"),
            ),
            (&[&stranger], "it knows no group `main`"),
            (&[&server], "unknown command 'SENTINEL'"),
        ] {
            let said = group(places).agree().unwrap_err().0;
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn the_server_that_is_named_must_call_itself_a_primary() {
        for (role, is_primary) in [("$6\r\nmaster", true), ("$5\r\nslave", false)] {
            let server = answers(format!("*1\r\n{role}\r\n"));
            let (host, port) = server.split_once(':').unwrap();
            let connected = group(&[&names(host, port)]).connect();
            assert_eq!(connected.is_ok(), is_primary, "{connected:?}");
        }
    }
}
