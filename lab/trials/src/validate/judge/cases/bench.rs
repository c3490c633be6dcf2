//! Where cases are run: the generators that they need, both sides' CPUs and groups, and what is
//! planted.

use super::place::Place;
use super::table::{Case, Plant, server_line};
use crate::validate::bench::Bench;
use crate::validate::sides::{Side, Sides};
use anyhow::{Context, ensure};
use jostle_model::judged::Watched;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{self, Placed, Running, Server};
use jostle_testbed::{packages, shell};
use std::net::{IpAddr, Ipv4Addr};
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
    let placed = Placed {
        cpu,
        ..Placed::default()
    }
    .words();
    let mut shell = Command::new(&placed[0]);
    shell.args(&placed[1..]);
    let busy = "while :; do :; done & read -r never; kill $!";
    Leash::start(shell.args(["sh", "-c", busy]))
}

pub(super) fn directory() -> PathBuf {
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

/// The servers of a case and its place, which ends before them: it has all their processes.
struct Stage {
    place: Option<Place>,
    running: Vec<Running>,
    port: u16,
}

impl Stage {
    fn set(bench: &Bench, case: &Case) -> anyhow::Result<Stage> {
        let port = free_port()?;
        let place = case.place().map(|word| Place::make(word, port, bench));
        let mut stage = Stage {
            place: place.transpose()?,
            running: Vec::new(),
            port,
        };
        let mut behind = 0;
        if let Some(name) = case.behind {
            ensure!(case.place() != Some("podman"), "one server for podman");
            behind = free_port()?;
            let running = stage.serve(bench, case, name, (behind, 0))?;
            behind = running.address.port();
            stage.running.push(running);
        }
        if case.server != "none" {
            let running = stage.serve(bench, case, case.server, (port, behind))?;
            stage.port = running.address.port();
            stage.running.push(running);
        }
        Ok(stage)
    }

    /// The host by which the client reaches the server.
    fn host(&self) -> IpAddr {
        let place = self.place.as_ref();
        place.map_or(Ipv4Addr::LOCALHOST.into(), |place| place.host)
    }

    /// What the client's command line begins with.
    fn client(&self) -> &[String] {
        self.place.as_ref().map_or(&[], |place| &place.client)
    }

    /// Starts a server at the first port, which asks the one at the second.
    fn serve(
        &self,
        bench: &Bench,
        case: &Case,
        name: &str,
        (port, behind): (u16, u16),
    ) -> anyhow::Result<Running> {
        let mut placed = placed(bench, case, Side::Server);
        if let Some(place) = &self.place {
            placed.enter = &place.server;
            placed.address = Some((place.listen, port).into());
        }
        serve(bench, name, behind, placed)
    }
}

/// Starts a server, which asks the one at this port.
fn serve(bench: &Bench, name: &str, behind: u16, placed: Placed<'_>) -> anyhow::Result<Running> {
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
            .replace("{host}", &address.ip().to_string())
            .replace("{port}", &address.port().to_string())
            .replace("{behind}", &behind.max(1).to_string())
            .replace("{place}", &place.display().to_string());
        Ok(shell_line(address.ip(), &line))
    })
}

/// A line for the shell; the programs of lab/trials/cases learn the server's host by it.
fn shell_line(host: IpAddr, line: &str) -> Vec<String> {
    let host = format!("CASE_HOST={host}");
    ["env", &host, "sh", "-c", line].map(str::to_owned).to_vec()
}

/// Sets the range of ports of the namespace that these words enter.
fn set_ports(enter: &[String], range: &str) -> anyhow::Result<()> {
    let set = ["sh", "-c", &format!("echo {range} > {RANGE}")].map(str::to_owned);
    let words = [enter, &set].concat();
    shell::quiet(Command::new(&words[0]).args(&words[1..]))
}

/// Judges a case, in what is planted.
pub(super) fn run(bench: &Bench, case: &Case) -> anyhow::Result<Watched> {
    eprintln!("#{} {} {}", case.number, case.server, case.command);
    let sides = bench.sides()?;
    sides.lift()?;
    let stage = Stage::set(bench, case)?;
    let (host, port, client) = (stage.host(), stage.port, stage.client());
    let hog = match case.planted.contains(&Plant::Beside) {
        true => Some(busy_loop(bench.placed(Side::Generator).cpu)?),
        false => None,
    };
    let ports = std::fs::read_to_string(RANGE)?;
    for planted in &case.planted {
        match planted {
            Plant::Quota(side, cpus, 0.0) => sides.limit(*side, *cpus)?,
            Plant::Ports(number) => {
                set_ports(client, &format!("20000 {}", 20_000 + number - 1))?;
            }
            _ => {}
        }
    }
    let line = case
        .command
        .replace("{url}", &format!("http://{host}:{port}/"))
        .replace("{host}", &host.to_string())
        .replace("{port}", &port.to_string())
        .replace("{s}", &SECONDS.to_string());
    let mut placed = placed(bench, case, Side::Generator);
    // Judge is either outside with the command entering, or both are inside.
    let inside = match case.place() {
        Some("inside") => client,
        _ => {
            placed.enter = client;
            &[]
        }
    };
    let command = [placed.words(), shell_line(host, &line)].concat();
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| {
            let each = case.planted.iter();
            each.for_each(|planted| disturb(sides, planted));
        });
        // 1: nothing to judge; 3: the generator was the limit.
        bench.judge_in(inside, &command, LONGEST_S, &[0, 1, 3])
    });
    drop(hog);
    std::fs::write(RANGE, ports)?;
    let (_, mut watched) = watched?;
    // Records do not tell where the repository is.
    let root = format!("{}/", shell::root().display());
    let words = watched.command.iter_mut();
    words.for_each(|word| *word = word.replace(&root, ""));
    Ok(watched)
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
    pgbouncer varnish squid socat stunnel4 etcd-server openssl nftables podman crun netavark \
    iptables iperf3 dnsperf unbound uwsgi-core uwsgi-plugin-python3 nutcracker nghttp2-proxy pen";

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
