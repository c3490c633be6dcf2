use super::*;

#[test]
#[ignore = "cargo xtask validate figures"]
fn a_generator_under_a_quota_is_the_limit_and_a_server_under_one_is_not_its_fault() {
    let _alone = alone();
    let group = starved();
    let redis = Redis::start("");
    in_some_try("a generator that its quota holds back", || {
        let (done, watched) = redis.judge(&redis.load(&format!("{};", group.enter())));
        let found = watched.finding.limit == Limit::Generator
            && done.stderr.contains("limit: generator")
            && watched.finding.reasons[0].contains("a CPU quota of 0.05 CPUs")
            && done.code() == 3;
        // Its server was found by its connections.
        let named = watched.server_at == Some(format!(":{}", redis.port));
        (found && named && watched.server.is_some()).then_some(())
    });
    drop(redis);
    let redis = Redis::start(&format!("{};", group.enter()));
    in_some_try("a server that its quota holds back", || {
        let (done, watched) = redis.judge(&redis.load(""));
        let found = watched.finding.limit == Limit::Server
            && watched.finding.reasons[0].contains("kept the server from running")
            && done.code() == 0;
        found.then_some(())
    });
}

#[test]
#[ignore = "cargo xtask validate figures"]
fn a_generator_that_shares_its_cpu_with_busy_loops_is_the_limit_and_they_are_named() {
    let _alone = alone();
    let allowed = jostle_sys::cpu::allowed();
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    let redis = Redis::start(&format!("taskset -cp {last} $$ >/dev/null;"));
    const NAME: &str = "planted-loop";
    let _loops = Loops::on_cpu(first, NAME, 120);
    in_some_try("a generator that waits for its CPU", || {
        let load = redis.load(&format!("taskset -cp {first} $$ >/dev/null;"));
        let (done, watched) = redis.judge(&load);
        let mut neighbours = watched.machine.neighbours.iter();
        let is_named = neighbours.any(|other| other.name == NAME);
        let found = watched.finding.limit == Limit::Generator && is_named;
        (found && done.code() == 3).then_some(())
    });
}

#[test]
#[ignore = "cargo xtask validate figures"]
fn a_generator_that_is_stopped_and_continued_is_the_limit() {
    let _alone = alone();
    let redis = Redis::start("");
    let port = redis.port;
    // The command itself, which its parent is told of; and a child, which is looked at.
    let itself = format!(
        "p=$$; (while kill -STOP $p; do sleep 0.4; kill -CONT $p; sleep 0.2; done) & \
         exec redis-benchmark -p {port} -c 10 -n 160000 -t get --csv"
    );
    let child = format!(
        "redis-benchmark -p {port} -c 10 -n 100000000 -t get --csv & p=$!; \
         for i in 1 2 3 4 5 6 7 8; do sleep 0.2; kill -STOP $p; sleep 0.4; kill -CONT $p; done; \
         kill $p; wait $p; true"
    );
    for script in [itself, child] {
        in_some_try("a generator that was stopped", || {
            let (done, watched) = redis.judge(&script);
            let found = watched.finding.limit == Limit::Generator
                && watched.finding.reasons[0].contains("was stopped by a signal");
            (found && done.code() == 3).then_some(())
        });
    }
}

#[test]
#[ignore = "cargo xtask validate figures"]
fn pairs_show_that_more_connections_do_more_work() {
    let _alone = alone();
    // A server with a pause before each answer: one connection does so many requests a
    // second, and two do twice as many, however busy this machine is.
    let script = "import socketserver, time\n\
        class Slow(socketserver.StreamRequestHandler):\n\
        \x20   def handle(self):\n\
        \x20       for line in self.rfile:\n\
        \x20           time.sleep(0.05); self.wfile.write(b'x' * 2000)\n\
        class Server(socketserver.ThreadingTCPServer):\n\
        \x20   daemon_threads = True\n\
        s = Server(('127.0.0.1', 0), Slow); print(s.server_address[1], flush=True); s.serve_forever()";
    let client = "import socket, sys, threading, time\n\
        end = time.time() + 2.5\n\
        def one():\n\
        \x20   s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); f = s.makefile('rwb')\n\
        \x20   while time.time() < end:\n\
        \x20       f.write(b'?' * 100 + b'\\n'); f.flush(); f.read(2000)\n\
        for t in [threading.Thread(target=one) for _ in range(int(sys.argv[2]))]: t.start()";
    let place = Place::new();
    std::fs::write(place.file("client.py"), client).unwrap();
    let (_server, port) = Loops::python(script, &[]);
    let line =
        format!("judge --double -o pairs.jsonl --overwrite -- python3 client.py {port} {{4}}");
    in_some_try("twice the work by twice the connections", || {
        let done = place.jostle(&line).run_cleanly();
        let found = done.stderr.contains("limit: generator") && done.code() == 3;
        let file = place.read("pairs.jsonl");
        assert_eq!(file.lines().count(), 13, "{}", done.transcript());
        let Record::Doubled(doubled) = serde_json::from_str(file.lines().last().unwrap()).unwrap()
        else {
            panic!("{file}")
        };
        assert_eq!(doubled.loads, [4, 8]);
        (found && doubled.low > 1.3 && doubled.high < 2.6).then_some(())
    });
}
