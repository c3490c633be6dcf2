//! Calls, by curl and by the thin client, and procedures that change.

use crate::common::{Called, Engine, curl, eventually, jostle_call, jostle_call_with, root};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn curl_gets_the_exit_code_in_a_header_and_what_was_printed_in_the_body() {
    let engine = Engine::start(&[]);
    let url = |target: &str| engine.url(target);
    let (_, text) = curl(&["-i", &url("/sizecheck?file=m&max=999")]);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\r\nExit-Code: 1\r\n"), "{text}");
    let code = ["-o", "/dev/null", "-w", "%header{exit-code} %{http_code}"];
    for (target, expected) in [
        ("/sizecheck?file=m&max=1000", "0 200"),
        ("/sizecheck?file=m&max=1&reject=7", "7 200"),
        ("/code?200", "200 200"),
        ("/sizecheck?file=none&max=1", " 404"),
        ("/sizecheck?file=m", " 400"),
        ("/code?256", " 500"),
        ("/nothing", " 404"),
        ("/", " 404"),
        ("/%zz?", " 404"),
        ("/accept?%zz", " 400"),
    ] {
        let (_, text) = curl(&[&code[..], &[&url(target)]].concat());
        assert_eq!(text, expected, "{target}");
    }
    let (_, text) = curl(&["--data-binary", "a body", &url("/echo?one&name=a%20b")]);
    assert_eq!(text, "one\ta b\ta body\n");
    let (_, text) = curl(&["--http1.0", &url("/echo?one")]);
    assert_eq!(text, "one\tnil\tnil\n");
    let (_, text) = curl(&["--head", &url("/echo?one")]);
    assert!(text.contains("Content-Length: 12\r\n"), "{text}");
    let expect = ["-H", "Expect: 100-continue", "--data-binary", "b"];
    let (_, text) = curl(&[&expect[..], &[&url("/echo?x")]].concat());
    assert_eq!(text, "x\tnil\tb\n");
}

#[test]
fn a_connection_is_kept_and_requests_may_be_sent_ahead() {
    let engine = Engine::start(&[]);
    let (_, text) = curl(&[&engine.url("/echo?1"), &engine.url("/echo?2")]);
    assert_eq!(text, "1\tnil\tnil\n2\tnil\tnil\n");
    assert_eq!(
        engine.stats()["connections"],
        2,
        "curl's, and that of this question"
    );
    let mut client = engine.client();
    for number in 0..100 {
        client.ask(&format!("/code?{number}"));
    }
    for number in 0..100 {
        assert_eq!(client.read().unwrap().exit_code, Some(number));
    }
}

#[test]
fn the_thin_client_exits_with_the_procedures_code() {
    let engine = Engine::start(&["--time-limit", "200"]);
    for (arguments, code, output) in [
        (&["/sizecheck", "file=m", "max=1000"][..], 0, ""),
        (&["/sizecheck", "file=m", "max=999"], 1, ""),
        (&["sizecheck?file=m", "max=999", "reject=17"], 17, ""),
        (&["/accept"], 0, ""),
        (&["/code", "255"], 255, ""),
        (&["-q", "/code", "3"], 3, ""),
        (&["-f", "9", "/code", "3"], 3, ""),
        (
            &["-t", "10000", "/echo", "a b", "name=c&d=%+"],
            0,
            "a b\tc&d=%+\tnil\n",
        ),
    ] {
        let expected: Called = (Some(code), output.into(), String::new());
        assert_eq!(engine.call(arguments), expected, "{arguments:?}");
    }
    let (code, output, _) = engine.call(&["/big", "60000"]);
    assert_eq!((code, output.len()), (Some(0), 60_000));
}

#[test]
fn the_thin_client_tells_failures_from_codes() {
    let engine = Engine::start(&["--time-limit", "1000"]);
    for (arguments, code, message) in [
        (
            &["/nothing"][..],
            70,
            "no such procedure\njostle-call: not found\n",
        ),
        (
            &["/fail"],
            70,
            "fail.lua:1: it broke\njostle-call: the procedure failed\n",
        ),
        (&["/forever"], 70, "time is up"),
        (&["/bomb"], 70, "more memory"),
        (&["/code", "300"], 70, "0 to 255"),
        (&["-f", "0", "/fail"], 0, "it broke"),
        (&["-q", "-f", "6", "/nothing"], 6, ""),
        (&[], 64, "which procedure"),
        (&["-x", "/accept"], 64, "no such option"),
        (
            &["-f", "0", "-a", "some.host:1", "/accept"],
            64,
            "numeric host",
        ),
        (&["-a", "127.0.0.1:1", "/accept"], 69, "cannot be reached"),
        (&["-a", "unix:/nowhere", "/accept"], 69, "cannot be reached"),
        (
            &["-f", "4", "-a", "127.0.0.1:1", "/accept"],
            4,
            "cannot be reached",
        ),
    ] {
        let (found, output, messages) = engine.call(arguments);
        assert_eq!((found, output.as_str()), (Some(code), ""), "{arguments:?}");
        assert!(messages.contains(message), "{arguments:?}: {messages}");
        assert!(
            !message.is_empty() || messages.is_empty(),
            "{arguments:?}: {messages}"
        );
    }
    let (code, output, _) = jostle_call(&["--help"], &[]);
    assert!(code == Some(0) && output.contains("Usage: jostle-call"));
    assert_eq!(
        jostle_call(&["--version"], &[]).1,
        format!("jostle-call {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_thin_client_gives_up_on_one_that_is_no_engine() {
    // Those that say enough are given time to say it.
    let (soon, late) = ("100", "20000");
    for (says, patience_ms, message) in [
        ("", soon, "did not answer in time"),
        ("HTTP/1.1 200 OK\r\nExit-Co", soon, "did not answer in time"),
        (
            "HTTP/1.1 200 OK\r\nExit-Code: 0\r\nContent-Length: 10\r\n\r\nshort",
            soon,
            "in time",
        ),
        ("SSH-2.0-OpenSSH\r\n", late, "not procd"),
        ("HTTP/1.1 200 OK\r\n\r\n", late, "no exit code"),
        (
            &format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(1000)),
            late,
            "too long",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let says = says.to_owned();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(says.as_bytes());
            // Until the client is gone.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let (code, _, messages) = jostle_call(&["-a", &address, "-t", patience_ms, "/accept"], &[]);
        assert!(matches!(code, Some(69 | 70)), "{code:?} {messages}");
        assert!(messages.contains(message), "{messages}");
        served.join().unwrap();
    }
}

#[test]
fn the_unix_socket_does_the_same_and_belongs_to_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = path.display().to_string();
    let mut engine = Engine::start(&["--unix", &text]);
    let address = format!("unix:{text}");
    let called = |arguments: &[&str]| jostle_call(&[&["-a", &address], arguments].concat(), &[]).0;
    assert_eq!(called(&["/code", "7"]), Some(7));
    let (_, reply) = curl(&["--unix-socket", &text, "http://x/echo?hello"]);
    assert_eq!(reply, "hello\tnil\tnil\n");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Killed, it leaves its socket behind; the next one takes it over.
    engine.child.kill().unwrap();
    engine.child.wait().unwrap();
    assert!(path.exists());
    assert_eq!(called(&["/code", "7"]), Some(69));
    let engine = Engine::start(&["--unix", &text]);
    assert_eq!(called(&["/code", "7"]), Some(7));
    engine.signal("-TERM");
    engine.await_log("procd: ended");
    assert!(!path.exists(), "its socket is left");
}

/// Those of `procedures/`, on messages as they arrive.
#[test]
fn the_examples_do_what_their_heads_say() {
    let engine = Engine::start(&[]);
    for name in ["accept", "attachments", "blocked_sender", "sizecheck_lua"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/procedures");
        let text = std::fs::read_to_string(format!("{folder}/{name}.lua")).unwrap();
        engine.install(name, &text);
        eventually("it is loaded", || engine.stats_of(name)["loaded"] == true);
    }
    let spool = engine.home.path().join("spool");
    let plain = "From: Ann <ann@Mail.Example.net>\r\nSubject: x\r\n\r\nfilename=a.b\r\n";
    let attached = "From: e@example.com\r\n\r\n--x\r\nContent-Disposition: attachment; \
                    filename=\"Invoice.EXE\"\r\n\r\n...\r\n";
    std::fs::write(spool.join("plain"), plain).unwrap();
    std::fs::write(spool.join("attached"), attached).unwrap();
    for (call, code, said) in [
        ("accept", 0, ""),
        ("attachments file=plain exe scr", 0, ""),
        (
            "attachments file=attached exe scr",
            1,
            "Invoice.EXE is not accepted",
        ),
        ("attachments file=attached xe", 0, ""),
        ("attachments exe", 70, "attachments needs file=PATH"),
        (
            "attachments file=../secret exe",
            70,
            "leads out of the spool",
        ),
        (
            "blocked_sender file=plain example.org mail.example.net",
            1,
            "mail from",
        ),
        ("blocked_sender file=plain example.net", 0, ""),
        ("sizecheck_lua file=m max=1000", 0, ""),
        (
            "sizecheck_lua file=m max=999",
            1,
            "m has 1000 bytes, 999 are allowed",
        ),
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        let (exit, out, err) = engine.call(&words);
        assert_eq!(exit, Some(code), "{call}: {out}{err}");
        assert!(format!("{out}{err}").contains(said), "{call}: {out}{err}");
    }
}

#[test]
fn the_thin_client_passes_standard_input_on_if_told_to() {
    let engine = Engine::start(&["--max-body", "200K"]);
    engine.install(
        "who",
        "print(#(body or ''), caller.directory, caller.user, caller.terminal)",
    );
    eventually("it is loaded", || engine.stats_of("who")["loaded"] == true);
    let address = format!("127.0.0.1:{}", engine.port);
    let called = |input: &[u8], arguments: &[&str]| {
        jostle_call_with(input, arguments, &[("JOSTLE_CALL_ADDRESS", &address)])
    };
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let folder = std::env::current_dir().unwrap();
    let long = vec![b'x'; (200 << 10) + 1];
    for length in [0, 1, 65_536, 65_537, 200 << 10] {
        let expected = format!("{length}\t{}\t{own}\tnil\n", folder.display());
        let found = called(&long[..length], &["-", "/who"]);
        assert_eq!(found, (Some(0), expected, String::new()));
    }
    let (code, output, message) = called(&long, &["-", "/who"]);
    assert_eq!((code, output.as_str()), (Some(70), ""), "{message}");
    assert!(message.starts_with("the body is too long"), "{message}");
    // Without `-` a loop's input is left to the loop, and the engine is told nothing.
    let (_, output, _) = called(b"x", &["/who"]);
    assert_eq!(output, "0\tnil\tnil\tnil\n");
}

/// The sessions of the README that have standard input, and the same in Python and in sh.
#[test]
fn a_filter_and_a_hook_answer_as_the_readme_shows() {
    let engine = Engine::start(&[]);
    let examples = root().join("procd/server/examples/hooks");
    for name in ["filter", "hook"] {
        let text = std::fs::read_to_string(examples.join(format!("{name}.lua"))).unwrap();
        engine.install(name, &text);
        eventually("it is loaded", || engine.stats_of(name)["loaded"] == true);
    }
    let readme = std::fs::read_to_string(root().join("procd/README.md")).unwrap();
    let (_, section) = readme.split_once("## How do I use it as a filter").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let lines: Vec<_> = section.split("\n$ ").skip(1).collect();
    assert_eq!(lines.len(), 6, "the sessions are elsewhere");
    for program in [
        "$CLIENT - $name",
        "python3 $EXAMPLES$name.py",
        "sh $EXAMPLES$name.sh",
    ] {
        let call = format!("call() {{ name=$2; shift 2; {program} \"$@\"; }}");
        for line in &lines {
            let (command, expected) = line.split_once('\n').unwrap_or((line, ""));
            let expected = expected.split("```").next().unwrap();
            let command = command.replace("jostle-call", "call");
            let mut shell = std::process::Command::new("sh");
            let shell = shell.args(["-c", &format!("exec 2>&1; {call}; {command}")]);
            shell.current_dir(engine.home.path());
            shell.env("CLIENT", env!("CARGO_BIN_EXE_jostle-call"));
            shell.env("EXAMPLES", &examples);
            shell.env("JOSTLE_CALL_ADDRESS", format!("127.0.0.1:{}", engine.port));
            let found = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            assert_eq!(
                found.trim_end(),
                expected.trim_end(),
                "{program}: {command}"
            );
        }
    }
}

#[test]
fn an_abstract_socket_does_the_same_without_a_file() {
    let name = format!("@procd-test-{}", std::process::id());
    let engine = Engine::start(&["--unix", &name]);
    let address = format!("unix:{name}");
    let called = || jostle_call(&["-a", &address, "/code", "7"], &[]).0;
    assert_eq!(called(), Some(7));
    let unix = &["--abstract-unix-socket", &name[1..]];
    let (_, reply) = curl(&[&unix[..], &["http://x/echo?hello"]].concat());
    assert_eq!(reply, "hello\tnil\tnil\n");
    drop(engine);
    assert_eq!(called(), Some(69));
}

#[test]
fn a_stranger_at_an_abstract_name_is_neither_told_nor_believed() {
    let name = format!("@procd-user-{}", std::process::id());
    let engine = Engine::start(&["--unix", &name]);
    let address = format!("unix:{name}");
    let called = |user: &str| jostle_call(&["-a", &address, "-u", user, "/code", "7"], &[]);
    let own = std::fs::metadata("/proc/self").unwrap().uid().to_string();
    assert_eq!(called(&own).0, Some(7));
    let (code, _, message) = called("4242");
    assert_eq!(code, Some(69));
    assert!(message.contains("another user"), "{message}");
    assert_eq!(engine.stats_of("code")["requests"], 1);
}

/// Each byte came in time, and a call with `-t 300` lasted for as long as they
/// came.
#[test]
fn the_thin_clients_time_is_that_of_the_whole_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let trickle = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = b"HTTP/1.1 200 OK\r\n".iter().copied();
        let bytes = head.chain(std::iter::repeat(b'x')).take(600);
        let mut written = 0;
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            written += 1;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        written
    });
    let (code, _, message) = jostle_call(&["-a", &address, "-t", "300", "/accept"], &[]);
    assert_eq!(code, Some(69));
    assert!(message.contains("in time"), "{message}");
    assert!(trickle.join().unwrap() < 600, "it took all that came");
}

#[test]
fn a_name_that_somebody_else_may_have_made_up_is_not_answered_to() {
    let ask = |engine: &Engine, host: &str| {
        let mut client = engine.client();
        client.send(&format!("GET /code?3 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.read().unwrap().status
    };
    let engine = Engine::start(&["--host", "engine.example"]);
    for host in [
        "127.0.0.1",
        "127.0.0.1:7887",
        "[::1]:7887",
        "localhost:7887",
        "procd",
        "Engine.Example:80",
    ] {
        assert_eq!(ask(&engine, host), 200, "{host}");
    }
    for host in [
        "rebound.example",
        "rebound.example:7887",
        "127.0.0.1.example",
        "::1.x",
    ] {
        assert_eq!(ask(&engine, host), 421, "{host}");
    }
    // What an absolute target names counts in place of the Host.
    for (named, host, status) in [("x:1", "a.example", 200), ("a.example", "x", 421)] {
        let mut client = engine.client();
        client.send(&format!(
            "GET http://{named}/code?3 HTTP/1.1\r\nHost: {host}\r\n\r\n"
        ));
        assert_eq!(client.read().unwrap().status, status, "{named}");
    }
}

#[test]
fn a_token_is_asked_for_where_one_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\nnot this line\n").unwrap();
    let engine = Engine::start(&["--token-file", &file.display().to_string()]);
    for target in ["/accept", "/stats", "/metrics", "/nothing"] {
        assert_eq!(engine.get(target).status, 401, "{target}");
    }
    let with = |token: &str| {
        let mut client = engine.client();
        client.send(&format!(
            "GET /code?3 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        ));
        client.read().unwrap().exit_code
    };
    assert_eq!(with("s3cret"), Some(3));
    for token in ["", "s3cre", "s3cretx", "S3cret", "not this line"] {
        assert_eq!(with(token), None, "{token}");
    }
    let address = format!("127.0.0.1:{}", engine.port);
    let mut environment = vec![("JOSTLE_CALL_ADDRESS", address.as_str())];
    assert_eq!(jostle_call(&["/code", "3"], &environment).0, Some(70));
    environment.push(("JOSTLE_CALL_TOKEN", "s3cret"));
    assert_eq!(jostle_call(&["/code", "3"], &environment).0, Some(3));
}

#[test]
fn a_changed_procedure_is_taken_and_a_faulty_one_is_not() {
    let engine = Engine::start(&[]);
    let answers = |code: u8| engine.get("/code?5").exit_code == Some(code);
    assert!(answers(5));
    engine.install("code", "return 6");
    eventually("the new version answers", || answers(6));
    engine.install("code", "return return");
    let line = engine.await_log("/code cannot be loaded");
    assert!(
        line.contains("code.lua:1:") && line.contains("the version before it stays"),
        "{line}"
    );
    assert!(answers(6));
    let error = engine.stats_of("code")["load_error"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(error.contains("code.lua:1:"), "{error}");
    let metrics = engine.get("/metrics").body;
    assert!(metrics.contains("procd_procedure_load_error{procedure=\"code\"} 1"));
    // Written in place, and mended.
    std::fs::write(engine.home.path().join("procedures/code.lua"), "return 8").unwrap();
    eventually("the mended version answers", || answers(8));
    assert_eq!(engine.stats_of("code")["load_error"], json!(null));
    std::fs::remove_file(engine.home.path().join("procedures/code.lua")).unwrap();
    eventually("it is gone", || engine.get("/code?5").status == 404);
    engine.install("fresh", "return 9");
    eventually("a new one answers", || {
        engine.get("/fresh").exit_code == Some(9)
    });
    // A procedure that never compiled reports that to its callers.
    engine.install("never", "return (");
    eventually("its error is told", || {
        engine.get("/never").body.contains("never.lua:1:")
    });
    assert_eq!(engine.get("/never").status, 500);
}

#[test]
fn every_call_is_counted_once_and_in_its_place() {
    let engine = Engine::start(&["--time-limit", "1000"]);
    for target in [
        "/code?0",
        "/code?0",
        "/code?9",
        "/code?300",
        "/forever",
        "/bomb",
        "/nothing",
    ] {
        engine.get(target);
    }
    engine.get("/sizecheck?file=m&max=1");
    engine.get("/sizecheck?file=gone&max=1");
    let stats = engine.stats();
    let code = &stats["procedures"]["code"];
    assert_eq!(code["requests"], 4);
    assert_eq!(code["exits"], json!({"0": 2, "9": 1}));
    assert_eq!(
        code["errors"],
        json!({"failed": 1, "late": 0, "memory": 0, "busy": 0})
    );
    assert_eq!(stats["procedures"]["forever"]["errors"]["late"], 1);
    assert!(
        stats["procedures"]["forever"]["longest_ns"]
            .as_u64()
            .unwrap()
            >= 1_000_000_000
    );
    assert_eq!(stats["procedures"]["bomb"]["errors"]["memory"], 1);
    assert_eq!(stats["procedures"]["sizecheck"]["exits"], json!({"1": 1}));
    assert_eq!(stats["procedures"]["sizecheck"]["errors"]["failed"], 1);
    assert_eq!((&stats["calls"], &stats["unknown"]), (&json!(8), &json!(1)));
    assert!(stats["cpu_user_ns"].as_u64().unwrap() + stats["cpu_system_ns"].as_u64().unwrap() > 0);
    let metrics = engine.get("/metrics").body;
    for line in [
        "procd_calls_total 8",
        "procd_procedure_exits_total{procedure=\"code\",code=\"9\"} 1",
        "procd_procedure_errors_total{procedure=\"bomb\",kind=\"memory\"} 1",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
}

#[test]
fn settings_that_make_no_sense_end_with_2() {
    let refused = |flags: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_procd"))
            .args(flags)
            .env_remove("PROCD_TOKEN")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = refused(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("no token is set") && text.contains("--token-file"),
        "{text}"
    );
    assert_eq!(refused(&["--config", "/nowhere.toml"]).0, Some(2));
    assert_eq!(refused(&["--nonsense"]).0, Some(2));
    for flag in ["--spool", "--procedures"] {
        let (code, text) = refused(&["--listen", "127.0.0.1:0", flag, "/nowhere"]);
        assert!(code == Some(1) && text.contains("/nowhere"), "{text}");
    }
}
