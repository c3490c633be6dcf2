//! Tests of `call`, outside it because the client compiles that file in.

use std::net::{Ipv6Addr, SocketAddr};

use proptest::{prop_assert_eq, proptest};

use crate::call::*;

struct Line<'a>(&'a [&'a [u8]], &'a [(&'a str, &'a str)]);

impl Given for Line<'_> {
    fn arguments(&self) -> usize {
        self.0.len() + 1
    }
    fn argument(&self, index: usize) -> &[u8] {
        self.0
            .get(index.wrapping_sub(1))
            .copied()
            .unwrap_or_default()
    }
    fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.1.iter().find(|(key, _)| key.as_bytes() == name);
        found.map(|(_, value)| value.as_bytes())
    }
}

fn asked<'a>(line: &'a Line<'a>) -> Options<'a> {
    match options(line) {
        Ok(Wanted::Call(options)) => options,
        other => panic!("{other:?}"),
    }
}

/// The bytes sent, and in how many pieces.
fn request(words: &[&[u8]]) -> (String, usize) {
    request_with(words, None)
}

fn request_with(words: &[&[u8]], input: Option<&Input<'_>>) -> (String, usize) {
    let line = Line(words, &[]);
    let (mut bytes, mut pieces, mut last) = (Vec::new(), 0, true);
    let mut writer = Writer::new(|piece: &[u8], more| -> Result<(), ()> {
        let most = input.map_or(512, |input| input.body.len().max(512));
        assert!(last && piece.len() <= most, "something came after the end");
        bytes.extend_from_slice(piece);
        (pieces, last) = (pieces + 1, more);
        Ok(())
    });
    writer.request(&line, &asked(&line), input).unwrap();
    assert!(!last, "the last piece said that more would follow");
    (String::from_utf8(bytes).unwrap(), pieces)
}

fn target(words: &[&[u8]]) -> String {
    let (text, _) = request(words);
    let first = text.lines().next().unwrap().to_owned();
    first
        .strip_prefix("GET ")
        .unwrap()
        .strip_suffix(" HTTP/1.1")
        .unwrap()
        .to_owned()
}

#[test]
fn arguments_become_the_target() {
    for (words, expected) in [
        (&[&b"/a"[..]][..], "/a"),
        (&[b"a"], "/a"),
        (&[b"/a", b"x", b"y"], "/a?x&y"),
        (&[b"/a?x=1", b"y"], "/a?x=1&y"),
        (
            &[b"/sizecheck", b"file=/var/x y", b"max=10"],
            "/sizecheck?file=/var/x%20y&max=10",
        ),
        (&[b"/a", b"k=a=b&c"], "/a?k=a%3Db%26c"),
        (&[b"/a", b"50%+\x00\xff"], "/a?50%25+%00%FF"),
        (&[b"/a", b""], "/a?"),
        (&[b"/a b"], "/a%20b"),
    ] {
        assert_eq!(target(words), expected);
    }
}

#[test]
fn what_is_encoded_is_decoded_to_the_same() {
    let all: Vec<u8> = (0..=255).collect();
    let mut named = b"name=".to_vec();
    named.extend(&all);
    let positional: Vec<u8> = all.iter().copied().filter(|byte| *byte != b'=').collect();
    let target = target(&[b"/p", &positional, &named]);
    let args = crate::query::Args::parse(Some(&target.as_bytes()[3..])).unwrap();
    assert_eq!(args.positional, [positional]);
    assert_eq!(args.get("name"), Some(&all[..]));
}

#[test]
fn empty_arguments_keep_their_places() {
    for words in [&[&b""[..]][..], &[b"", b"x", b""], &[b"x", b"", b"y"]] {
        let target = target(&[&[&b"/p"[..]], words].concat());
        let query = target.as_bytes().strip_prefix(b"/p?");
        let args = crate::query::Args::parse(query).unwrap();
        assert_eq!(args.positional, words);
    }
}

#[test]
fn a_long_request_goes_in_pieces() {
    let long = [b'x'; 5000];
    let (text, pieces) = request(&[b"/a", &long]);
    assert!(text.contains(&"x".repeat(5000)) && text.ends_with("\r\n\r\n"));
    assert_eq!(pieces, text.len().div_ceil(512));
    assert_eq!(request(&[b"/a"]).1, 1);
}

#[test]
fn standard_input_is_the_body_and_headers_tell_who_calls() {
    let body = "x".repeat(5000);
    let (directory, terminal) = (&b"/a b\r\n%"[..], &b"/dev/pts/3"[..]);
    let input = Input {
        body: body.as_bytes(),
        directory,
        user: u32::MAX - 1,
        terminal,
    };
    let (text, pieces) = request_with(&[b"-", b"/a"], Some(&input));
    let head = "POST /a HTTP/1.1\r\nHost: procd\r\nConnection: close\r\nContent-Length: 5000\r\n\
                Caller-User: 4294967294\r\nCaller-Directory: /a%20b%0D%0A%25\r\n\
                Caller-Terminal: /dev/pts/3\r\n\r\n";
    assert_eq!((text, pieces), (format!("{head}{body}"), 2));
    let (directory, terminal) = (&b""[..], &b""[..]);
    let input = Input {
        body: b"",
        directory,
        user: 0,
        terminal,
    };
    let (text, pieces) = request_with(&[b"-", b"/a"], Some(&input));
    assert!(text.ends_with("Content-Length: 0\r\nCaller-User: 0\r\n\r\n") && pieces == 1);
}

#[test]
fn options_win_over_the_environment() {
    let env = [
        ("JOSTLE_CALL_ADDRESS", "1.2.3.4:5"),
        ("JOSTLE_CALL_TIMEOUT", "7"),
        ("JOSTLE_CALL_FAILURE", "3"),
        ("JOSTLE_CALL_USER", "33"),
        ("JOSTLE_CALL_TOKEN", "s"),
    ];
    let line = Line(&[b"/a", b"-q"], &env);
    let options = asked(&line);
    assert_eq!(
        (options.address, options.timeout_ms),
        (&b"1.2.3.4:5"[..], 7)
    );
    assert_eq!((options.failure, options.token), (Some(3), Some(&b"s"[..])));
    assert_eq!(options.user, Some(33));
    assert!(!options.quiet, "what follows the procedure is its own");
    assert!(!options.input);
    let line = Line(
        &[
            b"-", b"-q", b"-f", b"0", b"-a", b"unix:/x", b"-t", b"9", b"/a",
        ],
        &env,
    );
    let options = asked(&line);
    assert_eq!((options.address, options.timeout_ms), (&b"unix:/x"[..], 9));
    assert_eq!(
        (options.failure, options.quiet, options.procedure),
        (Some(0), true, 9)
    );
    assert!(options.input);
}

#[test]
fn wrong_usage_is_refused() {
    for words in [
        &[][..],
        &[&b""[..]],
        &[b"-q"],
        &[b"-x", b"/a"],
        &[b"-f", b"256", b"/a"],
        &[b"-f"],
        &[b"-f", b"-1", b"/a"],
        &[b"-t", b"0", b"/a"],
        &[b"-u", b"root", b"/a"],
        &[b"-u", b"4294967295", b"/a"],
        &[b"-t", b"1s", b"/a"],
    ] {
        assert!(options(&Line(words, &[])).is_err(), "{words:?}");
    }
    assert_eq!(options(&Line(&[b"--help"], &[])), Ok(Wanted::Help));
    assert_eq!(
        options(&Line(&[b"-q", b"--version"], &[])),
        Ok(Wanted::Version)
    );
}

#[test]
fn it_looks_for_the_engine_where_one_listens_by_default() {
    let options = asked(&Line(&[b"/a"], &[]));
    let expected = format!("unix:{}", crate::config::DEFAULT_UNIX);
    assert_eq!(options.address, expected.as_bytes());
}

#[test]
fn addresses_are_laid_out_as_the_kernel_wants_them() {
    let bytes = |text: &str| {
        let address = SocketAddress::parse(text.as_bytes())?;
        Some((address.family(), address.as_bytes()[2..].to_vec()))
    };
    let mut four = vec![0x1e, 0xcf, 127, 0, 0, 1];
    four.resize(14, 0);
    assert_eq!(bytes("127.0.0.1:7887"), Some((2, four.clone())));
    assert_eq!(bytes("localhost:7887"), Some((2, four)));
    let mut six = vec![0, 1, 0, 0, 0, 0];
    six.extend([0; 15]);
    six.extend([1, 0, 0, 0, 0]);
    assert_eq!(bytes("[::1]:1"), Some((10, six)));
    assert_eq!(bytes("unix:/x"), Some((1, b"/x\0".to_vec())));
    assert_eq!(bytes("unix:@x"), Some((1, b"\0x".to_vec())));
    let long = format!("unix:/{}", "x".repeat(107));
    for text in [
        "",
        "unix:",
        "host:1",
        "127.0.0.1",
        "127.0.0.1:65536",
        "localhost:",
        "1.2.3:1",
        "1.2.3.4.5:1",
        "1.2.3.256:1",
        "[::1:1",
        "::1:1",
        "[1:2]:1",
        &long,
    ] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn ipv4_hosts_are_read_as_the_standard_library_reads_them(host: [u8; 4], port: u16) {
        let text = SocketAddr::from((host, port)).to_string();
        prop_assert_eq!(host_of(&text), Some(host.to_vec()));
    }

    #[test]
    fn ipv6_hosts_are_read_as_the_standard_library_reads_them(
        mut host: [u16; 8],
        zeros in (0..8usize, 0..8usize),
        text in "[0-9a-f:]{0,12}",
    ) {
        // Zeros, so that `::` is written.
        host.iter_mut().skip(zeros.0).take(zeros.1).for_each(|group| *group = 0);
        let host = Ipv6Addr::from(host);
        let octets = |host: Ipv6Addr| host.octets().to_vec();
        // An IPv4 address at the end is what is not read.
        if !host.to_string().contains('.') {
            prop_assert_eq!(host_of(&format!("[{host}]:1")), Some(octets(host)));
        }
        let expected = text.parse().ok().map(octets);
        prop_assert_eq!(host_of(&format!("[{text}]:1")), expected, "{}", text);
    }
}

fn host_of(text: &str) -> Option<Vec<u8>> {
    let address = SocketAddress::parse(text.as_bytes())?;
    let place = if address.family() == 2 { 4..8 } else { 8..24 };
    Some(address.as_bytes()[place].to_vec())
}

#[test]
fn replies_are_understood_as_soon_as_their_head_is_whole() {
    let reply = b"HTTP/1.1 200 OK\r\nExit-Code: 7\r\nContent-Length: 3\r\n\r\nabc";
    let whole = Head {
        status: 200,
        exit_code: Some(7),
        body: 3,
        length: reply.len() - 3,
    };
    for end in 0..=reply.len() {
        let expected = (end >= whole.length).then_some(whole);
        assert_eq!(head(&reply[..end]), Ok(expected), "{end}");
    }
    let failed = head(b"HTTP/1.1 500 X\r\nFailure: late\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(
        (failed.status, failed.exit_code, failed.body),
        (500, None, 0)
    );
    for nonsense in [
        &b"SSH-2.0-x\r\n"[..],
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nExit-Code: 256\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nExit-Code:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ] {
        assert!(head(nonsense).is_err(), "{}", nonsense.escape_ascii());
    }
}
