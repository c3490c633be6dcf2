//! Calls of etcd's API over one connection, in one thread. Every call has a deadline, and the
//! keeper can end every wait. A thousand workers take no thread more.

use crate::address::Address;
use crate::stream::{Stream, has_ended};
use crate::tls;
use crate::{SetupError, Traffic};
use jostle_etcd::Failure;
use jostle_etcd::grpc::{Connection, PROTOCOL};
use jostle_sys::signal;
use jostle_sys::waited::{LOOK, Waited};
use prost::Message;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

/// How long the answer to a call may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A connection and the thread's own runtime, which works while a call is awaited.
pub(super) struct Channel {
    runtime: Runtime,
    connection: Connection,
    bell: UnixStream,
    authority: String,
    /// The connection's socket, to learn whether it has ended.
    socket: OwnedFd,
    patience: Duration,
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
        let (connection, bell) = runtime.block_on(async {
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
                    begun(stream, format!("https://{address}")).await
                }
                _ => begun(stream, format!("http://{address}")).await,
            };
            let connection = begun.map_err(|failure| match failure {
                Failure::Late => say(failure.to_string()),
                other => say(format!(
                    "it does not speak HTTP/2: {other}{}",
                    hint(address)
                )),
            })?;
            let bell = signal::bell()
                .and_then(UnixStream::from_std)
                .map_err(system)?;
            Ok((connection, bell))
        })?;
        Ok(Channel {
            runtime,
            connection,
            bell,
            authority: address.to_string(),
            socket,
            patience: PATIENCE,
        })
    }

    /// From now on every call shows this token.
    pub(super) fn show(&mut self, token: String) {
        self.connection.show(token);
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
        let carried = self.connection.carried();
        Traffic {
            round_trips: carried.calls.load(Relaxed),
            bytes: carried.bytes.load(Relaxed),
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
        let exchange = self.connection.call(path, request);
        self.runtime.block_on(async {
            let timely = async {
                let done = in_time(self.patience, exchange).await;
                done.unwrap_or(Err(Failure::Late))
            };
            match heeds {
                true => self.unless_interrupted(timely).await,
                false => timely.await,
            }
        })
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
            let mut answers = self.connection.stream(path, request, false).await?;
            while let Some(answer) = answers.next().await? {
                if each(answer)? {
                    answers.cancel();
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
        done.map_err(|failure| self.connection.explained(failure))
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

/// Begins HTTP/2 on a connection.
async fn begun<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: T,
    place: String,
) -> Result<Connection, Failure> {
    let begun = in_time(PATIENCE, Connection::begin(stream, place, None)).await;
    begun.unwrap_or(Err(Failure::Late))
}

/// A hint for a server that closes the connection at the first message.
pub(super) fn hint(address: &Address) -> String {
    match address {
        Address::Tls(..) => String::new(),
        plain => format!("; one that wants TLS is etcd:https://{plain}"),
    }
}

#[cfg(test)]
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
