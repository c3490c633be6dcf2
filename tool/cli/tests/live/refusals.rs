//! Impossible commands are refused in words that name the cause and the remedy, with the right exit
//! code, before anything starts; and a failure on the way loses nothing that was finished.

use crate::common::small_disk::SmallDisk;
use crate::common::{Done, Place, jostle, must_have, on_every_cpu, rows};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Refused: nothing measured, nothing left.
#[track_caller]
pub(crate) fn refuses(done: Done, code: i32, says: &[&str]) -> Done {
    let done = says
        .iter()
        .fold(done.exits(code), |done, text| done.says(text));
    // The number of runs is said when they begin.
    done.does_not_say("run, about")
        .does_not_say("runs, about")
        .prints_nothing()
        .leaves_nothing()
}

/// Each row of a table is refused: what is typed, the exit code, and the parts of what is said.
#[track_caller]
pub(crate) fn refuses_each(place: &Place, table: &str) {
    for [line, code, says] in rows(table) {
        let says = says.replace(r"\n", "\n");
        let says: Vec<&str> = says.split(" | ").collect();
        refuses(place.jostle(line).run(), code.parse().unwrap(), &says);
    }
}

#[test]
fn the_program_alone_prints_questions_and_their_commands() {
    let says = "Which lock service? | jostle contend flock sysv | jostle --help";
    refuses_each(&Place::new(), &format!("=> 2 => {says}"));
}

/// Targets, pairs of options, numbers, verbs.
const SENSELESS: &str = r"
contend flok => 2 => no target `flok`; did you mean `flock` (a file lock)? | The targets are:\n  File locks: flock, ofd (fcntl), posix,
contend zzz => 2 => no target `zzz`. The targets are:\n  File locks: flock, | A lock of your own is lib:PATH.so (a shared library) or pipe:COMMAND
contend ./mine.so futex => 2 => did you mean `lib:./mine.so` (a lock of your own)?
contend futex:7 => 2 => `futex:7`: it takes no argument
contend delay:soon => 2 => `soon` is not a time
contend busted:2 => 2 => such as 1e-3
contend unfair:mine => 2 => queue, lottery, 2to1, starve
contend flock flock => 2 => `flock` is named twice; --runs repeats

contend posix --as threads => 2 => belong to the process | use ofd, or --as processes
contend sysv-undo --as threads => 2 => sysv-undo --as threads | --as processes
contend sysv --shared 0.5 => 2 => no shared mode; --shared works with: flock, ofd, posix,
contend flock --range overlap => 2 => no byte ranges; --range works with: ofd, posix
contend flock --acquire-timeout 1ms => 2 => has no timeout | --acquire-timeout works with: lockfile, sysv,
contend futex --open-each => 2 => opens no file; --open-each works with: flock, ofd, posix
contend null --try --acquire-timeout 1ms => 2 => leave one out

contend null -w 0 => 2 => at least one worker
contend null -w 1000000 => 2 => at most 100000 workers
contend null -w ten => 2 => `ten` is not a whole number | 1k..1Mx10
contend null -w 1..10 => 2 => needs a step (+1000) or a factor (x10)
contend null -w 10..100+0 => 2 => never gets past 10
contend null -t 0 => 2 => a pilot decides
contend null -t 100000s => 2 => longer than a day
contend null -b 1x => 2 => `1x` is not a time | 250us
contend null --runs 0 => 2 => --runs: 1 to
contend null --keys 0 => 2 => --keys: 1 to
contend null --slots 0 => 2 => --slots: 1 to
contend null --shared 1.5 => 2 => a share from 0 to 1
contend null --acquire-timeout 0 => 2 => use --try
contend null --seed x => 2 => --seed
contend null --place left => 2 => none, same, cross, cpus:0-3
contend null --place cpus:65000 => 2 => CPU 65000 does not exist or is not allowed here; allowed: 0
contend null --format pretty => 2 => table, gnuplot, csv, markdown, json
contend null --overwrite => 2 => --output

contned => 2 => 'contned' | 'contend'
flock => 2 => flock is a target: jostle contend flock
tcp => 2 => tcp is a target: jostle connect tcp
http://127.0.0.1:1/ => 2 => is a target: jostle stream http://127.0.0.1:1/
";

#[test]
fn what_makes_no_sense_is_a_usage_error_that_names_what_would() {
    on_every_cpu();
    refuses_each(&Place::new(), SENSELESS);
    // Servers that the keeper starts are no verbs for users.
    for line in ["serv", "distur", "help serv"] {
        refuses(jostle(line).run(), 2, &["unrecognized subcommand"]).does_not_say("tip:");
    }
    // `recover` is similar, and not what was meant.
    jostle("echo").exits(2).does_not_say("similar");
}

#[test]
fn a_cpu_that_is_not_allowed_here_is_refused() {
    must_have("taskset", "util-linux");
    let done = jostle("contend null --place cpus:1")
        .under("taskset -c 0")
        .run();
    refuses(
        done,
        2,
        &["CPU 1 does not exist or is not allowed here; allowed: 0"],
    );
}

#[test]
fn a_bad_plan_is_refused_with_what_is_wrong() {
    let contend = "[[experiment]]\nworkload = \"contend\"\n";
    let table = r#"
        CONTEND targets = ["null"]\nworker = "3" => unknown field `worker`
        CONTEND targets = ["null"]\nhold = "1000" => its unit
        CONTEND targets = ["null"]\nas = "tasks" => tasks
        CONTEND targets = ["null"]\nshared = 3.0 => a share from 0 to 1
        CONTEND targets = ["null"]\nruns = 0 => --runs: 1 to
        CONTEND targets = ["flok"] => did you mean `flock` (a file lock)?
        [[experiment]]\nworkload = "contned" => contned
        [[experiments]] => experiments
        hello => plan.toml, line 1: key with no value
        experiment = [] => holds no experiment; a plan has [[experiment]] tables
        {"record":"end","exit":0,"elapsed_s":1.0} => holds no experiment"#;
    for [text, says] in rows(table) {
        let place = Place::new();
        let text = text.replace("CONTEND ", contend).replace(r"\n", "\n");
        fs::write(place.file("plan.toml"), text + "\n").unwrap();
        refuses(place.jostle("run plan.toml").run(), 2, &[says]);
    }
    refuses(
        jostle("run nothing.toml").run(),
        1,
        &["cannot read the plan nothing.toml: No such file"],
    );
}

/// A result file is often somebody else's. Its plan once ran every command without a word.
#[test]
fn commands_of_a_result_file_run_only_where_its_user_agrees() {
    must_have("script", "bsdutils");
    let place = Place::beside_others();
    let measure = |line: &str| {
        place
            .jostle(&format!("stream exec:true -w 1 -n 5 --runs 1 {line}"))
            .word("--prepare")
            .word("touch made")
            .measures()
    };
    measure("-o r.jsonl");
    let again = || {
        let was = place.file("made").exists();
        let _ = fs::remove_file(place.file("made"));
        was
    };
    assert!(again());
    refuses(
        place.jostle("run r.jsonl").run(),
        2,
        &[
            "r.jsonl is a result file whose plan runs exec:true, --prepare 'touch made'",
            "--yes",
        ],
    );
    assert!(!again());
    let plan = place.jostle("run r.jsonl --dry-run").exits(0).stdout;
    place.jostle("run r.jsonl --yes").measures();
    assert!(again());
    // A plan is written to be run.
    fs::write(place.file("plan.toml"), plan).unwrap();
    place.jostle("run plan.toml").measures();
    assert!(again());
    // On a terminal it is asked for.
    let jostle = env!("CARGO_BIN_EXE_jostle");
    for (answer, code, runs) in [("no", 2, false), ("", 2, false), ("y", 0, true)] {
        let mut asked = Command::new("timeout")
            .args(["--kill-after=5", "60", "script", "--quiet", "--return"])
            .args([
                "--command",
                &format!("{jostle} run r.jsonl >result"),
                "/dev/null",
            ])
            .current_dir(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(asked.stdin.take().unwrap(), "{answer}").unwrap();
        let done = asked.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains("Run that? [y/N]"), "{said}");
        let code_of = done.status.code().unwrap();
        assert!(code_of == code || runs && code_of == 3, "{answer}: {said}");
        assert_eq!(again(), runs, "{answer}: {said}");
    }
}

/// They once took all memory: `report /dev/zero`, and 983 MB for a line of 1 GB.
#[test]
fn what_never_ends_is_refused_before_it_fills_the_memory() {
    let place = Place::new();
    fs::File::create(place.file("long"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let table = "
        report /dev/zero => /dev/zero, line 1, is longer than 64 MiB
        report long => long, line 1, is longer than 64 MiB
        compare long long => long, line 1, is longer than 64 MiB
        run /dev/zero => cannot read the plan /dev/zero: it is longer than 64 MiB
        run long => cannot read the plan long: it is longer than 64 MiB";
    for [line, says] in rows(table) {
        let within = place.jostle(line).under("prlimit --as=400000000");
        refuses(within.run(), 1, &[says]);
    }
}

#[test]
fn a_file_that_is_no_result_is_not_reported() {
    let place = Place::new();
    fs::write(place.file("words"), "hello\n").unwrap();
    fs::write(place.file("empty"), "").unwrap();
    let table = "
        report words => 1 => words, line 1: not a whole record
        report empty => 1 => empty holds no results
        report nothing => 1 => cannot open to read nothing: No such file";
    refuses_each(&place, table);
}

const SHORT: &str = "contend null -w 2 -b 1ms -t 50ms --runs 1";

#[test]
fn a_result_file_that_cannot_be_written_is_refused() {
    let place = Place::new();
    place.make_directory("results");
    fs::write(place.file("precious"), "results\n").unwrap();
    let table = "
        SHORT -o nowhere/x => 1 => cannot open nowhere/x: No such file | make its directory first
        SHORT -o results => 1 => cannot open results: Is a directory | name a file in it
        SHORT -o precious => 1 => precious holds results already | --overwrite";
    refuses_each(&place, &table.replace("SHORT", SHORT));
    assert_eq!(place.read("precious"), "results\n");
    place
        .jostle(&format!("{SHORT} -o precious --overwrite"))
        .run_cleanly()
        .measures();
    assert_eq!(place.runs("precious").len(), 1);
    let whole = place.read("precious");
    let table = "
        SHORT -o precious --overwrite --html precious => 2 => are the same file
        SHORT -o new --html ./new => 2 => are the same file
        SHORT -o precious --overwrite --html results => 1 => cannot open results";
    refuses_each(&place, &table.replace("SHORT", SHORT));
    assert_eq!(place.read("precious"), whole);
    assert!(!place.file("new").exists());
}

#[test]
fn a_plain_user_is_told_which_file_is_not_to_be_written() {
    let place = Place::of_a_plain_user();
    fs::create_dir(place.file("roots")).unwrap();
    fs::write(place.file("readable"), "").unwrap();
    let saying = "give a path that you may write to";
    let line = format!("{SHORT} -o roots/x => 1 => cannot open roots/x: Permission denied");
    refuses_each(&place, &format!("{line} | that you may write"));
    for target in ["ofd:readable", "posix:readable"] {
        let line = format!("contend {target} -w 2 -t 50ms --runs 1 => 1");
        let says = "cannot open readable: Permission denied";
        refuses_each(&place, &format!("{line} => {says} | {saying}"));
    }
    for target in ["flock", "ofd", "lockfile"] {
        let line = format!("contend {target}:roots/x -w 2 -t 50ms --runs 1 => 1");
        let says = "Permission denied | roots/x";
        refuses_each(&place, &format!("{line} => {says} | {saying}"));
    }
    // flock(2) locks what may only be read.
    let line = "contend flock:readable -w 2 -b 1ms -t 50ms --runs 1";
    let done = place.jostle(line).measures().leaves_nothing();
    assert!(
        done.place.file("readable").exists(),
        "a file that was there before must stay"
    );
}

#[test]
fn a_lock_in_a_missing_directory_is_refused() {
    for target in ["flock", "ofd", "posix", "lockfile"] {
        let line = format!("contend {target}:nowhere/x -w 2 -t 50ms --runs 1");
        let says = ["nowhere/x", "make its directory first"];
        refuses(jostle(&line).run(), 1, &says);
    }
}

#[test]
fn a_full_device_for_the_result_is_a_failure_that_names_it() {
    jostle(&format!("{SHORT} -o /dev/full"))
        .run_cleanly()
        .exits(1)
        .says("/dev/full: No space left on device");
}

#[test]
fn a_disk_that_fills_up_loses_no_finished_point() {
    let place = Place::beside_others();
    place.make_directory("disk");
    let _disk = SmallDisk::mount(&place.file("disk"), "32k");
    let line = "contend null -w 2 -b 1ms -t 50ms --runs 100 -o disk/result.jsonl";
    let done = place.jostle(line).run_cleanly().exits(1);
    let done = done
        .says("cannot write disk/result.jsonl: No space left on device")
        .says("make room there");
    // The table, of what was finished.
    let done = done
        .prints("null")
        .says("finished points are printed above");
    let report = place
        .jostle("report disk/result.jsonl --format json")
        .exits(0)
        .says("torn");
    let kept = report.runs().len();
    assert!(kept >= 2, "{}", report.transcript());
    // And the one whose record is torn.
    assert!(
        done.stdout.contains(&format!("{} runs", kept + 1)),
        "{}",
        done.transcript()
    );
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let done = jostle("targets").after("exec > /dev/full").exits(1);
    done.says("cannot write to standard output: No space left on device");
}

#[test]
fn a_full_standard_output_costs_no_page() {
    let place = Place::new();
    place
        .jostle(&format!("{SHORT} --html page.html"))
        .after("exec > /dev/full")
        .exits(1)
        .says("cannot write to standard output: No space left on device");
    assert!(place.read("page.html").contains("null"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let place = Place::new();
    let mut targets = Command::new(env!("CARGO_BIN_EXE_jostle"))
        .args(["targets", "--format", "markdown"])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(place.file("stderr")).unwrap())
        .spawn()
        .unwrap();
    drop(targets.stdout.take());
    assert!(targets.wait().unwrap().success());
    assert_eq!(place.read("stderr"), "");
}
