//! The TLS of the HTTP client.

use super::{Tls, certificates};
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
    /// As an address asks for it.
    ///
    /// # Errors
    /// In words for the user: the file.
    pub fn asked(tls: &Tls) -> Result<HttpTls, SetupError> {
        let identity = match &tls.identity {
            Some([chain, key]) => {
                let own = fs::read(key).map_err(|error| error.to_string());
                let own = own.and_then(|pem| PrivateKey::from_pem(&pem).map_err(|e| e.to_string()));
                let own = own.map_err(|said| SetupError(format!("{}: {said}", key.display())))?;
                let chain = clients(&certificates(chain)?);
                Some(ClientCert::new_with_certs(&chain, own))
            }
            None => None,
        };
        let roots = RootCerts::Specific(Arc::new(clients(&tls.trusted()?)));
        let config = TlsConfig::builder().root_certs(roots);
        Ok(HttpTls(config.client_cert(identity).build()))
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
