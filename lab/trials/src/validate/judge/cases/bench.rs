//! Where cases are run: the generators that they need, both sides' CPUs and groups, and what is
//! planted.

use super::table::{Case, Plant, SERVERS, lines};
use crate::program;
use crate::validate::judge::bench::{printed, read};
use crate::validate::sides::{Side, Sides};
use anyhow::{Context, ensure};
use jostle_model::judged::Watched;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{self, Placed, Server};
use jostle_testbed::{packages, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The length of a run.
const SECONDS: u32 = 4;

/// The longest run unless it stands still.
const LONGEST_S: u32 = 60;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The longest run of a command alone, which none of the cases needs.
const LONGEST_ALONE_S: f64 = 8.0;

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

    /// Judges a case.
    pub(super) fn run(&self, case: &Case) -> anyhow::Result<Watched> {
        self.planted(case, |port| self.judge(case, port))
    }

    /// Runs a case's command without judging it, and tells the last line that it printed.
    pub(super) fn run_alone(&self, case: &Case) -> anyhow::Result<String> {
        self.planted(case, |port| self.call_alone(case, port))
    }

    /// Calls this with the port of the case's server, in what is planted.
    fn planted<T>(
        &self,
        case: &Case,
        call: impl FnOnce(u16) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
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
        let called = std::thread::scope(|scope| {
            scope.spawn(|| {
                case.planted
                    .iter()
                    .for_each(|planted| self.disturb(planted))
            });
            call(port)
        });
        drop(hog);
        std::fs::write(RANGE, ports)?;
        called
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

    /// A case's command line, where and as it runs.
    fn words(&self, case: &Case, port: u16) -> Vec<String> {
        let line = case
            .command
            .replace("{url}", &format!("http://127.0.0.1:{port}/"))
            .replace("{port}", &port.to_string())
            .replace("{s}", &SECONDS.to_string());
        let mut words = self.placed(case, Side::Generator).words();
        words.extend(["sh", "-c", &line].map(str::to_owned));
        words
    }

    fn call_alone(&self, case: &Case, port: u16) -> anyhow::Result<String> {
        let mut command = program::call(Path::new("timeout"));
        command
            .current_dir(self.directory.path())
            .arg(LONGEST_ALONE_S.to_string())
            .args(self.words(case, port));
        // Any code but those of a shell that cannot start it: some commands are made to fail.
        let codes: Vec<i32> = (0..126).chain(128..256).collect();
        let began = Instant::now();
        let printed = printed(&mut command, &codes)?;
        last_line(&printed, began.elapsed().as_secs_f64())
    }

    fn judge(&self, case: &Case, port: u16) -> anyhow::Result<Watched> {
        let part = self.directory.path().join("part.jsonl");
        let mut command = program::call(Path::new("timeout"));
        command
            .current_dir(self.directory.path())
            .args(["-s", "INT", &LONGEST_S.to_string()])
            .arg(&self.jostle)
            .args(["judge", "--quiet", "--overwrite", "-o"])
            .arg(&part)
            .arg("--")
            .args(self.words(case, port));
        // 1: nothing to judge; 3: the generator was the limit.
        printed(&mut command, &[0, 1, 3])?;
        read(&part)
    }
}

/// The last line of what a command printed that took so long.
fn last_line(printed: &str, took_s: f64) -> anyhow::Result<String> {
    ensure!(took_s < LONGEST_ALONE_S, "it took {took_s:.1} s");
    let last = printed.lines().rfind(|line| !line.trim().is_empty());
    let last = last.context("it printed nothing")?.trim();
    Ok(format!("{took_s:.1} s: {last}"))
}

fn generators() -> PathBuf {
    shell::target_directory().join("generators")
}

/// Debian's, of all cases together.
const PACKAGES: [&str; 42] = [
    "wrk",
    "hey",
    "apache2-utils",
    "redis-server",
    "redis-tools",
    "postgresql",
    "sysbench",
    "nginx-light",
    "npm",
    "golang-go",
    "default-jdk-headless",
    "iproute2",
    "python3-venv",
    "siege",
    "nghttp2-client",
    "libmemcached-tools",
    "haproxy",
    "lighttpd",
    "php-cli",
    "ruby",
    "memcached",
    "mariadb-server",
    "mariadb-client",
    "php8.2-curl",
    "libwww-perl",
    "curl",
    "httperf",
    "libapache2-mod-php8.2",
    "caddy",
    "h2o",
    "mini-httpd",
    "puma",
    "starman",
    "ruby-webrick",
    "beanstalkd",
    "pgbouncer",
    "varnish",
    "squid",
    "socat",
    "stunnel4",
    "etcd-server",
    "openssl",
];

/// Installs the generators and starts this program again: in a network namespace of its own,
/// whose ports and counters nobody else uses, and with the generators in its PATH.
pub(super) fn enter_namespace() -> anyhow::Result<()> {
    packages::ensure(&PACKAGES)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_works_prints_something_in_time() {
        assert_eq!(
            last_line("a\n 12 requests\n\n", 4.04).unwrap(),
            "4.0 s: 12 requests"
        );
        assert!(last_line(" \n", 4.0).is_err() && last_line("12 requests", 8.0).is_err());
    }
}
