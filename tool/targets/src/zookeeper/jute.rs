//! ZooKeeper's serialisation (jute): numbers in network order, strings and lists behind
//! their length, and a frame around each request and reply.

use crate::CallError;
use crate::wire::wrong_kind;
use jostle_sys::files::Errno;

/// Longest frame that is believed; the Java client's own limit.
const LONGEST: usize = 4 << 20;

/// A reply's head: xid, zxid, error.
const HEAD: usize = 16;

/// The xid of a watch's event.
pub(super) const EVENT: i32 = -1;
/// The xid of a ping.
pub(super) const PING: i32 = -2;
/// The xid of a request that tells who we are.
pub(super) const AUTH: i32 = -4;

/// Types of requests.
pub(super) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const PING: i32 = 11;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const CLOSE: i32 = -11;
}

/// How a node is created.
pub(super) mod flags {
    pub(crate) const EPHEMERAL_SEQUENTIAL: i32 = 3;
    pub(crate) const CONTAINER: i32 = 4;
}

/// Errors of replies.
pub(super) mod error {
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const EXPIRED: i32 = -112;
}

/// Appends a frame with what `fill` appends.
pub(super) fn framed(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let head = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = (out.len() - head - 4) as u32;
    out[head..head + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a request.
pub(super) fn request(out: &mut Vec<u8>, xid: i32, op: i32, fill: impl FnOnce(&mut Vec<u8>)) {
    framed(out, |out| {
        int(out, xid);
        int(out, op);
        fill(out);
    });
}

/// Appends a number.
pub(super) fn int(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends bytes behind their length, as `fill` appends them.
pub(super) fn sized(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    framed(out, fill);
}

/// Appends a node's path, data (none), access for everybody, and flags.
pub(super) fn create(out: &mut Vec<u8>, flags: i32, path: impl FnOnce(&mut Vec<u8>)) {
    const EVERYTHING: i32 = 31;
    sized(out, path);
    int(out, 0);
    int(out, 1);
    int(out, EVERYTHING);
    sized(out, |out| out.extend_from_slice(b"world"));
    sized(out, |out| out.extend_from_slice(b"anyone"));
    int(out, flags);
}

/// A reply, or a watch's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The request's number.
    pub xid: i32,
    /// Number of the transaction.
    pub zxid: i64,
    /// 0, or what failed.
    pub error: i32,
    /// The bytes behind the head.
    pub body: &'a [u8],
}

/// The content of the frame that `input` begins with and the bytes it takes; None while
/// it is not whole.
///
/// # Errors
/// EPROTO in the name of `call` where its length is not to be believed.
pub(super) fn content<'a>(
    input: &'a [u8],
    call: &'static str,
) -> Result<Option<(&'a [u8], usize)>, CallError> {
    let Some(length) = input.get(..4) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > LONGEST {
        let said = "what answers there does not speak ZooKeeper's protocol";
        return Err(CallError::saying(call, Errno::PROTO, said));
    }
    let whole = input.get(4..4 + length);
    Ok(whole.map(|content| (content, 4 + length)))
}

/// The reply that `input` begins with and the bytes it takes; None while it is not whole.
///
/// # Errors
/// EPROTO in the name of `call` where it is none.
pub(super) fn reply<'a>(
    input: &'a [u8],
    call: &'static str,
) -> Result<Option<(Frame<'a>, usize)>, CallError> {
    let Some((content, length)) = content(input, call)? else {
        return Ok(None);
    };
    let mut head = Reader(content);
    let (Some(xid), Some(zxid), Some(error)) = (head.int(), head.long(), head.int()) else {
        return Err(wrong_kind(call));
    };
    let body = &content[HEAD..];
    let frame = Frame {
        xid,
        zxid,
        error,
        body,
    };
    Ok(Some((frame, length)))
}

/// A frame's content, from its beginning on; None where it is too short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// A number.
    pub(super) fn int(&mut self) -> Option<i32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*first))
    }

    /// A long number.
    pub(super) fn long(&mut self) -> Option<i64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_be_bytes(*first))
    }

    /// Bytes behind their length.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A list of strings, each given to `each`.
    pub(super) fn strings(&mut self, mut each: impl FnMut(&'a [u8])) -> Option<()> {
        for _ in 0..self.int()? {
            each(self.bytes()?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_length_number_and_type_in_front() {
        let mut out = b"before".to_vec();
        request(&mut out, 7, op::DELETE, |out| {
            sized(out, |out| out.extend_from_slice(b"/a"));
            int(out, -1);
        });
        let expected = b"before\0\0\0\x12\0\0\0\x07\0\0\0\x02\0\0\0\x02/a\xff\xff\xff\xff";
        assert_eq!(out, expected);
    }

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let mut input = Vec::new();
        framed(&mut input, |out| {
            int(out, 3);
            out.extend_from_slice(&17i64.to_be_bytes());
            int(out, error::NO_NODE);
            int(out, 2);
            sized(out, |out| out.extend_from_slice(b"one"));
            sized(out, |out| out.extend_from_slice(b""));
        });
        for cut in 0..input.len() {
            assert_eq!(reply(&input[..cut], "x"), Ok(None), "{cut}");
        }
        let (frame, length) = reply(&input, "x").unwrap().unwrap();
        assert_eq!(length, input.len());
        assert_eq!((frame.xid, frame.zxid, frame.error), (3, 17, -101));
        let mut names = Vec::new();
        let read = Reader(frame.body).strings(|name| names.push(name));
        assert_eq!((read, names), (Some(()), vec![&b"one"[..], b""]));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert!(reply(b"HTTP/1.1 400", "x").is_err());
        assert!(reply(b"\0\0\0\x02ab", "x").is_err());
        // A list that is longer than its frame.
        let mut short = Vec::new();
        int(&mut short, 5);
        assert_eq!(Reader(&short).strings(|_| {}), None);
        assert_eq!(Reader(b"\xff\xff\xff\xff").bytes(), None);
    }
}
