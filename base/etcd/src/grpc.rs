//! gRPC's calls over one connection of HTTP/2. The crate `h2` implements HTTP/2, `prost` the
//! messages. etcd's libraries for Rust would not do: their build needs a compiler of protocol
//! buffers, and they wait for ever for a server that is gone.

use crate::carrier::{Carried, Carrier};
use crate::failure::{Failure, is_grpc, status};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncRead, AsyncWrite};

/// Longest message that is believed.
const LONGEST: usize = 1 << 24;

/// The ALPN name of HTTP/2.
pub const PROTOCOL: &[u8] = b"h2";

/// gRPC's head of a message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// A connection, which a task of the runtime works on.
#[derive(Clone)]
pub struct Connection {
    requests: SendRequest<Bytes>,
    /// The beginning of every call's URI.
    place: String,
    /// For a server that wants to know who asks.
    token: Option<String>,
    carried: Arc<Carried>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "etcd at {}", self.place)
    }
}

impl Connection {
    /// Begins HTTP/2 on a connected stream. `window` is the number of bytes that the server
    /// may send ahead; `None`: HTTP/2's default.
    ///
    /// # Errors
    /// The server does not speak HTTP/2: its text.
    pub async fn begin<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        stream: T,
        place: String,
        window: Option<u32>,
    ) -> Result<Self, Failure> {
        let carried = Arc::new(Carried::default());
        let mut builder = h2::client::Builder::new();
        if let Some(window) = window {
            builder.initial_window_size(window);
            builder.initial_connection_window_size(window);
        }
        let carrier = Carrier {
            stream,
            carried: Arc::clone(&carried),
        };
        let (requests, connection) = builder.handshake(carrier).await?;
        tokio::spawn(async move {
            // The calls report why it ended.
            let _ = connection.await;
        });
        Ok(Self {
            requests,
            place,
            token: None,
            carried,
        })
    }

    /// From now on every call shows this token.
    pub fn show(&mut self, token: String) {
        self.token = Some(token);
    }

    /// What went over it so far, HTTP/2's frames included. Bytes that arrived while the
    /// runtime stood still are not read yet.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// One request, one answer.
    ///
    /// # Errors
    /// Why it came to nothing.
    pub async fn call<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<A, Failure> {
        let exchange = async {
            let mut answers = self.stream(path, request, true).await?;
            let answer = answers.next().await?;
            // Its status follows it.
            match (answer, answers.next::<A>().await?) {
                (Some(answer), None) => Ok(answer),
                _ => Err(Failure::Said("not one message in its answer".to_owned())),
            }
        };
        exchange.await.map_err(|failure| self.explained(failure))
    }

    /// A failure, with what the server's first bytes tell.
    #[cold]
    #[must_use]
    pub fn explained(&self, failure: Failure) -> Failure {
        let first = self.carried.first.get();
        failure.explained(first.map_or(&[][..], |first| &first[..]))
    }

    /// Sends the first request of a call; our side stays open unless it `ends` with that.
    ///
    /// # Errors
    /// Why it came to nothing.
    pub async fn stream(
        &self,
        path: &str,
        request: &impl Message,
        ends: bool,
    ) -> Result<Answers, Failure> {
        let mut head = Request::post(format!("{}{path}", self.place))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head
            .body(())
            .map_err(|error| Failure::Said(error.to_string()))?;
        let mut requests = self.requests.clone().ready().await?;
        self.carried.calls.fetch_add(1, Relaxed);
        let (response, mut sender) = requests.send_request(head, false)?;
        sender.send_data(framed(request), ends)?;
        let response = response.await?;
        is_grpc(response.status(), response.headers())?;
        status(response.headers())?;
        Ok(Answers {
            sender,
            body: response.into_body(),
            kept: BytesMut::new(),
        })
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
#[derive(Debug)]
pub struct Answers {
    /// Our side of the call.
    sender: SendStream<Bytes>,
    body: RecvStream,
    kept: BytesMut,
}

impl Answers {
    /// Ends the call before the server does.
    pub fn cancel(mut self) {
        self.sender.send_reset(h2::Reason::CANCEL);
    }

    /// The next one; None at the end.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Failure> {
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
    if head[0] != 0 {
        return Err(Failure::Said("its answer is none of gRPC's".to_owned()));
    }
    if length > LONGEST {
        return Err(Failure::Long(length));
    }
    if kept.len() < HEAD + length {
        return Ok(None);
    }
    let mut message = kept.split_to(HEAD + length).freeze();
    Ok(Some(message.split_off(HEAD)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::LeaseRequest;

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
}
