//! A server that answers as Consul does where locks are concerned: sessions with a time to
//! live and a lock-delay, keys that a session acquires and releases, blocking queries. It is
//! ours and no Consul: Debian has no package of one, and to build one takes too long for a
//! test. What it does was read in the sources of Consul 1.21.

use crate::certificate::Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time to live of a session.
const LEAST_TTL: Duration = Duration::from_secs(10);

/// A server, as long as this program lives.
#[derive(Clone, Debug)]
pub struct FakeConsul {
    /// `HOST:PORT`.
    pub address: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    index: u64,
    keys: BTreeMap<String, Key>,
    sessions: BTreeMap<String, Session>,
    /// Keys that are granted to nobody until then.
    delays: BTreeMap<String, Instant>,
    has_no_leader: bool,
    requests: u64,
    /// What the head of each request has to have.
    token: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    session: Option<String>,
    created: u64,
    modified: u64,
    acquisitions: u64,
    flags: String,
}

#[derive(Debug)]
struct Session {
    name: String,
    ttl: Duration,
    delay: Duration,
    renewed: Instant,
}

/// A request, taken apart.
struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    token: Option<String>,
    body: Vec<u8>,
    closes: bool,
}

/// Status, body, and the index where there is one.
type Answer = (u16, String, Option<u64>);

impl FakeConsul {
    /// On a free port of the loopback address.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> std::io::Result<FakeConsul> {
        FakeConsul::serving(Ok)
    }

    /// The same over TLS, with this certificate.
    ///
    /// # Errors
    /// The system's; a certificate of no use.
    pub fn with_tls(own: &Certificate) -> std::io::Result<FakeConsul> {
        let chain =
            CertificateDer::pem_file_iter(&own.certificate).map_err(std::io::Error::other)?;
        let chain = chain
            .collect::<Result<_, _>>()
            .map_err(std::io::Error::other)?;
        let key = PrivateKeyDer::from_pem_file(&own.key).map_err(std::io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(std::io::Error::other)?;
        let config = Arc::new(config);
        FakeConsul::serving(move |socket| {
            let tls = ServerConnection::new(Arc::clone(&config)).map_err(std::io::Error::other)?;
            Ok(StreamOwned::new(tls, socket))
        })
    }

    fn serving<S: Read + Write>(
        above: impl Fn(TcpStream) -> std::io::Result<S> + Clone + Send + 'static,
    ) -> std::io::Result<FakeConsul> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let fake = FakeConsul {
            address: listener.local_addr()?.to_string(),
            shared: Arc::default(),
        };
        let shared = Arc::clone(&fake.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A connection that a client has reset is over.
                let above = above.clone();
                std::thread::spawn(move || {
                    stream.set_nodelay(true)?;
                    serve(&shared, above(stream)?)
                });
            }
        });
        Ok(fake)
    }

    /// Whoever does not show it is refused.
    pub fn wants(&self, token: &str) {
        self.shared.lock().token = Some(token.to_owned());
    }

    /// As if most servers of its cluster were gone.
    pub fn lose_leader(&self) {
        self.shared.lock().has_no_leader = true;
    }

    /// As if the times to live of all sessions were over.
    pub fn end_sessions(&self) {
        let mut state = self.shared.lock();
        let ids: Vec<String> = state.sessions.keys().cloned().collect();
        ids.iter().for_each(|id| state.end(id));
        self.shared.changed.notify_all();
    }

    /// Ends what is left of all lock-delays.
    pub fn end_delays(&self) {
        self.shared.lock().delays.clear();
    }

    /// How many sessions and keys it has.
    pub fn left(&self) -> [usize; 2] {
        let state = self.shared.lock();
        [state.sessions.len(), state.keys.len()]
    }

    /// How many requests it has got.
    pub fn requests(&self) -> u64 {
        self.shared.lock().requests
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, stream: impl Read + Write) -> std::io::Result<()> {
    let mut input = BufReader::new(stream);
    while let Some(request) = read(&mut input)? {
        let (status, body, index) = answer(shared, &request);
        let index = index.map_or(String::new(), |index| {
            format!("X-Consul-Index: {index}\r\n")
        });
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{index}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let out = input.get_mut();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if request.closes {
            break;
        }
    }
    Ok(())
}

/// None at the end of the connection.
fn read(input: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut first = String::new();
    if input.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let (path, query) = split(words.next().unwrap_or_default(), '?');
    let mut request = Request {
        method,
        path,
        query: query.split('&').map(|pair| split(pair, '=')).collect(),
        token: None,
        body: Vec::new(),
        closes: false,
    };
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let (name, value) = split(line.trim_end(), ':');
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("", _) => break,
            ("content-length", value) => length = value.parse().unwrap_or(0),
            ("x-consul-token", value) => request.token = Some(value.to_owned()),
            ("connection", value) => request.closes = value == "close",
            _ => {}
        }
    }
    request.body = vec![0; length];
    input.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn split(text: &str, at: char) -> (String, String) {
    let (one, other) = text.split_once(at).unwrap_or((text, ""));
    (one.to_owned(), other.to_owned())
}

fn answer(shared: &Shared, request: &Request) -> Answer {
    let mut state = shared.lock();
    state.requests += 1;
    if state.token.is_some() && state.token != request.token {
        return (
            403,
            "Permission denied: token lacks permission".to_owned(),
            None,
        );
    }
    let path = request.path.strip_prefix("/v1/").unwrap_or_default();
    let folders = ["session/renew/", "session/destroy/", "kv/"];
    let within = |folder: &&'static str| Some((*folder, path.strip_prefix(*folder)?));
    let (path, rest) = folders.iter().find_map(within).unwrap_or((path, ""));
    let done = || (200, "true".to_owned(), None);
    let answer = match (request.method.as_str(), path) {
        ("GET", "status/leader") => {
            let leader = if state.has_no_leader {
                ""
            } else {
                "127.0.0.1:8300"
            };
            return (200, format!("{leader:?}"), None);
        }
        _ if state.has_no_leader => return (500, "No cluster leader".to_owned(), None),
        ("GET", "agent/self") => {
            return (200, r#"{"Config":{"Version":"1.21.0"}}"#.to_owned(), None);
        }
        ("GET", "session/list") => return (200, state.list(), None),
        ("GET", "kv/") => {
            drop(state);
            return look(shared, rest, &request.query);
        }
        ("PUT", "session/create") => state.create(&request.body),
        ("PUT", "session/renew/") => state.renew(rest),
        ("PUT", "session/destroy/") => {
            state.end(rest);
            done()
        }
        ("DELETE", "kv/") => {
            state.keys.retain(|key, _| !key.starts_with(rest));
            state.index += 1;
            done()
        }
        ("PUT", "kv/") => state.put(rest, &request.query),
        _ => (404, "no such path".to_owned(), None),
    };
    shared.changed.notify_all();
    answer
}

/// At once, or when the key is of a later index than the query names.
fn look(shared: &Shared, key: &str, query: &BTreeMap<String, String>) -> Answer {
    let number = |name: &str| -> Option<u64> {
        let text = query.get(name)?.trim_end_matches("ms");
        text.parse().ok()
    };
    let (after, wait) = (
        number("index").unwrap_or(0),
        number("wait").unwrap_or(300_000),
    );
    let until = Instant::now() + Duration::from_millis(wait + wait / 16);
    let mut state = shared.lock();
    loop {
        state.end_lapsed();
        let index = state
            .keys
            .get(key)
            .map_or(state.index.max(1), |key| key.modified);
        let left = until.saturating_duration_since(Instant::now());
        if index > after || left.is_zero() {
            let body = state.keys.get(key).map(|entry| entry.json(key));
            let status = if body.is_some() { 200 } else { 404 };
            return (status, body.unwrap_or_default(), Some(index));
        }
        // Sessions end while nobody asks.
        let look_up = left.min(Duration::from_millis(50));
        let waited = shared.changed.wait_timeout(state, look_up);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Key {
    fn json(&self, name: &str) -> String {
        let session = self.session.as_ref();
        let session = session.map_or(String::new(), |id| format!(r#","Session":"{id}""#));
        format!(
            r#"[{{"LockIndex":{},"Key":"{name}","Flags":{},"Value":null{session},"CreateIndex":{},"ModifyIndex":{}}}]"#,
            self.acquisitions, self.flags, self.created, self.modified
        )
    }
}

impl State {
    fn create(&mut self, body: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(body);
        let field = |name: &str| -> Option<String> {
            let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        let time = |name: &str, usual: u64| -> Duration {
            let text = field(name).unwrap_or_else(|| format!("{usual}s"));
            match text.strip_suffix("ms") {
                Some(number) => Duration::from_millis(number.parse().unwrap_or(0)),
                None => Duration::from_secs(text.trim_end_matches('s').parse().unwrap_or(0)),
            }
        };
        let ttl = time("TTL", 0);
        if ttl < LEAST_TTL {
            let said = format!(
                "Invalid Session TTL '{}', must be between [10s=24h0m0s]",
                ttl.as_nanos()
            );
            return (400, said, None);
        }
        self.index += 1;
        let id = format!("00000000-0000-0000-0000-{:012x}", self.index);
        let session = Session {
            name: field("Name").unwrap_or_default(),
            ttl,
            delay: time("LockDelay", 15),
            renewed: Instant::now(),
        };
        self.sessions.insert(id.clone(), session);
        (200, format!(r#"{{"ID":"{id}"}}"#), None)
    }

    fn renew(&mut self, id: &str) -> Answer {
        self.end_lapsed();
        match self.sessions.get_mut(id) {
            Some(session) => {
                session.renewed = Instant::now();
                (200, format!(r#"[{{"ID":"{id}"}}]"#), None)
            }
            None => (404, format!("Session id '{id}' not found"), None),
        }
    }

    fn list(&self) -> String {
        let each = self.sessions.iter().map(|(id, session)| {
            let name = &session.name;
            format!(r#"{{"ID":"{id}","Name":"{name}"}}"#)
        });
        format!("[{}]", each.collect::<Vec<_>>().join(","))
    }

    fn put(&mut self, key: &str, query: &BTreeMap<String, String>) -> Answer {
        self.end_lapsed();
        let (acquire, release) = (query.get("acquire"), query.get("release"));
        if let Some(id) = acquire
            && !self.sessions.contains_key(id)
        {
            return (500, format!("invalid session {id:?}"), None);
        }
        let now = Instant::now();
        let is_delayed = self.delays.get(key).is_some_and(|until| *until > now);
        let entry = self.keys.get(key).cloned().unwrap_or_default();
        let is_granted = match (acquire, release) {
            (Some(id), _) => !is_delayed && entry.session.as_ref().is_none_or(|own| own == id),
            (None, Some(id)) => entry.session.as_ref() == Some(id),
            (None, None) => true,
        };
        if is_granted {
            self.index += 1;
            let entry = Key {
                acquisitions: entry.acquisitions
                    + u64::from(acquire.is_some() && entry.session.is_none()),
                session: acquire.cloned(),
                created: if entry.created == 0 {
                    self.index
                } else {
                    entry.created
                },
                modified: self.index,
                flags: query
                    .get("flags")
                    .cloned()
                    .unwrap_or_else(|| "0".to_owned()),
            };
            self.keys.insert(key.to_owned(), entry);
        }
        (200, is_granted.to_string(), None)
    }

    /// Frees what a session has, with its lock-delay.
    fn end(&mut self, id: &str) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        self.index += 1;
        let index = self.index;
        let until = Instant::now() + session.delay;
        let own = self.keys.iter_mut();
        for (name, key) in own.filter(|(_, key)| key.session.as_deref() == Some(id)) {
            key.session = None;
            key.modified = index;
            self.delays.insert(name.clone(), until);
        }
    }

    fn end_lapsed(&mut self) {
        let lapsed = |(id, session): (&String, &Session)| {
            // A real one takes up to twice as long.
            (session.renewed.elapsed() > session.ttl).then(|| id.clone())
        };
        let ids: Vec<String> = self.sessions.iter().filter_map(lapsed).collect();
        ids.iter().for_each(|id| self.end(id));
    }
}
