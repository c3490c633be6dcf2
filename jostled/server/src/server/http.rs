//! HTTP for metrics and probes of health, as little as they need: one request, one
//! answer, then the connection closes.

use std::os::fd::OwnedFd;

use crate::table::Time;

/// A connection to the metrics.
pub(crate) struct HttpConn {
    pub(crate) fd: OwnedFd,
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Vec<u8>,
    pub(crate) sent: usize,
    pub(crate) since: Time,
}

const REQUEST_MAX: usize = 8192;

impl HttpConn {
    pub(crate) fn new(fd: OwnedFd, since: Time) -> Self {
        Self {
            fd,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            since,
        }
    }

    /// Prepares the [`answer`], once the request is complete. `metrics` makes the page;
    /// `health` is an error if the daemon cannot grant locks.
    pub(crate) fn respond(
        &mut self,
        metrics: impl FnOnce() -> String,
        health: Result<(), &str>,
    ) -> bool {
        match answer(&self.request, metrics, health) {
            None => false,
            Some(answer) => {
                self.answer = answer;
                true
            }
        }
    }
}

/// The answer to a request, once it is complete.
pub(crate) fn answer(
    request: &[u8],
    metrics: impl FnOnce() -> String,
    health: Result<(), &str>,
) -> Option<Vec<u8>> {
    let whole = end_of_head(request).is_some();
    if !whole && request.len() < REQUEST_MAX {
        return None;
    }
    let mut words = request.split(|byte| b" \r".contains(byte));
    let mut word = || words.next().unwrap_or_default();
    let (method, path) = (word(), word());
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    let bodiless = method == b"HEAD";
    let method: &[u8] = if bodiless { b"GET" } else { method };
    let mut answer = match (whole, method, path) {
        (false, ..) => page("431 Request Header Fields Too Large", "too long\n"),
        (_, b"GET", b"/metrics") => page("200 OK", &metrics()),
        (_, b"GET", b"/healthz") => match health {
            Ok(()) => page("200 OK", "ok\n"),
            Err(why) => page("503 Service Unavailable", &format!("{why}\n")),
        },
        (_, b"GET", _) => page("404 Not Found", "there are /metrics and /healthz\n"),
        _ => page("405 Method Not Allowed", "only GET and HEAD\n"),
    };
    if bodiless && let Some(end) = end_of_head(&answer) {
        answer.truncate(end);
    }
    Some(answer)
}

/// Where the body begins.
fn end_of_head(message: &[u8]) -> Option<usize> {
    let at = message.windows(4).position(|four| four == b"\r\n\r\n");
    at.map(|at| at + 4)
}

fn page(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
