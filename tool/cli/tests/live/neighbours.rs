//! Before the first run: who is busy beside us is named, and `--wait-quiet` waits for
//! them, at most as long as it was told to.
//!
//! Each test plants loops that use several times the threshold, under a name of their
//! own, and looks for that name alone: other programs of the machine may be busy too.

use crate::common::loops::Loops;
use crate::common::{Done, Signal, alone, in_five_tries, jostle};
use std::process::{Command, Stdio};
use std::time::Duration;

const RUN: &str = "contend null -w 1 -b 0 -i 0 -t 0.02 --warmup 0 --runs 1";

/// The largest share of a CPU, in per cent, that a program of this name has in a note.
fn share(stderr: &str, name: &str) -> Option<f64> {
    let named = format!("{name} (");
    let shares = stderr.split(&named).skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once(") ")?;
        rest.split_once(" %")?.0.parse().ok()
    });
    shares.max_by(f64::total_cmp)
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    /// One of five runs names a program that is busy all the time: for a moment others may
    /// keep it from its CPU.
    #[track_caller]
    fn named(mut run: impl FnMut() -> Done, name: &str) -> Done {
        in_five_tries("a note on who is busy", || {
            let done = run();
            share(&done.stderr, name).is_some().then_some(done)
        })
    }

    #[test]
    fn a_busy_loop_is_named_with_its_share_and_none_where_there_is_none() {
        let _alone = alone();
        const NAME: &str = "planted-loop";
        let control = jostle(RUN).run_cleanly().measures();
        assert_eq!(share(&control.stderr, NAME), None);
        let loops = Loops::named(NAME, 60);
        let done = named(|| jostle(RUN).run_cleanly().measures(), NAME);
        done.says("busy now: ").says("--wait-quiet");
        jostle(&format!("{RUN} -q"))
            .run_cleanly()
            .measures()
            .says_nothing();
        in_five_tries("the loop in what doctor prints", || {
            let found = jostle("doctor").run_cleanly().exits(0);
            found
                .stdout
                .contains(NAME)
                .then(|| found.prints("--wait-quiet"))
        });
        drop(loops);
        let after = jostle(RUN).run_cleanly().measures();
        assert_eq!(share(&after.stderr, NAME), None);
    }

    #[test]
    fn the_server_under_test_is_no_neighbour() {
        let _alone = alone();
        const NAME: &str = "busy-server";
        // A server that is busy by itself: nobody asks it anything yet.
        let listens = "import socket, sys\n\
                       listener = socket.create_server((\"127.0.0.1\", 0))\n\
                       print(listener.getsockname()[1], flush=True)\n\
                       open(\"/proc/self/comm\", \"w\").write(\"busy-server\")\n\
                       while True: pass";
        let mut server = Command::new("setsid");
        server
            .args(["python3", "-c", listens])
            .stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let said = server.stdout.take().unwrap();
        let _server = Loops::of(vec![server]);
        let mut port = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut port).unwrap();
        let port = port.trim();
        // One that takes connections and never answers, so that the run fails after the note.
        let line = "--call-timeout 0.1 -n 1 -w 1 --runs 1";
        let asked = jostle(&format!("stream http://127.0.0.1:{port}/ {line}")).run();
        assert_eq!(share(&asked.stderr, NAME), None, "{}", asked.transcript());
        let known = jostle(&format!("{RUN} --server :{port}")).run_cleanly();
        assert_eq!(share(&known.stderr, NAME), None, "{}", known.transcript());
        named(|| jostle(RUN).run_cleanly(), NAME);
    }

    #[test]
    fn a_wait_ends_with_the_loop_that_it_was_for() {
        let _alone = alone();
        const NAME: &str = "brief-loop";
        let mut loops = Loops::named(NAME, 3);
        let run = jostle(&format!("{RUN} --wait-quiet 20s")).in_background();
        let done = run.end().measures().does_not_say(NAME);
        assert!(loops.have_ended(), "{}", done.transcript());
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over_with_a_note() {
        let _alone = alone();
        const NAME: &str = "endless-loop";
        let _loops = Loops::named(NAME, 60);
        let run = || jostle(&format!("{RUN} --wait-quiet 2")).run_cleanly();
        let done = named(|| run().measures(), NAME);
        done.says("not quiet after 2 s, goes on beside: ");
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let _alone = alone();
        let _loops = Loops::named("other-loop", 120);
        let mut run = jostle(&format!("{RUN} --wait-quiet 10m")).in_background();
        run.until_it_listens();
        run.after(Duration::from_millis(900)).signal(Signal::INT);
        let done = run
            .end()
            .exits(130)
            .says("interrupted; no point was finished");
        done.ends_within_a_minute().prints_nothing();
    }
}
