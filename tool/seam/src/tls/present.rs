//! TLS by rustls.

mod http;
mod stream;

pub use http::HttpTls;
pub use stream::TlsStream;

use crate::SetupError;
use crate::login::unescaped;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, crypto};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ureq::unversioned::transport::RustlsConnector;

/// The TLS options of an address.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates that are trusted; None: the system's, or those of $SSL_CERT_FILE.
    authorities: Option<PathBuf>,
    /// Our own certificate and its key, for a server that wants one.
    identity: Option<[PathBuf; 2]>,
    /// Made of these files by the first handshake; clones share it.
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// Two are equal that name the same files.
impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        (&self.authorities, &self.identity) == (&other.authorities, &other.identity)
    }
}

impl Eq for Tls {}

impl Tls {
    /// Reads what follows the question mark of an address: `tls`, `ca=FILE`, `cert=FILE`
    /// and `key=FILE`, or the names that psql and mariadb have for them. None where the
    /// connection is to be plain.
    ///
    /// # Errors
    /// For the user.
    pub fn asked(query: &str) -> Result<Option<Tls>, String> {
        let (mut is_wanted, mut files) = (None, [const { None::<PathBuf> }; 3]);
        for word in query.split('&').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let file = match (name, value) {
                ("tls", "") | ("sslmode", "verify-full") | ("ssl-mode", "VERIFY_IDENTITY") => {
                    is_wanted = Some(true);
                    continue;
                }
                ("sslmode", "disable") | ("ssl-mode", "DISABLED") => {
                    is_wanted = Some(false);
                    continue;
                }
                ("ca" | "sslrootcert" | "ssl-ca", file) if !file.is_empty() => 0,
                ("cert" | "sslcert" | "ssl-cert", file) if !file.is_empty() => 1,
                ("key" | "sslkey" | "ssl-key", file) if !file.is_empty() => 2,
                _ => return Err(unknown(name, word)),
            };
            let path = unescaped(value).ok_or("a % stands before two hexadecimal digits")?;
            files[file] = Some(path.into());
        }
        let is_named = files.iter().any(Option::is_some);
        let [authorities, certificate, key] = files;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some([certificate, key]),
            (None, None) => None,
            _ => return Err("cert=FILE and key=FILE go together".to_owned()),
        };
        Ok(is_wanted.unwrap_or(is_named).then(|| Tls {
            authorities,
            identity,
            config: Arc::default(),
        }))
    }

    /// Those of a server whose address has the service's own TLS scheme.
    ///
    /// # Errors
    /// None.
    pub fn implied(asked: Option<Tls>) -> Result<Tls, String> {
        Ok(asked.unwrap_or_default())
    }

    /// The certificates to check servers by.
    ///
    /// # Errors
    /// In words for the user: the file.
    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, SetupError> {
        match &self.authorities {
            Some(file) => certificates(file),
            None => system_certificates(),
        }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, SetupError> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let said = |error: rustls::Error| SetupError(format!("TLS: {error}"));
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(self.trusted()?).0 == 0 {
            return Err(SetupError(
                "none of the trusted certificates can be used; are they X.509, version 3?"
                    .to_owned(),
            ));
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(said)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some([chain, key]) => {
                let own = PrivateKeyDer::from_pem_file(key);
                let own = own.map_err(|error| unreadable(key, &error))?;
                config
                    .with_client_auth_cert(certificates(chain)?, own)
                    .map_err(said)?
            }
            None => config.with_no_client_auth(),
        };
        // A new client cannot resume a session, so that a resumed handshake would be too cheap.
        config.resumption = Resumption::disabled();
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }

    /// Encrypts a connection to `place`, `HOST:PORT`.
    ///
    /// # Errors
    /// In words for the user.
    pub fn secure(&self, socket: TcpStream, place: &str) -> Result<TlsStream, SetupError> {
        let shaken = self.trust(host(place))?.shake(socket, PATIENCE);
        shaken.map_err(|error| failed(place, &error))
    }

    /// The proof that a server of this name has to give.
    ///
    /// # Errors
    /// In words for the user.
    pub fn trust(&self, host: &str) -> Result<Trust, SetupError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| SetupError(format!("no TLS with {host}: {error}")))?;
        let config = self.config()?;
        Ok(Trust { config, name })
    }
}

/// Whose certificates are trusted, and the name that a server must prove.
#[derive(Clone, Debug)]
pub struct Trust {
    /// With the certificates.
    pub config: Arc<ClientConfig>,
    /// The name.
    pub name: ServerName<'static>,
}

impl Trust {
    /// Shakes hands on a blocking socket.
    ///
    /// # Errors
    /// TimedOut if it takes longer than `patience`; what TLS says against the server; the
    /// system's.
    pub fn shake(&self, socket: TcpStream, patience: Duration) -> io::Result<TlsStream> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        TlsStream::shake(patience, socket, connection.map_err(io::Error::other)?)
    }
}

/// The name in `HOST:PORT`.
pub fn host(place: &str) -> &str {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Why a handshake failed that had to end within [`PATIENCE`].
pub fn failed(place: &str, error: &io::Error) -> SetupError {
    const QUESTION: &str = "; does the server speak TLS on this port?";
    let what = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no handshake within {PATIENCE:?}{QUESTION}")
        }
        _ => cause(error).unwrap_or_else(|| format!("{error}{QUESTION}")),
    };
    SetupError(format!("no TLS with {place}: {what}"))
}

/// Time limit for the handshake. A server that takes longer is assumed not to use TLS.
pub const PATIENCE: Duration = Duration::from_secs(5);

fn unknown(name: &str, word: &str) -> String {
    match name {
        "sslmode" | "ssl-mode" => format!(
            "`{word}`: jostle checks the certificate and the name in it; write \
             sslmode=verify-full, or sslmode=disable for no TLS"
        ),
        _ => format!(
            "unknown parameter `{word}` in an address; there are: tls, ca=FILE, cert=FILE, key=FILE"
        ),
    }
}

/// Those of a file of PEM, at least one.
///
/// # Errors
/// In words for the user.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| unreadable(file, &error))?;
    match read.is_empty() {
        true => Err(SetupError(format!(
            "{}: no certificate in it; it has to be a file of PEM",
            file.display()
        ))),
        false => Ok(read),
    }
}

fn unreadable(file: &Path, error: &rustls::pki_types::pem::Error) -> SetupError {
    use rustls::pki_types::pem::Error;
    let why = match error {
        Error::Io(error) => error.to_string(),
        error => format!("{error}; it has to be a file of PEM"),
    };
    SetupError(format!("cannot read {}: {why}", file.display()))
}

/// The certificates that this system trusts, or those of $SSL_CERT_FILE.
///
/// # Errors
/// In words for the user: there are none.
fn system_certificates() -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    let why = found.errors.first();
    Err(SetupError(format!(
        "no trusted certificates were found{}; name a file of them in SSL_CERT_FILE",
        why.map_or(String::new(), |error| format!(" ({error})"))
    )))
}

/// The TLS of the HTTP client's connections where a URL asks for it.
pub fn connector() -> RustlsConnector {
    RustlsConnector::default()
}

/// TLS's objection to the server, if that is the cause of a failed request.
pub fn refusal(error: &ureq::Error) -> Option<String> {
    match error {
        ureq::Error::Rustls(error) => Some(told(error)),
        ureq::Error::Io(error) => cause(error),
        _ => None,
    }
}

/// TLS's objection, if that is the cause of a failed call.
pub fn cause(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?;
    inner.downcast_ref().map(told)
}

/// The problem, and its remedy.
fn told(error: &rustls::Error) -> String {
    use rustls::Error;
    match error {
        // The second error occurs if the certificate's issuer has the name of a trusted
        // authority, but another key.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate is not signed by a trusted authority; name the authority's file: \
             ?ca=FILE in the address, or $SSL_CERT_FILE"
            .to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("{error}; name the server as its certificate does"),
        Error::InvalidMessage(_) => {
            "what it answers is not TLS; does the server speak TLS on this port?".to_owned()
        }
        Error::AlertReceived(_) => format!("the server refuses: {error}"),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_address_says_of_tls_is_read() {
        let named = |query: &str| {
            let tls = Tls::asked(query).unwrap()?;
            let path = |path: PathBuf| path.display().to_string();
            let identity = tls.identity.into_iter().flatten();
            let files = tls.authorities.into_iter().chain(identity).map(path);
            Some(files.collect::<Vec<_>>().join(" "))
        };
        for (query, expected) in [
            ("", None),
            ("sslmode=disable", None),
            ("tls", Some("")),
            ("sslmode=verify-full", Some("")),
            ("ssl-mode=VERIFY_IDENTITY&ssl-ca=/c", Some("/c")),
            ("ca=/a%20b", Some("/a b")),
            ("tls&ca=c&cert=d&key=e", Some("c d e")),
            ("sslrootcert=c&sslcert=d&sslkey=e", Some("c d e")),
            ("sslmode=disable&ca=c", None),
        ] {
            assert_eq!(named(query).as_deref(), expected, "{query}");
        }
        for (query, part) in [
            ("tsl", "tls, ca=FILE"),
            ("ca=", "tls, ca=FILE"),
            ("tls=no", "tls, ca=FILE"),
            ("sslmode=require", "write sslmode=verify-full"),
            ("cert=d", "go together"),
            ("ca=%zz", "hexadecimal"),
        ] {
            let said = Tls::asked(query).unwrap_err();
            assert!(said.contains(part), "{query}: {said}");
        }
    }

    #[test]
    fn a_file_of_no_use_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ca.pem");
        let said = |tls: &Tls| tls.config().unwrap_err().0;
        let tls = Tls::asked(&format!("ca={}", file.display()))
            .unwrap()
            .unwrap();
        let missing = said(&tls);
        assert!(missing.contains("ca.pem: No such file"), "{missing}");
        std::fs::write(&file, "certificate").unwrap();
        let empty = said(&tls);
        assert!(empty.contains("no certificate in it"), "{empty}");
    }
}
