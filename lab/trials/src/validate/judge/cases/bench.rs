//! Where cases are run: the generators that they need, both sides' CPUs and groups, and what is
//! planted.

use super::table::{Case, Plant, server_line};
use crate::validate::bench::Bench;
use crate::validate::sides::{Side, Sides};
use anyhow::Context;
use jostle_model::judged::Watched;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{self, Placed, Running, Server};
use jostle_testbed::{packages, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The length of a run.
const SECONDS: u32 = 4;

/// The longest run unless it stands still.
const LONGEST_S: u32 = 60;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A program that uses this CPU, or any, as long as it may.
pub(super) fn busy_loop(cpu: Option<usize>) -> anyhow::Result<Leash> {
    let placed = Placed { cpu, group: None }.words();
    let mut shell = Command::new(&placed[0]);
    shell.args(&placed[1..]);
    let busy = "while :; do :; done & read -r never; kill $!";
    Leash::start(shell.args(["sh", "-c", busy]))
}

fn directory() -> PathBuf {
    shell::root().join("lab/trials/cases")
}

/// A bench whose directory has what commands are named by.
pub(super) fn set_up(jostle: &Path) -> anyhow::Result<Bench> {
    let bench = Bench::set_up(jostle, &[], Some(Sides::make()?))?;
    let class = shell::target_directory().join("generators/Client.class");
    for file in [directory(), class] {
        let name = file.file_name().context("a file without a name")?;
        std::os::unix::fs::symlink(&file, bench.directory().join(name))?;
    }
    Ok(bench)
}

fn placed<'a>(bench: &'a Bench, case: &Case, side: Side) -> Placed<'a> {
    let is = |planted| case.planted.contains(&planted);
    let placed = bench.placed(side);
    let first = bench.placed(Side::Generator).cpu;
    Placed {
        cpu: if is(Plant::Beside) { first } else { placed.cpu }.filter(|_| !is(Plant::Free)),
        ..placed
    }
}

/// Starts a server, which asks the one at this port.
fn serve(bench: &Bench, case: &Case, name: &str, behind: u16) -> anyhow::Result<Running> {
    let placed = placed(bench, case, Side::Server);
    let Some(line) = server_line(name) else {
        let server = Server::named(if name == "jostled" { "lockd" } else { name });
        let server = server.with_context(|| format!("no server {name}"))?;
        let running = server.start_at(&bench.jostle, placed)?;
        if server == Server::Postgres {
            let port = running.address.port().to_string();
            let ask = "until pg_isready -q -h 127.0.0.1 -p $0; do sleep 0.1; done";
            shell::run(Command::new("timeout").args(["60", "sh", "-c", ask, &port]))?;
        }
        return Ok(running);
    };
    servers::launch(Server::Other, placed, |address, place| {
        let line = line
            .replace("cases/", &format!("{}/", directory().display()))
            .replace("{port}", &address.port().to_string())
            .replace("{behind}", &behind.max(1).to_string())
            .replace("{place}", &place.display().to_string());
        Ok(["sh", "-c", &line].map(str::to_owned).to_vec())
    })
}

/// Judges a case, in what is planted.
pub(super) fn run(bench: &Bench, case: &Case) -> anyhow::Result<Watched> {
    eprintln!("#{} {} {}", case.number, case.server, case.command);
    let sides = bench.sides()?;
    sides.lift()?;
    let port = |running: &Running| running.address.port();
    let behind = case.behind.map(|name| serve(bench, case, name, 0));
    let behind = behind.transpose()?;
    let server = match case.server {
        "none" => None,
        name => Some(serve(bench, case, name, behind.as_ref().map_or(0, port))?),
    };
    let port = server
        .as_ref()
        .map_or_else(free_port, |running| Ok(port(running)))?;
    let hog = match case.planted.contains(&Plant::Beside) {
        true => Some(busy_loop(bench.placed(Side::Generator).cpu)?),
        false => None,
    };
    let ports = std::fs::read_to_string(RANGE)?;
    for planted in &case.planted {
        match planted {
            Plant::Quota(side, cpus, 0.0) => sides.limit(*side, *cpus)?,
            Plant::Ports(number) => {
                std::fs::write(RANGE, format!("20000 {}", 20_000 + number - 1))?;
            }
            _ => {}
        }
    }
    let line = case
        .command
        .replace("{url}", &format!("http://127.0.0.1:{port}/"))
        .replace("{port}", &port.to_string())
        .replace("{s}", &SECONDS.to_string());
    let shell = ["sh", "-c", &line].map(str::to_owned);
    let command = [&placed(bench, case, Side::Generator).words()[..], &shell].concat();
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| {
            let each = case.planted.iter();
            each.for_each(|planted| disturb(sides, planted));
        });
        // 1: nothing to judge; 3: the generator was the limit.
        bench.judge(&command, LONGEST_S, &[0, 1, 3])
    });
    drop(hog);
    std::fs::write(RANGE, ports)?;
    watched.map(|(_, watched)| watched)
}

/// Disturbs a side in mid-run.
fn disturb(sides: &Sides, planted: &Plant) {
    let wait = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds));
    let each = |side: Side, tell: fn(u32)| {
        let group = sides.group(side).path();
        let procs = std::fs::read_to_string(group.join("cgroup.procs"));
        let procs = procs.unwrap_or_default();
        procs
            .lines()
            .filter_map(|line| line.parse().ok())
            .for_each(tell);
    };
    match *planted {
        Plant::Stop(side, from_s, to_s) => {
            wait(from_s);
            each(side, process::stop);
            wait(to_s - from_s);
            each(side, process::go_on);
        }
        Plant::Kill(at_s) => {
            wait(at_s);
            each(Side::Server, process::kill);
        }
        Plant::Quota(side, cpus, from_s) if from_s > 0.0 => {
            wait(from_s);
            if let Err(error) = sides.limit(side, cpus) {
                eprintln!("{error:#}");
            }
        }
        _ => {}
    }
}

/// Debian's, of all cases together.
const PACKAGES: &str = "\
    wrk hey apache2-utils redis-server redis-tools postgresql sysbench nginx-light npm golang-go \
    default-jdk-headless iproute2 python3-venv siege nghttp2-client libmemcached-tools haproxy \
    lighttpd php-cli ruby memcached mariadb-server mariadb-client php8.2-curl libwww-perl curl \
    httperf libapache2-mod-php8.2 caddy h2o mini-httpd puma starman ruby-webrick beanstalkd \
    pgbouncer varnish squid socat stunnel4 etcd-server openssl";

/// Installs the generators and starts this program again, in a network namespace of its own.
pub(super) fn enter_namespace() -> anyhow::Result<()> {
    packages::ensure(&PACKAGES.split(' ').collect::<Vec<_>>())?;
    let status = Command::new(directory().join("apart.sh"))
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--apart")
        .stdin(Stdio::null())
        .status()
        .context("cannot run apart.sh")?;
    std::process::exit(status.code().unwrap_or(1));
}
