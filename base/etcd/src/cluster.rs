//! A client of a whole cluster. Connections to all members stay open, and each member is looked
//! at once a second, so that [`Cluster::order`] knows which of them are well.
//!
//! All of it lives in the caller's runtime, and makes progress only while that runs.

use crate::failure::Failure;
use crate::grpc::{Connection, PROTOCOL};
use crate::messages::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Empty, STATUS, StatusResponse,
};
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

/// How long a member may take to accept a connection and answer on it.
const CONNECT: Duration = Duration::from_secs(2);
/// How often each member is asked how it is, and how long it may take for the answer.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without an answer after which the connection is made anew.
const SILENT: u32 = 3;
/// The pause before the next attempt to connect.
const AGAIN: Duration = Duration::from_millis(250);
/// Versions that can lose data: <https://github.com/etcd-io/etcd/issues/13766>.
const LOSE_DATA: [&str; 3] = ["3.5.0", "3.5.1", "3.5.2"];
/// Bytes that a member may send ahead: pages of a load are large.
const WINDOW: u32 = 4 << 20;

const LATE: &str = "no answer in time";

// Statuses of gRPC.
const FAILED_PRECONDITION: u32 = 9;
const UNAUTHENTICATED: u32 = 16;

/// A member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST:PORT`.
    pub place: String,
    /// Whether it is reached over TLS.
    pub tls: bool,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`.
    ///
    /// # Errors
    /// For the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tls, place) = match text.split_once("://") {
            None | Some(("http", _)) => (false, text.trim_start_matches("http://")),
            Some(("https", place)) => (true, place),
            Some((scheme, _)) => {
                return Err(format!("`{text}`: {scheme} is neither http nor https"));
            }
        };
        let place = place.trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
        let bare = host.contains(':') && !host.starts_with('[');
        if host.is_empty() || bare || host.contains('/') || port.parse::<u16>().is_err() {
            return Err(format!(
                "`{text}`: write http://HOST:PORT or https://HOST:PORT"
            ));
        }
        let place = place.to_owned();
        Ok(Self { place, tls })
    }

    fn host(&self) -> &str {
        let host = self.place.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// How a cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its members, the preferred one first.
    pub endpoints: Vec<Endpoint>,
    /// Name and password, if it wants them.
    pub login: Option<(String, String)>,
    /// The authorities whose certificates are trusted, PEM.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, PEM.
    pub identity: Option<[PathBuf; 2]>,
}

/// The address of a member, and its latest state.
#[derive(Clone, Debug)]
pub struct Health {
    /// Its address.
    pub place: String,
    /// Why there is no connection.
    pub trouble: Option<String>,
    /// The last look at it: none yet, or what it said.
    pub status: Option<StatusResponse>,
}

/// The client.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Arc<Member>>,
    /// They end with it.
    _keepers: JoinSet<()>,
}

#[derive(Debug)]
struct Member {
    endpoint: Endpoint,
    login: Option<(String, String)>,
    tls: Option<Arc<ClientConfig>>,
    state: Mutex<State>,
    /// Rung when the connection has ended.
    ended: Notify,
}

#[derive(Debug)]
struct State {
    connection: Result<Connection, String>,
    /// It was tried to connect.
    tried: bool,
    /// Why others come first: it did not answer in time, and has not since, or it has no
    /// leader.
    slow: Option<&'static str>,
    status: Option<StatusResponse>,
}

impl Cluster {
    /// A client that begins to connect to each member. Call it within a runtime.
    ///
    /// # Errors
    /// A file cannot be used, or is missing.
    pub fn open(settings: Settings) -> Result<Self, String> {
        let tls = settings.endpoints.iter().any(|endpoint| endpoint.tls);
        let tls = tls.then(|| trust(&settings)).transpose()?;
        let members = settings.endpoints.into_iter().map(|endpoint| {
            Arc::new(Member {
                tls: tls.clone().filter(|_| endpoint.tls),
                endpoint,
                login: settings.login.clone(),
                state: Mutex::new(State {
                    connection: Err("not connected yet".to_owned()),
                    tried: false,
                    slow: None,
                    status: None,
                }),
                ended: Notify::new(),
            })
        });
        let members: Vec<Arc<Member>> = members.collect();
        let mut keepers = JoinSet::new();
        for member in &members {
            keepers.spawn(Arc::clone(member).keep());
        }
        Ok(Self {
            members,
            _keepers: keepers,
        })
    }

    /// Waits until each member has been tried, or this time has passed.
    pub async fn settle(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let tried = |member: &Arc<Member>| member.state().tried;
        while !self.members.iter().all(tried) && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The state of each member, in the order of the endpoints.
    #[must_use]
    pub fn health(&self) -> Vec<Health> {
        let (members, clash) = (self.members.iter(), self.clash());
        let health = members.map(|member| {
            let state = member.state();
            Health {
                place: member.endpoint.to_string(),
                trouble: match &state.connection {
                    Err(why) => Some(why.clone()),
                    Ok(_) => clash.clone().or(state.slow.map(str::to_owned)),
                },
                status: state.status.clone(),
            }
        });
        health.collect()
    }

    /// The members by their numbers, those that are well first.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|number| {
            let state = self.members[*number].state();
            (state.connection.is_err(), state.slow.is_some())
        });
        order
    }

    /// The address of a member.
    #[must_use]
    pub fn place(&self, number: usize) -> &str {
        &self.members[number].endpoint.place
    }

    /// Notes that a member has not answered in time: others come first until it does.
    pub fn note_slow(&self, number: usize) {
        self.members[number].state().slow = Some(LATE);
    }

    /// A call at one member. It may be executed although it fails.
    ///
    /// # Errors
    /// Why it came to nothing, as far as is known.
    pub fn call<A: Message + Default + 'static>(
        &self,
        number: usize,
        path: &'static str,
        request: impl Message + 'static,
    ) -> impl Future<Output = Result<A, Failure>> + Send + 'static {
        let (member, clash) = (Arc::clone(&self.members[number]), self.clash());
        async move {
            // The answer of a stray etcd would pass for that of the cluster.
            match clash {
                Some(clash) => Err(Failure::Unavailable(clash)),
                None => member.call(path, &request).await,
            }
        }
    }

    /// Two members that are connected and belong to different clusters.
    fn clash(&self) -> Option<String> {
        let mut first = None;
        for member in &self.members {
            let state = member.state();
            let status = state.status.as_ref().filter(|_| state.connection.is_ok());
            let header = status.and_then(|status| status.header.as_ref());
            let Some(id) = header.map(|header| header.cluster_id) else {
                continue;
            };
            let (known, place) = *first.get_or_insert((id, &member.endpoint.place));
            if known != id {
                return Some(format!(
                    "{place} and {} belong to different etcd clusters",
                    member.endpoint
                ));
            }
        }
        None
    }
}

impl Member {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection open, and looks at the member.
    async fn keep(self: Arc<Self>) {
        loop {
            let connected = timeout(CONNECT, self.connect()).await;
            let connected = connected.unwrap_or(Err(LATE.to_owned()));
            let up = connected.is_ok();
            {
                let mut state = self.state();
                (state.connection, state.tried, state.slow) = (connected, true, None);
            }
            if up {
                self.look().await;
                self.state().connection = Err("the connection has ended".to_owned());
            }
            sleep(AGAIN).await;
        }
    }

    /// Looks at the member until its connection ends or is silent.
    async fn look(&self) {
        let mut silent = 0;
        while silent < SILENT {
            let pause = timeout(LOOK, self.ended.notified());
            if pause.await.is_ok() {
                return;
            }
            match timeout(LOOK, self.call::<StatusResponse>(STATUS, &Empty {})).await {
                Ok(Ok(status)) => {
                    let mut state = self.state();
                    state.slow = (status.leader == 0).then_some("it has no leader");
                    (silent, state.status) = (0, Some(status));
                }
                Ok(Err(Failure::Ended(_))) => return,
                // It answers.
                Ok(Err(_)) => silent = 0,
                Err(_) => {
                    silent += 1;
                    self.state().slow = Some(LATE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let Endpoint { place, tls } = &self.endpoint;
        let failed = |error: std::io::Error| format!("cannot connect: {error}");
        let stream = TcpStream::connect(place).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let scheme = if *tls { "https" } else { "http" };
        let uri = format!("{scheme}://{place}");
        let begun = match &self.tls {
            None => Connection::begin(stream, uri, Some(WINDOW)).await,
            Some(config) => {
                let name = ServerName::try_from(self.endpoint.host().to_owned());
                let name = name.map_err(|error| format!("TLS: {error}"))?;
                let connector = TlsConnector::from(Arc::clone(config));
                let shake = connector
                    .with_alpn(vec![PROTOCOL.to_vec()])
                    .connect(name, stream);
                let stream = shake.await.map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        "the TLS handshake was cut off; does it want http?".to_owned()
                    }
                    _ => format!("TLS: {error}"),
                })?;
                Connection::begin(stream, uri, Some(WINDOW)).await
            }
        };
        let mut connection = begun.map_err(|failure| failure.to_string())?;
        self.log_in(&mut connection)
            .await
            .map_err(|failure| failure.to_string())?;
        match connection.call::<StatusResponse>(STATUS, &Empty {}).await {
            Ok(status) if LOSE_DATA.contains(&status.version.as_str()) => {
                let version = status.version;
                return Err(format!(
                    "etcd {version} can lose data after a crash; upgrade to 3.5.3"
                ));
            }
            Ok(status) => self.state().status = Some(status),
            // With authentication, some versions tell their status to administrators alone.
            Err(Failure::Refused(..)) => {}
            // It has its own question.
            Err(failure @ Failure::Foreign(_)) => return Err(failure.to_string()),
            Err(failure) if *tls => {
                return Err(format!(
                    "{failure}; does it want another client certificate?"
                ));
            }
            Err(failure) => return Err(format!("{failure}; does it want https?")),
        }
        Ok(connection)
    }

    async fn log_in(&self, connection: &mut Connection) -> Result<(), Failure> {
        let Some((name, password)) = self.login.clone() else {
            return Ok(());
        };
        let request = AuthenticateRequest { name, password };
        match connection
            .call::<AuthenticateResponse>(AUTHENTICATE, &request)
            .await
        {
            Ok(answer) => connection.show(answer.token),
            // Authentication is off: as etcd's own client, it goes on without.
            Err(Failure::Refused(FAILED_PRECONDITION, _)) => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// One call; with a new token if the one before has died.
    async fn call<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<A, Failure> {
        let connection = self.state().connection.clone();
        let mut connection = connection.map_err(Failure::Unavailable)?;
        let mut answer = connection.call(path, request).await;
        if let Err(Failure::Refused(code, text)) = &answer
            && self.login.is_some()
            && (*code == UNAUTHENTICATED || text.contains("revision of auth store is old"))
        {
            self.log_in(&mut connection).await?;
            self.state().connection = Ok(connection.clone());
            answer = connection.call(path, request).await;
        }
        match &answer {
            // A look tells nothing of the majority.
            Ok(_) if path != STATUS => self.state().slow = None,
            Err(Failure::Ended(_)) => self.ended.notify_one(),
            Ok(_) | Err(_) => {}
        }
        answer
    }
}

/// The client's side of TLS.
fn trust(settings: &Settings) -> Result<Arc<ClientConfig>, String> {
    let read = |path: &Path| {
        let certs =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match certs {
            Ok(certs) if certs.is_empty() => {
                Err(format!("{}: no certificate in it", path.display()))
            }
            Ok(certs) => Ok(certs),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    };
    let ca = settings.ca.as_deref();
    let ca = ca.ok_or("https needs the file of the authority that signed etcd's certificates")?;
    let mut roots = RootCertStore::empty();
    for cert in read(ca)? {
        roots
            .add(cert)
            .map_err(|error| format!("{}: {error}", ca.display()))?;
    }
    let failed = |error: rustls::Error| format!("TLS: {error}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots);
    let config = match &settings.identity {
        None => config.with_no_client_auth(),
        Some([cert, key]) => {
            let own = PrivateKeyDer::from_pem_file(key);
            let own = own.map_err(|error| format!("{}: {error}", key.display()))?;
            config
                .with_client_auth_cert(read(cert)?, own)
                .map_err(failed)?
        }
    };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use crate::fake::{self, Calls, Says};
    use crate::messages::{Header, RANGE, RangeRequest, RangeResponse};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn message(message: &impl Message) -> Says {
        Says::Message(message.encode_to_vec())
    }

    fn well(path: &str) -> Says {
        match path {
            AUTHENTICATE => message(&AuthenticateResponse {
                token: "t".to_owned(),
            }),
            STATUS => message(&StatusResponse::default()),
            _ => message(&RangeResponse {
                more: true,
                ..RangeResponse::default()
            }),
        }
    }

    /// Lets a test have a cluster of these servers.
    fn with(servers: &[&Calls], test: impl AsyncFnOnce(Cluster)) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoints = servers
                .iter()
                .map(|server| Endpoint::parse(&server.address));
            let cluster = Cluster::open(Settings {
                endpoints: endpoints.collect::<Result<_, _>>().unwrap(),
                login: Some(("user".to_owned(), "word".to_owned())),
                ..Settings::default()
            });
            let cluster = cluster.unwrap();
            cluster.settle(Duration::from_secs(60)).await;
            test(cluster).await;
        });
    }

    #[test]
    fn a_login_that_died_is_made_again_and_the_call_with_it() {
        static RANGES: AtomicU32 = AtomicU32::new(0);
        let server = fake::answers_calls(|path| match path {
            RANGE if RANGES.fetch_add(1, SeqCst) == 0 => Says::Status(16, "invalid auth token"),
            path => well(path),
        });
        with(&[&server], async |cluster| {
            let answer = cluster.call::<RangeResponse>(0, RANGE, RangeRequest::default());
            assert!(answer.await.unwrap().more);
        });
        let logins = server.paths.try_iter().filter(|path| path == AUTHENTICATE);
        assert_eq!(logins.count(), 2);
    }

    #[test]
    fn members_of_two_clusters_are_not_asked() {
        fn of(cluster_id: u64) -> Says {
            let header = Some(Header {
                cluster_id,
                ..Header::default()
            });
            message(&StatusResponse {
                header,
                ..StatusResponse::default()
            })
        }
        let own = fake::answers_calls(|path| if path == STATUS { of(1) } else { well(path) });
        let stray = fake::answers_calls(|path| if path == STATUS { of(2) } else { well(path) });
        with(&[&own, &stray], async |cluster| {
            let asked = cluster.call::<RangeResponse>(0, RANGE, RangeRequest::default());
            let failure = asked.await.unwrap_err().to_string();
            assert!(failure.contains("different etcd clusters"), "{failure}");
            let troubles = cluster.health().into_iter().map(|found| found.trouble);
            assert!(troubles.eq([Some(failure.clone()), Some(failure)]));
        });
    }

    #[test]
    fn members_that_refuse_the_login_lose_data_or_are_late_come_last() {
        let strict = fake::answers_calls(|path| match path {
            AUTHENTICATE => Says::Status(3, "invalid user ID or password"),
            path => well(path),
        });
        let lossy = fake::answers_calls(|path| match path {
            STATUS => message(&StatusResponse {
                version: "3.5.1".to_owned(),
                ..StatusResponse::default()
            }),
            path => well(path),
        });
        let [late, good] = [fake::answers_calls(well), fake::answers_calls(well)];
        with(&[&strict, &lossy, &late, &good], async |cluster| {
            cluster.note_slow(2);
            assert_eq!(cluster.order(), [3, 2, 0, 1]);
            let trouble = |nth: usize| cluster.health()[nth].trouble.clone().unwrap_or_default();
            assert!(trouble(0).contains("invalid user ID"), "{}", trouble(0));
            assert!(
                trouble(1).contains("etcd 3.5.1 can lose data"),
                "{}",
                trouble(1)
            );
            assert_eq!((trouble(2), trouble(3)), (LATE.to_owned(), String::new()));
        });
    }
}
