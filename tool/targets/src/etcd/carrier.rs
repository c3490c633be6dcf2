//! The transport below HTTP/2: a socket in the thread's own runtime, with or without TLS.
//! It counts the bytes of both directions, without TLS's overhead. It keeps the server's
//! first bytes, which show what protocol the server has.

use crate::stream::Stream;
use crate::tls::TlsStream;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// As many of the first bytes are kept as tell protocols apart.
const FIRST: usize = 8;

/// What went over a connection.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Bytes of both directions.
    pub bytes: AtomicU64,
    /// The first bytes that the server sent, as they came together.
    pub first: OnceLock<Box<[u8]>>,
}

/// A connection that has been made.
pub(super) struct Carrier {
    way: Way,
    carried: Arc<Carried>,
}

enum Way {
    Plain(tokio::net::TcpStream),
    Encrypted(Encrypted),
}

struct Encrypted {
    stream: Box<TlsStream>,
    /// The same socket, to learn when it is ready.
    bell: tokio::net::TcpStream,
}

impl Carrier {
    /// Takes it over, in the runtime that will drive it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(stream: Stream, carried: Arc<Carried>) -> io::Result<Carrier> {
        stream.set_nonblocking(true)?;
        let way = match stream {
            Stream::Tcp(stream) => Way::Plain(tokio::net::TcpStream::from_std(stream)?),
            Stream::Tls(stream) => Way::Encrypted(Encrypted {
                bell: tokio::net::TcpStream::from_std(stream.socket().try_clone()?)?,
                stream,
            }),
            Stream::Unix(_) => return Err(ErrorKind::Unsupported.into()),
        };
        Ok(Carrier { way, carried })
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.carried.bytes.fetch_add(*count as u64, Relaxed);
        }
    }
}

impl Encrypted {
    /// Tries before it waits, because polling the socket does not show bytes that are
    /// decrypted already.
    fn once_ready<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut(&TlsStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut tried = attempt(&self.stream);
        loop {
            match tried {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
            ready!(match interest.is_readable() {
                true => self.bell.poll_read_ready(context),
                false => self.bell.poll_write_ready(context),
            })?;
            tried = self.bell.try_io(interest, || attempt(&self.stream));
        }
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Way::Encrypted(stream) => {
                stream.once_ready(context, Interest::READABLE, |mut stream| {
                    let count = stream.read(into.initialize_unfilled())?;
                    into.advance(count);
                    Ok(())
                })
            }
        };
        let came = into.filled().len() - before;
        if came > 0 {
            self.carried.first.get_or_init(|| {
                let first = &into.filled()[before..];
                Box::from(&first[..first.len().min(FIRST)])
            });
        }
        self.carried.bytes.fetch_add(came as u64, Relaxed);
        read
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Way::Encrypted(stream) => {
                stream.once_ready(context, Interest::WRITABLE, |mut stream| {
                    stream.write(bytes)
                })
            }
        };
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Way::Encrypted(_) => {
                let first = parts.iter().find(|part| !part.is_empty());
                return self.poll_write(context, first.map_or(&[], |part| part));
            }
        };
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.way {
            Way::Plain(stream) => stream.is_write_vectored(),
            Way::Encrypted(_) => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_flush(context),
            Way::Encrypted(stream) => {
                stream.once_ready(context, Interest::WRITABLE, |mut stream| stream.flush())
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Way::Encrypted(stream) => {
                stream.stream.end();
                Poll::Ready(Ok(()))
            }
        }
    }
}
