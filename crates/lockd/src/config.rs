//! The settings: flags, and a TOML file with the same names.
//!
//! [`Settings`] holds what was written, [`Config`] the values that follow from it. A
//! flag overrides the file.

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

/// The address that is listened on unless another is named.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:2626";

/// The longest time in a request, 2^40 ms or 34 years.
pub(crate) const TTL_MAX_MS: u64 = 1 << 40;

/// Bytes of the longest password.
pub(crate) const PASSWORD_MAX: usize = 512;

/// Flags of `jostled`, and keys of its file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address to listen on, HOST:PORT; may be repeated; "none" for none.
    /// Default: 127.0.0.1:2626. An address other than loopback needs a password
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<String>,

    /// Address to listen on with TLS, HOST:PORT; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub tls_listen: Vec<String>,

    /// Certificate chain for TLS, a PEM file. Default: the credential
    /// jostled.cert of systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Private key for TLS, a PEM file. Default: the credential jostled.key of
    /// systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Permissions of the Unix socket, octal. Default: 600, its owner alone
    #[arg(long, value_name = "MODE")]
    pub unix_mode: Option<String>,

    /// Directory of what a restart must know: the range of fencing tokens that
    /// may have been used. Default: $STATE_DIRECTORY, else
    /// $XDG_STATE_HOME/jostled, else ~/.local/state/jostled; needed where none
    /// of these variables is set. "none" writes nothing: then tokens start at 1
    /// again with each start, and do not fence against what was granted before it
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,

    /// After an end without a handover: `wait` grants nothing until every lease that may
    /// exist has ended, `grant` grants at once. Default: wait
    #[arg(long, value_name = "WHAT")]
    pub after_crash: Option<AfterCrash>,

    /// Longest lease and session, which is the longest wait of --after-crash. Default:
    /// 3600, and no limit if nothing waits (--after-crash grant, or --data none)
    #[arg(long, value_name = "SECONDS")]
    pub max_ttl: Option<u64>,

    /// Accept a data directory that was copied, such as a restored backup: tokens go on
    /// 2^40 later
    #[arg(long)]
    #[serde(skip)]
    pub restored: bool,

    /// File with the password (its first line); else $JOSTLED_PASSWORD, else the
    /// credential jostled.password of systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// File with users, their rights and quotas, in the syntax of Redis's ACL
    /// files. Default: the credential jostled.users of systemd, if there is one;
    /// else there is one user, `default`, who may do everything
    #[arg(long, value_name = "FILE")]
    pub users_file: Option<PathBuf>,

    /// Certificates of authorities, a PEM file: a TLS client that shows a
    /// certificate of theirs is the user of its common name, without AUTH
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Connections, out of --max-connections, that are reserved for administrators.
    /// Default: 8 with --users-file, otherwise 0
    #[arg(long, value_name = "N")]
    pub reserve_connections: Option<usize>,

    /// Address of the Prometheus metrics, http://HOST:PORT/metrics. They need
    /// no password and hold no names. Default: none
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,

    /// What is logged. Lines of the audit (FORCEUNLOCK, CLIENT KILL, SHUTDOWN, wrong
    /// passwords) always are. Default: info
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,

    /// Lines of text, or JSON, an object a line. Default: text
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<Format>,

    /// Connections at the same time. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,

    /// Waiters of one lock. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_waiters_per_lock: Option<u32>,

    /// Waiters of all locks together. Default: 100000
    #[arg(long, value_name = "N")]
    pub max_waiters: Option<u32>,

    /// Sessions at the same time. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<u32>,

    /// Longest wait of a LOCK, with or without WAIT; 0: no limit. Ends the waits of
    /// clients that have given up and kept their connection. Default: 0
    #[arg(long, value_name = "SECONDS")]
    pub max_wait: Option<u64>,

    /// Bytes of a lock's name, at most 65535. Default: 512
    #[arg(long, value_name = "BYTES")]
    pub max_name: Option<usize>,

    /// Memory for locks, names and waiters, with suffix K, M or G. Default: 1G
    #[arg(long, value_name = "BYTES")]
    pub max_memory: Option<Size>,

    /// One request, and what a client may send behind a LOCK that waits.
    /// Default: 64K
    #[arg(long, value_name = "BYTES")]
    pub max_request: Option<Size>,

    /// Replies that a client has not read, before it is disconnected. Default: 1M
    #[arg(long, value_name = "BYTES")]
    pub max_output: Option<Size>,

    /// Requests and replies of all clients that stand in memory; above it, those
    /// with most of them are disconnected. Default: 256M
    #[arg(long, value_name = "BYTES")]
    pub max_buffers: Option<Size>,

    /// Seconds without a request after which a client that neither owns a lock
    /// nor waits is disconnected; 0 never. Default: 0
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Seconds in which a started request must arrive whole, a new client must
    /// have authenticated, and a client must read some of its replies; 0 never.
    /// Default: 30
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u64>,

    /// Seconds of silence after which TCP probes whether a client's host is
    /// there; it is given up when 3 probes, a sixth of that time apart and at
    /// least 1 second, stay unanswered. 1 to 32767. Default: 60, so 90 in all
    #[arg(long, value_name = "SECONDS")]
    pub tcp_keepalive: Option<u32>,

    /// Microseconds for which the daemon, while clients wait for locks, asks for
    /// requests again before it sleeps, as long as that pays; 0 never. Quicker
    /// hand-offs, for up to one core. Default: 50
    #[arg(long, value_name = "MICROSECONDS")]
    pub busy_poll: Option<u32>,

    /// Busy polling also while nobody waits: quicker replies to clients that send
    /// one request at a time
    #[arg(long)]
    pub busy_poll_always: bool,

    /// Seconds in which a new program has to say whether it can take over
    /// (HANDOVER, SIGUSR2). Default: 10
    #[arg(long, value_name = "SECONDS")]
    pub handover_timeout: Option<u64>,

    /// Seconds for clients to read their last replies when the daemon ends.
    /// Default: 5
    #[arg(long, value_name = "SECONDS")]
    pub drain_timeout: Option<u64>,

    /// The password itself; only in the file, as flags are visible to everybody
    #[arg(skip)]
    pub password: Option<String>,
}

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

/// Where the range of tokens is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// In this directory.
    Directory(PathBuf),
    /// Nowhere.
    None,
}

/// What a start does while leases of the program before may still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterCrash {
    /// It grants nothing until they have ended.
    Wait,
    /// It grants locks at once.
    Grant,
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
    /// Where tokens are remembered.
    pub data: Data,
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
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::File`].
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Ok(file::settings(path)?)
    }

    /// These settings, completed by those of `file`.
    #[must_use]
    pub fn over(mut self, file: Self) -> Self {
        macro_rules! complete {
            ($($name:ident)*) => {$( self.$name = self.$name.or(file.$name); )*};
        }
        complete! {
            tls_cert tls_key unix unix_mode data after_crash max_ttl password_file users_file
            tls_ca reserve_connections metrics log_level log_format max_connections
            max_waiters_per_lock max_waiters max_sessions max_wait max_name max_memory
            max_request max_output max_buffers idle_timeout request_timeout tcp_keepalive
            busy_poll handover_timeout drain_timeout password
        }
        for (mine, other) in [
            (&mut self.listen, file.listen),
            (&mut self.tls_listen, file.tls_listen),
        ] {
            if mine.is_empty() {
                *mine = other;
            }
        }
        self.busy_poll_always |= file.busy_poll_always;
        self
    }

    /// The level of the log.
    #[must_use]
    pub fn level(&self) -> Level {
        self.log_level.unwrap_or(Level::Info)
    }

    /// The format of the log.
    #[must_use]
    pub fn format(&self) -> Format {
        self.log_format.unwrap_or(Format::Text)
    }

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
            false => self.addresses(guarded)?,
        };
        let tls = self.tls(guarded, inherits, &env)?;
        let reserve = if users_file.is_some() { 8 } else { 0 };
        let unix = self.unix()?;
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
        let waits = after_crash == AfterCrash::Wait && data != Data::None;
        let no_ttl = if waits { 3_600_000 } else { TTL_MAX_MS };
        let max_ttl_ms = self
            .max_ttl
            .map_or(no_ttl, |seconds| seconds.saturating_mul(1000));
        let config = Config {
            listen,
            tls,
            unix,
            data,
            after_crash,
            max_ttl_ms: max_ttl_ms.min(TTL_MAX_MS),
            restored: self.restored,
            password,
            users,
            users_file,
            reserve_connections: self.reserve_connections.unwrap_or(reserve),
            metrics: self.metrics.as_deref().map(address::parse).transpose()?,
            log_level: self.level(),
            log_format: self.format(),
            table: table::Limits {
                name_bytes: self.max_name.unwrap_or(512),
                waiters_per_lock: self.max_waiters_per_lock.unwrap_or(10_000),
                waiters: self.max_waiters.unwrap_or(100_000),
                memory_bytes: size(self.max_memory, part(2, 1 << 30)),
                sessions: self.max_sessions.unwrap_or(10_000),
                wait_ms: match self.max_wait.unwrap_or(0) {
                    0 => None,
                    seconds => Some(seconds.saturating_mul(1000)),
                },
            },
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

    fn addresses(&self, password: bool) -> Result<Vec<SocketAddr>, ConfigError> {
        let default = [DEFAULT_LISTEN.to_owned()];
        let texts = if self.listen.is_empty() {
            &default[..]
        } else {
            &self.listen
        };
        if texts.len() == 1 && texts[0] == "none" {
            return Ok(Vec::new());
        }
        texts.iter().map(|text| guarded(text, password)).collect()
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
            if !listens {
                return Ok(None);
            }
            return Err(ConfigError::Tls(
                "--tls-listen needs --tls-cert and --tls-key",
            ));
        };
        let listen = self.tls_listen.iter().map(|text| guarded(text, password));
        Ok(Some(TlsConfig {
            listen: listen.collect::<Result<_, _>>()?,
            cert,
            key,
            ca: or_credential(&self.tls_ca, "jostled.ca", env)?,
        }))
    }

    fn unix(&self) -> Result<Option<(PathBuf, u32)>, ConfigError> {
        let Some(path) = self.unix.clone() else {
            return Ok(None);
        };
        let text = self.unix_mode.as_deref().unwrap_or("600");
        let mode = socket::mode(text).map_err(ConfigError::Value)?;
        Ok(Some((path, mode)))
    }

    fn data(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Data, ConfigError> {
        match self.data.as_deref() {
            Some("none") => return Ok(Data::None),
            Some(path) => return Ok(Data::Directory(path.into())),
            None => {}
        }
        // The XDG rules: an empty or relative value counts as unset.
        let home = |name: &str| env(name).filter(|home| Path::new(home).is_absolute());
        // systemd may give several, separated by colons.
        env("STATE_DIRECTORY")
            .and_then(|list| list.split(':').next().map(PathBuf::from))
            .or_else(|| home("XDG_STATE_HOME").map(|home| Path::new(&home).join("jostled")))
            .or_else(|| home("HOME").map(|home| Path::new(&home).join(".local/state/jostled")))
            .map(Data::Directory)
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
        if !(1..=65535).contains(&self.table.name_bytes) {
            return wrong(format!(
                "--max-name {} is not within 1 to 65535",
                self.table.name_bytes
            ));
        }
        if self.table.name_bytes + 256 > self.max_request {
            return wrong("--max-request must exceed --max-name by 256 bytes".into());
        }
        if self.max_request > 1 << 30 {
            return wrong("--max-request is above 1G".into());
        }
        // Beyond it the kernel refuses to set it, and nobody could connect.
        if !(1..=32767).contains(&self.tcp_keepalive.as_secs()) {
            return wrong("--tcp-keepalive is not within 1 to 32767 seconds".into());
        }
        if self.max_connections == 0 || self.max_connections >= 1 << 20 {
            return wrong("--max-connections is not within 1 to 1048575".into());
        }
        if self.max_ttl_ms == 0 {
            return wrong("--max-ttl is at least 1 second".into());
        }
        if self.reserve_connections >= self.max_connections {
            return wrong("--reserve-connections leaves none for others".into());
        }
        if self.max_connections + self.table.sessions as usize >= 1 << 20 {
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

/// Parses an address that needs a password if other machines can reach it.
fn guarded(text: &str, password: bool) -> Result<SocketAddr, ConfigError> {
    let address = address::parse(text)?;
    if address::is_loopback(&address) || password {
        Ok(address)
    } else {
        Err(ConfigError::Public(address))
    }
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
        for (toml, env, allowed) in [
            ("", &[][..], true),
            (
                "listen = ['127.0.0.1:0', '[::1]:0', 'localhost:0']",
                &[],
                true,
            ),
            ("listen = ['127.8.8.8:1']", &[], true),
            ("listen = ['0.0.0.0:1']", &[], false),
            ("listen = ['[::]:1']", &[], false),
            ("listen = ['192.0.2.1:1']", &[], false),
            ("listen = ['127.0.0.1:1', '192.0.2.1:1']", &[], false),
            ("listen = ['0.0.0.0:1']\npassword = 'x'", &[], true),
            ("listen = ['0.0.0.0:1']", &[("JOSTLED_PASSWORD", "x")], true),
        ] {
            let outcome = resolved(toml, env);
            match outcome {
                Ok(_) => assert!(allowed, "{toml}"),
                Err(ConfigError::Public(_)) => assert!(!allowed, "{toml}"),
                Err(other) => panic!("{toml}: {other}"),
            }
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
            assert_eq!(config.data, Data::Directory(expected.into()));
        }
        assert_eq!(resolved("data = 'none'", &[]).unwrap().data, Data::None);
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
        let files = resolved(tls, &env).unwrap().tls.unwrap();
        let expected = (path("jostled.cert"), path("jostled.key"));
        assert_eq!((files.cert, files.key), expected);
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
        let file = resolved(include_str!("../../../dist/jostled.toml"), &[]).unwrap();
        let default = resolved("", &[]).unwrap();
        assert_eq!(format!("{file:?}"), format!("{default:?}"));
    }
}
