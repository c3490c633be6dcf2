//! Addresses in settings: HOST:PORT.

use std::net::{SocketAddr, ToSocketAddrs};

/// Not an address.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not an address HOST:PORT: {why}")]
pub struct AddressError {
    text: String,
    why: String,
}

/// The first address that a text stands for.
///
/// # Errors
/// [`AddressError`].
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = |why: String| AddressError {
        text: text.to_owned(),
        why,
    };
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no such host".into()))
}

/// Whether other machines cannot reach an address.
#[must_use]
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_out_of_reach() {
        for (text, out_of_reach) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("[::ffff:192.0.2.1]:1", false),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(is_loopback(&address), out_of_reach, "{text}");
        }
    }

    #[test]
    fn an_error_names_the_text() {
        for text in ["nonsense", "127.0.0.1", "127.0.0.1:99999"] {
            let error = parse(text).unwrap_err().to_string();
            let start = format!("`{text}` is not an address HOST:PORT: ");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
