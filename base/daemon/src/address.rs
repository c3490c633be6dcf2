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

/// An address that only this machine can reach, unless clients have to show who they are
/// (`guarded`); `public` is the error of another.
///
/// # Errors
/// [`AddressError`], and that.
pub fn guarded<E: From<AddressError>>(
    text: &str,
    guarded: bool,
    public: impl Fn(SocketAddr) -> E,
) -> Result<SocketAddr, E> {
    let address = parse(text)?;
    match guarded || is_loopback(&address) {
        true => Ok(address),
        false => Err(public(address)),
    }
}

/// The addresses of `--listen`: the default without any, none for the word "none".
///
/// # Errors
/// As [`guarded`].
pub fn listened<E: From<AddressError>>(
    texts: &[String],
    default: &str,
    is_guarded: bool,
    public: impl Fn(SocketAddr) -> E,
) -> Result<Vec<SocketAddr>, E> {
    let each = |text: &str| guarded(text, is_guarded, &public);
    match texts {
        [] => Ok(vec![each(default)?]),
        [none] if none == "none" => Ok(Vec::new()),
        texts => texts.iter().map(|text| each(text)).collect(),
    }
}

/// Whether other machines cannot reach an address.
#[must_use]
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl From<AddressError> for String {
        fn from(error: AddressError) -> String {
            error.to_string()
        }
    }

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
    fn other_machines_reach_guarded_daemons_only() {
        type Found = Result<Vec<SocketAddr>, String>;
        let found = |texts: &[&str], guarded| -> Found {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            listened(&texts, "127.0.0.1:9", guarded, |public| {
                format!("{public} is public")
            })
        };
        let addresses = |texts: &[&str]| -> Found {
            Ok(texts.iter().map(|text| parse(text).unwrap()).collect())
        };
        let here = ["127.8.8.8:0", "[::1]:0", "localhost:0"];
        for (texts, guarded, expected) in [
            (&[][..], false, addresses(&["127.0.0.1:9"])),
            (&["none"], false, addresses(&[])),
            (&here, false, addresses(&here)),
            (&["0.0.0.0:1"], true, addresses(&["0.0.0.0:1"])),
            (
                &["127.0.0.1:1", "192.0.2.1:1"],
                false,
                Err("192.0.2.1:1 is public".to_owned()),
            ),
            (&["[::]:1"], false, Err("[::]:1 is public".to_owned())),
        ] {
            assert_eq!(found(texts, guarded), expected, "{texts:?}");
        }
        assert!(found(&["nonsense"], false).is_err());
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
