//! Why a server cannot start.

use std::io;

use crate::tokens::StoreError;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address or socket path cannot be listened on.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// The address or path.
        place: String,
        /// The system's error.
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first range of tokens cannot be made durable.
    #[error("cannot reserve fencing tokens: {0}")]
    Tokens(String),
    /// What is to be adopted contradicts itself.
    #[error("what was stored makes no sense: {0}")]
    Unsound(String),
    /// The group of `--ha-name` cannot be joined or served.
    #[error("{0}")]
    Group(String),
    /// Everybody could take and break locks.
    #[error(transparent)]
    Public(crate::config::ConfigError),
    /// The certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The limit of open files leaves none for clients.
    #[error(
        "the limit of open files leaves room for no client: it must exceed {0} \
         (ulimit -n, or LimitNOFILE= of systemd)"
    )]
    Files(usize),
    /// A call that should not fail.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}
