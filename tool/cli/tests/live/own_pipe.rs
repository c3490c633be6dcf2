//! `pipe:`: locks of users in any language, by the whole binary. Programs that break
//! the protocol are found and quoted, one that lets two in is caught by the witness, and
//! nothing of them is left.

use crate::common::{
    Done, Place, beside, in_some_try, jostle, must_have, path_with_jostle, python_by_name, reason,
    rows,
};
use jostle_model::record::Status;
use jostle_testbed::shell::write_script;

/// The folder of programs that users copy.
const OWN_LOCKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../own-locks/pipe");

/// A program that is broken in this way, as a target.
pub(crate) fn broken(kind: &str) -> String {
    must_have("python3", "python3-venv");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/broken_peer.py");
    format!("pipe:python3 '{program}' '{kind}' lock")
}

/// A run of this target alone.
fn run(line: &str, target: &str) -> Done {
    jostle(line).word(target).run().leaves_nothing()
}

#[test]
fn a_fencing_token_that_does_not_grow_is_told() {
    let _beside = beside();
    let line = "contend -w 1 -b 1ms -t 0.3 --runs 1 --format json";
    // A machine that stands still may leave no two grants in the window.
    let run = in_some_try("two grants", || {
        let run = run(line, &broken("same token")).measures().only_run();
        let checked = run.exclusion.as_ref()?.tokens_checked?;
        (checked > 1).then_some(run)
    });
    let told = reason(&run, "exclusion").unwrap();
    assert_eq!(told.is, Status::Invalid);
    assert!(told.text.contains("it fences off nobody"), "{}", told.text);
    let seen = run.exclusion.unwrap();
    // The first has none before it.
    assert_eq!(
        seen.tokens_out_of_order,
        Some(seen.tokens_checked.unwrap() - 1)
    );
    assert_eq!(seen.violations, 0);
}

/// Ways to break the protocol, and what is said of each.
const BREAKS: &str = r"
garbage => request A: the command sent what is no answer: `you have it \u{1b}[31m`
twice => request A: the command sent a line that no request had asked for
twice in two => twice
grants a release => request U: the command answered another request than this one
early => HELLO: the command sent a line that no request had asked for: it answered twice, or too early; it had sent `
long => a line of more than 1024 bytes, which begins `GGGG
error => request A: the command answered an error after
refuses => refused a lock that may be waited for without end (-1): `R`
no token => lists `token` and granted without one: `G`
is another program => answered HELLO with `Welcome!`; it must answer READY
leaves at once => the command ended with exit code 1; its last words: `no licence`
exits => request A: the command ended with exit code 1; its last words: `line one\n\u{1b}]0;title\u{7}out of luck`
crashes => request A: the command was killed by SIGSEGV
closes => request A: the command closed its output, and was killed
";

#[test]
fn programs_that_break_the_protocol_are_quoted_before_the_window() {
    let _beside = beside();
    for [kind, says] in rows(BREAKS) {
        let done = run("contend -w 1 -t 0.2 --runs 1", &broken(kind)).exits(1);
        done.says(says).does_not_say("\x1b").prints_nothing();
    }
}

/// Ways to fall silent, options, and what is said: a program has 10 s more than it may wait itself.
const SILENT: &str = "
silent => => request U: the command did not answer within 10 s, and was killed; does it flush its output after each line?
half => => request A: the command did not answer within 10 s, and was killed; it had sent `G`
ignores its timeout => --acquire-timeout 1500ms => request A: the command did not answer within 11.5 s, and was killed
";

/// Each takes as long as an answer may, and the guard's look at it.
#[test]
#[ignore = "cargo xtask long"]
fn programs_that_fall_silent_are_killed_and_the_request_is_named() {
    let _beside = beside();
    for [kind, options, says] in rows(SILENT) {
        let line = format!("contend -w 1 -t 0.2 --runs 1 {options}");
        let done = run(&line, &broken(kind)).exits(1);
        done.says(says).prints_nothing();
    }
}

#[test]
fn what_cannot_be_started_is_an_error_before_anything_starts() {
    let _beside = beside();
    let table = "
        pipe => pipe: no command follows the colon; write pipe:COMMAND
        pipe:no-such-program-here => there is no program `no-such-program-here` in $PATH
        pipe:/no/such/program => there is no program /no/such/program
        pipe:/dev/null => /dev/null cannot be executed";
    for [target, says] in rows(table) {
        let done = run("contend -w 1 -t 0.2 --runs 1", target).exits(2);
        done.says(says).prints_nothing();
    }
    run("contend -w 1", "pipe:sh -c 'exit")
        .exits(2)
        .says("ends within a quote");
    run("contend -w 2 --as threads", "pipe:true")
        .exits(2)
        .says("--as processes");
    // It is no program, which only execve(2) finds out.
    let place = Place::new();
    write_script(&place.file("plain"), "#!/no/such/interpreter\n").unwrap();
    let done = place.jostle("contend pipe:./plain -w 1 -t 0.2 --runs 1");
    done.run_cleanly()
        .exits(1)
        .says("there is no program ./plain");
}

#[test]
fn what_the_run_asks_for_must_be_listed() {
    let _beside = beside();
    let plain = broken("none");
    let table = "
        --shared 0.5 => does not list `shared` after READY, which --shared needs
        --acquire-timeout 1ms => does not list `timeout` after READY, which --acquire-timeout needs";
    for [option, says] in rows(table) {
        let line = format!("contend -w 2 -t 0.2 --runs 1 {option}");
        run(&line, &plain).exits(1).says(says).prints_nothing();
    }
}

/// Its worker ends, and says why; the others' run goes on.
#[test]
fn a_program_that_exits_during_the_run_makes_the_point_invalid() {
    let _beside = beside();
    let line = "contend -w 2 -b 100us -i 10us -t 1 --warmup 0 --runs 1 --format json";
    // A keeper that is kept from its CPU may see its end before the window's opening.
    let run = in_some_try("a program that exits in the window", || {
        let done = run(line, &broken("exits later"));
        let run = (done.code() == 3).then(|| done.only_run())?;
        reason(&run, "errors").is_some().then_some(run)
    });
    assert_eq!(reason(&run, "errors").unwrap().is, Status::Invalid);
    let text = run.around.messages.join("; ");
    assert!(
        text.contains("exit code 1") && text.contains("out of luck"),
        "{text}"
    );
}

#[test]
fn a_program_that_is_wrong_at_the_end_of_its_input_is_found() {
    let _beside = beside();
    for (kind, says) in [
        ("speaks at the end", "a line that no request had asked for"),
        (
            "fails at the end",
            "ended with exit code 1; its last words: `cannot clean up",
        ),
    ] {
        let line = "contend -w 1 -b 100us -t 0.2 --runs 1 --format json";
        let run = run(line, &broken(kind)).exits(3).only_run();
        assert_eq!(reason(&run, "errors").unwrap().is, Status::Invalid);
        let text = run.around.messages.join("; ");
        assert!(text.contains(says), "{kind}: {text}");
    }
}

#[test]
fn a_flood_on_standard_error_neither_stops_the_program_nor_reaches_the_terminal() {
    let _beside = beside();
    let line = "contend -w 2 -b 100us -t 0.3 --runs 1 --format json";
    let point = in_some_try("operations", || {
        let done = run(line, &broken("floods"))
            .measures()
            .does_not_say("flood flood");
        let run = done.only_run();
        (run.operations > 0).then_some(run)
    });
    for grave in ["errors", "deaths", "exclusion", "lost_update"] {
        assert!(reason(&point, grave).is_none(), "{:?}", point.verdict);
    }
}

#[test]
fn a_lock_that_lets_two_in_is_caught_by_the_witness() {
    let _beside = beside();
    let line = "contend -w 2 -b 500us -i 10us -t 0.5 --runs 1 --format json";
    let run = in_some_try("an overlap", || {
        let run = run(line, &broken("lets two in")).measures().only_run();
        reason(&run, "exclusion").is_some().then_some(run)
    });
    assert_eq!(reason(&run, "exclusion").unwrap().is, Status::Invalid);
    let exclusion = run.exclusion.unwrap();
    assert!(
        exclusion.examples[0].contains("was let in"),
        "{exclusion:?}"
    );
}

/// The lock is held throughout, so that every other worker waits for an answer when
/// the window ends; its program does not hear its input end.
#[test]
fn workers_that_wait_at_the_end_come_back_and_their_programs_are_gone() {
    let _beside = beside();
    let line = "contend -w 4 -b 20s -t 0.5 --warmup 0 --runs 1 --acquire-timeout 20s --format json";
    let file_lock = format!("pipe:python3 '{OWN_LOCKS}/python/file_lock.py' lock");
    run(line, &file_lock).measures().ends_within_a_minute();
}

#[test]
fn a_program_s_cpu_time_is_booked_to_requests_and_the_way_alone_is_printed() {
    let place = Place::beside_others();
    // Other tests run programs in Python at the same time.
    python_by_name(&place.file("own-python"));
    let file_lock = format!("pipe:./own-python '{OWN_LOCKS}/python/file_lock.py' lock");
    let line = "contend -v -w 2 -b 0 -i 0 -t 0.5 --runs 1 -o result.jsonl";
    let done = place.jostle(line).word(&file_lock).run_cleanly().measures();
    done.prints("the pipe to a program that only answers");
    let run = place.runs("result.jsonl").remove(0);
    let accounts = run.around.accounts.unwrap();
    assert!(accounts.requests_s.unwrap() > 0.0, "{accounts:?}");
    let named = accounts
        .others
        .iter()
        .any(|other| other.name == "own-python");
    assert!(!named, "{accounts:?}");
}

/// The commands of tool/docs/own-locks-pipe.md, in a directory with nothing but the folder that
/// they name.
#[test]
#[ignore = "cargo xtask long"]
fn the_commands_of_the_page_run_as_they_stand() {
    let _beside = beside();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/own-locks-pipe.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page
        .split("\n```sh\n")
        .skip(1)
        .map(|rest| rest.split("\n```\n").next().unwrap())
        .collect();
    assert_eq!(blocks.len(), 2);
    let place = Place::new();
    std::os::unix::fs::symlink(format!("{OWN_LOCKS}/../.."), place.file("tool")).unwrap();
    for block in blocks {
        let done = std::process::Command::new("sh")
            .args(["-euc", block])
            .env("PATH", path_with_jostle())
            .current_dir(place.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        let said = String::from_utf8_lossy(&done.stderr);
        // Other programs on this machine may make a point INVALID.
        assert!(
            matches!(done.status.code(), Some(0 | 3)),
            "{block}\n{text}{said}"
        );
        assert!(
            text.contains("pipe:") && text.contains("Trust"),
            "{block}\n{text}"
        );
    }
}
