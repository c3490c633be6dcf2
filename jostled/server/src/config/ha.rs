//! The settings of a group of jostleds.

use jostle_daemon::file::first_line;
use jostle_etcd::cluster::{self, Endpoint};
use sha2::{Digest, Sha256};

use super::{Compact, Config, ConfigError, Settings, StoreKind, credential};
use crate::log::{Format, Level};
use crate::server::ORPHAN_MS;
use crate::server::net::given_up_after;

/// Bytes of a request at most: the holds of a LOCKALL go into one transaction of etcd.
const REQUEST: usize = 256 << 10;

/// A group of jostleds.
#[derive(Clone, Debug)]
pub struct HaConfig {
    /// Its name.
    pub name: String,
    /// See [`Settings::ha_member`].
    pub member: Option<String>,
    /// Where its state is.
    pub etcd: cluster::Settings,
    /// See [`Settings::ha_compact`].
    pub compact: bool,
}

fn wrong<T>(text: &str) -> Result<T, ConfigError> {
    Err(ConfigError::Value(text.to_owned()))
}

/// Whether a part of a key has no characters that would make the keys hard to read.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

/// The machine's name.
pub(crate) fn machine() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

impl Settings {
    pub(super) fn ha(
        &self,
        inherits: bool,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<HaConfig>, ConfigError> {
        let Some(name) = self.ha_name.clone() else {
            return match self.ha_etcd.is_empty() {
                true => Ok(None),
                false => wrong("--ha-etcd needs --ha-name"),
            };
        };
        if !is_plain(&name) || !self.ha_member.as_deref().is_none_or(is_plain) {
            return wrong(
                "--ha-name and --ha-member have letters, digits, dots, dashes, `_` and `:`",
            );
        }
        if self.ha_etcd.is_empty() {
            return wrong("--ha-name needs --ha-etcd, the addresses of etcd's members");
        }
        if inherits {
            return wrong(
                "--ha-name takes no sockets that listen already, of systemd or of a program before \
                 it: they would accept clients while this jostled only waits",
            );
        }
        let endpoints = self.ha_etcd.iter().map(|text| Endpoint::parse(text));
        let endpoints: Result<Vec<Endpoint>, String> = endpoints.collect();
        let password = match &self.ha_password_file {
            Some(path) => Some(path.clone()),
            None => credential("jostled.etcd-password", env)?,
        };
        let password = password.map(|path| first_line(&path)).transpose()?;
        let login = match (self.ha_user.clone(), password) {
            (Some(user), Some(password)) => Some((user, password)),
            (Some(_), None) => return wrong("--ha-user needs --ha-password-file"),
            (None, _) => None,
        };
        let identity = match (self.ha_cert.clone(), self.ha_key.clone()) {
            (Some(cert), Some(key)) => Some([cert, key]),
            (None, None) => None,
            _ => return wrong("--ha-cert and --ha-key go together"),
        };
        let etcd = cluster::Settings {
            endpoints: endpoints
                .map_err(|error| ConfigError::Value(format!("--ha-etcd {error}")))?,
            login,
            ca: self.ha_ca.clone(),
            identity,
        };
        if etcd.ca.is_none() && etcd.endpoints.iter().any(|endpoint| endpoint.tls) {
            return wrong("--ha-etcd https://... needs --ha-ca");
        }
        Ok(Some(HaConfig {
            name,
            member: self.ha_member.clone(),
            etcd,
            compact: self.ha_compact != Some(Compact::No),
        }))
    }
}

impl Config {
    pub(super) fn check_ha(&self) -> Result<(), ConfigError> {
        if self.ha.is_none() {
            return Ok(());
        }
        if self.store != StoreKind::None {
            return wrong("--ha-name and --store exclude each other");
        }
        if self.data.is_none() {
            return wrong("--ha-name needs a data directory: --data none has none");
        }
        // Clients rely on what a connection holds for 0.85 of the orphan time after the last answer.
        if given_up_after(self.tcp_keepalive).as_millis() < u128::from(ORPHAN_MS) {
            return wrong(
                "with --ha-name, --tcp-keepalive is at least 7: a client whose network is cut \
                 relies on its connection's locks for up to 8.5 s",
            );
        }
        if self.max_request > REQUEST {
            return wrong("with --ha-name, --max-request is at most 256K");
        }
        Ok(())
    }

    /// A digest of what the members of a group should have in common, without passwords.
    #[must_use]
    pub fn digest(&self) -> String {
        let users: Vec<String> = self.users.iter().map(|user| user.to_string()).collect();
        let words = users.iter().flat_map(|user| user.split(' '));
        let words: Vec<&str> = words.filter(|word| !word.starts_with('#')).collect();
        let common = Self {
            listen: Vec::new(),
            tls: None,
            unix: None,
            data: None,
            ha: None,
            restored: false,
            password: None,
            users: crate::users::Users::single(None),
            users_file: None,
            metrics: None,
            // Their defaults depend on the machine.
            table: crate::table::Limits {
                memory_bytes: 0,
                ..self.table
            },
            max_buffers: 0,
            log_level: Level::default(),
            log_format: Format::default(),
            ..self.clone()
        };
        let sum = Sha256::digest(format!("{words:?} {common:?}"));
        sum.iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}
