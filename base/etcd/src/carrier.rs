//! The transport below HTTP/2: a socket of tokio's, with or without TLS. It counts the bytes of
//! both directions, without TLS's overhead. It keeps the server's first bytes, which show what
//! protocol the server has.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// As many of the first bytes are kept as tell protocols apart.
const FIRST: usize = 8;

/// The bytes that went over a connection.
#[derive(Debug, Default)]
pub struct Carried {
    /// Calls that were begun.
    pub calls: AtomicU64,
    /// Bytes of both directions.
    pub bytes: AtomicU64,
    /// The first bytes that the server sent, as they came together.
    pub first: OnceLock<Box<[u8]>>,
}

impl Carried {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.bytes.fetch_add(count as u64, Relaxed);
        }
        written
    }
}

/// A connection that has been made.
pub(crate) struct Carrier<T> {
    pub(crate) stream: T,
    pub(crate) carried: Arc<Carried>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Carrier<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let came = &into.filled()[before..];
        if !came.is_empty() {
            let first = || Box::from(&came[..came.len().min(FIRST)]);
            self.carried.first.get_or_init(first);
        }
        self.carried.bytes.fetch_add(came.len() as u64, Relaxed);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Carrier<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.carried.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.carried.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
