//! `jostle judge` watches real load generators against real servers. Whatever is planted
//! is several times the threshold, so that a busy machine cannot hide it; a control with
//! the same generator and the server held back stands beside it.
//!
//! Needs root (control groups), redis-server and redis-tools; the commands of the page also
//! nginx, PostgreSQL, MariaDB and their load generators.

use crate::common::cgroup::Cgroup;
use crate::common::loops::Loops;
use crate::common::processes::{Signal, lives, marked};
use crate::common::servers::serves;
use crate::common::{
    Done, Place, alone, beside, in_some_try, must_be_root, must_have, path_with_jostle, root, rows,
    watched,
};
use jostle_model::judged::{Limit, Watched};
use jostle_model::record::Record;
use jostle_testbed::ports::free_port;
use jostle_testbed::running::Running as Server;
use std::process::Command;
use std::time::Duration;

/// A Redis server that ends with the test.
struct Redis {
    place: Place,
    port: u16,
    server: Server,
}

impl Redis {
    /// `before`: what a shell does first, such as entering a control group.
    fn start(before: &str) -> Redis {
        must_have("redis-server", "redis-server");
        must_have("redis-benchmark", "redis-tools");
        let place = Place::new();
        let port = free_port().unwrap();
        let script = format!(
            "{before} exec redis-server --port {port} --save '' --appendonly no --dir {}",
            place.path().display()
        );
        let server = serves(port, Command::new("sh").args(["-c", &script]));
        Redis {
            place,
            port,
            server,
        }
    }

    /// A benchmark of this server that takes some seconds at least; a shell does
    /// `before` it.
    fn load(&self, before: &str) -> String {
        let Redis { port, .. } = self;
        format!(
            "{before} timeout 3 redis-benchmark -p {port} -c 10 -n 100000000 -t get --csv; true"
        )
    }

    /// Watched to its end, with what stands in the result file.
    fn judge(&self, script: &str) -> (Done, Watched) {
        let line = "judge -o found.jsonl --overwrite -- sh -c";
        let done = self.place.jostle(line).word(script).run_cleanly();
        (done, watched(&self.place.read("found.jsonl")))
    }
}

/// A group that gets a twentieth of a CPU.
fn starved() -> Cgroup {
    let group = Cgroup::with("cpu");
    group.set(
        &[
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "5000"),
        ],
        &[("cpu.max", "5000 100000")],
    );
    group
}

#[test]
fn the_command_keeps_its_input_its_output_and_its_failure() {
    let place = Place::beside_others();
    let run = |words: &str| place.jostle(&format!("judge -- {words}"));
    let done = place
        .jostle("judge -- sh -c")
        .word("echo mine; cat; echo too >&2")
        .run_cleanly();
    // Connections of other programs in this namespace may be the command's: then undecided.
    let done = done.says("too\n").says("limit: ");
    assert!(matches!(done.code(), 0 | 1), "{}", done.transcript());
    assert_eq!(done.stdout, "mine\n");
    run("sh -c")
        .word("exit 7")
        .run_cleanly()
        .exits(1)
        .says("The command failed: exit code 7");
    run("sh -c")
        .word("kill -SEGV $$")
        .run_cleanly()
        .exits(1)
        .says("ended by SIGSEGV");
    run("sh -c")
        .word("echo 'connect: cannot assign requested address' >&2; exit 1")
        .run_cleanly()
        .exits(1)
        .says("no port was left for a new connection: `connect: cannot assign");
    // What it leaves running is ended too.
    let left = run("sh -c").word("sleep 1000 & sleep 1000 &").run_cleanly();
    assert!(matches!(left.code(), 0 | 1), "{}", left.transcript());
    let whole = place
        .jostle("judge --quiet --")
        .word("printf '%s-' a 'b c'")
        .run_cleanly();
    assert_eq!(whole.says_nothing().stdout, "a-b c-");
}

#[test]
fn the_figures_that_the_command_prints_are_read_and_its_output_is_its_own() {
    let place = Place::beside_others();
    let sample = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../stats/src/printed/samples/wrk-errors.txt"
    );
    let printed = std::fs::read_to_string(sample).unwrap();
    let line = format!("-o found.jsonl --overwrite -- sh -c 'cat {sample}; echo too >&2'");
    let run = |options: &str| {
        let words = shlex::split(&format!("judge {options} {line}")).unwrap();
        let run = words
            .iter()
            .fold(place.jostle(""), |run, word| run.word(word));
        // There is nothing to judge.
        let done = run.run_cleanly().exits(1).says("too\n");
        assert_eq!(done.stdout, printed);
        (watched(&place.read("found.jsonl")).output, done)
    };
    let (output, done) = run("");
    done.says("wrk printed: 48,866 requests/s, 97,818 requests, 20 connections, 0.4860 ms mean")
        .says("! wrk printed 24,559 answers not 2xx at 97,818 requests");
    let output = output.unwrap();
    assert_eq!(output.bytes, printed.len() as u64 + 4);
    assert_eq!(output.results[0].figures["rate_per_s"], 48_865.75);
    let (output, done) = run("--no-parse");
    assert_eq!(output, None);
    assert!(!done.stderr.contains("printed:"), "{}", done.transcript());
}

#[test]
fn the_report_has_a_format_and_the_exit_code_a_requirement() {
    let place = Place::beside_others();
    // Without a server it is never the server's limit.
    let run = |line: &str| place.jostle(line).run_cleanly();
    let done = run("judge --require server -- true").says("limit: ");
    assert_ne!(done.code(), 0);
    let done = run("judge --format json -- true");
    assert_eq!(watched(&done.stderr).command, ["true"]);
    run("judge --format markdown -- true").says("```text\njostle judge: true\n");
    run("judge --require server -- false").exits(1);
}

#[test]
fn the_command_has_a_terminal_where_jostle_has_one_and_its_streams_keep_their_order() {
    let place = Place::beside_others();
    let print = |script: &str| {
        let done = Command::new("sh")
            .args(["-c", script])
            .env("JOSTLE", env!("CARGO_BIN_EXE_jostle"))
            .current_dir(place.path())
            .env("TMPDIR", place.path())
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let is_terminal = "[ -t 1 ] && echo terminal || echo pipe";
    assert_eq!(
        print(&format!("\"$JOSTLE\" judge -- sh -c '{is_terminal}'")),
        "pipe\n"
    );
    let in_terminal = format!(
        "stty rows 7 cols 77; exec \"$JOSTLE\" judge -- sh -c \"{is_terminal}; stty size <&1\""
    );
    let said = print(&format!("script -qec '{in_terminal}' /dev/null </dev/null"));
    assert!(said.starts_with("terminal\r\n7 77\r\n"), "{said:?}");
    // Two streams to one file: each line before the next.
    let turns = "for i in 1 2 3 4 5; do echo $i; echo $i >&2; done";
    let said = print(&format!(
        "\"$JOSTLE\" judge --quiet -- sh -c '{turns}' 2>&1"
    ));
    assert_eq!(said.split_whitespace().collect::<String>(), "1122334455");
    // Nobody takes more than a line.
    assert_eq!(print("\"$JOSTLE\" judge -- yes | head -n 1"), "y\n");
}

/// Cron and CI start scripts in a session without a shell that controls jobs. When a process
/// group there is orphaned and has a stopped process, the kernel sends SIGHUP to the group.
#[test]
fn a_script_without_job_control_is_not_hung_up() {
    let place = Place::beside_others();
    let script = "sleep 1000 & stopped=$!; kill -STOP $stopped; \
                  \"$0\" judge -- echo mine; echo \"exit code $?\"; kill -KILL $stopped";
    let done = Command::new("setsid")
        .args(["--wait", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_jostle"))
        .current_dir(place.path())
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.starts_with("mine\nexit code "), "{done:?}");
}

#[test]
fn a_server_that_is_killed_is_recorded_to_the_end_of_the_run() {
    let _beside = beside();
    let mut redis = Redis::start("");
    let load = format!(
        "touch began; until [ -e enough ]; do timeout 1 redis-benchmark -p {} -c 10 -n 100000000 \
         -t get --csv; echo >> tried; sleep 0.1; done; true",
        redis.port
    );
    // Named, so that it is known however late the first look is.
    let line = format!(
        "judge --server :{} -o found.jsonl --overwrite -- sh -c",
        redis.port
    );
    let mut run = redis.place.jostle(&line).word(&load).in_background();
    run.until("a command", |run| {
        run.place.file("began").exists().then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    redis.server.0.kill().unwrap();
    // One loses its connections, and the next gets none.
    let tried = redis.place.read("tried").lines().count();
    run.until("connections that are refused", |run| {
        (run.place.read("tried").lines().count() >= tried + 2).then_some(())
    });
    // The longer both take, the more is recorded.
    std::thread::sleep(Duration::from_secs(1));
    std::fs::write(redis.place.file("enough"), "").unwrap();
    run.end();
    let found = watched(&redis.place.read("found.jsonl"));
    let sum = |column: &[f64]| column.iter().sum::<f64>();
    let gone_s = found.server.as_ref().and_then(|side| side.gone_s.as_ref());
    assert!(sum(gone_s.unwrap()) > 0.0, "{found:?}");
    assert!(sum(&found.network.unwrap().failed) > 0.0);
}

#[test]
fn a_full_disk_costs_neither_the_report_nor_the_page() {
    let place = Place::beside_others();
    place
        .jostle("judge -o /dev/full --html page.html -- sleep 0.5")
        .run_cleanly()
        .exits(1)
        .says("limit: ")
        .says("cannot write /dev/full");
    assert!(place.read("page.html").contains("sleep"));
}

/// Arguments, the exit code, and a part of the message.
const REFUSED: &str = "
judge --server pid:1 -- touch ran => 2 => the first process of the machine
judge --server :{port} -- touch ran => 2 => nobody listens there
judge --server 6379 -- touch ran => 2 => write :PORT
judge --double -- touch ran => 2 => in braces
judge --repeat 3 -- touch ran => 2 => --double
judge --copies 1 -- touch ran => 2 => 2..=64
judge --every 1us -- touch ran => 2 => at least 10ms
judge => 2 => COMMAND
judge --require servers -- touch ran => 2 => expected one of `generator`, `server`
judge -o x.jsonl -- no-such-program => 1 => cannot start no-such-program
judge -o no/x.jsonl -- touch ran => 1 => make its directory first
judge -o x.jsonl --html ./x.jsonl -- touch ran => 2 => are the same file
";

#[test]
fn what_cannot_be_watched_or_started_is_refused_before_anything_starts() {
    let place = Place::beside_others();
    let port = free_port().unwrap().to_string();
    for [line, code, text] in rows(REFUSED) {
        let done = place.jostle(&line.replace("{port}", &port)).run_cleanly();
        let done = done.exits(code.parse().unwrap()).says(text);
        done.prints_nothing();
    }
    for left in ["ran", "x.jsonl"] {
        assert!(!place.file(left).exists(), "{left}");
    }
}

#[test]
fn an_interrupted_or_killed_judge_ends_its_command() {
    let place = Place::beside_others();
    // The command's child too, which no longer has its parent's group.
    let script = "setsid sleep 1000 & touch began; wait";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::KILL, 137)] {
        let _ = std::fs::remove_file(place.file("began"));
        let mut run = place.jostle("judge -- sh -c").word(script).in_background();
        run.until("a command", |run| {
            run.place.file("began").exists().then_some(())
        });
        run.until_it_listens();
        let commands = marked(run.mark());
        let sleeper = commands
            .iter()
            .find(|process| process.name == "sleep")
            .map(|p| p.pid);
        run.signal(signal);
        let done = run.end().exits(code).leaves_nothing();
        assert!(
            sleeper.is_none_or(|pid| !lives(pid)),
            "{}",
            done.transcript()
        );
    }
}

#[test]
fn a_result_is_printed_again_and_drawn() {
    let _beside = beside();
    let redis = Redis::start("");
    let line = format!(
        "judge --server :{} -o found.jsonl --overwrite --html page.html -- sh -c",
        redis.port
    );
    // A judge that gets no CPU sees nothing of a load of three seconds.
    let first = in_some_try("a load that was seen", || {
        let done = redis.place.jostle(&line).word(&redis.load(""));
        let done = done.run_cleanly();
        let watched = watched(&redis.place.read("found.jsonl"));
        let cpu = |side: &jostle_model::judged::Side| side.cpu_s.iter().sum::<f64>() > 0.0;
        let mut open = watched.traffic.as_ref()?.connections.iter();
        let is_seen = cpu(&watched.generator)
            && cpu(watched.server.as_ref()?)
            && open.any(|open| *open >= 10.0)
            && watched.end_s.last()? + 0.01 >= watched.elapsed_s;
        ([0, 3].contains(&done.code()) && is_seen).then_some(done)
    });
    let again = redis
        .place
        .jostle("report found.jsonl --html again.html")
        .run();
    let again = again
        .exits(0)
        .prints("jostle judge: sh -c")
        .prints("limit: ");
    // The same text, beside what the command itself may have said.
    assert!(first.stderr.ends_with(&again.stdout), "{}", first.stderr);
    // What was read from a pipe cannot be read again.
    let through_pipe = "rm -f pipe; mkfifo pipe; cat found.jsonl > pipe &";
    let by_name = redis.place.jostle("report pipe");
    let by_name = by_name.after(&format!("{through_pipe} true"));
    assert_eq!(by_name.exits(0).stdout, again.stdout);
    let by_input = redis.place.jostle("report -");
    let by_input = by_input.after(&format!("{through_pipe} exec < pipe"));
    assert_eq!(by_input.exits(0).stdout, again.stdout);
    assert_eq!(
        redis.place.read("page.html"),
        redis.place.read("again.html")
    );
    assert!(redis.place.read("page.html").contains("Busiest threads"));
    let csv = redis
        .place
        .jostle("report found.jsonl --format csv")
        .exits(0);
    let watched = watched(&redis.place.read("found.jsonl"));
    assert_eq!(csv.stdout.lines().count(), watched.end_s.len() + 1);
    let traffic = watched.traffic.as_ref().unwrap();
    assert_eq!(traffic.port, u64::from(redis.port));
    assert!(
        traffic.connections.iter().any(|open| *open >= 10.0),
        "{traffic:?}"
    );
    assert!(traffic.bytes.iter().sum::<f64>() > 0.0, "{traffic:?}");
    let cpu = |side: &jostle_model::judged::Side| side.cpu_s.iter().sum::<f64>();
    assert!(cpu(&watched.generator) > 0.0 && cpu(watched.server.as_ref().unwrap()) > 0.0);
    // What later rules look at.
    let network = watched.network.as_ref().unwrap();
    assert_eq!(network.opened.len(), watched.end_s.len());
    assert!(traffic.server_unread.is_some() && traffic.connecting.is_some());
    let largest = watched.generator.largest.as_ref().unwrap();
    assert!(
        largest.name.contains("redis") && cpu(&watched.generator) > 0.0,
        "{largest:?}"
    );
    assert!(
        watched.end_s.last().unwrap() + 0.01 >= watched.elapsed_s,
        "the last interval"
    );
    let other = redis
        .place
        .jostle("contend null -w 1 -t 0.1 --runs 1 -o other.jsonl --quiet")
        .run();
    other.measures();
    let of_other = redis.place.jostle("report other-pipe");
    let of_other = of_other.after("mkfifo other-pipe; cat other.jsonl > other-pipe & true");
    of_other.exits(0).prints("null");
    redis
        .place
        .jostle("report found.jsonl other.jsonl")
        .exits(2)
        .says("report them alone");
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    /// The servers that the page asks for, each at the port that its commands name.
    const SERVERS: &str = "set -e; ip link set lo up
redis-server --port 6379 --save '' --appendonly no >/dev/null &
echo 'pid nginx.pid; error_log stderr; events {} http { access_log off; server { listen 8080; return 200 x; } }' > nginx.conf
nginx -p . -c nginx.conf -g 'daemon off;' 2>/dev/null &
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
as='setpriv --reuid=postgres --regid=postgres --clear-groups'
mkdir data; chown postgres . data
$as $bin/initdb -D data -A trust >/dev/null
$as $bin/postgres -D data -k '' -h 127.0.0.1 >/dev/null 2>&1 &
export PGUSER=postgres
mkdir tables; chown mysql tables
as='setpriv --reuid=mysql --regid=mysql --clear-groups'
$as mariadb-install-db --no-defaults --skip-test-db --auth-root-authentication-method=normal \
    --datadir=$PWD/tables >/dev/null 2>&1
$as mariadbd --no-defaults --bind-address=127.0.0.1 --skip-name-resolve --datadir=$PWD/tables \
    --socket=$PWD/tables/socket >/dev/null 2>&1 &
until redis-cli ping; do sleep 0.1; done >/dev/null 2>&1
until curl -s http://127.0.0.1:8080/; do sleep 0.1; done >/dev/null
until $bin/pg_isready -q -h 127.0.0.1; do sleep 0.1; done
until mariadb-admin -h 127.0.0.1 -u root ping; do sleep 0.1; done >/dev/null 2>&1
$bin/pgbench -q -i -h 127.0.0.1 >/dev/null 2>&1
PATH=$PATH:$bin
";

    #[test]
    #[ignore = "cargo xtask long"]
    fn the_commands_of_the_page_run_as_they_stand() {
        let _alone = alone();
        must_be_root("make a network and processes of its own");
        for (program, package) in [
            ("redis-benchmark", "redis-tools"),
            ("nginx", "nginx-light"),
            ("wrk", "wrk"),
            ("ab", "apache2-utils"),
            ("mariadbd", "mariadb-server"),
            ("mariadb-slap", "mariadb-client"),
            ("curl", "curl"),
        ] {
            must_have(program, package);
        }
        let page = std::fs::read_to_string(root().join("tool/docs/judge.md")).unwrap();
        let blocks = page.split("```sh\n").skip(1);
        let commands: Vec<&str> = blocks
            .flat_map(|block| block.split("```").next().unwrap().lines())
            .collect();
        assert_eq!(commands.len(), 9, "{commands:?}");
        let place = Place::new();
        // 3: the generator was the limit.
        let each: String = commands
            .iter()
            .map(|command| {
                format!(
                    "{command} >&2 || [ $? = 3 ] || {{ echo \"failed: {command}\"; exit 1; }}\n"
                )
            })
            .collect();
        let done = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", &format!("{SERVERS}{each}")])
            .current_dir(place.path())
            .env("PATH", path_with_jostle())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{:?}\n{said}", done.status);
        assert_eq!(said.matches("limit: ").count(), commands.len(), "{said}");
    }
}

/// Tests that judge figures of this machine.
mod figures;
