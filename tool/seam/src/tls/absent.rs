//! No TLS: whatever asks for it is refused. Nothing here has a value, so that the compiler
//! removes what the rest of the crate would do with one.

use crate::{HOW_TO_GET, SetupError};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Transport};

/// The TLS options of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {}

impl Tls {
    /// Refuses what follows the question mark of an address, unless it asks for no TLS.
    ///
    /// # Errors
    /// For the user.
    pub fn asked(query: &str) -> Result<Option<Tls>, String> {
        match query {
            "" | "sslmode=disable" | "ssl-mode=DISABLED" => Ok(None),
            _ => Err(format!("`?{query}`: TLS is {HOW_TO_GET}")),
        }
    }

    pub fn implied(_: Option<Tls>) -> Result<Tls, String> {
        Err(format!("TLS is {HOW_TO_GET}"))
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn secure(&self, _: TcpStream, _: &str) -> Result<TlsStream, SetupError> {
        match *self {}
    }

    pub fn trust(&self, _: &str) -> Result<Trust, SetupError> {
        match *self {}
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub enum TlsStream {}

impl TlsStream {
    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match *self {}
    }

    pub fn has_more(&self) -> bool {
        match *self {}
    }

    pub fn end(&self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }
}

impl Read for &TlsStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match **self {}
    }
}

impl Write for &TlsStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match **self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match **self {}
    }
}

/// Whose certificates are trusted.
#[derive(Clone, Debug)]
pub enum Trust {}

impl Trust {
    pub fn shake(&self, _: TcpStream, _: Duration) -> io::Result<TlsStream> {
        match *self {}
    }
}

/// The TLS of the HTTP client.
#[derive(Clone, Copy, Debug)]
pub enum HttpTls {}

impl HttpTls {
    pub fn asked(tls: &Tls) -> Result<HttpTls, SetupError> {
        match *tls {}
    }

    pub fn over(self, _: ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope> {
        match self {}
    }
}

/// Hands the HTTP client's connections on as they are.
#[derive(Debug)]
pub struct Plain;

impl<In: Transport> Connector<In> for Plain {
    type Out = In;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, ureq::Error> {
        Ok(chained)
    }
}

pub fn connector() -> Plain {
    Plain
}

pub fn refusal(_: &ureq::Error) -> Option<String> {
    None
}

pub fn cause(_: &io::Error) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_asks_for_tls_is_refused() {
        for query in ["", "sslmode=disable"] {
            assert_eq!(Tls::asked(query), Ok(None));
        }
        for query in ["tls", "ca=/f", "sslmode=verify-full"] {
            let said = Tls::asked(query).unwrap_err();
            assert!(said.contains("--features services"), "{said}");
        }
    }
}
