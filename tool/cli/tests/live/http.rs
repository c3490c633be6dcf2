//! `http` and `https` against a web server that these tests start: what is
//! counted, what is an error, and which connections are opened.

use crate::common::loops::Loops;
use crate::common::web::Server;
use crate::common::{beside, in_some_try_unless_disturbed, jostle, reason};
use jostle_model::record::Run;
use std::collections::BTreeSet;

fn phase<'a>(run: &'a Run, name: &str) -> Option<&'a jostle_model::record::Distribution> {
    let mut phases = run.phases.iter();
    phases.find(|p| p.phase == name).map(|p| &p.span)
}

#[test]
fn requests_share_a_connection_or_have_each_its_own() {
    let _beside = beside();
    let server = Server::plain();
    for (options, connections) in [
        ("", 2),
        ("--connection keep", 2),
        ("--connection each", 40),
        ("--as threads", 2),
    ] {
        let run = server.measured("/bytes/1000", &format!("-n 20 -w 2 {options}"));
        assert_eq!(run.operations, 40, "{options}");
        assert_eq!(run.codes, [("200".to_owned(), 40)].into());
        assert_eq!(reason(&run, "errors"), None);
        let opened: BTreeSet<u32> = server.latest(40).iter().map(|(c, _)| *c).collect();
        assert_eq!(opened.len(), connections, "{options}");
        // Those that found one had nothing to wait for.
        assert_eq!(phase(&run, "connect").unwrap().count, connections as u64);
        assert_eq!(phase(&run, "request").unwrap().count, 40);
        assert_eq!(phase(&run, "body").unwrap().count, 40);
        assert!(run.cpu.children_user_s.is_none() && run.null.is_none());
    }
}

/// One worker reads a request of all connections at a time, and one for each connection reads
/// each at once; both wait before they answer: 10 ms, and
/// 50 ms for those that are read at once, beside which a slow machine's reading is short.
#[test]
fn requests_that_lie_unread_at_an_idle_server_are_told() {
    let _beside = beside();
    let script = "import selectors, socket, socketserver, sys, time\n\
        def answer(s):\n\
        \x20   if not s.recv(4096): return False\n\
        \x20   time.sleep(0.01 if sys.argv[1] == 'one' else 0.05); s.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'); return True\n\
        class Each(socketserver.BaseRequestHandler):\n\
        \x20   def handle(self):\n\
        \x20       while answer(self.request): pass\n\
        class Server(socketserver.ThreadingTCPServer):\n\
        \x20   daemon_threads = True; request_queue_size = 64\n\
        s = Server(('127.0.0.1', 0), Each); print(s.server_address[1], flush=True)\n\
        if sys.argv[1] == 'each': s.serve_forever()\n\
        of = selectors.DefaultSelector(); of.register(s.socket, selectors.EVENT_READ)\n\
        while True:\n\
        \x20   for key, _ in of.select():\n\
        \x20       if key.fileobj is s.socket: of.register(s.socket.accept()[0], selectors.EVENT_READ)\n\
        \x20       elif not answer(key.fileobj): of.unregister(key.fileobj)";
    for (kind, each, is_told) in [("one", 30, true), ("each", 60, false)] {
        let (_server, port) = Loops::python(script, &[kind]);
        let line = format!(
            "stream http://127.0.0.1:{port}/ -w 10 -n {each} --runs 1 --quiet --format json"
        );
        in_some_try_unless_disturbed(kind, || {
            let done = jostle(&line).measures();
            let run = done.only_run();
            let queues = run.around.machine.tcp_queues.unwrap();
            let share = queues.unread as f64 / queues.connections as f64;
            let is_clear = queues.looks > 5 && (share > 0.5) == is_told;
            let told = reason(&run, "queues");
            let told = told.is_some_and(|told| told.text.contains("lay unread at the server"));
            (done, is_clear && told == is_told)
        });
    }
}

/// The password stood in plans, results and pages.
#[test]
fn the_password_of_an_address_is_sent_and_nowhere_written() {
    let _beside = beside();
    let server = Server::plain();
    let url = format!("http://user:hunter2@127.0.0.1:{}/ok", server.port);
    let line = format!("stream {url} -n 5 -w 1 --runs 1 -o x.jsonl --html x.html --overwrite");
    let place = &server.place;
    let mut said = String::new();
    for format in jostle_report::FORMATS {
        let done = place
            .jostle(&format!("{line} --format {}", format.name))
            .run();
        let done = done.measures();
        said += &(done.stdout + &done.stderr);
    }
    // base64 of `user:hunter2` (RFC 7617).
    assert!(
        place
            .read("authorization")
            .contains("Basic dXNlcjpodW50ZXIy")
    );
    for dry in ["--dry-run", "--null http://user:hunter2@127.0.0.1:1/"] {
        let done = place
            .jostle(&format!("stream {url} -n 5 -w 1 --runs 1 {dry}"))
            .run();
        said += &(done.stdout + &done.stderr);
    }
    let refused = place
        .jostle("stream http://user:hunter2@127.0.0.1:99999/")
        .exits(2);
    let again = place.jostle("run x.jsonl").exits(2).says("type it again");
    said += &(refused.stderr + &again.stderr);
    said += &(place.read("x.jsonl") + &place.read("x.html"));
    assert!(said.contains("http://user:***@127.0.0.1"));
    assert!(!said.contains("hunter2"), "{said}");
}

/// A proxy would be what is measured.
#[test]
fn proxies_of_the_environment_are_not_asked() {
    let _beside = beside();
    let server = Server::plain();
    let line = format!(
        "stream http://127.0.0.1:{}/ok -n 5 -w 1 --runs 1 -q",
        server.port
    );
    let nobody = "http://127.0.0.1:1";
    let proxies = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    let proxies = proxies.map(|name| format!("{name}={nobody}")).join(" ");
    let run = server.place.jostle(&format!("{line} --format json"));
    let point = run
        .under(&format!("env {proxies}"))
        .run_cleanly()
        .only_run();
    assert_eq!(
        point.codes,
        [("200".to_owned(), 5)].into(),
        "{:?}",
        point.around.errors
    );
}

#[test]
fn a_status_that_is_no_success_is_an_error_unless_it_is_expected() {
    let _beside = beside();
    let server = Server::plain();
    for (path, options, code, successes) in [
        ("/status/204", "", "204", 10),
        ("/status/404", "", "404", 0),
        ("/status/404", "--expect 200:404", "404", 10),
        ("/status/302", "", "302", 0),
        ("/status/503", "", "503", 0),
        ("/ok", "--expect 404", "200", 0),
    ] {
        let done = server.ask("http", path, &format!("-n 10 -w 1 {options}"));
        let run = done.only_run();
        assert_eq!(run.codes, [(code.to_owned(), 10)].into(), "{path}");
        assert_eq!(run.operations, successes, "{path} {options}");
        if successes == 0 {
            assert_eq!(done.code(), 3, "{path}");
            assert_eq!(run.around.errors[&format!("code {code}")], 10);
        }
    }
}

#[test]
fn what_is_not_answered_is_an_error_by_its_name() {
    let _beside = beside();
    let server = Server::plain();
    let slow = server.ask("http", "/slow", "-n 2 -w 1 --call-timeout 100ms");
    let point = slow.ends_within_a_minute().exits(3).only_run();
    assert_eq!(point.around.errors, [("ETIMEDOUT".to_owned(), 2)].into());
    // Both workers' requests, in one sentence.
    let said = "request: no whole answer within --call-timeout";
    assert_eq!(point.around.messages, [said]);
    let table = format!(
        "stream http://127.0.0.1:{}/slow -n 1 -w 2 --runs 1",
        server.port
    );
    let table = server
        .place
        .jostle(&format!("{table} --quiet --call-timeout 100ms"));
    let table = table.run_cleanly().exits(3);
    // The verdict quotes it, so that it stands nowhere else.
    table.prints("calls failed: ETIMEDOUT 2 times; the first: request:");
    let dropped = server.ask("http", "/drop", "-n 3 -w 1").exits(3).only_run();
    assert_eq!(
        dropped.around.errors.values().sum::<u64>(),
        3,
        "{:?}",
        dropped.around.errors
    );
    assert!(dropped.codes.is_empty());
    // Nobody there at all: before anything starts.
    let port = server.port;
    drop(server);
    let line = format!("stream http://127.0.0.1:{port}/");
    let run = crate::common::jostle(&line).run_cleanly().exits(1);
    run.says("Connection refused").says("is the server running");
}

#[test]
fn every_request_has_a_number_of_its_own_or_one_of_a_range() {
    let _beside = beside();
    let server = Server::plain();
    let asked = |options: &str| {
        server.measured("/page/{n}?by={worker}", &format!("-n 10 -w 2 {options}"));
        server.latest(20).into_iter().map(|(_, path)| path)
    };
    let all: BTreeSet<String> = asked("").collect();
    let expected = (0..20).map(|n| format!("/page/{n}?by={}", n / 10));
    assert_eq!(all, expected.collect());
    let few: Vec<String> = asked("--numbers 4").collect();
    let of = |n: u32| {
        few.iter()
            .filter(|p| p.starts_with(&format!("/page/{n}?")))
            .count()
    };
    assert_eq!([of(0), of(1), of(2), of(3)], [5; 4]);
}

#[test]
fn tls_is_spoken_with_who_is_trusted() {
    let _beside = beside();
    let server = Server::with_tls();
    let certificate = server.place.file("cert.pem").display().to_string();
    let line = format!(
        "stream https://127.0.0.1:{}/bytes/10 -n 10 -w 1 --runs 1 --quiet --format json",
        server.port
    );
    let trusting = server
        .place
        .jostle(&line)
        .under(&format!("env SSL_CERT_FILE={certificate}"));
    let run = trusting.run_cleanly().measures().only_run();
    assert_eq!(
        run.codes,
        [("200".to_owned(), 10)].into(),
        "{:?}",
        run.around.errors
    );
    let strict = server.place.jostle(&line).run_cleanly().exits(3).only_run();
    assert_eq!(strict.around.errors, [("EPROTO".to_owned(), 10)].into());
}
