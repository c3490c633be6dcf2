//! Certificates for servers of tests: each signed by its own key, so that whoever names the
//! file trusts that server and no other.

use crate::shell;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its key, as files of PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The authority that clients name.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes one in this directory, for a server of these names: `IP:127.0.0.1`,
    /// `DNS:localhost`.
    ///
    /// # Errors
    /// What openssl said, or that it is missing.
    pub fn make(directory: &Path, names: &str) -> anyhow::Result<Certificate> {
        let made = Certificate {
            certificate: directory.join("certificate.pem"),
            key: directory.join("key.pem"),
        };
        let mut openssl = Command::new("openssl");
        openssl
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes".split(' '))
            .args(["-days", "2", "-subj", "/CN=a test of jostle", "-addext"])
            .arg(format!("subjectAltName={names}"))
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&made.key)
            .arg("-out")
            .arg(&made.certificate);
        shell::quiet(&mut openssl).context("is the Debian package openssl installed?")?;
        Ok(made)
    }
}
