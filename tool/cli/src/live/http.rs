//! The part of HTTP that the page, its events and the metrics need: parsing requests and
//! making answers. No sockets here.

use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Bytes of a request's head at most; browsers send under 2 KiB.
const HEAD_BYTES: usize = 16 << 10;
/// Header lines of a request at most.
const HEADERS: usize = 64;

/// The service at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// The page and its events, to whoever knows this token.
    Page(String),
    /// Metrics.
    Metrics {
        /// Whether the port can be reached from the network, so that any Host is accepted.
        to_all: bool,
    },
}

/// A request's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The page.
    Page,
    /// Its events.
    Events,
    /// Metrics.
    Metrics,
    /// Nothing that there is: a status, and why.
    Refused(u16, &'static str),
}

/// Reads a request's head; None of one that is not whole yet. `name`: this machine's own.
pub(super) fn wanted(head: &[u8], serves: &Serves, name: &str) -> Option<Wanted> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(_) => {
            return Some(Wanted::Refused(400, "this is no request that can be read"));
        }
    }
    let host = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("host"))
        .and_then(|header| std::str::from_utf8(header.value).ok());
    let to_all = *serves == Serves::Metrics { to_all: true };
    if !to_all && !host.is_some_and(|host| is_of_this_machine(host, name)) {
        return Some(Wanted::Refused(403, "the Host is not this machine's"));
    }
    if request.method != Some("GET") {
        return Some(Wanted::Refused(405, "only GET is answered"));
    }
    let path = request.path.unwrap_or("/");
    let path = path.split(['?', '#']).next().unwrap_or("/");
    Some(match serves {
        Serves::Metrics { .. } if path == "/metrics" => Wanted::Metrics,
        Serves::Metrics { .. } => Wanted::Refused(404, "metrics are at /metrics"),
        Serves::Page(token) => of_page(path, token),
    })
}

fn of_page(path: &str, token: &str) -> Wanted {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (given, rest) = path.split_once('/').unwrap_or((path, ""));
    // Constant-time comparison.
    if !bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        return Wanted::Refused(
            403,
            "the address that jostle printed has a token; it is missing",
        );
    }
    match rest {
        "" => Wanted::Page,
        "events" => Wanted::Events,
        _ => Wanted::Refused(404, "there is the page and its events, no more"),
    }
}

/// Whether a Host is safe from DNS rebinding, where a foreign name resolves to this
/// machine: it is an address, `localhost` or the machine's own name. The port may differ,
/// as with a tunnel.
fn is_of_this_machine(host: &str, name: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    bare.parse::<IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || (!name.is_empty() && bare.eq_ignore_ascii_case(name))
}

/// A whole answer; the connection ends with it.
pub(super) fn answer(status: u16, kind: &str, extra: &str, body: &str) -> Vec<u8> {
    let mut text = head(status, kind, extra);
    text += &format!("Content-Length: {}\r\n\r\n", body.len());
    text += body;
    text.into_bytes()
}

/// The beginning of an answer that goes on until either side ends it.
pub(super) fn stream() -> Vec<u8> {
    let head = head(200, "text/event-stream", "");
    (head + "\r\n").into_bytes()
}

fn head(status: u16, kind: &str, extra: &str) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let allow = if status == 405 { "Allow: GET\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n{allow}{extra}"
    )
}

/// One event of `text/event-stream`. The data is JSON, which has no line breaks.
pub(super) fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, path: &str, host: &str, serves: &Serves) -> Option<Wanted> {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        wanted(head.as_bytes(), serves, "lab7")
    }

    #[test]
    fn the_page_comes_with_the_token_by_get_and_to_this_machine_s_names() {
        let page = Serves::Page("c0ffee".to_owned());
        for (method, path, host, status) in [
            ("GET", "/c0ffee/", "127.0.0.1:4000", None),
            ("GET", "/c0ffee", "localhost", None),
            ("GET", "/c0ffee/?x=1", "[::1]:4000", None),
            ("GET", "/c0ffee/", "LAB7:9", None),
            ("GET", "/", "127.0.0.1", Some(403)),
            ("GET", "/favicon.ico", "127.0.0.1", Some(403)),
            ("GET", "/c0ffe/", "127.0.0.1", Some(403)),
            ("GET", "/c0ffee0/", "127.0.0.1", Some(403)),
            ("GET", "/c0ffee/x", "127.0.0.1", Some(404)),
            ("GET", "/metrics", "127.0.0.1", Some(403)),
            ("POST", "/c0ffee/", "127.0.0.1", Some(405)),
            ("HEAD", "/c0ffee/", "127.0.0.1", Some(405)),
            // A site whose name was made to lead here.
            ("GET", "/c0ffee/", "evil.example", Some(403)),
            ("GET", "/c0ffee/", "127.0.0.1.evil.example", Some(403)),
            ("GET", "/c0ffee/", "localhost.evil.example:80", Some(403)),
        ] {
            let found = match ask(method, path, host, &page).unwrap() {
                Wanted::Refused(status, _) => Some(status),
                Wanted::Page => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(found, status, "{method} {path} {host}");
        }
        let events = ask("GET", "/c0ffee/events", "127.0.0.1", &page);
        assert_eq!(events, Some(Wanted::Events));
    }

    #[test]
    fn metrics_need_no_token() {
        let (here, to_all) = (
            Serves::Metrics { to_all: false },
            Serves::Metrics { to_all: true },
        );
        let found = ask("GET", "/metrics", "127.0.0.1:9464", &here);
        assert_eq!(found, Some(Wanted::Metrics));
        let found = ask("GET", "/metrics", "lab7.example.org:9464", &to_all);
        assert_eq!(found, Some(Wanted::Metrics));
        for (path, host) in [("/", "127.0.0.1"), ("/metrics", "evil.example")] {
            let found = ask("GET", path, host, &here);
            assert!(matches!(found, Some(Wanted::Refused(..))), "{path} {host}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_and_half_a_one_waits() {
        let refused = |head: &[u8]| match wanted(head, &Serves::Metrics { to_all: false }, "") {
            Some(Wanted::Refused(status, _)) => Some(status),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(b"GET /metrics HT"), None);
        assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01"), Some(400));
        assert_eq!(
            refused(b"GET /metrics HTTP/1.1\r\n\r\n"),
            Some(403),
            "no Host"
        );
        let endless = [&b"GET / HTTP/1.1\r\nA: "[..], &[b'a'; HEAD_BYTES]].concat();
        assert_eq!(refused(&endless), Some(400));
    }
}
