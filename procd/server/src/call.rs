//! The logic of the thin client `jostle-call`: options, the request, the reply. It does
//! no I/O, allocates no memory, and uses of `std` only what is also in `core`: the
//! client starts without the C library, and this file is compiled into it.

/// Exit code if the client is used wrongly (EX_USAGE of sysexits.h).
pub const USAGE: u8 = 64;
/// Exit code if the engine gives no answer (EX_UNAVAILABLE).
pub const UNREACHABLE: u8 = 69;
/// Exit code if the engine answers that there is no exit code (EX_SOFTWARE).
pub const FAILED: u8 = 70;

/// The output of `--help`.
pub const HELP: &str = "\
Calls a procedure of procd, and exits with its exit code.

Usage: jostle-call [OPTION...] PROCEDURE [ARG...]

  jostle-call /sizecheck file=in/4711 max=100000
  jostle-call -a 127.0.0.1:7887 -f 0 /blocked_sender file=in/4711 example.net
  jostle-call - /spamword lottery prize < message

An ARG with a `=` is a named argument, any other a positional one. The
procedure's output goes to standard output.

Options go before PROCEDURE; in brackets: environment variable and default
  -a ADDRESS  the engine's address: unix:PATH, unix:@NAME for an abstract socket,
              or HOST:PORT with a numeric host or `localhost`
              [JOSTLE_CALL_ADDRESS, unix:@procd]
  -t MS       give up after this many milliseconds
              [JOSTLE_CALL_TIMEOUT, 5000]
  -u USER     at an abstract socket the engine must run as the user with this
              number, instead of the caller or root  [JOSTLE_CALL_USER]
  -f CODE     exit with this code if the procedure gives none: 0 to fail open, a
              rejecting code to fail closed  [JOSTLE_CALL_FAILURE]
  -q          print nothing on standard error
  -           pass standard input on as the procedure's `body`, once it has ended,
              and this process's directory, user and terminal as its `caller`
  --help, --version

An engine's token comes from the variable JOSTLE_CALL_TOKEN alone.

Exit codes, beside the procedure's own:
  64  wrong usage
  69  the engine cannot be reached, or did not answer in time; -f replaces it
  70  it answered, but the procedure does not exist, failed, or was cut off, or
      standard input is longer than its --max-body; -f replaces it
";

/// The source of arguments and environment.
pub trait Given {
    /// How many arguments, the program's name among them.
    fn arguments(&self) -> usize;
    /// One of them; empty beyond the last.
    fn argument(&self, index: usize) -> &[u8];
    /// A variable of the environment.
    fn variable(&self, name: &[u8]) -> Option<&[u8]>;
}

/// The action that the arguments ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A call.
    Call(Options<'a>),
    /// The help text.
    Help,
    /// The version.
    Version,
}

/// A call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// The engine's address.
    pub address: &'a [u8],
    /// Milliseconds of patience for the whole call.
    pub timeout_ms: u32,
    /// The number of the user as whom the engine must run.
    pub user: Option<u32>,
    /// The exit code to use if the procedure gives none.
    pub failure: Option<u8>,
    /// Print no messages about failed calls.
    pub quiet: bool,
    /// Standard input is the body.
    pub input: bool,
    /// The token, which the engine may need.
    pub token: Option<&'a [u8]>,
    /// The argument that names the procedure; the rest are its own.
    pub procedure: usize,
}

/// Reads options and environment.
///
/// # Errors
/// What is wrong.
pub fn options(given: &impl Given) -> Result<Wanted<'_>, &'static str> {
    let mut options = Options {
        address: given
            .variable(b"JOSTLE_CALL_ADDRESS")
            .unwrap_or(b"unix:@procd"),
        timeout_ms: 5000,
        token: given.variable(b"JOSTLE_CALL_TOKEN"),
        procedure: 1,
        ..Options::default()
    };
    if let Some(value) = given.variable(b"JOSTLE_CALL_TIMEOUT") {
        options.timeout_ms = timeout(value)?;
    }
    if let Some(value) = given.variable(b"JOSTLE_CALL_USER") {
        options.user = Some(user(value)?);
    }
    if let Some(value) = given.variable(b"JOSTLE_CALL_FAILURE") {
        options.failure = Some(code(value)?);
    }
    while let [b'-', ..] = given.argument(options.procedure) {
        let value = given.argument(options.procedure + 1);
        options.procedure += 2;
        match given.argument(options.procedure - 2) {
            b"-a" => options.address = value,
            b"-t" => options.timeout_ms = timeout(value)?,
            b"-u" => options.user = Some(user(value)?),
            b"-f" => options.failure = Some(code(value)?),
            flag @ (b"-q" | b"-") => {
                options.quiet |= flag.len() == 2;
                options.input |= flag.len() == 1;
                options.procedure -= 1;
            }
            b"--help" | b"-h" => return Ok(Wanted::Help),
            b"--version" | b"-V" => return Ok(Wanted::Version),
            _ => return Err("there is no such option; see --help"),
        }
    }
    if given.argument(options.procedure).is_empty() {
        return Err("which procedure? see --help");
    }
    Ok(Wanted::Call(options))
}

fn timeout(text: &[u8]) -> Result<u32, &'static str> {
    const WRONG: &str = "the timeout is not within 1 to 3600000 milliseconds";
    within(text, 1, 3_600_000).map(|ms| ms as u32).ok_or(WRONG)
}

fn user(text: &[u8]) -> Result<u32, &'static str> {
    let user = within(text, 0, u32::MAX as u64 - 1);
    user.map(|user| user as u32)
        .ok_or("the user is not a number")
}

fn code(text: &[u8]) -> Result<u8, &'static str> {
    let code = within(text, 0, 255);
    code.map(|code| code as u8)
        .ok_or("the exit code is not within 0 to 255")
}

fn within(text: &[u8], least: u64, most: u64) -> Option<u64> {
    number(text).filter(|number| *number >= least && *number <= most)
}

/// A number of decimal digits alone.
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!text.is_empty()).then_some(number)
}

/// A socket address as the kernel lays it out (socket(7)).
#[derive(Clone, Copy, Debug)]
pub struct SocketAddress {
    bytes: [u8; 110],
    length: usize,
}

impl SocketAddress {
    const UNIX: u16 = 1;
    const IPV4: u16 = 2;
    const IPV6: u16 = 10;

    /// Reads `unix:PATH`, `unix:@NAME` or `HOST:PORT`; no names are looked up.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<SocketAddress> {
        match text.strip_prefix(b"unix:") {
            Some(path) => Self::unix(path),
            None => Self::internet(text),
        }
    }

    fn unix(path: &[u8]) -> Option<SocketAddress> {
        let mut bytes = [0; 110];
        // The last byte stays zero.
        if path.is_empty() || path.len() > 107 {
            return None;
        }
        bytes
            .get_mut(..2)?
            .copy_from_slice(&Self::UNIX.to_ne_bytes());
        bytes.get_mut(2..2 + path.len())?.copy_from_slice(path);
        // An abstract name begins with a zero and ends with its length (unix(7)).
        let is_abstract = path.first() == Some(&b'@');
        if is_abstract {
            bytes[2] = 0;
        }
        let length = 2 + path.len() + usize::from(!is_abstract);
        Some(SocketAddress { bytes, length })
    }

    fn internet(text: &[u8]) -> Option<SocketAddress> {
        let mut bytes = [0; 110];
        let colon = text.iter().rposition(|byte| *byte == b':')?;
        let (host, port) = text.split_at_checked(colon)?;
        let port = number(port.get(1..)?).filter(|port| *port <= 65535)? as u16;
        bytes.get_mut(2..4)?.copy_from_slice(&port.to_be_bytes());
        let (family, length) = match host.strip_prefix(b"[") {
            Some(host) => {
                let host = ipv6(host.strip_suffix(b"]")?)?;
                bytes.get_mut(8..24)?.copy_from_slice(&host);
                (Self::IPV6, 28)
            }
            None => {
                bytes.get_mut(4..8)?.copy_from_slice(&ipv4(host)?);
                (Self::IPV4, 16)
            }
        };
        bytes.get_mut(..2)?.copy_from_slice(&family.to_ne_bytes());
        Some(SocketAddress { bytes, length })
    }

    /// The address family.
    #[must_use]
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// It is a Unix socket.
    #[must_use]
    pub fn is_unix(&self) -> bool {
        self.family() == Self::UNIX
    }

    /// It is a name without a file, which any process can take first.
    #[must_use]
    pub fn is_abstract(&self) -> bool {
        self.is_unix() && self.bytes[2] == 0
    }

    /// The bytes for connect(2).
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

// The parsers of `core` can panic, and code that panics brings all of `std` along.

fn ipv4(text: &[u8]) -> Option<[u8; 4]> {
    if text == b"localhost" {
        return Some([127, 0, 0, 1]);
    }
    let mut host = [0; 4];
    let mut parts = text.split(|byte| *byte == b'.');
    for place in &mut host {
        *place = number(parts.next()?).filter(|part| *part <= 255)? as u8;
    }
    parts.next().is_none().then_some(host)
}

/// Groups of hexadecimal digits, of which `::` stands for as many zeros as are
/// missing (RFC 4291, 2.2); no scope, no IPv4 address at its end.
fn ipv6(text: &[u8]) -> Option<[u8; 16]> {
    let gap = text.windows(2).position(|two| two == b"::");
    let (head, tail) = match gap {
        Some(gap) => (text.get(..gap)?, text.get(gap + 2..)?),
        None => (text, &b""[..]),
    };
    let ((mut host, first), (tail, last)) = (groups(head)?, groups(tail)?);
    match gap {
        None if first < 8 => return None,
        Some(_) if first + last > 7 => return None,
        _ => {}
    }
    host.get_mut(16 - 2 * last..)?
        .copy_from_slice(tail.get(..2 * last)?);
    Some(host)
}

/// Up to eight groups, and how many there were.
fn groups(text: &[u8]) -> Option<([u8; 16], usize)> {
    let (mut host, mut count) = ([0; 16], 0);
    if text.is_empty() {
        return Some((host, 0));
    }
    for group in text.split(|byte| *byte == b':') {
        if group.is_empty() || group.len() > 4 {
            return None;
        }
        let mut value: u16 = 0;
        for digit in group {
            value = value << 4 | char::from(*digit).to_digit(16)? as u16;
        }
        host.get_mut(2 * count..2 * count + 2)?
            .copy_from_slice(&value.to_be_bytes());
        count += 1;
    }
    Some((host, count))
}

/// Standard input, and who calls. What is empty is unknown.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// All of standard input.
    pub body: &'a [u8],
    /// The working directory.
    pub directory: &'a [u8],
    /// The user's number.
    pub user: u32,
    /// The terminal's file.
    pub terminal: &'a [u8],
}

/// Writes a request of any length through a small buffer into `send`, which is
/// told whether more follows.
pub struct Writer<F> {
    buffer: [u8; 512],
    filled: usize,
    send: F,
}

impl<E, F: FnMut(&[u8], bool) -> Result<(), E>> Writer<F> {
    /// A writer.
    pub fn new(send: F) -> Self {
        Writer {
            buffer: [0; 512],
            filled: 0,
            send,
        }
    }

    fn byte(&mut self, byte: u8) -> Result<(), E> {
        if let Some(place) = self.buffer.get_mut(self.filled) {
            *place = byte;
            self.filled += 1;
            return Ok(());
        }
        self.flush(true)?;
        self.buffer[0] = byte;
        self.filled = 1;
        Ok(())
    }

    // Copies of these would be most of the program.
    #[inline(never)]
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), E> {
        bytes.iter().try_for_each(|byte| self.byte(*byte))
    }

    fn flush(&mut self, more: bool) -> Result<(), E> {
        (self.send)(self.buffer.get(..self.filled).unwrap_or_default(), more)
    }

    /// Writes a byte, encoded if necessary; `keep` are further bytes that stay as they are.
    #[inline(never)]
    fn encoded(&mut self, byte: u8, keep: &[u8]) -> Result<(), E> {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        if byte.is_ascii_alphanumeric()
            || b"-._~/:@,;!$'()*+".contains(&byte)
            || keep.contains(&byte)
        {
            return self.byte(byte);
        }
        self.byte(b'%')?;
        self.byte(HEX[usize::from(byte >> 4)])?;
        self.byte(HEX[usize::from(byte & 15)])
    }

    fn decimal(&mut self, number: u64) -> Result<(), E> {
        if number > 9 {
            self.decimal(number / 10)?;
        }
        self.byte(b'0' + (number % 10) as u8)
    }

    /// Writes the headers of an input.
    fn input(&mut self, input: &Input<'_>) -> Result<(), E> {
        self.bytes(b"Content-Length: ")?;
        self.decimal(input.body.len() as u64)?;
        self.bytes(b"\r\nCaller-User: ")?;
        self.decimal(input.user.into())?;
        for (name, value) in [
            (&b"\r\nCaller-Directory: "[..], input.directory),
            (b"\r\nCaller-Terminal: ", input.terminal),
        ] {
            if !value.is_empty() {
                self.bytes(name)?;
                value.iter().try_for_each(|byte| self.encoded(*byte, b""))?;
            }
        }
        self.bytes(b"\r\n")
    }

    /// Writes the whole request.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn request(
        &mut self,
        given: &impl Given,
        options: &Options<'_>,
        input: Option<&Input<'_>>,
    ) -> Result<(), E> {
        self.bytes(if input.is_some() { b"POST " } else { b"GET " })?;
        let procedure = given.argument(options.procedure);
        if procedure.first() != Some(&b'/') {
            self.byte(b'/')?;
        }
        for byte in procedure {
            self.encoded(*byte, b"%?&=")?;
        }
        let mut separator = if procedure.contains(&b'?') {
            b'&'
        } else {
            b'?'
        };
        for index in options.procedure + 1..given.arguments() {
            self.byte(separator)?;
            separator = b'&';
            let mut keep = &b"="[..];
            for byte in given.argument(index) {
                self.encoded(*byte, keep)?;
                if *byte == b'=' {
                    keep = b"";
                }
            }
        }
        self.bytes(b" HTTP/1.1\r\nHost: procd\r\nConnection: close\r\n")?;
        if let Some(token) = options.token {
            self.bytes(b"Authorization: Bearer ")?;
            self.bytes(token)?;
            self.bytes(b"\r\n")?;
        }
        if let Some(input) = input {
            self.input(input)?;
        }
        self.bytes(b"\r\n")?;
        let body = input.map_or(&b""[..], |input| input.body);
        self.flush(!body.is_empty())?;
        match body {
            [] => Ok(()),
            body => (self.send)(body, false),
        }
    }
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: u16,
    /// The procedure's exit code.
    pub exit_code: Option<u8>,
    /// Bytes of the body.
    pub body: u64,
    /// Bytes of the head.
    pub length: usize,
}

/// Reads a reply's head; `None` if it is not whole.
///
/// # Errors
/// What is wrong.
pub fn head(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    const NONSENSE: &str = "what answers there is not procd";
    let start = bytes.get(..12).unwrap_or(bytes);
    let expected = b"HTTP/1.1 ";
    if start.iter().zip(expected).any(|(a, b)| a != b) {
        return Err(NONSENSE);
    }
    let Some(length) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let status = start.get(9..).and_then(number).ok_or(NONSENSE)?;
    let mut head = Head {
        status: status as u16,
        exit_code: None,
        body: 0,
        length: length + 4,
    };
    for line in bytes
        .get(..length)
        .unwrap_or_default()
        .split(|b| *b == b'\n')
    {
        if let Some(value) = value(line, b"exit-code:") {
            head.exit_code = Some(code(value).map_err(|_| NONSENSE)?);
        } else if let Some(value) = value(line, b"content-length:") {
            head.body = number(value).ok_or(NONSENSE)?;
        }
    }
    Ok(Some(head))
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}
