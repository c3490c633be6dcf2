//! The cost of a call: side by side, interleaved, in one run.
//!
//! ```text
//! cargo build --release -p jostle-procd --bins --examples
//! target/release/examples/cost [BLOCKS [free|cross|same]]
//! ```
//!
//! Where there are several CPUs, the servers run on one and the callers on
//! another one (`cross`, the default), both on one, or where the kernel likes.
//! Persistent: round trips on one connection, against a loop that answers
//! without looking at what it was sent. Spawned: `jostle-call` against
//! `jostle-nothing`, which is built in the same way and does nothing. The rates
//! of two hours cannot be compared, the ratios of one block can.

#![allow(
    clippy::print_stdout,
    reason = "a program for people, whose result is what it prints"
)]

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use jostle_sys::cpu;
use jostle_sys::spawn::Program;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CALLS: u32 = 2000;
const SPAWNS: u32 = 200;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nExit-Code: 0\r\nContent-Length: 0\r\n\r\n";

fn main() -> Result<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("bare") {
        return bare();
    }
    let blocks = argument.map_or(Ok(15), |text| text.parse())?;
    let all = cpu::allowed();
    let (first, last) = (all[0], all[all.len() - 1]);
    let cpus = match std::env::args().nth(2).as_deref() {
        None | Some("cross") => Cpus(vec![last], vec![first]),
        Some("same") => Cpus(vec![first], vec![first]),
        Some("free") => Cpus(all.clone(), all),
        Some(other) => return Err(format!("free, cross or same, not {other}").into()),
    };
    compare(blocks, &cpus)
}

/// Where the servers run, and where the callers.
struct Cpus(Vec<usize>, Vec<usize>);

/// Answers everything that it reads; prints its address first.
fn bare() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut buffer = [0; 16 << 10];
        while stream.read(&mut buffer)? > 0 {
            stream.write_all(ANSWER)?;
        }
    }
    Ok(())
}

/// A child that is ended with its owner.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Trial {
    name: &'static str,
    run: Box<dyn FnMut() -> Result<f64>>,
    us: Vec<f64>,
}

fn compare(blocks: usize, cpus: &Cpus) -> Result<()> {
    let here = std::env::current_exe()?;
    let built = here.parent().and_then(Path::parent).ok_or("no folder")?;
    let spool = std::env::temp_dir().join(format!("procd-cost-{}", std::process::id()));
    std::fs::create_dir_all(&spool)?;
    std::fs::write(spool.join("m"), [0; 1000])?;
    let done = measured(&here, built, &spool, blocks, cpus);
    std::fs::remove_dir_all(&spool)?;
    done
}

fn measured(
    here: &Path,
    built: &Path,
    spool: &Path,
    blocks: usize,
    Cpus(servers, callers): &Cpus,
) -> Result<()> {
    // Children stay where they are started.
    cpu::pin(servers)?;
    let socket = spool.join("socket");
    let mut bare = Command::new(here);
    let (_bare, bare) = launch(bare.arg("bare").stdout(Stdio::piped()))?;
    let mut engine = Command::new(built.join("procd"));
    let procedures = Path::new(env!("CARGO_MANIFEST_DIR")).join("procedures");
    engine
        .args(["--listen", "127.0.0.1:0", "--procedures"])
        .arg(procedures)
        .args(["--spool".as_ref(), spool.as_os_str()])
        .args(["--unix".as_ref(), socket.as_os_str()])
        .stderr(Stdio::piped());
    let (engine, address) = launch(&mut engine)?;
    cpu::pin(callers)?;
    let over_unix = format!("unix:{}", socket.display());
    let spawned = |name, program, address: &str| {
        let program = built.join(program).display().to_string();
        let size = ["/sizecheck", "file=m", "max=1000"];
        spawned(name, &[&[&program, "-a", address], &size[..]].concat())
    };
    let mut trials = vec![
        persistent("answering loop", &bare, "/")?,
        persistent("/sizecheck", &address, "/sizecheck?file=m&max=1000")?,
        persistent("/accept (Lua)", &address, "/accept")?,
        persistent("/sizecheck_lua", &address, "/sizecheck_lua?file=m&max=1000")?,
        spawned("nothing", "jostle-nothing", &address)?,
        spawned("jostle-call, TCP", "jostle-call", &address)?,
        spawned("jostle-call, Unix", "jostle-call", &over_unix)?,
    ];
    for block in 0..=blocks {
        for trial in &mut trials {
            let us = (trial.run)()?;
            // The first block warms up.
            if block > 0 {
                trial.us.push(us);
            }
        }
    }
    report(&trials);
    let calls = 4 * CALLS;
    let before = cpu_ticks(engine.0.id())?;
    for trial in &mut trials[1..2] {
        for _ in 0..4 {
            (trial.run)()?;
        }
    }
    let ticks = cpu_ticks(engine.0.id())? - before;
    println!(
        "CPU of the engine per persistent /sizecheck: {:.1} us",
        ticks / f64::from(calls)
    );
    Ok(())
}

/// Starts a server, and reads where it listens.
fn launch(command: &mut Command) -> Result<(Served, String)> {
    let mut child = command.spawn()?;
    let output: Box<dyn Read> = match (child.stdout.take(), child.stderr.take()) {
        (Some(stdout), _) => Box::new(stdout),
        (_, Some(stderr)) => Box::new(stderr),
        _ => return Err("nothing to read from".into()),
    };
    let served = Served(child);
    for line in BufReader::new(output).lines() {
        let line = line?;
        let word = line.rsplit(' ').next().unwrap_or_default();
        if word.starts_with("127.0.0.1:") {
            return Ok((served, word.to_owned()));
        }
    }
    Err("the server did not start".into())
}

fn persistent(name: &'static str, address: &str, target: &str) -> Result<Trial> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    let run = move || {
        let mut buffer = [0; 1024];
        let start = Instant::now();
        for _ in 0..CALLS {
            stream.write_all(request.as_bytes())?;
            let length = stream.read(&mut buffer)?;
            let answer = &buffer[..length];
            if !answer.starts_with(b"HTTP/1.1 200 OK\r\nExit-Code: 0\r\n") {
                return Err(String::from_utf8_lossy(answer).into());
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
    };
    let run = Box::new(run);
    Ok(Trial {
        name,
        run,
        us: Vec::new(),
    })
}

fn spawned(name: &'static str, words: &[&str]) -> Result<Trial> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut program = Program::new(&words, null.as_fd(), null.as_fd())?;
    let run = move || {
        // It must stay open for as long as the program is started.
        let _null = &null;
        let start = Instant::now();
        for _ in 0..SPAWNS {
            let ended = program.start(0, 0)?.reap()?;
            if ended.code != Some(0) {
                return Err(format!("{words:?}: {ended:?}").into());
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(SPAWNS))
    };
    let run = Box::new(run);
    Ok(Trial {
        name,
        run,
        us: Vec::new(),
    })
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

/// Medians and ranges, and the ratio to the first of each kind.
fn report(trials: &[Trial]) {
    println!(
        "{:<20} {:>9} {:>17} {:>9} {:>18}",
        "", "us/call", "", "calls/s", "ratio"
    );
    for (index, trial) in trials.iter().enumerate() {
        let base = &trials[if index < 4 { 0 } else { 4 }];
        let (us, low, high) = median(trial.us.clone());
        let ratios = trial.us.iter().zip(&base.us).map(|(a, b)| a / b);
        let (ratio, least, most) = median(ratios.collect());
        println!(
            "{:<20} {us:>9.1} [{low:>6.1} - {high:>6.1}] {:>9.0} {ratio:>6.2} [{least:.2} - {most:.2}]",
            trial.name,
            1e6 / us
        );
    }
}

/// User and system time of a process, in microseconds, as sampled by ticks.
fn cpu_ticks(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // The first field: nanoseconds on a CPU.
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ns: f64 = text.split(' ').next().unwrap_or("0").parse()?;
        sum += ns / 1000.0;
    }
    Ok(sum)
}
