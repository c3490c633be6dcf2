use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    head: 256,
    body: 64,
};

/// The meaning of a stream of bytes when all of it is there.
fn meaning(bytes: &[u8]) -> (Vec<String>, Option<Refusal>) {
    let (mut requests, mut at) = (Vec::new(), 0);
    loop {
        match parse(&bytes[at..], LIMITS) {
            Ok(Progress::Whole(request, used)) => {
                requests.push(shown(&request, &bytes[at..]));
                at += used;
            }
            Ok(Progress::Partial { .. }) => return (requests, None),
            Err(refusal) => return (requests, Some(refusal)),
        }
    }
}

fn shown(request: &Request, bytes: &[u8]) -> String {
    let text = |range: &Range<usize>| String::from_utf8_lossy(&bytes[range.clone()]).into_owned();
    format!(
        "{:?} {} {} {:?} [{}] {}",
        request.method,
        text(&request.path),
        request.query.as_ref().map(text).unwrap_or_default(),
        request.token.as_ref().map(text),
        text(&request.body),
        if request.keep_alive {
            "keeps"
        } else {
            "closes"
        },
    )
}

/// The meaning of a stream in pieces, as a connection gives it.
fn in_pieces(pieces: &[&[u8]]) -> (Vec<String>, Option<Refusal>) {
    let (mut requests, mut input) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parse(&input, LIMITS) {
                Ok(Progress::Whole(request, used)) => {
                    requests.push(shown(&request, &input));
                    input.drain(..used);
                }
                Ok(Progress::Partial { .. }) => break,
                Err(refusal) => return (requests, Some(refusal)),
            }
        }
    }
    (requests, None)
}

#[test]
fn requests_are_understood() {
    let get = |rest: &str| format!("GET {rest}\r\n\r\n");
    for (text, expected) in [
        (
            get("/a?b=1&c HTTP/1.1\r\nHost: x"),
            "Get /a b=1&c None [] keeps",
        ),
        (get("/ HTTP/1.1\r\nhost:x"), "Get /  None [] keeps"),
        (
            get("/a?b?c HTTP/1.1\r\nHost: x"),
            "Get /a b?c None [] keeps",
        ),
        (
            get("HTTP://h:1/a?x/y HTTP/1.1\r\nHost: x"),
            "Get /a x/y None [] keeps",
        ),
        // A client of HTTP/1.0 must ask for what 1.1 takes for granted.
        (get("/a HTTP/1.0"), "Get /a  None [] closes"),
        (
            get("/a HTTP/1.0\r\nConnection: Keep-Alive"),
            "Get /a  None [] keeps",
        ),
        (
            get("/a HTTP/1.1\r\nHost: x\r\nConnection: foo, Close"),
            "Get /a  None [] closes",
        ),
        (
            get("http://x:1/a?b HTTP/1.1\r\nHost: x"),
            "Get /a b None [] keeps",
        ),
        (
            get("/a HTTP/1.1\r\nHost: x\r\nAuthorization: bearer  s3c "),
            "Get /a  Some(\"s3c\") [] keeps",
        ),
        (
            get("/a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic x"),
            "Get /a  None [] keeps",
        ),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
            "Post /a  None [abc] keeps",
        ),
        (
            "\r\nHEAD /a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "Head /a  None [] keeps",
        ),
    ] {
        assert_eq!(
            meaning(text.as_bytes()),
            (vec![expected.to_owned()], None),
            "{text}"
        );
    }
}

#[test]
fn what_is_malformed_or_too_large_is_refused() {
    let long = "x".repeat(300);
    let many = "a: b\r\n".repeat(65);
    for (text, status) in [
        ("\0\0\0\0".to_owned(), "400"),
        ("GET\r\n\r\n".to_owned(), "400"),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), "505"),
        ("GET /a\r\n\r\n".to_owned(), "400"),
        ("GET a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "405"),
        ("get /a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "405"),
        ("PUT /a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "405"),
        ("GET /a HTTP/1.1\r\n\r\n".to_owned(), "400"), // No Host.
        ("GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/2.0\r\nHost: x\r\n\r\n".to_owned(), "505"),
        ("GET /a HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHost : x\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHo st: x\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHost: \0\r\n\r\n".to_owned(), "400"),
        ("GET http://u@x/a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("GET http://x?a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\nHost: x\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHost: x\nContent-Length: 1\r\n\r\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHost: x\r\n\n".to_owned(), "400"),
        ("GET /a HTTP/1.1\r\nHost: x\n".to_owned(), "400"),
        // What was wrong first counts.
        ("GET /a HTTP/2.0\nHost: x\r\n\r\n".to_owned(), "505"),
        (format!("GET /{long}"), "431"),
        (format!("GET /a HTTP/1.1\r\nHost: {long}\r\n\r\n"), "431"),
        (format!("GET /a HTTP/1.1\r\n{many}\r\n"), "431"),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 65\r\n\r\n".to_owned(), "413"),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"
                .to_owned(),
            "413",
        ),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_owned(), "400"),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n".to_owned(), "400"),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n".to_owned(), "400"),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
                .to_owned(),
            "400",
        ),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "501",
        ),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            "400",
        ),
        ("POST /a HTTP/1.1\r\nHost: x\r\nExpect: much\r\n\r\n".to_owned(), "417"),
    ] {
        let (requests, refusal) = meaning(text.as_bytes());
        let found = refusal.map(|refusal| refusal.status().0);
        assert!(requests.is_empty(), "{text}");
        assert!(found.is_some_and(|found| found.starts_with(status)), "{text}: {found:?}");
    }
}

#[test]
fn a_client_that_waits_for_leave_to_send_its_body_is_seen() {
    let text = b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    let waits = Progress::Partial {
        expects_continue: true,
    };
    assert_eq!(parse(text, LIMITS), Ok(waits));
    assert!(matches!(
        parse(&text[..text.len() - 1], LIMITS),
        Ok(Progress::Partial {
            expects_continue: false
        })
    ));
}

#[test]
fn answers_have_a_length_and_the_exit_code() {
    let answer = Answer {
        status: "200 OK",
        exit_code: Some(203),
        headers: "Content-Type: text/plain\r\n",
        body: b"hello",
    };
    let written = |to| {
        let mut out = Vec::new();
        answer.write(&mut out, to, true);
        String::from_utf8(out).unwrap()
    };
    let head = "HTTP/1.1 200 OK\r\nExit-Code: 203\r\nContent-Length: 5\r\nConnection: close\r\n\
                Content-Type: text/plain\r\n\r\n";
    assert_eq!(written(Method::Get), format!("{head}hello"));
    assert_eq!(written(Method::Head), head);
}

const STREAMS: [&str; 8] = [
    "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nPOST /c HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n\
     ab\r\nGET /d HTTP/1.0\r\n\r\n",
    "POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 65\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nrubbish\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "GET / HTTP/3.1\nHost: x\r\n\r\n",
];

#[test]
fn it_does_not_matter_where_a_stream_is_split() {
    for stream in STREAMS {
        let bytes = stream.as_bytes();
        let whole = meaning(bytes);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(in_pieces(&single), whole, "{stream}");
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    in_pieces(&pieces),
                    whole,
                    "{stream} at {first} and {second}"
                );
            }
        }
    }
}

proptest! {
    /// Whatever is sent, no byte makes it panic, and no split changes what it
    /// means; noise is mixed into sensible requests.
    #[test]
    fn noise_means_the_same_in_pieces(
        stream in 0..STREAMS.len(),
        noise in proptest::collection::vec((0usize..160, any::<u8>()), 0..4),
        cuts in proptest::collection::vec(0usize..160, 0..6),
    ) {
        let mut bytes = STREAMS[stream].as_bytes().to_vec();
        for (at, byte) in noise {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
        prop_assert_eq!(in_pieces(&pieces), meaning(&bytes));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = meaning(&bytes);
    }
}
