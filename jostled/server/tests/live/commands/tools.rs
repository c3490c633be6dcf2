//! Questions of tools for Redis, and requests of browsers that must not succeed.

use std::io::{Read, Write};
use std::time::Duration;

use super::play;
use crate::common::Daemon;
use jostle_resp::Value;

#[test]
fn what_tools_for_redis_ask_is_answered() {
    play(
        &Daemon::start(&[]),
        &[
            (0, "PING", "PONG"),
            (0, "PING hello", "hello"),
            (0, "ECHO hello", "hello"),
            (0, "SELECT 0", "OK"),
            (0, "SELECT 1", "ERR"),
            (0, "AUTH secret", "ERR"),
            (0, "CLIENT GETNAME", "nil"),
            (0, "CLIENT SETNAME me", "OK"),
            (0, "CLIENT GETNAME", "me"),
            (0, "CLIENT SETINFO LIB-NAME mine", "OK"),
            (0, "CLIENT SETINFO LIB-VER 1.0", "OK"),
            (0, "CLIENT SETINFO OTHER 1.0", "ERR"),
            (0, "CLIENT NONSENSE", "ERR"),
            (0, "CONFIG SET save x", "ERR"),
            (0, "COMMAND COUNT", "31"),
            (0, "HELLO 4", "NOPROTO"),
            (
                0,
                "HELLO 3 SETNAME you",
                "Map([(Bulk([115, 101, 114, 118, 101, 114]), \
            Bulk([106, 111, 115, 116, 108, 101, 100])), (Bulk([118, 101, 114, 115, 105, 111, \
            110]), Bulk([48, 46, 49, 46, 48])), (Bulk([112, 114, 111, 116, 111]), Integer(3)), \
            (Bulk([105, 100]), Integer(1)), (Bulk([109, 111, 100, 101]), Bulk([115, 116, 97, \
            110, 100, 97, 108, 111, 110, 101])), (Bulk([114, 111, 108, 101]), Bulk([109, 97, \
            115, 116, 101, 114])), (Bulk([109, 111, 100, 117, 108, 101, 115]), Array([]))])",
            ),
            (0, "CLIENT GETNAME", "you"),
            (0, "RESET", "RESET"),
            (0, "CLIENT GETNAME", "nil"),
            (1, "CLIENT ID", "2"),
        ],
    );
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    let Value::Array(values) = client.ask("CONFIG GET save app*") else {
        panic!()
    };
    assert_eq!(values.len(), 4);
    let Value::Array(commands) = client.ask("COMMAND") else {
        panic!()
    };
    assert_eq!(commands.len(), 31);
    let Value::Array(docs) = client.ask("COMMAND DOCS lock nonsense") else {
        panic!()
    };
    assert_eq!(docs.len(), 2);
    let list = client.ask("CLIENT LIST");
    assert!(
        list.as_text().unwrap().starts_with("id=1 addr=127.0.0.1:"),
        "{list:?}"
    );
}

#[test]
fn http_is_hung_up_on_and_nothing_behind_it_is_executed() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.client();
    assert_eq!(holder.say("LOCK job"), "1");
    let behind = "FORCEUNLOCK job\r\nQUIT\r\n";
    let lines = [
        "POST / HTTP/1.1\r\n",
        "post /\r\n",
        "GET / HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "host: localhost\r\n",
        // The methods that a page of the same origin may invent.
        "UNLOCK / HTTP/1.1\r\nHost: rebound.example\r\n",
        "*1\r\n$4\r\nPOST\r\n",
    ];
    for line in lines {
        let mut page = daemon.client();
        page.set_timeout(Duration::from_secs(120));
        page.stream
            .write_all(format!("{line}Accept: */*\r\n\r\n{behind}").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        // The end may be a reset, as what was behind is not read.
        let _ = page.stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            !answer.contains("OK") && !answer.contains(":1"),
            "{line}: {answer}"
        );
    }
    assert_eq!(holder.info("holds"), 1);
    assert_eq!(holder.info("closed_http"), lines.len() as u64);
    // A client that takes it for Redis gets an error.
    assert_eq!(holder.say("GET x"), "ERR");
    assert_eq!(holder.say("UNLOCK job"), "1");
}

/// Rows of a request, the beginning of its error, and a usage that the error names.
const WRONG: &str = "\
SET a x NX PX 5 | unknown command 'SET': | LOCK name [TTL ms | SESSION id] [WAIT ms] [SHARED | OF n]
setnx a x | unknown command 'setnx': | TRYLOCK name
DEL a | unknown command 'DEL': | UNLOCK name [token]
GET a | unknown command 'GET': | HOLDER name
PEXPIRE a 5 | unknown command 'PEXPIRE': | RENEW name token TTL ms
EVAL return 0 | unknown command 'EVAL': | UNLOCK name [token], or RENEW name token TTL ms
LOKC a | unknown command 'LOKC': | COMMAND LIST
LOCK a FOO | syntax error at 'FOO': | LOCK name [TTL ms | SESSION id] [WAIT ms] [SHARED | OF n]
LOCK a TTL 5 SHARED F\t | syntax error at 'F\\t': | LOCK name
TRYLOCK a WAIT 5 | syntax error at 'WAIT': | TRYLOCK name
LOCKALL 1 a FOO | syntax error at 'FOO': | LOCKALL count name
RENEW a 1 IN 5 | syntax error at 'IN': | RENEW name token TTL ms
HOLDERS a LIMITS 5 | syntax error at 'LIMITS': | HOLDERS [pattern]
WAITERS a CURSOR 0 X 5 | syntax error at 'X': | WAITERS name
CLIENT NONSENSE | unknown subcommand or wrong number of arguments for 'CLIENT': | CLIENT ID
RENEW job 1 | wrong number of arguments for 'renew' command: | RENEW name token TTL ms";

#[test]
fn a_wrong_request_is_told_the_wrong_word_and_what_to_use() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    for row in WRONG.lines() {
        let [line, start, usage] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let Value::Error(text) = client.ask(line) else {
            panic!("{line} is no error")
        };
        let rest = text
            .strip_prefix("ERR ")
            .and_then(|rest| rest.strip_prefix(start));
        assert!(
            rest.is_some_and(|rest| rest.contains(usage)),
            "{line}: {text}"
        );
    }
}
