//! Several ranks under a real launcher, all on this machine: one run of all, whose
//! figures agree with what the server counted, and what comes of ranks that fail.

use jostle_testbed::turns::{alone, beside, each_at_once};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const JOSTLE: &str = env!("CARGO_BIN_EXE_jostle-mpi");

/// On a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// A variable that every process of a job inherits.
const MARK: &str = "JOSTLE_TEST_RUN";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A lock server, as long as the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new(JOSTLE)
            .args(["serve", "lockd"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim().to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// `mpirun -n 3 jostle-mpi LINE`.
struct Job {
    child: Option<Child>,
    mark: String,
    /// Open MPI's own: two jobs that make or remove the usual one at a time fail (4.1.4).
    _session: TempDir,
}

impl Job {
    fn start(line: &str) -> Job {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("ranks-{}-{nth}", std::process::id());
        let session = tempfile::tempdir().unwrap();
        let child = Command::new("mpirun")
            .args(["--allow-run-as-root", "--oversubscribe", "-n", "3"])
            .args(["--mca", "odls_base_sigkill_timeout", "5"])
            .args(["--mca", "orte_tmpdir_base"])
            .arg(session.path())
            .arg(JOSTLE)
            .args(line.split_whitespace())
            .args(["--quiet", "--format", "json"])
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test needs mpirun: apt-get install openmpi-bin");
        Job {
            child: Some(child),
            mark,
            _session: session,
        }
    }

    /// The processes of a rank that bear this name.
    fn pids(&self, rank: usize, name: &str) -> Vec<i32> {
        let wanted = [
            format!("{MARK}={}", self.mark),
            format!("OMPI_COMM_WORLD_RANK={rank}"),
        ];
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let has = |wanted: &String| {
                let mut set = environ.split(|byte| *byte == 0);
                set.any(|set| set == wanted.as_bytes())
            };
            comm.is_ok_and(|comm| comm.trim() == name) && wanted.iter().all(has)
        })
        .collect()
    }

    /// Sends a signal to this one of a rank's processes once workers work.
    fn signal(&mut self, rank: usize, name: &str, signal: &str) {
        let start = Instant::now();
        while self.pids(rank, "jostle-worker").is_empty() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap().is_some();
            if ended || start.elapsed() > LIMIT {
                let _ = self.child.as_mut().unwrap().kill();
                let output = self.child.take().unwrap().wait_with_output().unwrap();
                panic!("no worker came up: {output:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = self.pids(rank, name).first().unwrap().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    fn end(mut self) -> Output {
        let child = self.child.take().unwrap();
        let output = child.wait_with_output().unwrap();
        let start = Instant::now();
        let names = ["jostle-mpi", "jostle-keeper", "jostle-worker"];
        let left = || {
            let each = (0..3).flat_map(|rank| names.map(|name| self.pids(rank, name)));
            each.flatten().collect::<Vec<i32>>()
        };
        while !left().is_empty() {
            assert!(start.elapsed() < LIMIT, "left behind: {:?}", left());
            std::thread::sleep(Duration::from_millis(10));
        }
        output
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn records(output: &Output) -> Vec<Value> {
    let printed = text(&output.stdout);
    let lines = printed.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn points(output: &Output) -> Vec<Value> {
    let mut records = records(output);
    records.retain(|record| record["record"] == "run");
    records
}

/// The named field of each host of a point.
fn of_hosts(point: &Value, figure: &str) -> Vec<i64> {
    let hosts = point["hosts"].as_array().unwrap();
    hosts
        .iter()
        .map(|host| host[figure].as_i64().unwrap())
        .collect()
}

#[test]
fn a_mistake_is_said_whoever_ends_first() {
    let _beside = beside();
    for _ in 0..2 {
        let output = Job::start("contend --nosuch").end();
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert_eq!(said.matches("unexpected argument").count(), 1, "{said}");
    }
}

#[test]
fn three_ranks_make_one_run_and_the_server_counted_what_they_did() {
    let _alone = alone();
    let server = Server::start();
    let line = format!("stream lockd://{} -w 7 -n 50 --runs 1", server.address);
    let output = Job::start(&line).end();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let points = points(&output);
    let [point] = points.as_slice() else {
        panic!("one run of one point: {points:?}");
    };
    let mut workers = of_hosts(point, "workers");
    workers.sort_unstable();
    assert_eq!(workers, [2, 2, 3]);
    assert_eq!(point["operations"], 350);
    assert_eq!(of_hosts(point, "operations").iter().sum::<i64>(), 350);
    assert_eq!(point["server"]["difference"], 0, "{point}");
    // All of one machine, so that their clocks are one.
    let ahead = of_hosts(point, "clock_ahead_ns").into_iter();
    for (ahead, within) in ahead.zip(of_hosts(point, "clock_within_ns")) {
        assert!(ahead.abs() <= within, "{ahead} within {within}");
    }
}

#[test]
fn so_many_ranks_take_part_as_generators_are_asked_for() {
    let _beside = beside();
    let server = Server::start();
    let line = format!(
        "spread lockd://{} --in-flight 6 --generators 1:3 -t 0.3 --runs 1",
        server.address
    );
    let output = Job::start(&line).end();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let mut seen: Vec<(u64, usize)> = points(&output)
        .iter()
        .map(|point| {
            assert_eq!(point["server"]["difference"], 0, "{point}");
            let hosts = point["hosts"].as_array().unwrap();
            (point["at"]["generators"].as_u64().unwrap(), hosts.len())
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 1), (3, 3)]);
}

/// The values in the rows of the ranks under the heading `alone ops/s`.
fn printed_alone(table: &str) -> Vec<String> {
    let lines: Vec<&str> = table.lines().collect();
    let is_heading = |pair: &[&str]| pair[0].contains("alone") && pair[1].contains("ops/s");
    let at = lines.windows(2).position(is_heading).unwrap_or_else(|| {
        panic!("no such column: {table}");
    });
    // Figures end where their heading does.
    let end = lines[at].find("alone").unwrap() + "alone".len();
    let rows = (0..3).map(|rank| {
        // A rank that owns the tail has a mark behind its number.
        let name = format!(" rank {rank}");
        let row = lines[at..].iter().find(|line| line.contains(&name));
        let upto: String = row.unwrap_or(&"").chars().take(end).collect();
        upto.rsplit(' ').next().unwrap_or_default().to_owned()
    });
    rows.collect()
}

#[test]
fn what_each_rank_did_alone_stands_in_the_record_and_in_the_table() {
    let _beside = beside();
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("spread.jsonl");
    let line = format!(
        "spread lockd://{} --in-flight 7 --generators 3 -t 0.3 --runs 1 -o {}",
        server.address,
        file.display()
    );
    let output = Job::start(&line).end();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let records = records(&output);
    let is_experiment = |record: &&Value| record["record"] == "experiment";
    let experiment = records.iter().find(is_experiment).unwrap();
    let alone = experiment["calibration"]["host_ceilings"].as_array();
    let alone = alone.unwrap_or_else(|| panic!("{experiment}"));
    let workers: Vec<_> = alone
        .iter()
        .map(|row| (row["rank"].as_u64(), row["workers"].as_u64()))
        .collect();
    let expected = [(0, 3), (1, 2), (2, 2)].map(|(rank, each)| (Some(rank), Some(each)));
    assert_eq!(workers, expected);
    let report = Command::new(JOSTLE)
        .arg("report")
        .arg(&file)
        .output()
        .unwrap();
    let table = text(&report.stdout);
    for (row, cell) in alone.iter().zip(printed_alone(&table)) {
        let rate = row["throughput_per_s"].as_f64().unwrap();
        let printed: f64 = cell.replace(',', "").parse().unwrap_or(f64::NAN);
        // Three digits of it.
        assert!((printed - rate).abs() <= 0.005 * rate, "{row}\n{table}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_run_by_its_name_and_leaves_nothing() {
    let _beside = beside();
    let server = Server::start();
    let line = format!("contend lockd://{} -w 3 -t 10m --runs 1", server.address);
    let cases = [
        (1, "jostle-keeper", "-KILL", "ended unexpectedly (SIGKILL)"),
        (2, "jostle-mpi", "-TERM", "it was told to end (signal 15)"),
        (1, "jostle-mpi", "-STOP", "nothing was heard of it for 10 s"),
        (2, "jostle-keeper", "-STOP", "has stood still for"),
        (2, "jostle-mpi", "-KILL", "it does not answer any more"),
    ];
    each_at_once(&cases, |(rank, name, signal, says)| {
        let mut job = Job::start(&line);
        job.signal(*rank, name, signal);
        let output = job.end();
        let said = text(&output.stderr);
        let named = format!("(rank {rank}): ");
        // When a rank is killed mpirun names it too, and may have stopped to pass on
        // what others say by the time that rank 0 does.
        let by_launcher = format!("process rank {rank} with PID");
        assert!(
            said.contains(&named) && said.contains(says)
                || said.contains(&by_launcher) && said.contains("on signal 9"),
            "{signal} {name}: {said}"
        );
        // It did not run to its end.
        assert!(!output.status.success(), "{signal} {name}");
    });
}

#[test]
fn the_user_ends_all_ranks() {
    let _beside = beside();
    let server = Server::start();
    let line = format!("contend lockd://{} -w 3 -t 10m --runs 1", server.address);
    let mut job = Job::start(&line);
    job.signal(0, "jostle-mpi", "-INT");
    let output = job.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("interrupted; no point was finished"),
        "{said}"
    );
}
