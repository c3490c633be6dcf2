//! The settings: flags, and a TOML file with the same names.
//!
//! [`Settings`] holds what was written, [`Config`] the values that follow from it. A
//! flag overrides the file.

#[cfg(feature = "ha")]
mod ha;
mod settings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jostle_daemon::address::{self, AddressError};
use jostle_daemon::file::{self, FileError, first_line};
use jostle_daemon::{Size, socket};
use serde::Deserialize;

use crate::log::{Format, Level};
use crate::table;
use crate::users::Users;

#[cfg(feature = "ha")]
pub use ha::HaConfig;
#[cfg(feature = "ha")]
pub(crate) use ha::machine;
pub use settings::{Compact, Settings, StoreKind};

/// The address that is listened on unless another is named.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:2626";

/// The longest time in a request, 2^40 ms or 34 years.
pub(crate) const TTL_MAX_MS: u64 = 1 << 40;

/// Bytes of the longest password.
pub(crate) const PASSWORD_MAX: usize = 512;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Other machines could reach the daemon without a password, and take and break locks.
    #[error(
        "{0} can be reached from other machines, and no password is set: anybody could take \
         and break locks. Set one (--password-file, $JOSTLED_PASSWORD, or for each user of \
         --users-file), or listen on 127.0.0.1"
    )]
    Public(SocketAddr),
    /// The users file has an error.
    #[error("{}, {why}", path.display())]
    Users {
        /// The users file.
        path: PathBuf,
        /// The line and its error.
        why: String,
    },
    /// Nothing to listen on.
    #[error("nothing to listen on: give --listen, --tls-listen or --unix")]
    NoListener,
    /// No directory for what a restart must know.
    #[error(
        "neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set, so there is no data directory: \
         give --data DIR, or --data none to store nothing"
    )]
    NoDataDirectory,
    /// TLS needs both files, and is built in or not.
    #[error("{0}")]
    Tls(&'static str),
    /// A value that makes no sense.
    #[error("{0}")]
    Value(String),
}

/// The conduct of a start while leases of the program before may still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterCrash {
    /// It grants nothing until they have ended.
    Wait,
    /// It grants locks at once.
    Grant,
}

/// The events that `--audit` adds to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audited {
    /// Each lock granted, and each end of a hold with its cause.
    Locks,
    /// Each login.
    Logins,
    /// Users added, removed and changed.
    Acl,
}

/// Everything that a server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses for plain TCP.
    pub listen: Vec<SocketAddr>,
    /// Addresses for TLS, and the certificate chain and key.
    pub tls: Option<TlsConfig>,
    /// The Unix socket and its permissions.
    pub unix: Option<(PathBuf, u32)>,
    /// The directory in which tokens are remembered; `None`: nowhere.
    pub data: Option<PathBuf>,
    /// See [`Settings::store`].
    pub store: StoreKind,
    /// The group of jostleds that this one belongs to.
    #[cfg(feature = "ha")]
    pub ha: Option<HaConfig>,
    /// See [`Settings::after_crash`].
    pub after_crash: AfterCrash,
    /// The longest lease.
    pub max_ttl_ms: u64,
    /// See [`Settings::restored`].
    pub restored: bool,
    /// The default user's password, unless the users file defines that user.
    pub password: Option<String>,
    /// The users and their rights.
    pub users: Users,
    /// The file that the users were read from.
    pub users_file: Option<PathBuf>,
    /// Connections that are for administrators alone.
    pub reserve_connections: usize,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// The level of the log.
    pub log_level: Level,
    /// The format of the log.
    pub log_format: Format,
    /// See [`Settings::audit`].
    pub audit: Vec<Audited>,
    /// Bounds of the lock table.
    pub table: table::Limits,
    /// Connections.
    pub max_connections: usize,
    /// Bytes of one request.
    pub max_request: usize,
    /// Bytes of replies that a client has not read.
    pub max_output: usize,
    /// Bytes of requests and replies of all clients.
    pub max_buffers: usize,
    /// See [`Settings::idle_timeout`].
    pub idle_timeout: Option<Duration>,
    /// See [`Settings::request_timeout`].
    pub request_timeout: Option<Duration>,
    /// See [`Settings::tcp_keepalive`].
    pub tcp_keepalive: Duration,
    /// See [`Settings::busy_poll`].
    pub busy_poll: Duration,
    /// See [`Settings::busy_poll_always`].
    pub busy_poll_always: bool,
    /// See [`Settings::handover_timeout`].
    pub handover_timeout: Duration,
    /// See [`Settings::drain_timeout`].
    pub drain_timeout: Duration,
}

/// TLS addresses and files.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Addresses.
    pub listen: Vec<SocketAddr>,
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Authorities of clients' certificates, PEM.
    pub ca: Option<PathBuf>,
}

impl Settings {
    /// Derives the configuration from the settings and the environment, whose variables
    /// `env` returns.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn resolve(self, env: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let password = self.password(&env)?;
        let users_file = or_credential(&self.users_file, "jostled.users", &env)?;
        let users = match &users_file {
            Some(path) => users_of(path, password.as_deref())?,
            None => Users::single(password.as_deref()),
        };
        let guarded = users.all_need_passwords();
        let inherits = env("LISTEN_FDS").is_some();
        let listen = match inherits && self.listen.is_empty() {
            true => Vec::new(),
            false => address::listened(&self.listen, DEFAULT_LISTEN, guarded, ConfigError::Public)?,
        };
        let tls = self.tls(guarded, inherits, &env)?;
        let reserve = if users_file.is_some() { 8 } else { 0 };
        let with_mode = |path| socket::with_mode(path, self.unix_mode.as_deref());
        let unix = self.unix.clone().map(with_mode).transpose();
        let unix = unix.map_err(ConfigError::Value)?;
        let no_tls = tls.as_ref().is_none_or(|tls| tls.listen.is_empty());
        if listen.is_empty() && no_tls && unix.is_none() && !inherits {
            return Err(ConfigError::NoListener);
        }
        let seconds = |value: Option<u64>, default: u64| match value.unwrap_or(default) {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        let size = |value: Option<Size>, default: usize| value.map_or(default, |size| size.0);
        // The pseudo variable is the limit of the process's memory in bytes.
        let limit = env("MEMORY_LIMIT").and_then(|bytes| bytes.parse().ok());
        let part = |of: usize, most: usize| limit.map_or(most, |limit: usize| most.min(limit / of));
        let data = self.data(&env)?;
        let after_crash = self.after_crash.unwrap_or(AfterCrash::Wait);
        let waits = after_crash == AfterCrash::Wait && data.is_some();
        let no_ttl = if waits { 3_600_000 } else { TTL_MAX_MS };
        let max_ttl_ms = self
            .max_ttl
            .map_or(no_ttl, |seconds| seconds.saturating_mul(1000));
        #[cfg(feature = "ha")]
        let ha = self.ha(inherits, &env)?;
        #[cfg(not(feature = "ha"))]
        if self.ha_name.is_some() {
            let text = "this jostled was built without --ha-name; `cargo build --release -p \
                        jostle-lockd --features services` makes one that has it, and packages have it";
            return Err(ConfigError::Value(text.to_owned()));
        }
        let config = Config {
            listen,
            tls,
            unix,
            data,
            store: self.store.unwrap_or(StoreKind::None),
            #[cfg(feature = "ha")]
            ha,
            after_crash,
            max_ttl_ms: max_ttl_ms.min(TTL_MAX_MS),
            restored: self.restored,
            password,
            users,
            users_file,
            reserve_connections: self.reserve_connections.unwrap_or(reserve),
            metrics: self.metrics.as_deref().map(address::parse).transpose()?,
            log_level: self.log_level.unwrap_or_default(),
            log_format: self.log_format.unwrap_or_default(),
            audit: self.audit.clone(),
            table: self.table_limits(size(self.max_memory, part(2, 1 << 30))),
            max_connections: self.max_connections.unwrap_or(10_000),
            max_request: size(self.max_request, 64 << 10),
            max_output: size(self.max_output, 1 << 20),
            max_buffers: size(self.max_buffers, part(4, 256 << 20)),
            idle_timeout: seconds(self.idle_timeout, 0),
            request_timeout: seconds(self.request_timeout, 30),
            tcp_keepalive: Duration::from_secs(u64::from(self.tcp_keepalive.unwrap_or(60))),
            busy_poll: Duration::from_micros(u64::from(self.busy_poll.unwrap_or(50))),
            busy_poll_always: self.busy_poll_always,
            handover_timeout: Duration::from_secs(self.handover_timeout.unwrap_or(10)),
            drain_timeout: Duration::from_secs(self.drain_timeout.unwrap_or(5)),
        };
        config.check()?;
        Ok(config)
    }

    fn table_limits(&self, memory_bytes: usize) -> table::Limits {
        table::Limits {
            name_bytes: self.max_name.unwrap_or(512),
            waiters_per_lock: self.max_waiters_per_lock.unwrap_or(10_000),
            waiters: self.max_waiters.unwrap_or(100_000),
            memory_bytes,
            sessions: self.max_sessions.unwrap_or(10_000),
            wait_ms: match self.max_wait.unwrap_or(0) {
                0 => None,
                seconds => Some(seconds.saturating_mul(1000)),
            },
            contention_bytes: self.contention_memory.map_or(512 << 10, |size| size.0),
        }
    }

    fn password(
        &self,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, ConfigError> {
        let password = match &self.password_file {
            Some(path) => Some(first_line(path)?),
            None => match env("JOSTLED_PASSWORD").or_else(|| self.password.clone()) {
                None => credential("jostled.password", env)?
                    .map(|path| first_line(&path))
                    .transpose()?,
                given => given,
            },
        };
        if !(1..=PASSWORD_MAX).contains(&password.as_deref().map_or(1, str::len)) {
            let text = format!("the password must have 1 to {PASSWORD_MAX} bytes");
            return Err(ConfigError::Value(text));
        }
        Ok(password)
    }

    fn tls(
        &self,
        password: bool,
        inherits: bool,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TlsConfig>, ConfigError> {
        let listens = !self.tls_listen.is_empty();
        // A socket that is inherited may be one for TLS.
        if !listens && (!inherits || !cfg!(feature = "tls")) {
            return Ok(None);
        }
        if !cfg!(feature = "tls") {
            return Err(ConfigError::Tls(
                "this jostled was built without TLS; `cargo build --release -p jostle-lockd --features tls` \
                 makes one that has it, and packages have it",
            ));
        }
        let files = (
            or_credential(&self.tls_cert, "jostled.cert", env)?,
            or_credential(&self.tls_key, "jostled.key", env)?,
        );
        let (Some(cert), Some(key)) = files else {
            let missing = ConfigError::Tls("--tls-listen needs --tls-cert and --tls-key");
            return if listens { Err(missing) } else { Ok(None) };
        };
        let listen = self.tls_listen.iter();
        let listen = listen.map(|text| address::guarded(text, password, ConfigError::Public));
        Ok(Some(TlsConfig {
            listen: listen.collect::<Result<_, _>>()?,
            cert,
            key,
            ca: or_credential(&self.tls_ca, "jostled.ca", env)?,
        }))
    }

    fn data(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Option<PathBuf>, ConfigError> {
        if let Some(path) = &self.data {
            return Ok((path != "none").then(|| path.into()));
        }
        // The XDG rules: an empty or relative value counts as unset.
        let home = |name: &str| env(name).filter(|home| Path::new(home).is_absolute());
        // systemd may give several, separated by colons.
        env("STATE_DIRECTORY")
            .and_then(|list| list.split(':').next().map(PathBuf::from))
            .or_else(|| home("XDG_STATE_HOME").map(|home| Path::new(&home).join("jostled")))
            .or_else(|| home("HOME").map(|home| Path::new(&home).join(".local/state/jostled")))
            .map(Some)
            .ok_or(ConfigError::NoDataDirectory)
    }
}

impl Config {
    /// A server on a free port of the loopback address that stores nothing: for
    /// programs that embed one, and for tests.
    #[must_use]
    pub fn embedded() -> Self {
        let settings = Settings {
            listen: vec!["127.0.0.1:0".into()],
            data: Some("none".into()),
            ..Settings::default()
        };
        match settings.resolve(|_| None) {
            Ok(config) => config,
            Err(error) => unreachable!("constant settings: {error}"),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: String| Err(ConfigError::Value(text));
        let (name_bytes, connections) = (self.table.name_bytes, self.max_connections);
        if !(1..=65535).contains(&name_bytes) {
            return wrong(format!("--max-name {name_bytes} is not within 1 to 65535"));
        }
        if name_bytes + 256 > self.max_request {
            return wrong("--max-request must exceed --max-name by 256 bytes".into());
        }
        if self.max_request > 1 << 30 {
            return wrong("--max-request is above 1G".into());
        }
        // Beyond it the kernel refuses to set it, and nobody could connect.
        if !(1..=32767).contains(&self.tcp_keepalive.as_secs()) {
            return wrong("--tcp-keepalive is not within 1 to 32767 seconds".into());
        }
        if !(1..1 << 20).contains(&connections) {
            return wrong("--max-connections is not within 1 to 1048575".into());
        }
        if self.max_ttl_ms == 0 {
            return wrong("--max-ttl is at least 1 second".into());
        }
        if self.store == StoreKind::File && self.data.is_none() {
            return wrong("--store file needs a data directory: --data none has none".into());
        }
        #[cfg(feature = "ha")]
        self.check_ha()?;
        if self.reserve_connections >= connections {
            return wrong("--reserve-connections leaves none for others".into());
        }
        if connections + self.table.sessions as usize >= 1 << 20 {
            return wrong("--max-connections and --max-sessions together exceed 1048575".into());
        }
        Ok(())
    }
}

/// Finds a credential that systemd has provided for the service (LoadCredential=). The
/// service can read it, although it may read none of the administrator's own files.
fn credential(
    name: &str,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, ConfigError> {
    let Some(directory) = env("CREDENTIALS_DIRECTORY") else {
        return Ok(None);
    };
    let path = Path::new(&directory).join(name);
    match path.try_exists() {
        Ok(there) => Ok(there.then_some(path)),
        // A password that cannot be looked up must not count as one that was never set.
        Err(error) => Err(FileError::Read { path, error }.into()),
    }
}

/// The file that was named, else the credential.
fn or_credential(
    named: &Option<PathBuf>,
    name: &str,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, ConfigError> {
    match named {
        Some(path) => Ok(Some(path.clone())),
        None => credential(name, env),
    }
}

/// Reads a users file.
///
/// # Errors
/// [`ConfigError::File`], [`ConfigError::Users`].
pub(crate) fn users_of(path: &Path, password: Option<&str>) -> Result<Users, ConfigError> {
    let text = file::read(path)?;
    Users::from_text(&text, password).map_err(|why| ConfigError::Users {
        path: path.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(toml: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let settings: Settings = toml::from_str(toml).unwrap();
        settings.resolve(|name| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
                .or_else(|| (name == "HOME").then(|| "/h".to_owned()))
        })
    }

    #[test]
    fn a_public_address_needs_a_password() {
        let public = "listen = ['0.0.0.0:1']";
        assert!(matches!(resolved(public, &[]), Err(ConfigError::Public(_))));
        for (more, env) in [
            ("password = 'x'", &[][..]),
            ("", &[("JOSTLED_PASSWORD", "x")]),
        ] {
            assert!(resolved(&format!("{public}\n{more}"), env).is_ok());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for toml in [
            "listen = ['none']",
            "listen = ['nonsense']",
            "unix = '/x'\nunix-mode = '8'",
            "unix = '/x'\nunix-mode = '7777'",
            "max-name = 0",
            "max-name = 65536",
            "max-name = 1000\nmax-request = 1000",
            "max-connections = 0",
            // 32,768 was taken, and dropped every client without a word.
            "tcp-keepalive = 32768",
            "tcp-keepalive = 0",
            "password = ''",
            "tls-listen = ['127.0.0.1:0']",
        ] {
            assert!(resolved(toml, &[]).is_err(), "{toml}");
        }
        assert!(toml::from_str::<Settings>("max-conections = 1").is_err());
    }

    #[cfg(feature = "ha")]
    #[test]
    fn a_group_needs_an_etcd_and_what_it_can_store() {
        let group = "ha-name = 'g'\nha-etcd = ['http://a:1', 'b:2']\n";
        let ha = resolved(group, &[]).unwrap().ha.unwrap();
        assert!(ha.compact && ha.etcd.endpoints[1].to_string() == "b:2");
        for (more, what) in [
            ("store = 'file'", "--store exclude each other"),
            ("data = 'none'", "needs a data directory"),
            ("max-request = '1M'", "at most 256K"),
            ("tcp-keepalive = 6", "--tcp-keepalive is at least 7"),
            ("ha-user = 'u'", "needs --ha-password-file"),
            ("ha-cert = '/c'", "go together"),
            ("ha-member = 'a/b'", "letters, digits"),
        ] {
            let error = resolved(&format!("{group}{more}"), &[]).unwrap_err();
            assert!(error.to_string().contains(what), "{more}: {error}");
        }
        for (toml, what) in [
            ("ha-name = 'g'", "needs --ha-etcd"),
            ("ha-etcd = ['a:1']", "needs --ha-name"),
            ("ha-name = 'g'\nha-etcd = ['a']", "write http://HOST:PORT"),
            ("ha-name = 'g'\nha-etcd = ['https://a:1']", "needs --ha-ca"),
        ] {
            let error = resolved(toml, &[]).unwrap_err();
            assert!(error.to_string().contains(what), "{toml}: {error}");
        }
        let error = resolved(group, &[("LISTEN_FDS", "1")]).unwrap_err();
        assert!(error.to_string().contains("takes no sockets"), "{error}");
    }

    #[test]
    fn the_data_directory_follows_the_environment() {
        for (toml, env, expected) in [
            (
                "",
                &[("STATE_DIRECTORY", "/s:/t"), ("HOME", "/h")][..],
                "/s",
            ),
            (
                "",
                &[("XDG_STATE_HOME", "/x"), ("HOME", "/h")],
                "/x/jostled",
            ),
            ("", &[("HOME", "/h")], "/h/.local/state/jostled"),
            ("data = '/d'", &[("STATE_DIRECTORY", "/s")], "/d"),
        ] {
            let config = resolved(toml, env).unwrap();
            assert_eq!(config.data, Some(expected.into()));
        }
        assert_eq!(resolved("data = 'none'", &[]).unwrap().data, None);
        // Without any of them it wrote to ./jostled-data, wherever it was started.
        for value in [None, Some(""), Some("relative")] {
            let settings = Settings::default();
            let error = settings.resolve(|name| {
                let is_home = ["HOME", "XDG_STATE_HOME"].contains(&name);
                value.filter(|_| is_home).map(str::to_owned)
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains("give --data DIR"), "{error}");
        }
    }

    #[test]
    fn credentials_of_systemd_are_found_unless_something_else_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let env = [("CREDENTIALS_DIRECTORY", directory.path().to_str().unwrap())];
        let tls = "tls-listen = ['127.0.0.1:0']";
        assert_eq!(resolved("", &env).unwrap().password, None);
        assert!(resolved(tls, &env).is_err());
        for name in ["jostled.password", "jostled.cert", "jostled.key"] {
            std::fs::write(path(name), "secret\n").unwrap();
        }
        let password = |toml: &str, env: &[(&str, &str)]| resolved(toml, env).unwrap().password;
        assert_eq!(password("", &env).unwrap(), "secret");
        assert_eq!(password("password = 'other'", &env).unwrap(), "other");
        let both = [env[0], ("JOSTLED_PASSWORD", "third")];
        assert_eq!(password("", &both).unwrap(), "third");
        match cfg!(feature = "tls") {
            true => {
                let files = resolved(tls, &env).unwrap().tls.unwrap();
                let expected = (path("jostled.cert"), path("jostled.key"));
                assert_eq!((files.cert, files.key), expected);
            }
            false => assert!(resolved(tls, &env).is_err()),
        }
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file: Settings = toml::from_str(
            "listen = ['127.0.0.1:1']\nmax-memory = '2G'\nmax-output = 5\nmax-name = 7",
        )
        .unwrap();
        let flags = Settings {
            listen: vec!["127.0.0.1:2".into()],
            max_output: Some(Size(6)),
            ..Settings::default()
        };
        let config = flags
            .over(file)
            .resolve(|name| (name == "HOME").then(|| "/h".into()))
            .unwrap();
        assert_eq!(config.listen, ["127.0.0.1:2".parse().unwrap()]);
        assert_eq!(config.max_output, 6);
        assert_eq!(config.table.memory_bytes, 2 << 30);
        assert_eq!(config.table.name_bytes, 7);
    }

    #[test]
    fn the_file_in_dist_shows_the_defaults() {
        let file = resolved(include_str!("../../dist/jostled.toml"), &[]).unwrap();
        let default = resolved("", &[]).unwrap();
        assert_eq!(format!("{file:?}"), format!("{default:?}"));
    }
}
