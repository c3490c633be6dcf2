//! Servers that lie, each on a free port of the loopback address, in threads of the
//! test that asks: what they promise and do not keep is what jostle has to find out.
//! They end with the test binary.

use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The fate of a connection that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Kept,
    /// It is told something that it never asked for.
    Greeted,
    Closed,
    Reset,
    ClosedAfter(Duration),
}

/// Accepts every connection; the `nth` one, from 1, meets this fate. Gives the port.
pub(crate) fn accepting(fate: impl Fn(u64) -> Fate + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for (nth, stream) in (1..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            match fate(nth) {
                Fate::Kept => kept.push(stream),
                Fate::Greeted => {
                    stream.write_all(b"welcome").unwrap();
                    kept.push(stream);
                }
                Fate::Closed => drop(stream),
                Fate::Reset => {
                    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                }
                Fate::ClosedAfter(time) => {
                    std::thread::spawn(move || {
                        std::thread::sleep(time);
                        drop(stream);
                    });
                }
            }
        }
    });
    port
}

/// A server's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Http,
    Procd,
    Ldap,
    Lockd,
    Redis,
}

/// The lie in every tenth request, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Nothing: the control.
    None,
    /// Answers it twice, at once or with the second answer somewhat later.
    Twice {
        late: bool,
    },
    /// On every connection an answer is there before any request.
    First,
    /// From a connection's first request on, the answer to the next one is sent too.
    Ahead,
    /// When a client says that it will not ask again, it is given one more answer.
    AtEnd,
    HalfThenEnd,
    HalfThenSilence,
    /// An answer of the wrong kind.
    Wrong,
    /// An answer to another request, where requests have numbers.
    Other,
    /// A lock is granted, and its release never answered.
    ReleasesUnanswered,
}

struct Liar {
    speech: Speech,
    lie: Lie,
    /// Requests that were measured, of all connections.
    answered: AtomicU64,
}

/// A server that speaks so and lies so. Gives its port.
pub(crate) fn answering(speech: Speech, lie: Lie) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let liar = Arc::new(Liar {
        speech,
        lie,
        answered: AtomicU64::new(0),
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, liar) = (stream.unwrap(), Arc::clone(&liar));
            // A client that gives up ends the connection, not the test.
            std::thread::spawn(move || liar.serve(stream));
        }
    });
    port
}

impl Liar {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        if self.lie == Lie::First {
            stream.write_all(&self.speech.answer(&self.speech.example(), 1))?;
        }
        let (mut input, mut is_ahead, mut latest) = (Vec::new(), false, Vec::new());
        loop {
            while let Some(length) = self.speech.length(&input) {
                let request: Vec<u8> = input.drain(..length).collect();
                if self.speech.is_end(&request) {
                    return self.end(&mut stream, &latest);
                }
                let is_measured = self.speech.is_measured(&request);
                let before = match is_measured {
                    true => self.answered.fetch_add(1, Ordering::Relaxed),
                    false => self.answered.load(Ordering::Relaxed),
                };
                if self.lie == Lie::ReleasesUnanswered && self.speech.is_release(&request) {
                    continue;
                }
                let answer = self
                    .speech
                    .answer(&request, before + u64::from(is_measured));
                let is_tenth = is_measured && before % 10 == 9;
                if is_measured {
                    latest.clone_from(&answer);
                }
                if self.lie == Lie::Ahead && is_measured {
                    // The first one is answered, and one more with it.
                    let often = if is_ahead { 1 } else { 2 };
                    is_ahead = true;
                    stream.write_all(&answer.repeat(often))?;
                } else if is_tenth {
                    self.lie(&mut stream, &request, &answer)?;
                } else {
                    stream.write_all(&answer)?;
                }
                if has(&request, b"connection: close") {
                    return Ok(());
                }
            }
            let mut room = [0; 4096];
            match stream.read(&mut room)? {
                0 => return self.end(&mut stream, &latest),
                count => input.extend_from_slice(&room[..count]),
            }
        }
    }

    /// The client ends the connection, on which this was the latest answer, if any.
    fn end(&self, stream: &mut TcpStream, latest: &[u8]) -> std::io::Result<()> {
        match self.lie {
            Lie::AtEnd => stream.write_all(latest),
            _ => Ok(()),
        }
    }

    fn lie(&self, stream: &mut TcpStream, request: &[u8], answer: &[u8]) -> std::io::Result<()> {
        let half = &answer[..answer.len() / 2];
        match self.lie {
            Lie::None | Lie::First | Lie::Ahead | Lie::AtEnd | Lie::ReleasesUnanswered => {
                stream.write_all(answer)
            }
            Lie::Twice { late: false } => stream.write_all(&answer.repeat(2)),
            Lie::Twice { late: true } => {
                stream.write_all(answer)?;
                std::thread::sleep(Duration::from_millis(3));
                stream.write_all(answer)
            }
            Lie::HalfThenEnd => {
                stream.write_all(half)?;
                stream.shutdown(std::net::Shutdown::Both)
            }
            Lie::HalfThenSilence => {
                stream.write_all(half)?;
                // Until the client has had enough.
                stream.read(&mut [0; 1]).map(drop)
            }
            Lie::Wrong => stream.write_all(&self.speech.wrong(request)),
            Lie::Other => {
                let mut other = request.to_vec();
                // The last byte of the number of an LDAP message.
                other[number(request).end - 1] ^= 0x40;
                stream.write_all(&self.speech.answer(&other, 1))
            }
        }
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    let is = |at: &[u8]| at.eq_ignore_ascii_case(part);
    bytes.windows(part.len()).any(is)
}

fn http(head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// An LDAP message with the number of the request and this operation.
fn ldap(request: &[u8], operation: &[u8]) -> Vec<u8> {
    let content = [&request[number(request)], operation].concat();
    [&[0x30, content.len() as u8], &content[..]].concat()
}

/// Where an LDAP message has its number, with tag and length.
fn number(request: &[u8]) -> std::ops::Range<usize> {
    let at = content(request);
    at..at + 2 + usize::from(request[at + 1])
}

/// Where the content of a BER element begins.
fn content(element: &[u8]) -> usize {
    match element[1] {
        0..0x80 => 2,
        long => 2 + usize::from(long & 0x7f),
    }
}

/// How an LDAP operation of this tag ended.
fn result(tag: u8, code: u8) -> [u8; 9] {
    [tag, 7, 0x0a, 1, code, 0x04, 0, 0x04, 0]
}

impl Speech {
    /// Bytes of the request that these begin with; None while it is not whole.
    fn length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Speech::Http | Speech::Procd => {
                let end = bytes.windows(4).position(|at| at == b"\r\n\r\n")?;
                Some(end + 4)
            }
            Speech::Ldap => {
                let at = bytes.get(1).map(|_| content(bytes))?;
                let length = match bytes[1] {
                    short @ 0..0x80 => usize::from(short),
                    _ => bytes
                        .get(2..at)?
                        .iter()
                        .fold(0, |sum, digit| sum << 8 | usize::from(*digit)),
                };
                Some(at + length).filter(|end| *end <= bytes.len())
            }
            Speech::Lockd | Speech::Redis => {
                // `*N`, and for each of N words `$LENGTH` and the word.
                let line = |at: usize| {
                    let end = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
                    let digits = std::str::from_utf8(&bytes[at + 1..at + end]).unwrap();
                    Some((at + end + 2, digits.parse::<usize>().unwrap()))
                };
                let (mut at, words) = line(0)?;
                for _ in 0..words {
                    let (word, length) = line(at)?;
                    at = word + length + 2;
                }
                Some(at).filter(|end| *end <= bytes.len())
            }
        }
    }

    /// Whether it is one of those that jostle measures.
    fn is_measured(self, request: &[u8]) -> bool {
        match self {
            Speech::Http => true,
            Speech::Procd => !has(request, b"/stats"),
            Speech::Ldap => request[number(request).end] == 0x63 && !has(request, b"cn=Monitor"),
            Speech::Lockd => has(request, b"LOCK\r\n"),
            Speech::Redis => has(request, b"\r\nSET\r\n") || has(request, b"EVALSHA"),
        }
    }

    /// Whether it gives a lock back.
    fn is_release(self, request: &[u8]) -> bool {
        has(request, b"UNLOCK\r\n")
    }

    /// Whether it ends the connection.
    fn is_end(self, request: &[u8]) -> bool {
        self == Speech::Ldap && request[number(request).end] == 0x42
    }

    /// A request.
    fn example(self) -> Vec<u8> {
        match self {
            Speech::Ldap => b"\x30\x05\x02\x01\x01\x60\x00".to_vec(),
            Speech::Http | Speech::Procd => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            Speech::Lockd | Speech::Redis => b"*1\r\n$4\r\nLOCK\r\n".to_vec(),
        }
    }

    /// The right answer, when so many were given with this one.
    fn answer(self, request: &[u8], answered: u64) -> Vec<u8> {
        match self {
            Speech::Http => http("", "hello"),
            Speech::Procd if has(request, b"/stats") => {
                http("", &format!("{{\"calls\":{answered}}}"))
            }
            Speech::Procd => http("Exit-Code: 0\r\n", "ok"),
            Speech::Ldap => match request[number(request).end] {
                0x60 => ldap(request, &result(0x61, 0)),
                _ if has(request, b"cn=Monitor") => ldap(request, &result(0x65, 32)),
                _ => {
                    let entry = ldap(request, b"\x64\x06\x04\x02cn\x30\x00");
                    [entry, ldap(request, &result(0x65, 0))].concat()
                }
            },
            // A LOCK is granted with every other answer.
            Speech::Lockd if has(request, b"INFO") => {
                bulk(&format!("grants:{}\r\n", answered.div_ceil(2)))
            }
            Speech::Lockd if has(request, b"UNLOCK") => b":1\r\n".to_vec(),
            Speech::Lockd => format!(":{}\r\n", answered + 1).into_bytes(),
            Speech::Redis if has(request, b"EVALSHA") => b":1\r\n".to_vec(),
            Speech::Redis if has(request, b"\r\nSET\r\n") => b"+OK\r\n".to_vec(),
            Speech::Redis => bulk("used_memory:1"),
        }
    }

    /// A whole answer that is no answer to this request.
    fn wrong(self, request: &[u8]) -> Vec<u8> {
        match self {
            Speech::Http => b"SSH-2.0-liar\r\n\r\n".to_vec(),
            // As of another web server: 200, and no exit code.
            Speech::Procd => http("", "hello"),
            Speech::Ldap => ldap(request, &result(0x61, 0)),
            Speech::Lockd => b"$2\r\nhi\r\n".to_vec(),
            Speech::Redis => b":7\r\n".to_vec(),
        }
    }
}
