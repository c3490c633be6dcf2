//! `http` and `https`: any web server, by GET requests of a well-kept client.
//!
//! The name is resolved once, before the run, and redirects are not followed, so that only
//! this server and the path to it are timed. Only HTTP/1.1, and only requests without a
//! body.

mod line;

use crate::address::connect_within;
use crate::caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
use crate::table::{Entry, Family};
use crate::tls::{self, HttpTls, Tls};
use crate::{CallError, SetupError, surplus};
use jostle_model::plan::Connection;
use jostle_sys::files::Errno;
use jostle_sys::process::Usage;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, NextTimeout};
use ureq::{Agent, Error};

use line::{Sockets, Watch, Watching};

/// Where servers listen by default (RFC 9110, section 4.2).
const PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// The line of `http` in the table.
pub(crate) static TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: "http",
        argument: Some("//HOST[:PORT]/PATH"),
        check_argument: |argument| url("http", argument).map(drop),
        reach: |argument, _| reach("http", argument),
        family: Family::Server,
        summary: "a web server: GET requests over HTTP/1.1, status codes counted",
        details: DETAILS,
        ..Entry::PLAIN
    },
    prepare: |setup| prepare("http", setup),
    null: None,
    usual_ns: |_| 33_000,
    usual_port: Some(PORT),
};

/// The line of `https` in the table.
#[cfg(feature = "services")]
pub(crate) static TLS_TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: "https",
        reach: |argument, _| reach("https", argument),
        summary: "the same over TLS, with the system's certificates or those of $SSL_CERT_FILE",
        details: "As `http`; the phase `connect` has the TLS handshake too.",
        ..TARGET.entry
    },
    prepare: |setup| prepare("https", setup),
    usual_port: Some(TLS_PORT),
    ..TARGET
};

const DETAILS: &str = "A worker keeps one connection and opens another when the server has closed it; \
    with `--connection each` every request has its own. Three phases: `connect` (TCP, and TLS; of \
    the requests that opened a connection), `request` (until the head of the answer), `body` \
    (until its end). `{n}` and `{worker}` in PATH are the number of the request (`--numbers`) and \
    of the worker. A status outside of 200 to 299 is an error, a redirect too, unless `--expect` \
    names it. The name of the host is looked up once, before the run; proxies of the environment \
    are not used. A name and password in the address (`//USER:PASSWORD@HOST/`) are sent with \
    every request (Basic), and the password is written as `***` wherever jostle prints or writes \
    it.";

/// The most that a connection reads at once; a head must fit.
const INPUT_BYTES: usize = 64 << 10;
/// Requests have no body.
const OUTPUT_BYTES: usize = 16 << 10;

const CONNECT: usize = 0;
const REQUEST: usize = 1;
const BODY: usize = 2;

/// State that all workers share: the URL and how to reach it.
#[derive(Debug)]
struct Http {
    url: String,
    addresses: Vec<SocketAddr>,
    timeout: Duration,
    connection: Connection,
    tls: Option<HttpTls>,
}

/// The whole URL of what was typed.
fn url(scheme: &str, argument: Option<&str>) -> Result<String, String> {
    let wrong = |why: String| format!("{why}; write {scheme}://HOST[:PORT]/PATH");
    let rest = argument.filter(|rest| rest.starts_with("//"));
    let rest = rest.ok_or_else(|| wrong(format!("`{scheme}` needs an address")))?;
    let url = format!("{scheme}:{rest}");
    let uri: Uri = filled(&url, 0, 0)
        .parse()
        .map_err(|error| wrong(format!("`{url}` is no URL: {error}")))?;
    let authority = rest.trim_start_matches('/').split(['/', '?']).next();
    if authority.is_some_and(|host| host.contains('{')) {
        return Err(wrong(format!(
            "`{url}`: one server is asked, so that {{n}} stands in its path"
        )));
    }
    // Only the part after user, password and IPv6 address can contain a port.
    let has_port = uri.authority().is_some_and(|a| {
        let mut parts = a.as_str().rsplit([']', '@']);
        parts.next().is_some_and(|end| end.contains(':'))
    });
    if has_port && uri.port_u16().is_none() {
        return Err(wrong(format!("`{url}`: its port is no number up to 65535")));
    }
    match uri.host() {
        Some(host) if !host.is_empty() => Ok(url),
        _ => Err(wrong(format!("`{url}` names no host"))),
    }
}

fn filled(url: &str, nth: u64, worker: u64) -> String {
    url.replace("{n}", &nth.to_string())
        .replace("{worker}", &worker.to_string())
}

fn addresses(url: &str) -> Result<Vec<SocketAddr>, SetupError> {
    let uri: Uri = filled(url, 0, 0)
        .parse()
        .map_err(|error| SetupError(format!("`{url}` is no URL: {error}")))?;
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let usual = if uri.scheme_str() == Some("https") {
        TLS_PORT
    } else {
        PORT
    };
    let port = uri.port_u16().unwrap_or(usual);
    let found = (bare, port).to_socket_addrs();
    let found: Vec<SocketAddr> = found
        .map_err(|error| SetupError(format!("cannot find {host}: {error}; write its number")))?
        .collect();
    match found.is_empty() {
        true => Err(SetupError(format!("{host} has no address"))),
        false => Ok(found),
    }
}

fn reach(scheme: &str, argument: &str) -> Result<(), SetupError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let url = url(scheme, Some(argument)).map_err(SetupError)?;
    let mut last = None;
    for address in addresses(&url)? {
        match connect_within(address, PATIENCE) {
            Ok(stream) => return surplus::refuse_who_speaks_first(&stream, address),
            Err(error) => last = Some((address, error)),
        }
    }
    Err(SetupError(last.map_or_else(
        || format!("{url} has no address"),
        |(address, error)| {
            format!("cannot connect to {address}: {error}; is the server running there?")
        },
    )))
}

fn prepare(scheme: &str, setup: &RequestSetup<'_>) -> Result<Box<dyn Requests>, SetupError> {
    let url = url(scheme, setup.base.argument).map_err(SetupError)?;
    Ok(Box::new(Http {
        addresses: addresses(&url)?,
        url,
        timeout: setup.timeout,
        connection: setup.connection.unwrap_or(Connection::Keep),
        tls: match scheme {
            "https" => Some(HttpTls::asked(&Tls::implied(None).map_err(SetupError)?)?),
            _ => None,
        },
    }))
}

impl Http {
    fn config(&self) -> Config {
        let idle = match self.connection {
            Connection::Each => 0,
            Connection::Keep => 1,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("jostle/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(self.timeout))
            // The allocator would return larger buffers to the system with every
            // connection, and fault them in again page by page: 90 us of CPU time each
            // time.
            .input_buffer_size(INPUT_BYTES)
            .output_buffer_size(OUTPUT_BYTES)
            // Only the server ends a kept connection; the default is 15 s.
            .max_idle_age(Duration::MAX)
            .max_idle_connections(idle)
            .max_idle_connections_per_host(idle);
        match &self.tls {
            None => config.build(),
            Some(tls) => tls.over(config).build(),
        }
    }
}

impl Requests for Http {
    fn phases(&self) -> &'static [&'static str] {
        &["connect", "request", "body"]
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>, SetupError> {
        let watch = Arc::new(Watch::default());
        let connector = Sockets(Arc::clone(&watch)).chain(tls::connector());
        let connector = connector.chain(Watching(Arc::clone(&watch)));
        let resolver = Known(self.addresses.clone());
        Ok(Box::new(HttpCaller {
            agent: Agent::with_parts(self.config(), connector, resolver),
            watch,
            url: &self.url,
            is_fixed: filled(&self.url, 0, 0) == self.url,
            worker: worker as u64,
            close: self.connection == Connection::Each,
        }))
    }

    fn is_success(&self, code: u32) -> bool {
        (200..300).contains(&code)
    }
}

struct HttpCaller<'a> {
    agent: Agent,
    watch: Arc<Watch>,
    url: &'a str,
    is_fixed: bool,
    worker: u64,
    close: bool,
}

impl Caller for HttpCaller<'_> {
    fn call(&mut self, nth: u64, phases: &mut Phases) -> Result<Answer, CallError> {
        self.watch.begin(phases.clock());
        let request = match self.is_fixed {
            true => self.agent.get(self.url),
            false => self.agent.get(filled(self.url, nth, self.worker)),
        };
        let request = match self.close {
            true => request.header("connection", "close"),
            false => request,
        };
        let answer = request.call();
        if let Some(at) = self.watch.connected_at() {
            phases.end_at(CONNECT, at);
        }
        let answer = answer.map_err(|error| failed("request", error))?;
        phases.end(REQUEST);
        let code = u32::from(answer.status().as_u16());
        let mut body = answer.into_body().into_reader();
        io::copy(&mut body, &mut io::sink()).map_err(|error| failed("body", error.into()))?;
        phases.end(BODY);
        drop(body);
        match self.watch.is_surplus() {
            true => Err(surplus::error("request")),
            false => Ok(Answer {
                code,
                child: Usage::default(),
            }),
        }
    }

    fn part(&mut self) -> Result<(), CallError> {
        self.watch.part();
        // Closes the connection that was kept.
        self.agent.clone().shutdown();
        match self.watch.is_surplus() {
            true => Err(surplus::error("request")),
            false => Ok(()),
        }
    }
}

/// Maps an error of the HTTP client to a call and errno.
fn failed(call: &'static str, error: Error) -> CallError {
    let of = |errno, said| CallError::saying(call, errno, said);
    const UNTRUSTED: &str = "TLS failed; is its certificate trusted? SSL_CERT_FILE names others";
    match error {
        error if tls::refusal(&error).is_some() => of(Errno::PROTO, UNTRUSTED),
        Error::Timeout(_) => of(Errno::TIMEDOUT, "no whole answer within --call-timeout"),
        Error::Tls(_) => of(Errno::PROTO, UNTRUSTED),
        Error::Io(error) if is_tls(&error) => of(Errno::PROTO, UNTRUSTED),
        Error::Io(error) => match error.raw_os_error() {
            Some(errno) => CallError::new(call, Errno::from_raw_os_error(errno)),
            None => of(by_kind(error.kind()), "the connection ended too early"),
        },
        Error::ConnectionFailed => of(Errno::CONNREFUSED, "the connection failed"),
        _ => of(Errno::PROTO, "the server's answer is no HTTP"),
    }
}

fn is_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().map(ToString::to_string);
    error.kind() == io::ErrorKind::InvalidData
        || inner.is_some_and(|text| text.contains("certificate"))
}

fn by_kind(kind: io::ErrorKind) -> Errno {
    match kind {
        io::ErrorKind::Interrupted => Errno::INTR,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Errno::TIMEDOUT,
        io::ErrorKind::UnexpectedEof => Errno::CONNRESET,
        _ => Errno::IO,
    }
}

/// A look-up that is done.
#[derive(Debug)]
struct Known(Vec<SocketAddr>);

impl Resolver for Known {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        /// The client takes no more.
        const MOST: usize = 16;
        let mut found = self.empty();
        for address in self.0.iter().take(MOST) {
            found.push(*address);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_typed() {
        let table = [
            (
                Some("//127.0.0.1:80/a?b={n}"),
                Ok("http://127.0.0.1:80/a?b={n}"),
            ),
            (Some("//[::1]/"), Ok("http://[::1]/")),
            (Some("//host.example"), Ok("http://host.example")),
            (Some("host.example"), Err("needs an address")),
            (None, Err("needs an address")),
            (Some("//"), Err("http://HOST[:PORT]/PATH")),
            (Some("//h:99999/"), Err("no number up to 65535")),
            (Some("//{n}.example/"), Err("in its path")),
        ];
        for (argument, expected) in table {
            match (url("http", argument), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, _) => panic!("{argument:?}: {found:?}"),
            }
        }
        assert_eq!(filled("http://h/{worker}/{n}?{n}", 7, 2), "http://h/2/7?7");
    }

    #[test]
    fn a_kept_connection_has_no_age_at_which_we_close_it() {
        let http = Http {
            addresses: Vec::new(),
            url: "http://h/".to_owned(),
            timeout: Duration::from_secs(1),
            connection: Connection::Keep,
            tls: None,
        };
        assert_eq!(http.config().max_idle_age(), Duration::MAX);
    }
}
