//! `nats`: the lock that users of NATS make of a key-value bucket of JetStream. The client
//! that creates the key owns the lock until the bucket's time to live has passed. The
//! sequence number of its message in the bucket's stream is the fencing token. The requests
//! are those of the Go client's `Create`, `Update` and `Delete` (kv.go), each with the
//! sequence number that the key must be at.
//!
//! A deleted key keeps a marker, so that `create` takes up to three requests: create the
//! key, read its last message, and replace the marker. The bucket republishes what it
//! stores. A worker that finds the key taken subscribes to these messages, and tries again
//! when the marker of a release arrives. The end of a lease sends no message, so that a
//! waiter also reads the key at intervals.
//!
//! `wire` has the sequence of requests and answers.

mod frames;
pub(crate) mod who;
mod wire;

use crate::login;
use crate::prelude::*;
use crate::program::secret;
use crate::signs::Told;
use frames::{Frame, frame, line, status};
use jostle_sys::files::Errno;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use wire::{CHANGED, LOOK_NS, NatsWire};

/// The time to live of the bucket's messages.
const LEASE: Duration = Duration::from_secs(30);

/// The lease where a worker holds its locks while it acquires a million others, and nobody
/// renews them.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// JetStream takes no shorter one.
const LEAST_LEASE: Duration = Duration::from_millis(100);

/// The Go client's window for duplicate messages, unless the lease is shorter.
const DUPLICATES: Duration = Duration::from_secs(120);

/// Where name and password stand, as NATS's own command `nats` has it.
const VARIABLES: [&str; 2] = ["NATS_USER", "NATS_PASSWORD"];

/// Its own limit where nothing is said.
const USUAL_CONNECTIONS: usize = 65_536;

/// The user of a launched server.
const OWNER: &str = "jostle";

/// The beginning of a bucket's description.
const PURPOSE: &str = "locks of a run of jostle";

/// The error code for a stream that does not exist.
const NO_STREAM: u64 = 10_059;

/// The first version in which the last message of a subject can be read without the
/// stream's leader (`allow_direct`), as buckets do.
const LEAST_VERSION: f64 = 2.009;

/// A NATS with a bucket of this run.
#[derive(Debug)]
pub struct Nats {
    server: Server,
    names: Names,
    keys: usize,
    lease_ns: u64,
    run: u64,
    /// Its process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

impl Target for Nats {
    type Lock = RemoteLock<NatsWire>;

    const ENTRY: Entry = Entry {
        name: "nats",
        reach: |place, file| Server(named(place, file)?).version().map(drop),
        program: Some(&PROGRAM),
        summary: "NATS by its users' recipe: create and delete a key of a JetStream bucket",
        details: "Without an address, a server launched for the run (Debian package nats-server). The locks \
                  are keys of a bucket that is made for the run as the Go client makes one: a stream in files, with one \
                  replica, one value for each key and a time to live of 30 s (in `hold` of 600 s), which is the lease. A worker creates the key, \
                  as that client's `Create` does: it publishes a value for a key without a message; if there \
                  is one it reads that, and if it is the marker of a deletion, it publishes in its place. A key that was \
                  locked before so takes three requests. Released by `Delete` at the sequence of our own value, which leaves \
                  a marker, one request. The bucket republishes what it stores (`RePublish` of \
                  that client's settings), and a worker that finds the key taken subscribes to that; it publishes \
                  in place of a marker that comes there, and looks again after 125 to 375 ms (`poll_ns` in the \
                  result is the mean), since the end of a lease sends no message. The client's `Watch` makes a \
                  consumer for each waiter instead. All waiters of a \
                  lock are woken, and none is served in order. What is granted outlives a restart of the server, but \
                  it syncs its files to the disk every minute or two only, unless it is set up otherwise. Not replicated. The sequence is the \
                  fencing token. The lease frees a dead owner's lock, and lets a second owner in where the first holds \
                  longer than that. `hold --for` renews it every third of it by `Update`, which gives the value a \
                  greater sequence. The server counts leases by its wall clock. Name and password of a server that wants them are $NATS_USER and \
                  $NATS_PASSWORD, or those of --credentials; a password without a name is a token. ?tls behind the \
                  address asks for TLS, ?ca=FILE for TLS with that authority. Needs NATS 2.9 or later, with JetStream.",
        lock: capabilities!(LockCapabilities::SERVICE; durable, made_before, fenced, usual_lease: Some(LEASE)),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Nats> {
        let connections = setup.connections(USUAL_CONNECTIONS);
        let (login, pid) = setup.server(named, &Launch { connections }, Some(OWNER))?;
        let server = Server(login);
        let lease = setup.lease_or(LEASE, LONG_LEASE).max(LEAST_LEASE);
        let nats = Nats {
            version: server.version()?,
            server,
            names: Names::new(setup)?,
            keys: setup.keys,
            lease_ns: lease.as_nanos() as u64,
            run: setup.seed,
            pid,
        };
        nats.make_bucket(setup.common_name.is_some()).map(|()| nats)
    }

    fn join(&self, worker: usize) -> Result<RemoteLock<NatsWire>> {
        let Session { client, inbox, .. } = self.server.session()?;
        let locks = (self.names, self.keys);
        let wire = NatsWire::new(locks, self.lease_ns, &inbox, (self.run, worker));
        Ok(RemoteLock::new(client, wire))
    }

    /// The bucket, with all that is in it.
    fn remove_leftovers(&self) -> Result<()> {
        let request = format!("STREAM.DELETE.KV_{}", bucket(&self.names));
        let answer = self.server.session()?.ask(&request, "")?;
        match answer["error"]["err_code"].as_u64() {
            // Another host was first.
            None | Some(NO_STREAM) => Ok(()),
            Some(_) => Err(self.server.refused(&request, &answer)),
        }
    }

    /// Deletes the bucket, which the server would keep. In a run of several hosts all hosts
    /// have drained by now.
    fn finish(&self) -> Result<()> {
        self.remove_leftovers()
    }

    fn signs(&self) -> Told {
        signs::asked(&self.server.0.address, || {
            let session = self.server.session()?;
            // It gives itself a new name at each start.
            let name = session.info["server_id"].as_str().map(str::to_owned);
            Ok(signs::known([
                (sign::LIFE, name.map(Into::into)),
                (sign::OWN_NAMES, Some(Sign::Flag(true))),
            ]))
        })
    }

    fn facts(&self) -> Facts {
        facts([
            (LEASE_FACT, Some(self.lease_ns as f64)),
            ("poll_ns", Some(LOOK_NS as f64)),
            (VERSION_FACT, self.version),
        ])
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        // It counts messages, not locks, and keeps them in files.
        Ok(Some(ServerFigures::of_process(self.pid)))
    }
}

impl Nats {
    /// Deletes the buckets of earlier runs of this machine whose keeper and cleaner were both
    /// killed. If we may not list streams, they stay.
    fn remove_abandoned(&self, session: &mut Session<'_>) {
        let Ok(listed) = session.ask("STREAM.LIST", "") else {
            return;
        };
        for stream in listed["streams"].as_array().into_iter().flatten() {
            let config = &stream["config"];
            if let (Some(name), Some(made_for)) =
                (config["name"].as_str(), config["description"].as_str())
                && name.starts_with("KV_jostle_")
                && keeper_of(made_for).is_some_and(|pid| !is_running(pid))
            {
                // Another run may delete it first.
                let _ = session.ask(&format!("STREAM.DELETE.{name}"), "");
            }
        }
    }

    /// Creates the bucket as the Go client's `CreateKeyValue` does. Creating the same
    /// bucket again is no error, so that each host can do it.
    fn make_bucket(&self, is_shared: bool) -> Result<()> {
        let name = bucket(&self.names);
        // A bucket shared by several hosts needs the same description on all of them.
        let keeper = (!is_shared).then(|| format!("{}, keeper {}", here(), std::process::id()));
        let wanted = json!({
            "name": format!("KV_{name}"),
            "description": keeper.as_deref().unwrap_or(PURPOSE),
            "subjects": [format!("$KV.{name}.>")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": 1,
            "max_age": self.lease_ns,
            "duplicate_window": self.lease_ns.min(DUPLICATES.as_nanos() as u64),
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msg_size": -1,
            "max_consumers": -1,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "allow_direct": true,
            "republish": {
                "src": format!("$KV.{name}.>"), "dest": format!("{CHANGED}.{name}.>"),
                "headers_only": true,
            },
        });
        let request = format!("STREAM.CREATE.KV_{name}");
        let mut session = self.server.session()?;
        self.remove_abandoned(&mut session);
        let answer = session.ask(&request, &wanted.to_string())?;
        match answer["error"].is_null() {
            true => Ok(()),
            false => Err(self.server.refused(&request, &answer)),
        }
    }
}

/// The name of the run's bucket, in which colons are not allowed.
fn bucket(names: &Names) -> String {
    let prefix = String::from_utf8_lossy(names.prefix());
    prefix.trim_end_matches(':').replace(':', "_")
}

/// The bucket's purpose, and the boot and PID namespace in which its keeper's PID is valid.
fn here() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{PURPOSE} on {} {}", boot.trim(), text(&space))
}

/// The PID of the keeper that made a bucket, if that was in this boot and PID namespace.
fn keeper_of(made_for: &str) -> Option<&str> {
    made_for.strip_prefix(&here())?.strip_prefix(", keeper ")
}

/// Whether a process runs; a zombie does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = |stat: &str| Some(stat.rsplit_once(") ")?.1.starts_with(['Z', 'X']));
    stat.is_ok_and(|stat| state(&stat) == Some(false))
}

/// Where it is, and who asks.
#[derive(Debug)]
struct Server(Login);

/// A connection that the server has admitted, with a subject of its own for answers.
struct Session<'a> {
    server: &'a Server,
    client: Client,
    inbox: String,
    /// The server's INFO.
    info: Value,
}

fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::named(place, None, file, VARIABLES)
}

impl Server {
    fn told(&self, said: impl std::fmt::Display) -> SetupError {
        SetupError(format!("NATS at {}: {said}", self.0.address))
    }

    fn refused(&self, request: &str, answer: &Value) -> SetupError {
        let error = &answer["error"];
        let said = error["description"].as_str().unwrap_or("no description");
        self.told(format!("{request}: {said} ({})", error["err_code"]))
    }

    /// The error for a server that refuses the connection.
    fn refuses(&self, said: &str) -> SetupError {
        let remedy = match said {
            said if said.starts_with("Authorization") => {
                format!("; set ${} and ${}", VARIABLES[0], VARIABLES[1])
            }
            said if said.starts_with("maximum connections") => {
                "; fewer workers (-w), or more connections (its setting max_connections)".to_owned()
            }
            _ => String::new(),
        };
        self.told(format!("{said}{remedy}"))
    }

    /// Connects: the server sends its INFO first, and TLS begins after that.
    fn session(&self) -> Result<Session<'_>> {
        let mut client = Client::connect_plainly(&self.0.address)?;
        let info = client.asked("INFO", greeting);
        let info = info.map_err(|said| self.refuses(&said))?;
        let info: Value = serde_json::from_slice(&info.unwrap_or_default()).unwrap_or_default();
        let offers = ["tls_required", "tls_available"].map(|name| info[name] == true);
        let encrypts = matches!(self.0.address, Address::Tls(..));
        match (encrypts, offers) {
            (false, [true, _]) => {
                return Err(self.told("it wants TLS; write ?tls behind its address"));
            }
            (true, [false, false]) => {
                return Err(self.told("it offers no TLS; is it set up for it?"));
            }
            _ => {}
        }
        let mut session = Session {
            server: self,
            client: client.secure(&self.0.address)?,
            inbox: format!("_INBOX.{}.", secret()?),
            info,
        };
        session.greet(encrypts).map(|()| session)
    }

    /// The server's version. An error if the server lacks what this target needs.
    fn version(&self) -> Result<Option<f64>> {
        let mut session = self.session()?;
        let words = session.info["version"].as_str().unwrap_or("").to_owned();
        let version = login::version(&words);
        if version.is_some_and(|version| version < LEAST_VERSION) {
            return Err(self.told(format!("it is version {words}, and 2.9 or later is needed")));
        }
        let answer = session.ask("INFO", "")?;
        match answer["error"].is_null() {
            true => Ok(version),
            false => Err(self.refused("INFO", &answer)),
        }
    }
}

impl Session<'_> {
    fn greet(&mut self, encrypts: bool) -> Result<()> {
        let mut words = json!({
            "verbose": false, "pedantic": false, "echo": false, "protocol": 0,
            "headers": true, "no_responders": true, "tls_required": encrypts,
            "lang": "rust", "name": "jostle", "version": env!("CARGO_PKG_VERSION"),
        });
        let Credentials { user, password } = &self.server.0.own;
        match (user, password) {
            (None, Some(token)) => words["auth_token"] = json!(token),
            (user, password) => {
                words["user"] = json!(user.as_deref().unwrap_or_default());
                words["pass"] = json!(password.as_deref().unwrap_or_default());
            }
        }
        let greeting = format!("CONNECT {words}\r\nSUB {}* 1\r\nPING\r\n", self.inbox);
        self.client.request.extend_from_slice(greeting.as_bytes());
        let greeted = self.client.asked("CONNECT", answer);
        greeted.map(drop).map_err(|said| self.server.refuses(&said))
    }

    /// JetStream's answer to a request of its API.
    fn ask(&mut self, request: &str, body: &str) -> Result<Value> {
        let (inbox, length) = (&self.inbox, body.len());
        let line = format!("PUB $JS.API.{request} {inbox}0 {length}\r\n{body}\r\n");
        self.client.request.extend_from_slice(line.as_bytes());
        let said = match self.client.asked("JetStream", answer) {
            Ok(Some(text)) => match serde_json::from_slice(&text) {
                Ok(answer) => return Ok(answer),
                Err(error) => format!("its answer to {request} is no JSON: {error}"),
            },
            Ok(None) => {
                "JetStream is off; start the server with -js, or write `jetstream {}` into its \
                 settings"
                    .to_owned()
            }
            Err(said) => said,
        };
        Err(self.server.told(said))
    }
}

/// The server's first message, which it sends unasked.
fn greeting<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    if !input.starts_with(b"INFO ") && !b"INFO ".starts_with(input) {
        let said = "what answers there does not speak NATS's protocol";
        return Err(CallError::saying(call, Errno::PROTO, said));
    }
    let Some((line, length)) = line(input, call)? else {
        return Ok(None);
    };
    let rest = &input[length..];
    Ok(match rest.is_empty() {
        true => Some((Reply::Text(line.get(5..).unwrap_or_default()), length)),
        // The server may refuse us at once, for example at its limit on connections.
        false => answer(rest, call)?.map(|(reply, _)| (reply, input.len())),
    })
}

/// The one answer in what has come: a message, PONG as an empty text, an error, or nothing
/// where nobody answers on that subject.
fn answer<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let (mut rest, mut found) = (input, None);
    while let Some((frame, length)) = frame(rest, call)? {
        rest = &rest[length..];
        found = match frame {
            Frame::Message { head, .. } if status(head) == Some(503) => Some(Reply::Nil),
            Frame::Message { body, .. } => Some(Reply::Text(body)),
            Frame::Error(text) => Some(Reply::Error(text)),
            Frame::Pong => Some(Reply::Text(b"")),
            // A ping needs no immediate answer.
            Frame::Ping | Frame::Other => found,
        };
    }
    Ok(found
        .filter(|_| rest.is_empty())
        .map(|reply| (reply, input.len())))
}

static PROGRAM: Program = Program {
    file: "nats-server",
    places: &["/usr/sbin"],
    package: Some("nats-server"),
    launch_ms: 100,
    asks_libc: false,
};

/// A server with room for the workers, and otherwise as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    pub connections: usize,
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn instead_of_root(&self) -> Option<&'static str> {
        Some("nats")
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        let settings = format!(
            "listen: \"{}\"\nmax_connections: {}\njetstream {{ store_dir: \"{}\" }}\n\
             authorization {{ user: {OWNER}, password: \"{}\" }}\n",
            ground.address(),
            self.connections,
            text(&ground.directory.join("data")),
            ground.secret
        );
        vec![("nats.conf", settings)]
    }

    fn arguments(&self, _ground: &Ground) -> Words {
        ["-c", "nats.conf"].map(str::to_owned).to_vec()
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        Server(ground.login(Some(OWNER))).version().map(drop)
    }
}
