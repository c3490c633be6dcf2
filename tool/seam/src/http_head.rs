//! The head of an answer in HTTP/1.1, for clients that speak the protocol themselves
//! because they keep their own sockets. The head is parsed by `httparse`.

/// A whole answer at the beginning of what has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// `Exit-Code`, of procd.
    pub exit_code: Option<u8>,
    /// `X-Consul-Index`.
    pub index: Option<u64>,
    /// The connection ends with it.
    pub closes: bool,
    /// Bytes of the head.
    pub head: usize,
    /// Bytes of all.
    pub length: usize,
}

/// The bytes are no such answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

impl Head {
    /// None while the answer is not whole.
    ///
    /// # Errors
    /// Bytes that are no HTTP answer; an answer that does not state its length in its head.
    pub fn read(bytes: &[u8]) -> Result<Option<Head>, Foreign> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut parsed = httparse::Response::new(&mut headers);
        let bytes_of_head = match parsed.parse(bytes).map_err(|_| Foreign)? {
            httparse::Status::Complete(count) => count,
            httparse::Status::Partial => return Ok(None),
        };
        let mut head = Head {
            status: parsed.code.ok_or(Foreign)?,
            head: bytes_of_head,
            length: bytes_of_head,
            ..Head::default()
        };
        let mut has_length = has_no_body(head.status);
        for header in parsed.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = std::str::from_utf8(header.value).map_err(|_| Foreign)?;
            match header.name.len() {
                9 if is("exit-code") => {
                    head.exit_code = Some(value.parse().map_err(|_| Foreign)?);
                }
                10 if is("connection") => head.closes = value.eq_ignore_ascii_case("close"),
                14 if is("content-length") => {
                    let body: usize = value.parse().map_err(|_| Foreign)?;
                    head.length = bytes_of_head.checked_add(body).ok_or(Foreign)?;
                    has_length = true;
                }
                14 if is("x-consul-index") => {
                    head.index = Some(value.parse().map_err(|_| Foreign)?);
                }
                17 if is("transfer-encoding") => return Err(Foreign),
                _ => {}
            }
        }
        // Otherwise the end of the connection would be the end of the body.
        if !has_length {
            return Err(Foreign);
        }
        Ok((bytes.len() >= head.length).then_some(head))
    }
}

/// Whether an answer of this status never has a body, and so need not state its length.
fn has_no_body(status: u16) -> bool {
    matches!(status, 100..200 | 204 | 304)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nExit-Code: 7\r\nX-Consul-Index: 9\r\nContent-Length: 2\r\n\r\nab";
        let whole = Head {
            status: 200,
            exit_code: Some(7),
            index: Some(9),
            closes: false,
            head: bytes.len() - 2,
            length: bytes.len(),
        };
        for end in 0..bytes.len() {
            assert_eq!(Head::read(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(Head::read(bytes), Ok(Some(whole)));
        let refused = b"HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(Head::read(refused).unwrap().unwrap().closes);
        for nonsense in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\nExit-Code: 256\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab",
        ] {
            let read = Head::read(nonsense);
            assert_eq!(read, Err(Foreign), "{}", nonsense.escape_ascii());
        }
    }

    #[test]
    fn only_an_answer_that_cannot_have_a_body_may_leave_its_length_out() {
        for (status, is_read) in [
            (100, true),
            (204, true),
            (304, true),
            (200, false),
            (500, false),
        ] {
            let bytes = format!("HTTP/1.1 {status} X\r\n\r\n");
            let read = Head::read(bytes.as_bytes());
            assert_eq!(read.is_ok(), is_read, "{status}");
            let length = read.ok().flatten().map(|head| head.length);
            assert_eq!(length, is_read.then_some(bytes.len()), "{status}");
        }
    }
}
