//! Why a call failed, and how to recognise a server that is not an etcd with this API.

use http::{HeaderMap, StatusCode};

/// How gRPC numbers a call that the server does not know.
const UNIMPLEMENTED: &str = "12";
/// And one that it cannot serve now: it has no leader, or is being stopped.
const UNAVAILABLE: &str = "14";

/// The type of HTTP/2's first frame, SETTINGS, and its place in the frame.
const SETTINGS: (usize, u8) = (3, 4);

/// The beginning of a TLS record that holds an alert.
const ALERT: [u8; 2] = [21, 3];

/// Why a call came to nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The caller ended it.
    #[error("interrupted")]
    Interrupted,
    /// Its time was over.
    #[error("no answer in time")]
    Late,
    /// The connection is gone.
    #[error("{0}")]
    Ended(String),
    /// The server cannot serve now; another one of its cluster may.
    #[error("{0}")]
    Unavailable(String),
    /// The answering server is no etcd with the API that we speak.
    #[error(
        "it does not speak version 3 of etcd's API: {0}; is this the client port of an etcd, of \
         version 3.1 or later?"
    )]
    Foreign(String),
    /// The server refuses the call, with this status of gRPC.
    #[error("{1} (gRPC status {0})")]
    Refused(u32, String),
    /// Its answer is longer than is believed.
    #[error("its answer has {0} bytes")]
    Long(usize),
    /// The connection's own message.
    #[error("{0}")]
    Said(String),
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Failure {
        match error.is_io() || error.is_go_away() {
            true => Failure::Ended(error.to_string()),
            false => Failure::Said(error.to_string()),
        }
    }
}

impl Failure {
    /// This failure, if the first bytes that the server sent are HTTP/2's; else what they tell.
    #[must_use]
    pub(crate) fn explained(self, first: &[u8]) -> Failure {
        let is_foreign = first.get(SETTINGS.0);
        let is_foreign = is_foreign.is_some_and(|kind| *kind != SETTINGS.1);
        match self {
            Failure::Ended(_) | Failure::Said(_) if first.starts_with(&ALERT) => {
                Failure::Ended("it answers with an alert of TLS".to_owned())
            }
            Failure::Ended(_) | Failure::Said(_) if first.starts_with(b"HTTP/") => {
                Failure::Foreign("it answers in HTTP/1".to_owned())
            }
            Failure::Ended(_) | Failure::Said(_) if is_foreign => {
                Failure::Foreign("its answer is not HTTP/2".to_owned())
            }
            other => other,
        }
    }
}

/// Whether an answer is one of gRPC.
///
/// # Errors
/// What answers instead.
pub(crate) fn is_grpc(status: StatusCode, headers: &HeaderMap) -> Result<(), Failure> {
    // The answer of a proxy whose etcd is down.
    if status.is_server_error() {
        return Err(Failure::Said(format!("HTTP status {status}")));
    }
    if status != StatusCode::OK {
        return Err(Failure::Foreign(format!("it answers HTTP status {status}")));
    }
    match text(headers, "content-type") {
        Some(kind) if kind.starts_with("application/grpc") => Ok(()),
        kind => Err(Failure::Foreign(format!(
            "its answer is of the type {}, not application/grpc",
            kind.unwrap_or("none")
        ))),
    }
}

/// gRPC's status, where it stands.
///
/// # Errors
/// The server's message.
pub(crate) fn status(headers: &HeaderMap) -> Result<(), Failure> {
    match text(headers, "grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => {
            let message = text(headers, "grpc-message").unwrap_or("an error without a message");
            let said = format!("{message} (gRPC status {code})");
            Err(match (code, code.parse()) {
                (UNIMPLEMENTED, _) => Failure::Foreign(said),
                (UNAVAILABLE, _) => Failure::Unavailable(said),
                (_, Ok(code)) => Failure::Refused(code, message.to_owned()),
                _ => Failure::Said(said),
            })
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_where_it_stands() {
        let mut headers = HeaderMap::new();
        assert!(status(&headers).is_ok());
        headers.insert("grpc-status", "0".parse().unwrap());
        assert!(status(&headers).is_ok());
        headers.insert("grpc-status", "5".parse().unwrap());
        headers.insert("grpc-message", "lease not found".parse().unwrap());
        let said = status(&headers).unwrap_err();
        assert_eq!(said, Failure::Refused(5, "lease not found".to_owned()));
        assert_eq!(said.to_string(), "lease not found (gRPC status 5)");
    }

    #[test]
    fn the_first_bytes_tell_what_listens_there() {
        let ended = || Failure::Ended("gone".to_owned());
        let foreign = |text: &str| Failure::Foreign(text.to_owned());
        let alert = Failure::Ended("it answers with an alert of TLS".to_owned());
        for (first, failure, expected) in [
            // What an etcd says first, and one that has said nothing yet.
            (&b"\0\0\x06\x04\0"[..], ended(), ended()),
            (b"", ended(), ended()),
            (b"\0\0", ended(), ended()),
            (b"HTTP/", ended(), foreign("it answers in HTTP/1")),
            (b"-ERR ", ended(), foreign("its answer is not HTTP/2")),
            (b"\x15\x03\x01\0\x02", ended(), alert),
            // Whose wait was over has not been refused.
            (b"HTTP/", Failure::Late, Failure::Late),
        ] {
            assert_eq!(failure.explained(first), expected, "{first:?}");
        }
    }
}
