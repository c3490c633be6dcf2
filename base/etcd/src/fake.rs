//! Servers for tests and measurements: some that may listen where an etcd is expected, each of
//! which runs as long as the test program, and a cluster of real ones.

#![allow(clippy::unwrap_used, reason = "it is for tests")]

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The fake server's HTTP/2 answer to each call.
pub enum Says {
    /// A message of gRPC.
    Message(Vec<u8>),
    /// A status of gRPC in place of one.
    Status(u32, &'static str),
    /// A page with this status of HTTP.
    Http(u16),
    /// This after a while.
    Later(Duration, Box<Says>),
    /// Nothing, ever.
    Nothing,
}

/// A server that answers each call by its path.
pub struct Calls {
    /// Where it listens.
    pub address: String,
    /// The paths of the calls so far.
    pub paths: Receiver<String>,
}

/// The address of one that speaks HTTP/2 and always says the same.
pub fn speaks_http2(says: Says) -> String {
    serve(move |_, respond| answer(&says, respond))
}

/// One that answers each call by its path.
pub fn answers_calls(says: fn(&str) -> Says) -> Calls {
    let (sender, paths) = channel();
    let address = serve(move |path, respond| {
        // The test may be over.
        let _ = sender.send(path.to_owned());
        tokio::spawn(answer_in_time(says(path), respond));
    });
    Calls { address, paths }
}

async fn answer_in_time(says: Says, respond: h2::server::SendResponse<Bytes>) {
    match says {
        Says::Later(span, says) => {
            tokio::time::sleep(span).await;
            answer(&says, respond);
        }
        Says::Nothing => std::future::pending().await,
        says => answer(&says, respond),
    }
}

/// The address of one that leaves each call to `each`.
fn serve(each: impl Fn(&str, h2::server::SendResponse<Bytes>) + Send + 'static) -> String {
    let (listener, address) = listen();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let stream = listener.accept().await.unwrap().0;
                let mut connection = h2::server::handshake(stream).await.unwrap();
                // Until the client is gone.
                while let Some(Ok((request, respond))) = connection.accept().await {
                    each(request.uri().path(), respond);
                }
            }
        });
    });
    address
}

fn answer(says: &Says, mut respond: h2::server::SendResponse<Bytes>) {
    let head = |status: u16, kind: &str| {
        let response = Response::builder()
            .status(status)
            .header("content-type", kind);
        response.body(()).unwrap()
    };
    match says {
        Says::Message(message) => {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(message.len() as u32);
            framed.extend_from_slice(message);
            let mut body = respond
                .send_response(head(200, "application/grpc"), false)
                .unwrap();
            body.send_data(framed.freeze(), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            body.send_trailers(trailers).unwrap();
        }
        Says::Status(code, message) => {
            let mut response = head(200, "application/grpc");
            let headers = response.headers_mut();
            headers.insert("grpc-status", code.to_string().parse().unwrap());
            headers.insert("grpc-message", message.parse().unwrap());
            respond.send_response(response, true).unwrap();
        }
        Says::Http(status) => {
            let mut body = respond
                .send_response(head(*status, "text/html"), false)
                .unwrap();
            body.send_data(Bytes::from_static(b"<html>"), true).unwrap();
        }
        // Only a server that answers by path does that.
        Says::Later(..) | Says::Nothing => {}
    }
}

/// The address of one that answers these bytes to the first that it hears, and hangs up.
pub fn answers(bytes: &[u8]) -> String {
    let (listener, address) = listen();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(&bytes);
        }
    });
    address
}

/// One that is stopped: the kernel accepts in its name.
pub fn accepts_only() -> TcpListener {
    listen().0
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// A cluster of three, which ends with this.
#[derive(Debug)]
pub struct Etcds {
    /// The members' addresses for clients.
    pub urls: Vec<String>,
    /// Their processes.
    pub members: Vec<Child>,
    commands: Vec<Command>,
}

impl Etcds {
    /// Launches the first `etcd` of $PATH (Debian's package etcd-server) three times, with data
    /// in this directory.
    #[must_use]
    pub fn launch(directory: &Path) -> Self {
        Self::launch_with(directory, "http", &[])
    }

    /// As [`Self::launch`]; clients come by this scheme, and these options say how.
    #[must_use]
    pub fn launch_with(directory: &Path, scheme: &str, options: &[String]) -> Self {
        let listeners = [(); 6].map(|()| listen().0);
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let peer = |n: usize| format!("http://127.0.0.1:{}", ports[n]);
        let url = |n: usize| format!("{scheme}://127.0.0.1:{}", ports[3 + n]);
        let all: Vec<String> = (0..3).map(|n| format!("m{n}={}", peer(n))).collect();
        let commands = (0..3).map(|n| {
            let (peer, client) = (peer(n), url(n));
            let data = directory.join(format!("m{n}"));
            let mut command = Command::new("etcd");
            command.arg(format!("--name=m{n}"));
            command.arg(format!("--data-dir={}", data.display()));
            command.arg(format!("--listen-peer-urls={peer}"));
            command.arg(format!("--initial-advertise-peer-urls={peer}"));
            command.arg(format!("--listen-client-urls={client}"));
            command.arg(format!("--advertise-client-urls={client}"));
            command.arg(format!("--initial-cluster={}", all.join(",")));
            command.args(options);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        });
        let mut etcds = Self {
            urls: (0..3).map(url).collect(),
            members: Vec::new(),
            commands: commands.collect(),
        };
        etcds.restart();
        etcds
    }

    /// Ends the members that run, and launches all.
    pub fn restart(&mut self) {
        self.end();
        let launched = self.commands.iter_mut().map(|command| {
            let launched = command.spawn();
            launched.expect("the program etcd (package etcd-server)")
        });
        self.members = launched.collect();
    }

    /// Ends the members; [`Self::restart`] launches them with what is then their data.
    pub fn end(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Drop for Etcds {
    fn drop(&mut self) {
        self.end();
    }
}
