//! From a configuration to a server that listens.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventFlags};

use super::errors::StartError;
#[cfg(feature = "tls")]
use super::handshake::Handshakes;
use super::life::Life;
use super::net::{Door, Listener};
use super::parts::{Doors, Numbers, SCRATCH, Workspace};
use super::poll::BusyPoll;
use super::reserver::Reserver;
use super::stats::Stats;
use super::{BELL, LISTENER, Server, now};
use crate::config::{Config, ConfigError, StoreKind};
use crate::log::{Level, say, write};
use crate::store::{FileLog, Store, Stored};
use crate::systemd::{Inherited, Notifier};
use crate::table::{HashKey, Table, Tokens};
use crate::tokens::{self, END, FileStore, Opened, Promise, StoreError, TokenStore};
use crate::users::DEFAULT;

/// Descriptors for other things than clients.
const SPARE_FILES: usize = 64;

impl Server {
    /// Opens the data directory and everything that is listened on. From here
    /// on clients can connect; they are served by [`Server::run`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn bind(config: Config) -> Result<Self, StartError> {
        Self::bind_with(config, Vec::new())
    }

    /// [`Server::bind`], with sockets that listen already beside those of the
    /// configuration.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn bind_with(config: Config, inherited: Vec<Inherited>) -> Result<Self, StartError> {
        let Some(path) = &config.data else {
            return Self::with_all(config, None, 1, &[], None, inherited);
        };
        let mut opened = FileStore::open(path, config.restored)?;
        leave_group(path, config.restored)?;
        let kept = match config.store {
            StoreKind::None => None,
            StoreKind::File => Some(Kept::open(path, &mut opened, config.restored)?),
        };
        let Opened {
            store,
            first,
            earlier,
            ..
        } = opened;
        Self::with_all(
            config,
            Some(Box::new(store)),
            first,
            &earlier,
            kept,
            inherited,
        )
    }

    /// [`Server::bind`] with a store that has nothing yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn with_store(config: Config, store: Box<dyn Store>) -> Result<Self, StartError> {
        let kept = Kept {
            store,
            stored: Stored::default(),
            run: 0,
        };
        Self::with_all(config, None, 1, &[], Some(kept), Vec::new())
    }

    /// [`Server::bind`] with another store of tokens, of which `first` was never
    /// given out.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn with_tokens(
        config: Config,
        store: Option<Box<dyn TokenStore>>,
        first: u64,
    ) -> Result<Self, StartError> {
        Self::with_all(config, store, first, &[], None, Vec::new())
    }

    fn with_all(
        config: Config,
        store: Option<Box<dyn TokenStore>>,
        first: u64,
        earlier: &[Promise],
        kept: Option<Kept>,
        inherited: Vec<Inherited>,
    ) -> Result<Self, StartError> {
        let mut server = match kept {
            None => Self::around(Table::new(config.table, HashKey::random(), first), config)?,
            Some(kept) => kept.server(config, first)?,
        };
        server.reserver = store.map(Reserver::start).transpose()?;
        server.first_tokens()?;
        if server.reserver.is_some() {
            server.promise_first(earlier);
        }
        server.adopt_users(server.config.users.clone(), server.life.started);
        let doors = bind(&server.config)?;
        server.listen(doors, inherited)?;
        Ok(server)
    }

    /// A server with this table that nobody can reach yet.
    pub(super) fn around(table: Table, config: Config) -> Result<Self, StartError> {
        let started = now();
        let max_connections =
            jostle_daemon::limits::connections_that_fit(config.max_connections, SPARE_FILES);
        if max_connections <= config.reserve_connections {
            return Err(StartError::Files(SPARE_FILES + config.reserve_connections));
        }
        let doors = Doors {
            max_connections,
            ..Default::default()
        };
        let life = Life {
            started,
            ..Default::default()
        };
        let mut server = Self {
            table,
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?,
            conns: Vec::new(),
            http: Vec::new(),
            doors,
            turn: Default::default(),
            work: Workspace {
                scratch: vec![0; SCRATCH],
                ..Default::default()
            },
            life,
            reserver: None,
            leases: Default::default(),
            gate: None,
            #[cfg(feature = "ha")]
            ha: None,
            stats: Stats::default(),
            numbers: Numbers::new(&[]),
            failures: Default::default(),
            audited: Vec::new(),
            buffered: 0,
            freed: 0,
            clock: started,
            busy_poll: BusyPoll::new(config.busy_poll, config.busy_poll_always),
            next_sweep: started,
            config,
        };
        server.obey_audit();
        #[cfg(feature = "tls")]
        if let Some(tls) = &server.config.tls {
            let tls = load_tls(tls).map_err(StartError::Tls)?;
            let handshakes = Handshakes::start(tls, server.config.request_timeout)?;
            server.watch_for(super::SHAKEN, handshakes.bell(), EventFlags::IN)?;
            server.doors.handshakes = Some(handshakes);
        }
        Ok(server)
    }

    pub(super) fn first_tokens(&mut self) -> Result<(), StartError> {
        if let Some(reserver) = &mut self.reserver {
            reserver.request(self.table.next_token());
            self.take_tokens(Duration::from_secs(3600));
            if self.table.tokens_left() == 0 {
                return Err(StartError::Tokens(self.token_trouble()));
            }
            self.watch_bell()?;
        } else {
            self.step(Tokens(END), self.life.started);
        }
        Ok(())
    }

    pub(super) fn watch_bell(&self) -> io::Result<()> {
        let bell = self.reserver.as_ref().map(Reserver::bell);
        bell.map_or(Ok(()), |bell| self.watch_for(BELL, bell, EventFlags::IN))
    }

    /// Lets clients in: at these addresses, the Unix socket and those that listen already.
    pub(super) fn listen(
        &mut self,
        mut listeners: Vec<Listener>,
        inherited: Vec<Inherited>,
    ) -> Result<(), StartError> {
        for listener in &listeners {
            let place = listener
                .address
                .map_or(String::new(), |address| address.to_string());
            listener.open().map_err(failed(place))?;
        }
        if let Some((path, mode)) = &self.config.unix {
            let place = path.display().to_string();
            listeners.push(Listener::unix(path, *mode).map_err(failed(place))?);
        }
        for found in inherited {
            listeners.push(self.inherit(found)?);
        }
        self.doors.listeners = listeners;
        Ok(self.watch_listeners()?)
    }

    pub(super) fn watch_listeners(&self) -> io::Result<()> {
        let mut listeners = (0..).zip(&self.doors.listeners);
        listeners.try_for_each(|(index, listener)| {
            self.watch_for(LISTENER | index, &listener.fd, EventFlags::IN)
        })
    }

    /// A socket that listens already, by its name or kind.
    fn inherit(&self, found: Inherited) -> Result<Listener, StartError> {
        let place = format!("the socket `{}` of systemd", found.name);
        let failed = |error| StartError::Listen { place, error };
        let listener = Listener::inherited(found.fd, &found.name).map_err(failed)?;
        #[cfg(feature = "tls")]
        let lacks_tls = listener.door == Door::Tls && self.doors.handshakes.is_none();
        #[cfg(not(feature = "tls"))]
        let lacks_tls = found.name == "tls";
        if lacks_tls {
            let text = "a socket named tls needs --tls-cert and --tls-key";
            return Err(StartError::Tls(text.to_owned()));
        }
        if let Some(address) = listener.unguarded(&self.config.users) {
            return Err(StartError::Public(ConfigError::Public(address)));
        }
        Ok(listener)
    }

    /// Reports the daemon's state to this notifier from now on, first that it is ready.
    pub fn notify(&mut self, notifier: Notifier) {
        notifier.ready();
        self.life.notifier = Some(notifier);
    }

    /// The addresses that clients can connect to, with the ports that port 0
    /// became.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.doors.clients().filter_map(|listener| listener.address)
    }

    /// The address of the metrics.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let mut all = self.doors.listeners.iter();
        all.find(|listener| listener.door == Door::Metrics)?.address
    }

    /// Connections that are allowed: fewer than configured where the limit of
    /// open files does not allow more.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.doors.max_connections
    }
}

/// Leaves a group that this data directory was of, if that is wanted: its locks are in etcd,
/// and other members may serve them.
fn leave_group(directory: &Path, restored: bool) -> Result<(), StoreError> {
    let path = directory.join("cluster");
    match path.exists() {
        false => Ok(()),
        true if restored => std::fs::remove_file(&path).map_err(tokens::failed(&path, "remove")),
        true => Err(StoreError::Grouped(path)),
    }
}

fn failed(place: String) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Listen { place, error }
}

/// Takes the addresses of TCP. Nobody can connect yet.
pub(super) fn bind(config: &Config) -> Result<Vec<Listener>, StartError> {
    let tcp = |address: &SocketAddr, door| {
        Listener::bind(*address, door).map_err(failed(address.to_string()))
    };
    let clients = config.listen.iter().map(|address| tcp(address, Door::Tcp));
    let mut listeners: Vec<Listener> = clients.collect::<Result<_, _>>()?;
    #[cfg(feature = "tls")]
    for address in config.tls.iter().flat_map(|tls| &tls.listen) {
        listeners.push(tcp(address, Door::Tls)?);
    }
    if let Some(address) = &config.metrics {
        listeners.push(tcp(address, Door::Metrics)?);
    }
    Ok(listeners)
}

/// The content of the store at a start.
struct Kept {
    store: Box<dyn Store>,
    stored: Stored,
    /// The number of this run, unless the store has it.
    run: u64,
}

impl Kept {
    /// Opens the log of a data directory. If it is not known to have all that the last run
    /// granted, nothing of it is adopted, and the start waits as after a crash.
    fn open(directory: &Path, opened: &mut Opened, restored: bool) -> Result<Self, StoreError> {
        let mut found = FileLog::open(directory)?;
        let (run, before) = found.stored.run;
        let whole = found.doubt.is_none();
        let last = opened.run != 0 && [run, before].contains(&opened.run);
        let (own, adopts) = (opened.store.run(), whole && last && !restored);
        if let Some(doubt) = found.doubt {
            write(Level::Error, &doubt);
            opened.earlier.push(Promise::UNKNOWN);
        } else if !adopts && found.stored != Stored::default() {
            let text = "the log is not used: it is not that of the last run, or was restored";
            write(Level::Warn, text);
        }
        let stored = match adopts {
            true => found.stored,
            false => Stored::default(),
        };
        if adopts {
            opened.earlier.clear();
        }
        let runs = if adopts { (own, opened.run) } else { (0, 0) };
        found.log.start(directory, stored.clone(), runs)?;
        Ok(Self {
            store: Box::new(found.log),
            stored,
            run: if adopts { 0 } else { own },
        })
    }

    /// A server that goes on with it.
    fn server(self, config: Config, first: u64) -> Result<Server, StartError> {
        let path = config.data.clone().unwrap_or_default().join("log");
        let server = Server::adopting(&self.stored, config, first, 0);
        let mut server = server.map_err(|error| match error {
            StartError::Unsound(why) => StoreError::Unsound { path, why }.into(),
            error => error,
        })?;
        server.open_gate(self.store, self.run)?;
        Ok(server)
    }
}

impl Server {
    /// A server that goes on with what was stored, and what connections held for so long.
    pub(super) fn adopting(
        stored: &Stored,
        config: Config,
        first: u64,
        orphan_ms: u64,
    ) -> Result<Self, StartError> {
        let owners = stored.holds.values().map(|hold| hold.owner.user());
        let users = owners.chain(stored.sessions.keys().map(|session| session.user.as_str()));
        let users: BTreeSet<&str> = users.filter(|user| *user != DEFAULT).collect();
        let users: Vec<String> = users.into_iter().map(str::to_owned).collect();
        let numbers = Numbers::new(&users);
        let number = |user: &str| numbers.find(user).unwrap_or(0);
        let table = Table::adopt(stored, config.table, first, orphan_ms, number, now());
        let table = table.map_err(|error| StartError::Unsound(error.to_string()))?;
        let (sessions, holds) = (table.sessions(), table.holds());
        if sessions + holds > 0 {
            say(&format!(
                "{holds} locks and {sessions} sessions of before go on, with their whole TTL"
            ));
        }
        let mut server = Self::around(table, config)?;
        server.numbers = numbers;
        Ok(server)
    }
}

#[cfg(feature = "tls")]
pub(super) fn load_tls(
    config: &crate::config::TlsConfig,
) -> Result<std::sync::Arc<rustls::ServerConfig>, String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let failed = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        format!("{}: {error}", path.display())
    };
    let certificates = |path: &std::path::Path| {
        let found = CertificateDer::pem_file_iter(path);
        let found = found.and_then(Iterator::collect::<Result<Vec<_>, _>>);
        found.map_err(|error| failed(path, &error))
    };
    let certs = certificates(&config.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&config.key).map_err(|error| failed(&config.key, &error))?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let clients = match &config.ca {
        None => rustls::server::WebPkiClientVerifier::no_client_auth(),
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for cert in certificates(path)? {
                roots.add(cert).map_err(|error| failed(path, &error))?;
            }
            // A client without a certificate has to give a password.
            rustls::server::WebPkiClientVerifier::builder_with_provider(
                roots.into(),
                provider.clone(),
            )
            .allow_unauthenticated()
            .build()
            .map_err(|error| failed(path, &error))?
        }
    };
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(clients)
        .with_single_cert(certs, key)
        .map_err(|error| failed(&config.cert, &error))?;
    Ok(std::sync::Arc::new(server))
}
