//! Calls of etcd's API over one connection, in one thread: gRPC's frames on HTTP/2.
//!
//! Every call has a deadline, and the keeper can end every wait. etcd's libraries for Rust
//! would not do: their build needs a compiler of protocol buffers, they wait for ever for a
//! server that is gone, and a thousand workers would take a thread each. The crate `h2`
//! implements HTTP/2, `prost` the messages.

use super::carrier::{Carried, Carrier};
use super::failure::{Failure, is_grpc, status};
use crate::address::Address;
use crate::stream::{Stream, has_ended};
use crate::tls;
use crate::{SetupError, Traffic};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use jostle_sys::signal;
use jostle_sys::waited::{LOOK, Waited};
use prost::Message;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

/// How long the answer to a call may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Longest message that is believed.
const LONGEST: usize = 1 << 24;

/// The ALPN name of HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// gRPC's head of a message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// A connection and the thread's own runtime, which works while a call is awaited.
pub(super) struct Channel {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    bell: UnixStream,
    scheme: &'static str,
    authority: String,
    /// Of a server that wants to know who asks.
    token: Option<String>,
    /// The connection's socket, to learn whether it has ended.
    socket: OwnedFd,
    patience: Duration,
    calls: Cell<u64>,
    carried: Arc<Carried>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "etcd at {}", self.authority)
    }
}

impl Channel {
    /// Connects.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn open(address: &Address) -> Result<Channel, SetupError> {
        let say = |said: String| SetupError(format!("etcd at {address}: {said}"));
        let stream = address.connect_plainly()?;
        let system = |error: std::io::Error| say(error.to_string());
        let socket = stream.as_fd().try_clone_to_owned().map_err(system)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system)?;
        let carried = Arc::new(Carried::default());
        let (requests, bell) = runtime.block_on(async {
            let stream = match stream {
                Stream::Tcp(stream) => stream,
                _ => return Err(say("it is no address of TCP".to_owned())),
            };
            stream.set_nonblocking(true).map_err(system)?;
            let stream = TcpStream::from_std(stream).map_err(system)?;
            let begun = match address {
                Address::Tls(place, tls) => {
                    let trust = tls.trust(tls::host(place))?;
                    let shake = TlsConnector::from(trust.config)
                        .with_alpn(vec![PROTOCOL.to_vec()])
                        .connect(trust.name, stream);
                    let shaken = in_time(tls::PATIENCE, shake).await;
                    let shaken = shaken.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
                    let stream = shaken.map_err(|error| tls::failed(place, &error))?;
                    begun(stream, Arc::clone(&carried)).await
                }
                _ => begun(stream, Arc::clone(&carried)).await,
            };
            let requests = begun.map_err(|failure| match failure {
                Failure::Late => say(failure.to_string()),
                other => say(format!(
                    "it does not speak HTTP/2: {other}{}",
                    hint(address)
                )),
            })?;
            let bell = signal::bell()
                .and_then(UnixStream::from_std)
                .map_err(system)?;
            Ok((requests, bell))
        })?;
        Ok(Channel {
            runtime,
            requests,
            bell,
            scheme: match address {
                Address::Tls(..) => "https",
                _ => "http",
            },
            authority: address.to_string(),
            token: None,
            socket,
            patience: PATIENCE,
            calls: Cell::new(0),
            carried,
        })
    }

    /// From now on every call shows this token.
    pub(super) fn show(&mut self, token: String) {
        self.token = Some(token);
    }

    /// From now on every answer may take so long, if that is longer than usual: a lease must
    /// not outlive the patience with its server.
    pub(super) fn wait_for(&mut self, patience: Duration) {
        self.patience = self.patience.max(patience);
    }

    /// As patient as another one.
    pub(super) fn be_as_patient_as(&mut self, other: &Channel) {
        self.patience = other.patience;
    }

    /// Whether the server has ended the connection, as far as this machine knows.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(self.socket.as_fd())
    }

    /// The traffic so far, HTTP/2's frames included. Bytes that arrived while no call was
    /// awaited are not read yet.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            round_trips: self.calls.get(),
            bytes: self.carried.bytes.load(Relaxed),
            ..Traffic::default()
        }
    }

    /// One request, one answer. With `heeds` the keeper can interrupt it; a call that must
    /// not be left half done is made without.
    ///
    /// # Errors
    /// Why it came to nothing.
    pub(super) fn call<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
        heeds: bool,
    ) -> Result<A, Failure> {
        let exchange = async {
            let (_, mut answers) = self.begin(path, request, true).await?;
            let answer = answers.next().await?;
            // Its status follows it.
            match (answer, answers.next::<A>().await?) {
                (Some(answer), None) => Ok(answer),
                _ => Err(Failure::Said("not one message in its answer".to_owned())),
            }
        };
        let answer = self.runtime.block_on(async {
            let timely = async {
                let done = in_time(self.patience, exchange).await;
                done.unwrap_or(Err(Failure::Late))
            };
            match heeds {
                true => self.unless_interrupted(timely).await,
                false => timely.await,
            }
        });
        answer.map_err(|failure| self.explained(failure))
    }

    #[cold]
    fn explained(&self, failure: Failure) -> Failure {
        let first = self.carried.first.get();
        failure.explained(first.map_or(&[][..], |first| &first[..]))
    }

    /// Sends one request of a stream and gives each answer to `each`, until that is
    /// done or the time (from now on) is over.
    ///
    /// # Errors
    /// Why it came to nothing.
    pub(super) fn listen<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
        limit: Duration,
        mut each: impl FnMut(A) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let heard = async {
            // Our side stays open, because its end would end the stream.
            let (mut sender, mut answers) = self.begin(path, request, false).await?;
            while let Some(answer) = answers.next().await? {
                if each(answer)? {
                    sender.send_reset(h2::Reason::CANCEL);
                    return Ok(());
                }
            }
            Err(Failure::Said("the server ended the stream".to_owned()))
        };
        let done = self.runtime.block_on(self.unless_interrupted(async {
            match tokio::time::timeout(limit, heard).await {
                Ok(done) => done,
                Err(_) => Err(Failure::Late),
            }
        }));
        done.map_err(|failure| self.explained(failure))
    }

    async fn begin(
        &self,
        path: &str,
        request: &impl Message,
        ends: bool,
    ) -> Result<(SendStream<Bytes>, Answers), Failure> {
        let mut head = Request::post(format!("{}://{}{path}", self.scheme, self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head
            .body(())
            .map_err(|error| Failure::Said(error.to_string()))?;
        let mut requests = self.requests.clone().ready().await?;
        self.calls.set(self.calls.get() + 1);
        let (response, mut sender) = requests.send_request(head, false)?;
        sender.send_data(framed(request), ends)?;
        let response = response.await?;
        is_grpc(response.status(), response.headers())?;
        status(response.headers())?;
        Ok((sender, Answers::new(response.into_body())))
    }

    async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::pin!(work);
        loop {
            if signal::interrupted() {
                return Err(Failure::Interrupted);
            }
            tokio::select! {
                biased;
                done = &mut work => return done,
                rang = self.bell.readable() => {
                    rang.map_err(|error| Failure::Said(error.to_string()))?;
                    // Clears the readiness of a bell that rang for an earlier run.
                    let _: io::Result<()> = self.bell.try_io(Interest::READABLE, || {
                        Err(io::ErrorKind::WouldBlock.into())
                    });
                }
            }
        }
    }
}

/// What comes of an exchange; None after so long in which this process ran.
async fn in_time<T>(patience: Duration, exchange: impl Future<Output = T>) -> Option<T> {
    let mut exchange = std::pin::pin!(exchange);
    let mut waited = Waited::begin();
    loop {
        let look = (LOOK / 2).min(patience);
        match tokio::time::timeout(look, exchange.as_mut()).await {
            Ok(done) => return Some(done),
            Err(_) if waited.so_far() >= patience => return None,
            Err(_) => {}
        }
    }
}

/// Begins HTTP/2 on a connection, and works on it from then on.
async fn begun<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: T,
    carried: Arc<Carried>,
) -> Result<SendRequest<Bytes>, Failure> {
    let shake = h2::client::handshake(Carrier { stream, carried });
    let shaken = in_time(PATIENCE, shake).await;
    let (requests, connection) = shaken.ok_or(Failure::Late)??;
    tokio::spawn(async move {
        // The calls report why it ended.
        let _ = connection.await;
    });
    Ok(requests)
}

/// A hint for a server that closes the connection at the first message.
pub(super) fn hint(address: &Address) -> String {
    match address {
        Address::Tls(..) => String::new(),
        plain => format!("; one that wants TLS is etcd:https://{plain}"),
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

/// The messages of an answer, as they come.
struct Answers {
    body: RecvStream,
    kept: BytesMut,
}

impl Answers {
    fn new(body: RecvStream) -> Answers {
        Answers {
            body,
            kept: BytesMut::new(),
        }
    }

    /// The next one; None at the end.
    async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
        loop {
            if let Some(message) = whole(&mut self.kept)? {
                let read = A::decode(message);
                return read
                    .map(Some)
                    .map_err(|error| Failure::Said(error.to_string()));
            }
            match self.body.data().await {
                None => {
                    self.finish().await?;
                    return Ok(None);
                }
                Some(data) => {
                    let data = data?;
                    self.body.flow_control().release_capacity(data.len())?;
                    self.kept.extend_from_slice(&data);
                }
            }
        }
    }

    /// The call's status from the server, at the end of the answer.
    async fn finish(&mut self) -> Result<(), Failure> {
        match self.body.trailers().await? {
            Some(trailers) => status(&trailers),
            None => Ok(()),
        }
    }
}

/// The message at the head of what has come.
fn whole(kept: &mut BytesMut) -> Result<Option<Bytes>, Failure> {
    let Some(head) = kept.get(..HEAD) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || length > LONGEST {
        return Err(Failure::Said("its answer is none of gRPC's".to_owned()));
    }
    if kept.len() < HEAD + length {
        return Ok(None);
    }
    let mut message = kept.split_to(HEAD + length).freeze();
    Ok(Some(message.split_off(HEAD)))
}

#[cfg(test)]
mod tests {
    use super::super::messages::LeaseRequest;
    use super::*;

    #[test]
    fn messages_are_taken_from_frames_when_they_are_whole() {
        let frame = framed(&LeaseRequest { id: 300 });
        assert_eq!(frame.as_ref(), b"\0\0\0\0\x03\x08\xac\x02");
        for cut in 0..frame.len() {
            let mut kept = BytesMut::from(&frame[..cut]);
            assert!(whole(&mut kept).unwrap().is_none(), "{cut}");
        }
        let mut kept = BytesMut::from(&[&frame[..], &frame[..3]].concat()[..]);
        let message = whole(&mut kept).unwrap().unwrap();
        assert_eq!(LeaseRequest::decode(message).unwrap().id, 300);
        assert_eq!(kept.len(), 3);
        // Compressed, and beyond belief.
        for sad in [&b"\x01\0\0\0\x01x"[..], b"\0\xff\xff\xff\xff"] {
            assert!(whole(&mut BytesMut::from(sad)).is_err());
        }
    }

    mod live_tests {
        use super::*;
        use jostle_sys::waited::leaping;
        use std::task::Poll;

        #[test]
        fn an_answer_is_not_late_while_this_process_stood_still() {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            let mut looks = 0;
            let exchange = std::future::poll_fn(|_| {
                looks += 1;
                (looks == 3)
                    .then_some(())
                    .map_or(Poll::Pending, Poll::Ready)
            });
            let patience = Duration::from_millis(600);
            let (answer, _) = leaping(|| runtime.block_on(in_time(patience, exchange)));
            assert_eq!(answer, Some(()));
        }
    }
}
