//! The settings: flags, and a TOML file with the same names.
//!
//! [`Settings`] holds what was written, [`Config`] the values that follow from it. A
//! flag overrides the file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jostle_daemon::address::{self, AddressError};
use jostle_daemon::file::{FileError, first_line};
use jostle_daemon::{Size, complete, socket};
use serde::Deserialize;

use crate::{http, lua};

/// The address that is listened on unless another is named.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7887";
/// The Unix socket without `--unix`: where `jostle-call` looks for the engine.
pub(crate) const DEFAULT_UNIX: &str = "@procd";

/// Bytes of the longest token.
pub(crate) const TOKEN_MAX: usize = 512;

/// Flags of `procd`, and keys of its file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address to listen on, HOST:PORT; may be repeated; "none" for none.
    /// Default: 127.0.0.1:7887. An address other than loopback needs a token
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<String>,

    /// Unix socket to listen on, PATH or @NAME for an abstract one; "none" for
    /// none. Default: @procd, which every user of this machine can reach, as
    /// with 127.0.0.1
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Permissions of the Unix socket at a PATH, octal. Default: 600, its owner
    /// alone
    #[arg(long, value_name = "MODE")]
    pub unix_mode: Option<String>,

    /// Folder of the procedures: NAME.lua answers /NAME. Changes are seen at
    /// once. Default: none, the built-in ones alone
    #[arg(long, value_name = "DIR")]
    pub procedures: Option<PathBuf>,

    /// The only folder below which procedures can read. Default: none
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,

    /// File with the token that requests must carry (its first line), as
    /// "Authorization: Bearer TOKEN"; else $PROCD_TOKEN. Default: none
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Name by which clients may call the engine, beside addresses and names
    /// without a dot; may be repeated. Only where no token is set
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Threads, and so requests that run at the same time. Default: 16
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Calls of one procedure that run at the same time; more wait, so that a
    /// procedure that hangs leaves threads to others. Default: a quarter of the
    /// threads
    #[arg(long, value_name = "N")]
    pub max_running: Option<usize>,

    /// Calls of one procedure that wait for their turn; more are refused with
    /// status 503. Default: 256
    #[arg(long, value_name = "N")]
    pub max_waiting: Option<usize>,

    /// Milliseconds that a call may take before it is cut off. Default: 1000
    #[arg(long, value_name = "MS")]
    pub time_limit: Option<u64>,

    /// Memory of a running procedure, with suffix K, M or G. Default: 16M
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<Size>,

    /// What a call may print. Default: 64K
    #[arg(long, value_name = "BYTES")]
    pub max_output: Option<Size>,

    /// Connections at the same time. Default: 1024
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,

    /// Request line and headers, arguments included. Default: 8K
    #[arg(long, value_name = "BYTES")]
    pub max_head: Option<Size>,

    /// Body of a request. Default: 64K
    #[arg(long, value_name = "BYTES")]
    pub max_body: Option<Size>,

    /// Seconds in which a started request must arrive whole, and an answer be
    /// read. Default: 10
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u64>,

    /// Seconds without a request after which a connection is closed. Default: 60
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Seconds for calls to end and answers to be read when the engine ends.
    /// Default: 5
    #[arg(long, value_name = "SECONDS")]
    pub drain_timeout: Option<u64>,

    /// The token itself; only in the file, since every user can see flags
    #[arg(skip)]
    pub token: Option<String>,
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
    /// Other machines could reach the engine without a token, and run procedures.
    #[error(
        "{0} can be reached from other machines, and no token is set: anybody could run \
         procedures. Set one (--token-file, or $PROCD_TOKEN), or listen on 127.0.0.1"
    )]
    Public(SocketAddr),
    /// Nothing to listen on.
    #[error("nothing to listen on: give --listen or --unix")]
    NoListener,
    /// A value that makes no sense.
    #[error("{0}")]
    Value(String),
}

/// Where procedures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Procedures {
    /// The built-in ones alone.
    None,
    /// The files of a folder.
    Folder(PathBuf),
    /// These, by name and source, for an engine that is embedded.
    Given(Vec<(String, String)>),
}

/// Everything that a server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses.
    pub listen: Vec<SocketAddr>,
    /// The Unix socket and its permissions.
    pub unix: Option<(PathBuf, u32)>,
    /// Where procedures come from.
    pub procedures: Procedures,
    /// The folder below which procedures can read.
    pub spool: Option<PathBuf>,
    /// The token that requests must carry.
    pub token: Option<String>,
    /// See [`Settings::host`].
    pub hosts: Vec<String>,
    /// See [`Settings::threads`].
    pub threads: usize,
    /// See [`Settings::max_running`].
    pub max_running: usize,
    /// See [`Settings::max_waiting`].
    pub max_waiting: usize,
    /// Bounds of one call.
    pub call: lua::Limits,
    /// Connections.
    pub max_connections: usize,
    /// Bounds of one request.
    pub request: http::Limits,
    /// See [`Settings::request_timeout`].
    pub request_timeout: Duration,
    /// See [`Settings::idle_timeout`].
    pub idle_timeout: Duration,
    /// See [`Settings::drain_timeout`].
    pub drain_timeout: Duration,
}

impl Settings {
    /// These settings, completed by those of `file`.
    #[must_use]
    pub fn over(mut self, file: Self) -> Self {
        complete! { self by file:
            unix unix_mode procedures spool token_file threads max_running max_waiting time_limit
            memory_limit max_output max_connections max_head max_body request_timeout idle_timeout
            drain_timeout token;
            listen host
        }
        self
    }

    /// Derives the configuration from the settings and the environment, whose variables
    /// `env` returns.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn resolve(self, env: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let token = self.token(env)?;
        let (guarded, public) = (token.is_some(), ConfigError::Public);
        let listen = address::listened(&self.listen, DEFAULT_LISTEN, guarded, public)?;
        let unix = self.unix.unwrap_or_else(|| DEFAULT_UNIX.into());
        let unix = Some(unix).filter(|path| path.as_os_str() != "none");
        let with_mode = |path| socket::with_mode(path, self.unix_mode.as_deref());
        let unix = unix.map(with_mode).transpose();
        let unix = unix.map_err(ConfigError::Value)?;
        if listen.is_empty() && unix.is_none() {
            return Err(ConfigError::NoListener);
        }
        let threads = self.threads.unwrap_or(16);
        let size = |value: Option<Size>, default: usize| value.map_or(default, |size| size.0);
        let seconds = |value: Option<u64>, default| Duration::from_secs(value.unwrap_or(default));
        let config = Config {
            listen,
            unix,
            procedures: self.procedures.map_or(Procedures::None, Procedures::Folder),
            spool: self.spool,
            token,
            hosts: self.host,
            threads,
            max_running: self.max_running.unwrap_or((threads / 4).max(1)),
            max_waiting: self.max_waiting.unwrap_or(256),
            call: lua::Limits {
                time: Duration::from_millis(self.time_limit.unwrap_or(1000)),
                memory: size(self.memory_limit, 16 << 20),
                output: size(self.max_output, 64 << 10),
            },
            max_connections: self.max_connections.unwrap_or(1024),
            request: http::Limits {
                head: size(self.max_head, 8 << 10),
                body: size(self.max_body, 64 << 10),
            },
            request_timeout: seconds(self.request_timeout, 10),
            idle_timeout: seconds(self.idle_timeout, 60),
            drain_timeout: seconds(self.drain_timeout, 5),
        };
        config.check()?;
        Ok(config)
    }

    fn token(&self, env: impl Fn(&str) -> Option<String>) -> Result<Option<String>, ConfigError> {
        let token = match &self.token_file {
            Some(path) => Some(first_line(path)?),
            None => env("PROCD_TOKEN").or_else(|| self.token.clone()),
        };
        let sound = |token: &String| {
            (1..=TOKEN_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic())
        };
        match token {
            Some(token) if !sound(&token) => Err(ConfigError::Value(format!(
                "the token must have 1 to {TOKEN_MAX} printable ASCII characters, no spaces"
            ))),
            token => Ok(token),
        }
    }
}

impl Config {
    /// An engine on a free port of the loopback address, with the procedures of
    /// the examples, reading below `spool`: for one that another program embeds.
    #[must_use]
    pub fn embedded(spool: Option<PathBuf>) -> Self {
        let settings = Settings {
            listen: vec!["127.0.0.1:0".into()],
            unix: Some("none".into()),
            spool,
            ..Settings::default()
        };
        let mut config = match settings.resolve(|_| None) {
            Ok(config) => config,
            Err(error) => unreachable!("constant settings: {error}"),
        };
        let given = |(name, source): &(&str, &str)| ((*name).to_owned(), (*source).to_owned());
        config.procedures = Procedures::Given(crate::EXAMPLES.iter().map(given).collect());
        config
    }

    fn check(&self) -> Result<(), ConfigError> {
        let within = |name: &str, value: usize, least: usize, most: usize| {
            let fits = (least..=most).contains(&value);
            let text = || format!("{name} {value} is not within {least} to {most}");
            fits.then_some(()).ok_or_else(|| ConfigError::Value(text()))
        };
        within("--threads", self.threads, 2, 1024)?;
        // The last thread must be left to the other procedures.
        within("--max-running", self.max_running, 1, self.threads - 1)?;
        within("--max-waiting", self.max_waiting, 0, 1 << 20)?;
        within("--max-connections", self.max_connections, 1, 1 << 20)?;
        within("--max-head", self.request.head, 256, 1 << 20)?;
        within("--max-body", self.request.body, 0, 1 << 30)?;
        within("--max-output", self.call.output, 0, 1 << 30)?;
        // The interpreter's library does not fit into less.
        within("--memory-limit", self.call.memory, 256 << 10, 1 << 34)?;
        let ms = self.call.time.as_millis() as usize;
        within("--time-limit", ms, 1, 3_600_000)?;
        for (name, time) in [
            ("--request-timeout", self.request_timeout),
            ("--idle-timeout", self.idle_timeout),
        ] {
            within(name, time.as_secs() as usize, 1, 1 << 30)?;
        }
        Ok(())
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
        })
    }

    #[test]
    fn a_public_address_needs_a_token() {
        let public = "listen = ['0.0.0.0:1']";
        assert!(matches!(resolved(public, &[]), Err(ConfigError::Public(_))));
        for (more, env) in [("token = 'x'", &[][..]), ("", &[("PROCD_TOKEN", "x")])] {
            assert!(resolved(&format!("{public}\n{more}"), env).is_ok());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for toml in [
            "listen = ['none']\nunix = 'none'",
            "listen = ['nonsense']",
            "unix = '/x'\nunix-mode = '8'",
            "unix = '/x'\nunix-mode = '7777'",
            "threads = 1",
            "threads = 4\nmax-running = 4",
            "max-running = 0",
            "max-connections = 0",
            "max-head = 10",
            "time-limit = 0",
            "memory-limit = '100K'",
            "request-timeout = 0",
            "idle-timeout = 0",
            "token = ''",
            "token = 'two words'",
            "token-file = '/nowhere/token'",
        ] {
            assert!(resolved(toml, &[]).is_err(), "{toml}");
        }
        assert!(toml::from_str::<Settings>("thread = 1").is_err());
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file: Settings =
            toml::from_str("listen = ['127.0.0.1:1']\nthreads = 8\nmemory-limit = '2M'").unwrap();
        let flags = Settings {
            listen: vec!["127.0.0.1:2".into()],
            threads: Some(20),
            ..Settings::default()
        };
        let config = flags.over(file).resolve(|_| None).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:2".parse().unwrap()]);
        assert_eq!((config.threads, config.max_running), (20, 5));
        assert_eq!(config.call.memory, 2 << 20);
    }

    #[test]
    fn the_file_in_dist_shows_the_defaults() {
        let file = resolved(include_str!("../../dist/procd.toml"), &[]).unwrap();
        let default = resolved("", &[]).unwrap();
        assert_eq!(format!("{file:?}"), format!("{default:?}"));
    }
}
