//! Where cases are run: the generators that they need, both sides' CPUs and groups, and what is
//! planted.

use super::table::{Case, Plant, SERVERS, lines};
use crate::program;
use crate::validate::judge::bench::{printed, read};
use crate::validate::sides::{Side, Sides};
use anyhow::Context;
use jostle_model::judged::Watched;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{self, Placed, Server};
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

/// Where cases are run: in a network namespace of their own.
pub(super) struct Bench {
    jostle: PathBuf,
    sides: Sides,
    /// Has what commands are named by.
    directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn set_up(jostle: &Path) -> anyhow::Result<Bench> {
        let bench = Bench {
            jostle: std::path::absolute(jostle)?,
            sides: Sides::make()?,
            directory: tempfile::tempdir()?,
        };
        let class = generators().join("Client.class");
        for file in [shell::root().join("lab/trials/cases"), class] {
            let name = file.file_name().context("a file without a name")?;
            std::os::unix::fs::symlink(&file, bench.directory.path().join(name))?;
        }
        Ok(bench)
    }

    fn placed(&self, case: &Case, side: Side) -> Placed<'_> {
        let is = |planted| case.planted.contains(&planted);
        let together = is(Plant::Beside);
        let cpu = self
            .sides
            .cpu(if together { Side::Generator } else { side });
        Placed {
            cpu: (!is(Plant::Free)).then_some(cpu),
            group: Some(self.sides.group(side).path()),
        }
    }

    /// Starts a server, which asks the one at this port.
    fn serve(&self, case: &Case, name: &str, behind: u16) -> anyhow::Result<servers::Running> {
        let placed = self.placed(case, Side::Server);
        match name {
            "redis" => return Server::Redis.start_at(&self.jostle, placed),
            "jostled" => return Server::Lockd.start_at(&self.jostle, placed),
            "memcached" => return Server::Memcached.start_at(&self.jostle, placed),
            "mariadb" => return Server::Mariadb.start_at(&self.jostle, placed),
            "postgres" => {
                let running = Server::Postgres.start_at(&self.jostle, placed)?;
                let port = running.address.port().to_string();
                let ask = "until pg_isready -q -h 127.0.0.1 -p $0; do sleep 0.1; done";
                shell::run(Command::new("timeout").args(["60", "sh", "-c", ask, &port]))?;
                return Ok(running);
            }
            _ => {}
        }
        let line = lines(SERVERS).find(|words| words[0] == name);
        let line = *line
            .with_context(|| format!("no server {name}"))?
            .get(1)
            .context("a line")?;
        servers::launch(Server::Other, placed, |address, place| {
            let cases = format!("{}/", shell::root().join("lab/trials/cases").display());
            let line = line
                .replace("cases/", &cases)
                .replace("{port}", &address.port().to_string())
                .replace("{behind}", &behind.max(1).to_string())
                .replace("{place}", &place.display().to_string());
            Ok(["sh", "-c", &line].map(str::to_owned).to_vec())
        })
    }

    /// Judges a case, in what is planted.
    pub(super) fn run(&self, case: &Case) -> anyhow::Result<Watched> {
        eprintln!("#{} {} {}", case.number, case.server, case.command);
        self.sides.lift()?;
        let port = |running: &servers::Running| running.address.port();
        let behind = case
            .behind
            .map(|name| self.serve(case, name, 0))
            .transpose()?;
        let server = match case.server {
            "none" => None,
            name => Some(self.serve(case, name, behind.as_ref().map_or(0, port))?),
        };
        let port = server
            .as_ref()
            .map_or_else(free_port, |running| Ok(port(running)))?;
        let is_beside = case.planted.contains(&Plant::Beside);
        let hog = is_beside
            .then(|| busy_loop(Some(self.sides.cpu(Side::Generator))))
            .transpose()?;
        let ports = std::fs::read_to_string(RANGE)?;
        for planted in &case.planted {
            match planted {
                Plant::Quota(side, cpus, 0.0) => self.sides.limit(*side, *cpus)?,
                Plant::Ports(number) => {
                    let last = 20_000 + number - 1;
                    std::fs::write(RANGE, format!("20000 {last}"))?;
                }
                _ => {}
            }
        }
        let watched = std::thread::scope(|scope| {
            scope.spawn(|| {
                case.planted
                    .iter()
                    .for_each(|planted| self.disturb(planted))
            });
            self.judge(case, port)
        });
        drop(hog);
        std::fs::write(RANGE, ports)?;
        watched
    }

    /// What is done to a side in mid-run.
    fn disturb(&self, planted: &Plant) {
        let wait = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds));
        let each = |side: Side, tell: fn(u32)| {
            let group = self.sides.group(side).path();
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
                if let Err(error) = self.sides.limit(side, cpus) {
                    eprintln!("{error:#}");
                }
            }
            _ => {}
        }
    }

    fn judge(&self, case: &Case, port: u16) -> anyhow::Result<Watched> {
        let part = self.directory.path().join("part.jsonl");
        let line = case
            .command
            .replace("{url}", &format!("http://127.0.0.1:{port}/"))
            .replace("{port}", &port.to_string())
            .replace("{s}", &SECONDS.to_string());
        let mut command = program::call(Path::new("timeout"));
        command
            .current_dir(self.directory.path())
            .args(["-s", "INT", &LONGEST_S.to_string()])
            .arg(&self.jostle)
            .args(["judge", "--quiet", "--overwrite", "-o"])
            .arg(&part)
            .arg("--")
            .args(self.placed(case, Side::Generator).words())
            .args(["sh", "-c", &line]);
        // 1: nothing to judge; 3: the generator was the limit.
        printed(&mut command, &[0, 1, 3])?;
        read(&part)
    }
}

fn generators() -> PathBuf {
    shell::target_directory().join("generators")
}

/// Debian's, of all cases together.
const PACKAGES: &str = "\
    wrk hey apache2-utils redis-server redis-tools postgresql sysbench nginx-light npm golang-go \
    default-jdk-headless iproute2 python3-venv siege nghttp2-client libmemcached-tools haproxy \
    lighttpd php-cli ruby memcached mariadb-server mariadb-client php8.2-curl libwww-perl curl \
    httperf libapache2-mod-php8.2 caddy h2o mini-httpd puma starman ruby-webrick beanstalkd \
    pgbouncer varnish squid socat stunnel4 etcd-server openssl";

/// Installs the generators and starts this program again: in a network namespace of its own,
/// whose ports and counters nobody else uses, and with the generators in its PATH.
pub(super) fn enter_namespace() -> anyhow::Result<()> {
    packages::ensure(&PACKAGES.split(' ').collect::<Vec<_>>())?;
    shell::run(&mut Command::new(
        shell::root().join("lab/trials/cases/install.sh"),
    ))?;
    let places = ["bin", "node_modules/.bin", "python/bin"].map(|place| generators().join(place));
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let usual = std::env::split_paths(&usual).chain([PathBuf::from("/usr/sbin")]);
    let status = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--apart")
        .env(
            "PATH",
            std::env::join_paths(places.into_iter().chain(usual))?,
        )
        .stdin(Stdio::null())
        .status()
        .context("cannot run unshare")?;
    std::process::exit(status.code().unwrap_or(1));
}
