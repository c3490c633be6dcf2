//! The subset of HTTP/1.1 (RFC 9112) that the engine needs: parses a request from bytes, writes
//! an answer into bytes. No I/O, no state; the head is parsed by `httparse`.

use std::ops::Range;

/// Headers of a request at most.
const HEADERS: usize = 64;

/// Bounds of one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of request line and headers.
    pub head: usize,
    /// Bytes of the body.
    pub body: usize,
}

/// A request, as places in the bytes that it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `GET`, `HEAD` or `POST`.
    pub method: Method,
    /// The path, still encoded.
    pub path: Range<usize>,
    /// The part behind the `?`, if there is one.
    pub query: Option<Range<usize>>,
    /// The engine's name as the client knows it, with the port: that of the target, else the
    /// Host header.
    pub host: Option<Range<usize>>,
    /// The bearer token that was sent.
    pub token: Option<Range<usize>>,
    /// The client's statement about its caller: `directory`, `user`, `terminal`.
    pub caller: Vec<(&'static str, Range<usize>)>,
    /// The body.
    pub body: Range<usize>,
    /// The client keeps the connection.
    pub keep_alive: bool,
}

/// The methods that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
}

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A whole request, and how many bytes it took.
    Whole(Request, usize),
    /// More is needed; the client may wait for `100 Continue` before it sends it.
    Partial {
        /// The client asked for `100 Continue`.
        expects_continue: bool,
    },
}

/// A request that is refused, after which the connection ends: where the next
/// one begins cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400
    Malformed(&'static str),
    /// 405
    Method,
    /// 413
    Body,
    /// 417
    Expectation,
    /// 431
    Head,
    /// 501
    TransferCoding,
    /// 505
    Version,
}

impl Refusal {
    /// The end of the status line, and the message for the client.
    #[must_use]
    pub(crate) fn status(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Malformed(why) => ("400 Bad Request", why),
            Refusal::Method => ("405 Method Not Allowed", "only GET, HEAD and POST"),
            Refusal::Body => ("413 Content Too Large", "the body is too long"),
            Refusal::Expectation => ("417 Expectation Failed", "only 100-continue"),
            Refusal::Head => (
                "431 Request Header Fields Too Large",
                "request line and headers are too long",
            ),
            Refusal::TransferCoding => (
                "501 Not Implemented",
                "bodies need Content-Length; transfer codings are not understood",
            ),
            Refusal::Version => ("505 HTTP Version Not Supported", "only HTTP/1.0 and 1.1"),
        }
    }
}

/// The first request in `bytes`.
///
/// # Errors
/// [`Refusal`], as soon as it is certain.
pub(crate) fn parse(bytes: &[u8], limits: Limits) -> Result<Progress, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    // One byte more than is allowed proves that it is too long.
    let window = &bytes[..bytes.len().min(limits.head + 1)];
    let parsed = head.parse(window);
    let end = parsed.map_or(window.len(), |status| match status {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => window.len(),
    });
    if let Some(at) = bare_line_end(&window[..end]) {
        // Unless it was refused before that byte came.
        let before = parsed.is_err().then(|| parse(&bytes[..at], limits));
        let bare = Refusal::Malformed("a line of the request ends with LF alone");
        return Err(before.and_then(Result::err).unwrap_or(bare));
    }
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= limits.head => length,
        Ok(httparse::Status::Partial) if bytes.len() <= limits.head => {
            return Ok(Progress::Partial {
                expects_continue: false,
            });
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::Head),
        Err(httparse::Error::Version) => return Err(Refusal::Version),
        Err(_) => return Err(Refusal::Malformed("this is no HTTP request")),
    };
    let fields = Fields::read(head.headers, bytes)?;
    let version = head.version.unwrap_or(1);
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        _ => return Err(Refusal::Method),
    };
    if version == 1 && fields.hosts != 1 {
        return Err(Refusal::Malformed("HTTP/1.1 needs one Host header"));
    }
    if fields.transfer_coding {
        return Err(Refusal::TransferCoding);
    }
    let body = fields.content_length.unwrap_or(0);
    if body > limits.body as u64 {
        return Err(Refusal::Body);
    }
    let end = length + body as usize;
    if bytes.len() < end {
        return Ok(Progress::Partial {
            expects_continue: fields.expects_continue && version == 1,
        });
    }
    let (authority, path, query) = target(head.path.unwrap_or_default(), bytes)?;
    let request = Request {
        method,
        path,
        query,
        host: authority.or(fields.host),
        token: fields.token,
        caller: fields.caller,
        body: length..end,
        keep_alive: !fields.close && (version == 1 || fields.keep_alive),
    };
    Ok(Progress::Whole(request, end))
}

/// The first LF without a CR. `httparse` takes it for the end of a line, where a proxy in
/// front of the engine may see none (RFC 9112, 2.2).
fn bare_line_end(head: &[u8]) -> Option<usize> {
    let mut ends = memchr::memchr_iter(b'\n', head);
    ends.find(|&at| at == 0 || head[at - 1] != b'\r')
}

/// The position of a part in the whole that it was borrowed from.
fn place(part: &[u8], whole: &[u8]) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

type Parts = (Option<Range<usize>>, Range<usize>, Option<Range<usize>>);

/// A target's authority, which only the form for proxies has (`http://host/path`) and which then
/// counts in place of the Host header (RFC 9112, 3.2.2); its path; its query.
fn target(target: &str, bytes: &[u8]) -> Result<Parts, Refusal> {
    let at = place(target.as_bytes(), bytes);
    let (scheme, rest) = target.split_at_checked(7).unwrap_or_default();
    let (authority, rest) = match scheme.eq_ignore_ascii_case("http://") {
        true => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        false => ("", target),
    };
    if !rest.starts_with('/') || authority.contains('@') {
        return Err(Refusal::Malformed("the request's target is no path"));
    }
    let start = at.end - rest.len();
    let mark = rest.find('?');
    let path = start..mark.map_or(at.end, |mark| start + mark);
    let query = mark.map(|mark| start + mark + 1..at.end);
    let authority = (start > at.start).then(|| at.start + 7..start);
    Ok((authority, path, query))
}

/// The header fields that matter.
#[derive(Default)]
struct Fields {
    hosts: u32,
    host: Option<Range<usize>>,
    content_length: Option<u64>,
    transfer_coding: bool,
    expects_continue: bool,
    close: bool,
    keep_alive: bool,
    token: Option<Range<usize>>,
    caller: Vec<(&'static str, Range<usize>)>,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], bytes: &[u8]) -> Result<Fields, Refusal> {
        let mut fields = Fields::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = place(header.value, bytes);
            // By length first: most headers are none of these.
            match header.name.len() {
                4 if is("host") => {
                    fields.hosts += 1;
                    fields.host = Some(value);
                }
                6 if is("expect") => {
                    if !header.value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Refusal::Expectation);
                    }
                    fields.expects_continue = true;
                }
                10 if is("connection") => fields.connection(header.value),
                11 if is("caller-user") => fields.caller.push(("user", value)),
                13 if is("authorization") => fields.token = bearer(header.value, bytes),
                14 if is("content-length") => fields.length(header.value)?,
                15 if is("caller-terminal") => fields.caller.push(("terminal", value)),
                16 if is("caller-directory") => fields.caller.push(("directory", value)),
                17 if is("transfer-encoding") => fields.transfer_coding = true,
                _ => {}
            }
        }
        if fields.transfer_coding && fields.content_length.is_some() {
            return Err(Refusal::Malformed(
                "Content-Length and Transfer-Encoding exclude each other",
            ));
        }
        Ok(fields)
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Two lengths that differ are how requests are smuggled past a proxy.
    fn length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| digits);
        let wrong = Refusal::Malformed("Content-Length is no number");
        let length = match text.map(str::parse::<u64>) {
            Some(Ok(length)) => length,
            // More digits than a number has: longer than any limit.
            Some(Err(_)) => return Err(Refusal::Body),
            None => return Err(wrong),
        };
        match self.content_length.replace(length) {
            Some(other) if other != length => Err(Refusal::Malformed("two lengths")),
            _ => Ok(()),
        }
    }
}

fn bearer(value: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| place(token, bytes))
}

/// An answer's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// Such as `200 OK`.
    pub status: &'a str,
    /// The exit code of a procedure that ran to its end.
    pub exit_code: Option<u8>,
    /// Further header lines, each with its line end.
    pub headers: &'a str,
    /// The body.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// Appends the answer, and with `close` that the connection ends with it. To a request
    /// of this method: the body is only announced to HEAD. No formatting machinery: this is
    /// the hot path.
    pub(crate) fn write(&self, out: &mut Vec<u8>, to: Method, close: bool) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.as_bytes());
        if let Some(code) = self.exit_code {
            out.extend_from_slice(b"\r\nExit-Code: ");
            out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
        }
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(self.body.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(self.headers.as_bytes());
        out.extend_from_slice(b"\r\n");
        if to != Method::Head {
            out.extend_from_slice(self.body);
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
