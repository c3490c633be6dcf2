//! The TLS of the HTTP client.

use super::{Tls, certificates, system_certificates};
use crate::SetupError;
use rustls::pki_types::CertificateDer;
use std::fs;
use std::sync::Arc;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// Whose certificates are trusted, and our own; read once, since that takes longer than many
/// a request.
#[derive(Clone, Debug)]
pub struct HttpTls(TlsConfig);

impl HttpTls {
    /// With the certificates that this system trusts.
    ///
    /// # Errors
    /// In words for the user: there are none.
    pub fn of_the_system() -> Result<HttpTls, SetupError> {
        Ok(HttpTls::trusting(&system_certificates()?, None))
    }

    /// As an address asks for it.
    ///
    /// # Errors
    /// In words for the user: the file.
    pub fn asked(tls: &Tls) -> Result<HttpTls, SetupError> {
        let trusted = tls.trusted()?;
        let Some([chain, key]) = tls.identity_files() else {
            return Ok(HttpTls::trusting(&trusted, None));
        };
        let chain = certificates(chain)?;
        let own = fs::read(key).map_err(|error| error.to_string());
        let own = own.and_then(|pem| PrivateKey::from_pem(&pem).map_err(|e| e.to_string()));
        let own = own.map_err(|said| SetupError(format!("{}: {said}", key.display())))?;
        let identity = ClientCert::new_with_certs(&clients(&chain), own);
        Ok(HttpTls::trusting(&trusted, Some(identity)))
    }

    fn trusting(trusted: &[CertificateDer<'static>], identity: Option<ClientCert>) -> HttpTls {
        let roots = RootCerts::Specific(Arc::new(clients(trusted)));
        let config = TlsConfig::builder().root_certs(roots);
        HttpTls(config.client_cert(identity).build())
    }

    /// The client's settings with these.
    pub fn over(&self, config: ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope> {
        config.tls_config(self.0.clone())
    }
}

/// As the client has them.
fn clients(certificates: &[CertificateDer<'static>]) -> Vec<Certificate<'static>> {
    let certificates = certificates.iter();
    certificates
        .map(|der| Certificate::from_der(der).to_owned())
        .collect()
}
