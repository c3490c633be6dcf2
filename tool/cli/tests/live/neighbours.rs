//! Before the first run: who is busy beside us is named, and `--wait-quiet` waits for
//! them, at most as long as it was told to.
//!
//! Each test plants loops that use several times the threshold, under a name of their
//! own, and looks for that name alone: other programs of the machine may be busy too.

use crate::common::loops::Loops;
use crate::common::{Done, Signal, alone, first_line, flat, in_some_try, jostle};
use std::process::{Command, Stdio};
use std::time::Duration;

const RUN: &str = "contend null -w 1 -b 0 -i 0 -t 0.02 --warmup 0 --runs 1";

/// How many programs whose names end so a text names, each with its process and its share
/// of a CPU: `loop (812) 31 %`.
fn named(text: &str, name: &str) -> usize {
    let text = flat(text);
    let begins = format!("{name} (");
    let is_one = |rest: &&str| {
        let (process, rest) = rest.split_once(") ")?;
        let (share, _) = rest.split_once(" %")?;
        Some((process.parse::<u32>().ok()?, share.parse::<u32>().ok()?))
    };
    let after = text.split(&begins).skip(1);
    after.filter(|rest| is_one(rest).is_some()).count()
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    /// Whether a program of this name is among the busy ones, or could not be: three are
    /// named at most, and this machine has three that are busier.
    fn names(text: &str, name: &str) -> bool {
        named(text, name) > 0 || named(text, "") == 3
    }

    /// One of several runs names a program that is busy all the time: for a moment others may
    /// keep it from its CPU.
    #[track_caller]
    fn naming(mut run: impl FnMut() -> Done, name: &str) -> Done {
        in_some_try("a note on who is busy", || {
            let done = run();
            names(&done.stderr, name).then_some(done)
        })
    }

    #[test]
    fn a_busy_loop_is_named_with_its_share_and_none_where_there_is_none() {
        let _alone = alone();
        const NAME: &str = "planted-loop";
        let control = jostle(RUN).run_cleanly().measures();
        assert_eq!(named(&control.stderr, NAME), 0);
        let loops = Loops::named(NAME, 600);
        let done = naming(|| jostle(RUN).run_cleanly().measures(), NAME);
        done.says("busy now: ").says("--wait-quiet");
        jostle(&format!("{RUN} -q"))
            .run_cleanly()
            .measures()
            .says_nothing();
        in_some_try("the loop in what doctor prints", || {
            let found = jostle("doctor").run_cleanly().exits(0);
            names(&found.stdout, NAME).then(|| found.prints("--wait-quiet"))
        });
        drop(loops);
        let after = jostle(RUN).run_cleanly().measures();
        assert_eq!(named(&after.stderr, NAME), 0);
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
        server.args(["python3", "-c", listens]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let port = first_line(&mut server);
        let _server = Loops::new(vec![server]);
        // One that takes connections and never answers, so that the run fails after the note.
        let line = "--call-timeout 0.1 -n 1 -w 1 --runs 1";
        let asked = jostle(&format!("stream http://127.0.0.1:{port}/ {line}")).run();
        assert_eq!(named(&asked.stderr, NAME), 0, "{}", asked.transcript());
        let known = jostle(&format!("{RUN} --server :{port}")).run_cleanly();
        assert_eq!(named(&known.stderr, NAME), 0, "{}", known.transcript());
        naming(|| jostle(RUN).run_cleanly(), NAME);
    }

    #[test]
    fn a_wait_ends_with_the_loop_that_it_was_for() {
        let _alone = alone();
        const NAME: &str = "brief-loop";
        // Loops that get no CPU at the first look are not waited for.
        in_some_try("a wait until they have ended", || {
            let mut loops = Loops::named(NAME, 3);
            let run = jostle(&format!("{RUN} --wait-quiet 20s")).in_background();
            let done = run.end().measures();
            (loops.have_ended() && !done.stderr.contains(NAME)).then_some(())
        });
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over_with_a_note() {
        let _alone = alone();
        const NAME: &str = "endless-loop";
        let _loops = Loops::named(NAME, 600);
        let run = || jostle(&format!("{RUN} --wait-quiet 2")).run_cleanly();
        let done = naming(|| run().measures(), NAME);
        done.says("not quiet after 2 s, goes on beside: ");
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let _alone = alone();
        const NAME: &str = "other-loop";
        let _loops = Loops::named(NAME, 600);
        // They run before there is something to wait for.
        naming(|| jostle(RUN).run_cleanly(), NAME);
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
