//! `consul`: the lock of Consul's client library (`api.Lock`). A worker has a session with
//! a time to live. It reads the lock's key, and acquires it with its session if no other
//! session holds it. Otherwise it sends a blocking query, which Consul answers when the key
//! changes. The key's ModifyIndex is the fencing token.
//!
//! `wire` has the sequence of requests and answers.

pub(crate) mod who;
mod wire;

use crate::LEASE_LAG_FACT;
use crate::prelude::*;
use crate::program::free_ports;
use crate::signs::Told;
use crate::tls::{self, HttpTls};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;
use wire::ConsulWire;

/// The library's time to live of a session. Consul refuses a shorter one than 10 s.
const TTL: Duration = Duration::from_secs(15);
const LEAST_TTL: Duration = Duration::from_secs(10);

/// Consul's default lock-delay: after a session expires, its locks are granted to nobody
/// for this time.
const LOCK_DELAY: Duration = Duration::from_secs(15);

/// Time limit for an answer during set-up.
const PATIENCE: Duration = Duration::from_secs(10);

/// As Consul's own programs name an agent with TLS.
const TLS_SCHEME: &str = "https";

/// Where Consul's own programs look for a token.
const TOKEN: &str = "CONSUL_HTTP_TOKEN";

/// A Consul.
#[derive(Debug)]
pub struct Consul {
    server: Server,
    names: Names,
    /// With other hosts.
    is_shared: bool,
    ttl: Duration,
    /// Its process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

impl Target for Consul {
    type Lock = RemoteLock<ConsulWire>;

    const ENTRY: Entry = Entry {
        name: "consul",
        check_argument: |argument| argument::service_or(argument, Some(TLS_SCHEME)),
        reach: |place, file| Server::new(named(place, file)?)?.leader().map(drop),
        program: Some(&PROGRAM),
        summary: "Consul by its library's recipe: a session acquires a key, waiters watch the key",
        details: "Without an address, a server launched for the run, where the program consul is \
                  installed; Debian has no package of it. No real Consul was tried here: the recipe \
                  was read in the sources of Consul 1.21. As api.Lock of Consul's library, over HTTP: \
                  a worker reads the lock's key, acquires it with its session where no session has \
                  it, and else asks by a blocking query, which is answered when the key changes; all \
                  waiters of a lock are woken, and none is served in order. One session for each \
                  worker, with a time to live of 15 s (Consul takes none below 10 s), which is \
                  renewed every half of it while a worker acquires, waits or releases, or holds by `hold --for`. Durable; \
                  replicated where the server is one of several; the key's ModifyIndex is the \
                  fencing token. A dead owner's lock is free after up to twice the session's time to \
                  live, and a lock-delay of 15 s (`lease_lag_ns` in the result). A worker \
                  renews its session while it holds, unless --renew no. The token of a server that \
                  wants one is $CONSUL_HTTP_TOKEN. consul:https://HOST:PORT asks for TLS, ?ca=FILE behind it for \
                  TLS with that authority.",
        lock: capabilities!(LockCapabilities::SERVICE; durable, replicated, fenced,
            usual_lease: Some(TTL), renews),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Consul> {
        let (mut login, pid) = setup.server(named, &Launch::new()?, None)?;
        if pid.is_some() {
            // A server that jostle launched knows no token.
            login.own = Credentials::default();
        }
        let server = Server::new(login)?;
        server.leader()?;
        Ok(Consul {
            version: server.version(),
            server,
            names: Names::new(setup)?,
            is_shared: setup.common_name.is_some(),
            ttl: setup.lease.map_or(TTL, |lease| lease.max(LEAST_TTL)),
            pid,
        })
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<ConsulWire>> {
        let asked_ns = jostle_sys::clock::monotonic();
        let wanted = serde_json::json!({
            "Name": self.session_name(),
            "TTL": format!("{}ms", self.ttl.as_millis()),
            "LockDelay": format!("{}s", LOCK_DELAY.as_secs()),
        });
        let path = "/v1/session/create";
        let made = self.server.json("PUT", path, &wanted.to_string())?;
        let Some(session) = made["ID"].as_str() else {
            return Err(self.server.told("its answer to a session has no ID"));
        };
        let session = (session, self.ttl.as_nanos() as u64);
        let login = &self.server.login;
        let wire = ConsulWire::new(self.names, login, session, asked_ns);
        Ok(RemoteLock::new(Client::connect(&login.address)?, wire))
    }

    /// Removes the sessions of killed workers, and the keys, which Consul keeps even when
    /// nobody holds them.
    fn remove_leftovers(&self) -> Result<()> {
        let own = self.session_name();
        let sessions = self.server.json("GET", "/v1/session/list", "")?;
        for session in sessions.as_array().into_iter().flatten() {
            if session["Name"] == own.as_str()
                && let Some(id) = session["ID"].as_str()
            {
                let path = format!("/v1/session/destroy/{id}");
                self.server.json("PUT", &path, "")?;
            }
        }
        let path = format!("/v1/kv/{own}?recurse=true");
        self.server.json("DELETE", &path, "").map(drop)
    }

    /// Deletes the keys, which Consul keeps even when nobody holds them. With several hosts
    /// the other hosts may still be using them, so that they stay.
    fn finish(&self) -> Result<()> {
        match self.is_shared {
            true => Ok(()),
            false => self.remove_leftovers(),
        }
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        // It counts calls, not locks.
        Ok(Some(ServerFigures::of_process(self.pid)))
    }

    fn signs(&self) -> Told {
        signs::asked(&self.server.login.address, || {
            Ok(signs::known([
                (sign::LEADER, Some(self.server.leader()?.into())),
                (sign::OWN_NAMES, Some(true.into())),
            ]))
        })
    }

    fn facts(&self) -> Facts {
        let ns = |time: Duration| Some(time.as_nanos() as f64);
        facts([
            (LEASE_FACT, ns(self.ttl)),
            // A session is ended between once and twice its time to live after its renewal.
            (LEASE_LAG_FACT, ns(self.ttl + LOCK_DELAY)),
            (VERSION_FACT, self.version),
        ])
    }
}

impl Consul {
    /// The name of this run's sessions: the prefix of all its lock names.
    fn session_name(&self) -> String {
        String::from_utf8_lossy(self.names.prefix()).into_owned()
    }
}

fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::named(place, Some(TLS_SCHEME), file, ["", TOKEN])
}

/// The agent that is asked before and after a run.
#[derive(Debug)]
struct Server {
    /// The password is the token.
    login: Login,
    agent: Agent,
}

impl Server {
    fn new(login: Login) -> Result<Server> {
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            // Workers are forked: a worker must not inherit a pooled connection of another
            // process.
            .max_idle_connections(0);
        let config = match &login.address {
            Address::Tls(_, tls) => HttpTls::asked(tls)?.over(config),
            _ => config,
        };
        let agent = config.build().into();
        Ok(Server { login, agent })
    }

    fn told(&self, said: &str) -> SetupError {
        SetupError(format!("Consul at {}: {said}", self.login.address))
    }

    /// The JSON of the server's answer. An answer that is not a success is an error.
    fn json(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let address = &self.login.address;
        let scheme = match address {
            Address::Tls(..) => "https",
            _ => "http",
        };
        let uri = format!("{scheme}://{address}{path}");
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = &self.login.own.password {
            request = request.header("X-Consul-Token", token);
        }
        let request = request.body(body.to_owned());
        let request = request.map_err(|error| self.told(&error.to_string()))?;
        let answer = self.agent.run(request);
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let text = answer.body_mut().read_to_string();
        let text = text.map_err(|error| self.told(&error.to_string()))?;
        match answer.status().as_u16() {
            200 => serde_json::from_str(&text).map_err(|_| self.foreign()),
            // A key that nobody has written.
            404 if text.is_empty() && path.starts_with("/v1/kv/") => Ok(Value::Null),
            403 => Err(self.told(&format!("{}; set ${TOKEN}", text.trim()))),
            _ if text.is_empty() => Err(self.foreign()),
            _ => Err(self.told(text.trim())),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> SetupError {
        match error {
            ureq::Error::Protocol(_) | ureq::Error::Http(_) => self.foreign(),
            error => match tls::refusal(error) {
                Some(refusal) => self.told(&refusal),
                None => self.told(&format!("{error}; is the server running there?")),
            },
        }
    }

    fn foreign(&self) -> SetupError {
        self.told("what answers there does not speak Consul's protocol")
    }

    /// The address of the one that leads; without one nothing is granted.
    fn leader(&self) -> Result<String> {
        match self.json("GET", "/v1/status/leader", "")?.as_str() {
            Some("") => Err(self.told("its cluster has no leader")),
            Some(leader) => Ok(leader.to_owned()),
            None => Err(self.foreign()),
        }
    }

    /// The server's version; None if the token does not permit the query.
    fn version(&self) -> Option<f64> {
        let told = self.json("GET", "/v1/agent/self", "").ok()?;
        crate::login::version(told.pointer("/Config/Version")?.as_str()?)
    }
}

static PROGRAM: Program = Program {
    file: "consul",
    places: &[],
    package: None,
    // Not measured.
    launch_ms: 0,
    asks_libc: false,
};

/// One server, as it comes, without what is not asked for locks.
#[derive(Debug)]
pub struct Launch {
    /// For its peers, of which there are none.
    ports: [u16; 2],
}

impl Launch {
    fn new() -> Result<Launch> {
        let ports = free_ports(2)?;
        Ok(Launch {
            ports: [ports[0], ports[1]],
        })
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let [server, serf] = self.ports;
        let options = format!(
            "agent -server -bootstrap-expect=1 -node=jostle -bind=127.0.0.1 -client=127.0.0.1 \
             -http-port={} -server-port={server} -serf-lan-port={serf} -serf-wan-port=-1 \
             -dns-port=-1 -grpc-port=-1 -grpc-tls-port=-1 -log-level=warn",
            ground.port
        );
        let data = format!("-data-dir={}", text(&ground.directory.join("data")));
        let options = options.split(' ').map(str::to_owned);
        options.chain([data]).collect()
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        let login = Login {
            own: Credentials::default(),
            ..ground.login(None)
        };
        Server::new(login)?.leader().map(drop)
    }
}
