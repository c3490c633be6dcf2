//! Three hosts, in each an etcd and a jostled, and what is done to them.

use super::SECRET;
use anyhow::{Context, bail, ensure};
use jostle_testbed::hosts::{Hosts, SERVER};
use jostle_testbed::shell::{output, quiet};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const MEMBERS: usize = 3;
/// For anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a daemon that has ended stays away, as a service manager has it.
const RESTART: Duration = Duration::from_secs(1);

/// The calls in which a daemon is stopped, or held up.
const CALLS: [&str; 4] = [
    "sendto,sendmsg,write,writev",
    "recvfrom,recvmsg,read",
    "epoll_wait,epoll_pwait",
    "all",
];

/// The hosts.
pub(super) struct Ground {
    pub hosts: Hosts,
    jostled: PathBuf,
    /// Options of all jostleds, and bytes of etcd's quota.
    options: Vec<&'static str>,
    quota: u64,
    /// Each jostled has a group of its own: a control, in which owners overlap.
    apart: bool,
    etcds: Vec<Child>,
    jostleds: Vec<Child>,
    ended: [Option<Instant>; MEMBERS],
    /// Hosts that never come back.
    gone: [bool; MEMBERS],
    /// How often etcd was restored.
    restores: u32,
    strace: Option<Child>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        for child in self
            .strace
            .iter_mut()
            .chain(&mut self.etcds)
            .chain(&mut self.jostleds)
        {
            // Their processes end with the hosts.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn host(member: usize) -> String {
    format!("h{}", member + 1)
}

pub(super) fn address(member: usize) -> String {
    format!("198.18.0.{}", member + 1)
}

fn url(member: usize, port: u16) -> String {
    format!("http://{}:{port}", address(member))
}

fn list(each: impl Fn(usize) -> String) -> String {
    (0..MEMBERS).map(each).collect::<Vec<_>>().join(",")
}

fn signal(pid: u32, signal: Signal) {
    // It may be gone by now.
    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, signal));
}

impl Ground {
    /// All of them run, and the group is made.
    pub(super) fn new(
        jostled: &Path,
        options: Vec<&'static str>,
        quota: u64,
        apart: bool,
    ) -> anyhow::Result<Ground> {
        let mut ground = Ground {
            hosts: Hosts::for_test(MEMBERS as u16)?,
            jostled: jostled.to_owned(),
            options,
            quota,
            apart,
            etcds: Vec::new(),
            jostleds: Vec::new(),
            ended: [None; MEMBERS],
            gone: [false; MEMBERS],
            restores: 0,
            strace: None,
        };
        ground.start_etcds()?;
        for member in 0..if apart { MEMBERS } else { 1 } {
            let mut init = ground.daemon(member);
            let init = init.arg("--ha-init");
            ground.eventually("a group is made", |_| Ok(quiet(init).is_ok().then_some(())))?;
        }
        for member in 0..MEMBERS {
            let child = ground.start(member, &[])?;
            ground.jostleds.push(child);
        }
        Ok(ground)
    }

    fn eventually<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Ground) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            if let Some(done) = done(self)? {
                return Ok(done);
            }
            if start.elapsed() > PATIENCE {
                bail!("not so after {} s: {what}", PATIENCE.as_secs());
            }
            self.wait(Duration::from_millis(100))?;
        }
    }

    fn data(&self) -> String {
        format!("/dev/shm/etcd-{}", self.restores)
    }

    /// The options by which a member of etcd knows the others.
    fn peers(&self, member: usize) -> Vec<String> {
        let all = list(|member| format!("m{member}={}", url(member, 2380)));
        let mut words = vec![
            "--name".to_owned(),
            format!("m{member}"),
            "--data-dir".to_owned(),
        ];
        words.extend([self.data(), "--initial-cluster".to_owned(), all]);
        words.extend([
            "--initial-advertise-peer-urls".to_owned(),
            url(member, 2380),
        ]);
        words
    }

    fn start_etcds(&mut self) -> anyhow::Result<()> {
        self.etcds.clear();
        for member in 0..MEMBERS {
            let mut command = self.hosts.on(&host(member), "etcd");
            command.args(self.peers(member));
            for (option, port) in [
                ("--listen-peer-urls", 2380),
                ("--listen-client-urls", 2379),
                ("--advertise-client-urls", 2379),
            ] {
                command.args([option, &url(member, port)]);
            }
            command.args(["--quota-backend-bytes", &self.quota.to_string()]);
            self.etcds.push(self.logged(command, "etcd", member)?);
        }
        Ok(())
    }

    fn daemon(&self, member: usize) -> Command {
        let mut command = self.hosts.on(&host(member), &self.jostled);
        let group = if self.apart { &*host(member) } else { "g" };
        let endpoints = list(|other| url((member + other) % MEMBERS, 2379));
        command
            .env("JOSTLED_PASSWORD", SECRET)
            .args(["--ha-name", group, "--ha-etcd", &endpoints])
            .args(["--data", "/dev/shm/jostled", "--listen"])
            .arg(format!("{}:7000", address(member)))
            .args(&self.options);
        command
    }

    fn start(&self, member: usize, more: &[&str]) -> anyhow::Result<Child> {
        let mut command = self.daemon(member);
        command.args(more);
        self.logged(command, "jostled", member)
    }

    fn logged(&self, mut command: Command, what: &str, member: usize) -> anyhow::Result<Child> {
        let path = self
            .hosts
            .directory()
            .join(format!("{}.{what}", host(member)));
        let log = File::options().create(true).append(true).open(path)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        command
            .spawn()
            .with_context(|| format!("cannot run {what}"))
    }

    /// What the jostleds logged, each line behind its host.
    pub(super) fn log(&self) -> String {
        let logs = (0..MEMBERS).map(|member| {
            let path = self
                .hosts
                .directory()
                .join(format!("{}.jostled", host(member)));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.lines()
                .map(|line| format!("{} {line}\n", host(member)))
                .collect::<String>()
        });
        logs.collect()
    }

    /// Lets time pass, in which daemons that have ended are started again.
    pub(super) fn wait(&mut self, span: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + span;
        loop {
            for member in 0..MEMBERS.min(self.jostleds.len()) {
                if self.gone[member] || self.jostleds[member].try_wait()?.is_none() {
                    continue;
                }
                let ended = *self.ended[member].get_or_insert_with(Instant::now);
                if ended.elapsed() >= RESTART {
                    self.ended[member] = None;
                    self.jostleds[member] = self.start(member, &[])?;
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// `etcdctl`, from the clients' host, with the members that are there.
    fn etcdctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = self.hosts.on(SERVER, "etcdctl");
        let there = (0..MEMBERS).filter(|member| !self.gone[*member]);
        let urls: Vec<String> = there.map(|member| url(member, 2379)).collect();
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &urls.join(",")]);
        command.stderr(Stdio::null());
        let output = command.args(words).output()?;
        ensure!(output.status.success(), "etcdctl {words:?} failed");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The member that serves.
    pub(super) fn primary(&mut self) -> anyhow::Result<usize> {
        self.eventually("one serves", |ground| {
            let Ok(text) = ground.etcdctl(&["get", "--print-value-only", "/jostled/g/head"]) else {
                return Ok(None);
            };
            let head: serde_json::Value = serde_json::from_str(&text)?;
            let serves = head["incarnation"]
                .as_str()
                .is_some_and(|run| !run.is_empty());
            let place = head["addresses"][0].as_str().unwrap_or_default();
            let found = (0..MEMBERS).find(|member| place == format!("{}:7000", address(*member)));
            Ok(found.filter(|member| serves && !ground.gone[*member]))
        })
    }

    /// Names and numbers of etcd's members, by the place of each, and the place of the leader.
    pub(super) fn leader(&self) -> anyhow::Result<(Vec<u64>, Option<usize>)> {
        let text = self.etcdctl(&["endpoint", "status", "-w", "json"])?;
        let all: Vec<serde_json::Value> = serde_json::from_str(&text)?;
        let mut ids = vec![0; MEMBERS];
        let mut leader = 0;
        for one in &all {
            let place = one["Endpoint"].as_str().unwrap_or_default();
            if let Some(at) = (0..MEMBERS).find(|member| place == url(*member, 2379)) {
                ids[at] = one["Status"]["header"]["member_id"]
                    .as_u64()
                    .unwrap_or_default();
                leader = one["Status"]["leader"].as_u64().unwrap_or(leader);
            }
        }
        let at = ids.iter().position(|id| *id == leader && leader != 0);
        Ok((ids, at))
    }

    /// Makes this member of etcd the leader, if all of them answer; whether it is.
    pub(super) fn lead(&mut self, member: usize) -> bool {
        let Ok((ids, Some(leader))) = self.leader() else {
            return false;
        };
        if leader == member {
            return true;
        }
        let mut command = self.hosts.on(SERVER, "etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &url(leader, 2379)]);
        command.args(["move-leader", &format!("{:x}", ids[member])]);
        quiet(&mut command).is_ok()
    }

    /// The process of a daemon, as it is known here.
    fn pid(&self, member: usize, what: &str) -> Option<u32> {
        let all = self.hosts.processes(&host(member)).ok()?;
        let found = all.into_iter().find(|(_, command)| match what {
            "etcd" => command.starts_with("etcd "),
            _ => command.starts_with(&*self.jostled.to_string_lossy()),
        });
        found.map(|(pid, _)| pid)
    }

    fn signal(&self, member: usize, what: &str, by: Signal) {
        let parent = match what {
            "etcd" => &self.etcds[member],
            _ => &self.jostleds[member],
        };
        // Which stops and goes on with its child.
        if by == Signal::CONT {
            signal(parent.id(), by);
        }
        if let Some(pid) = self.pid(member, what) {
            signal(pid, by);
        }
    }

    fn ask(&self, member: usize, words: &[&str]) -> anyhow::Result<String> {
        let mut command = self.hosts.on(SERVER, "redis-cli");
        command.args([
            "-h",
            &address(member),
            "-p",
            "7000",
            "--no-auth-warning",
            "-a",
            SECRET,
        ]);
        output(command.args(words))
    }

    /// Waits until the primary knows of another member.
    pub(super) fn await_standby(&mut self, primary: usize) -> anyhow::Result<()> {
        self.eventually("a standby is known", |ground| {
            let status = ground.ask(primary, &["HA", "STATUS"]).unwrap_or_default();
            let standbys = status.lines().skip_while(|line| *line != "standbys").nth(1);
            Ok(standbys
                .is_some_and(|names| !names.is_empty())
                .then_some(()))
        })
    }

    fn filter(&self, member: usize, rule: &str) -> anyhow::Result<()> {
        quiet(self.hosts.on(&host(member), "nft").arg(format!(
            "add table inet cut; add chain inet cut one {{ type filter hook {rule} ; }} ; \
             add rule inet cut one {} drop",
            match rule.split(' ').next() {
                Some("output") => "oifname eth0",
                _ => "iifname eth0",
            }
        )))
    }

    /// Lets it happen to a member; `draw` is any number.
    pub(super) fn strike(&mut self, kind: &str, member: usize, draw: u64) -> anyhow::Result<()> {
        let others = [1, 2].map(|other| (member + other) % MEMBERS);
        match kind {
            "kill" => self.signal(member, "jostled", Signal::KILL),
            "term" => self.signal(member, "jostled", Signal::TERM),
            "failover" | "upgrade" => drop(self.ask(member, &["HA", "FAILOVER"])?),
            "stop" => self.signal(member, "jostled", Signal::STOP),
            "stop-call" => self.trace(member, "signal=SIGSTOP", draw)?,
            "delay-call" => self.trace(member, "delay_enter=20000000", draw)?,
            "gone" => {
                self.hosts.cut(&host(member))?;
                self.gone[member] = true;
            }
            "split" => self.hosts.cut(&host(member))?,
            "in-cut" => self.filter(member, "input priority 0")?,
            "out-cut" => self.filter(member, "output priority 0")?,
            "etcd-stop" => self.signal(member, "etcd", Signal::STOP),
            "etcd-frozen" => others
                .iter()
                .for_each(|other| self.signal(*other, "etcd", Signal::STOP)),
            "behind" => {
                // Without its peers it knows nothing new, and is then asked first by a standby.
                self.signal(others[0], "etcd", Signal::STOP);
                sleep(Duration::from_secs(6));
                self.signal(others[0], "etcd", Signal::CONT);
                self.signal(member, "jostled", Signal::KILL);
            }
            "full" => quiet(
                self.hosts
                    .on(SERVER, "sh")
                    .env("ETCDCTL_API", "3")
                    .args(["-c", FILL])
                    .arg(url(member, 2379)),
            )?,
            "restored" => self.restore()?,
            "accepted" => {}
            kind => bail!("there is no fault {kind}"),
        }
        Ok(())
    }

    /// Stops a daemon, or holds it up, in one of its next calls.
    fn trace(&mut self, member: usize, how: &str, draw: u64) -> anyhow::Result<()> {
        let pid = self.pid(member, "jostled").context("no jostled")?;
        let calls = CALLS[(draw % 4) as usize];
        let inject = format!("inject={calls}:{how}:when={}", 1 + draw / 4 % 40);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()]);
        command.args(["-e", &format!("trace={calls}"), "-e", &inject]);
        self.strace = Some(
            command
                .stdin(Stdio::null())
                .spawn()
                .context("cannot run strace")?,
        );
        Ok(())
    }

    fn untrace(&mut self) {
        if let Some(mut strace) = self.strace.take() {
            signal(strace.id(), Signal::TERM);
            let _ = strace.wait();
        }
    }

    /// Ends what was done, as far as that is possible.
    pub(super) fn heal(&mut self, kind: &str, member: usize) -> anyhow::Result<()> {
        self.untrace();
        match kind {
            "stop" | "stop-call" => self.signal(member, "jostled", Signal::CONT),
            "gone" => {
                for what in ["etcd", "jostled"] {
                    self.signal(member, what, Signal::KILL);
                }
            }
            "split" => self.hosts.mend(&host(member))?,
            "in-cut" | "out-cut" => {
                quiet(
                    self.hosts
                        .on(&host(member), "nft")
                        .arg("delete table inet cut"),
                )?;
            }
            "etcd-stop" | "etcd-frozen" => {
                (0..MEMBERS).for_each(|other| self.signal(other, "etcd", Signal::CONT));
            }
            "full" => quiet(
                self.hosts
                    .on(SERVER, "sh")
                    .env("ETCDCTL_API", "3")
                    .args(["-c", EMPTY])
                    .arg(list(|at| url(at, 2379))),
            )?,
            "restored" => {
                for member in 0..MEMBERS {
                    self.signal(member, "jostled", Signal::KILL);
                    self.jostleds[member].wait()?;
                    self.jostleds[member] = self.start(member, &["--restored"])?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn saved(&self) -> String {
        self.hosts
            .directory()
            .join("snapshot")
            .display()
            .to_string()
    }

    /// What `restored` goes back to.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let mut command = self.hosts.on(SERVER, "etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &url(0, 2379)]);
        quiet(command.args(["snapshot", "save", &self.saved()]))
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        for member in 0..MEMBERS {
            self.signal(member, "etcd", Signal::KILL);
            self.etcds[member].wait()?;
        }
        self.restores += 1;
        for member in 0..MEMBERS {
            let mut command = self.hosts.on(&host(member), "etcdctl");
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore", &self.saved()]);
            quiet(command.args(self.peers(member)))?;
        }
        self.start_etcds()
    }
}

/// Writes until there is no room.
const FILL: &str = "for n in $(seq 60); do
    head -c 700000 /dev/zero | tr '\\0' x | etcdctl --endpoints \"$0\" put /fill/$n || exit 0
done; exit 1";

/// What an administrator does then.
const EMPTY: &str = "set -e; etcdctl --endpoints \"$0\" del --prefix /fill/
revision=$(etcdctl --endpoints \"$0\" endpoint status -w json | sed 's/.*\"revision\":\\([0-9]*\\).*/\\1/')
etcdctl --endpoints \"$0\" compact \"$revision\"
etcdctl --endpoints \"$0\" defrag; etcdctl --endpoints \"$0\" alarm disarm";
