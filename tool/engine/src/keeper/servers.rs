//! Servers that come with a target: the keeper launches them as this very program under a
//! hidden verb, or by a recipe of the target (`programs`), and ends them with the run.
//!
//! A target knows a server's name and protocol, the program has its code: a client of a
//! lock daemon need not contain the daemon.

use super::died::death;
use super::programs::{Restart, Site, Started, empty, members};
use jostle_harness::Context;
use jostle_recover::{Member, Service};
use jostle_sys::ledger::Ledger;
use jostle_sys::switch::Switch;
use jostle_sys::waited::{self, Waited};
use jostle_sys::{cpu, process};
use jostle_targets::program::{LaunchRecipe, Launched, secret};
use jostle_targets::{Launcher, SetupError};
use jostle_verify::WallClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The hidden verb; what follows it is the server's name.
pub const VERB: &str = "serve";

/// The variable with the password of a jostled. Other users can read a command line, but
/// not another process's environment (proc_pid_environ(5)).
pub const PASSWORD: &str = "JOSTLED_PASSWORD";

/// How the first line of a server begins that cannot listen; the cause follows, in words for
/// the user.
pub const NOT_LAUNCHED: &str = "not launched: ";

/// The arguments behind the verb where the program answers lines on its standard streams.
pub(super) const ANSWERING_PROGRAM: &str = "echo+pipe";

/// How long a server may take to say where it listens, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server that was killed may take to accept connections again.
const RESTART_PATIENCE: Duration = Duration::from_secs(60);

/// So many clients have hosts of their own.
const MOST_CLIENTS: usize = 100;

/// How long a server that was asked to end may take before it is killed.
const QUIT_PATIENCE: Duration = Duration::from_secs(3);

/// The servers launched for one run.
#[derive(Debug)]
pub(super) struct Servers<'a> {
    context: &'a Context,
    ledger: &'a Ledger,
    /// Their CPUs; empty: wherever they like.
    cpus: &'a [usize],
    /// Whether a server may be killed and started again, so that it needs a directory.
    lasting: bool,
    /// Their wall clock, where that is set.
    clock: Option<WallClock>,
    /// The password of those that take one, once the first was started.
    secret: OnceCell<String>,
    /// Clients that have hosts of their own where the servers of a cluster have.
    clients: usize,
    /// These hosts, or why there are none; once a cluster was launched. The keeper stands on the
    /// switch from then on.
    switch: OnceCell<Result<Switch, String>>,
    running: RefCell<Vec<Running>>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    /// Its program.
    name: String,
    stop: Stop,
    /// The means to start it again, once it has said where it listens.
    again: Option<Again>,
}

/// How the same server is started again, with what it has written.
#[derive(Debug)]
enum Again {
    /// This program, by name, where it listened, and its directory.
    Ours {
        server: String,
        address: String,
        directory: PathBuf,
    },
    /// Somebody else's.
    Followed(Restart),
}

impl Again {
    fn address(&self) -> &str {
        match self {
            Again::Ours { address, .. } => address,
            Again::Followed(restart) => &restart.address,
        }
    }
}

/// How it is ended.
#[derive(Debug)]
enum Stop {
    /// By closing its standard input.
    Close { _input: OwnedFd },
    /// By SIGQUIT, where it has something to clear away, and by SIGKILL.
    Kill { quits: bool },
}

impl<'a> Servers<'a> {
    /// None yet.
    pub(super) fn new(context: &'a Context, ledger: &'a Ledger, cpus: &'a [usize]) -> Servers<'a> {
        Servers {
            context,
            ledger,
            cpus,
            lasting: false,
            clock: None,
            secret: OnceCell::new(),
            clients: 0,
            switch: OnceCell::new(),
            running: RefCell::new(Vec::new()),
        }
    }

    /// Gives so many clients hosts of their own, too, as far as there are addresses.
    pub(super) fn with_hosts_for(mut self, clients: usize) -> Servers<'a> {
        self.clients = clients.min(MOST_CLIENTS);
        self
    }

    /// Marks its servers as ones that may be killed and started again.
    pub(super) fn lasting(mut self) -> Servers<'a> {
        self.lasting = true;
        self
    }

    /// Lets them run by this wall clock.
    pub(super) fn by(mut self, clock: Option<WallClock>) -> Servers<'a> {
        self.clock = clock;
        self
    }

    /// Whether none was launched.
    pub(super) fn is_empty(&self) -> bool {
        self.running.borrow().is_empty()
    }

    /// Those that have ended by now, and how, in words.
    pub(super) fn deaths(&self) -> Vec<String> {
        let running = self.running.borrow();
        let each = running.iter().filter_map(
            |Running {
                 pid, name, again, ..
             }| {
                let ended = self.context.how_ended(*pid)?;
                let log = match again {
                    Some(Again::Followed(restart)) => Some(restart.log()),
                    _ => None,
                };
                Some(death(name, &ended, log))
            },
        );
        each.collect()
    }

    fn until_it_accepts(&self, address: &str) -> Result<(), String> {
        let mut waited = Waited::begin();
        let accepts = || match address.starts_with('/') {
            true => std::os::unix::net::UnixStream::connect(address).map(drop),
            false => std::net::TcpStream::connect(address).map(drop),
        };
        while let Err(error) = accepts() {
            if waited.so_far() > RESTART_PATIENCE {
                return Err(format!(
                    "the server at {address} did not come back within {} s: {error}",
                    RESTART_PATIENCE.as_secs()
                ));
            }
            if self.context.stopped(Duration::from_millis(1)) {
                return Err("interrupted".to_owned());
            }
        }
        Ok(())
    }

    fn site(&self) -> Site<'_> {
        Site {
            context: self.context,
            ledger: self.ledger,
            cpus: self.cpus,
            clock: self.clock.as_ref(),
            switch: Service::switch(self).ok(),
        }
    }

    /// Gives each server of a cluster a host, where that is possible.
    fn lay_links(&self, recipes: &[&dyn LaunchRecipe]) {
        let members = members(recipes);
        let make = || {
            Switch::may_be_made()?;
            Switch::make(members, self.clients).map_err(|error| {
                format!("the network namespaces of its servers could not be made: {error}")
            })
        };
        if members > 0 {
            self.switch.get_or_init(make);
        }
    }

    fn note(&self, name: &str, Started { pid, restart }: Started) {
        let name = name.to_owned();
        self.running.borrow_mut().push(Running {
            pid,
            name,
            stop: Stop::Kill {
                quits: restart.quits,
            },
            again: Some(Again::Followed(restart)),
        });
    }

    fn start(&self, server: &str) -> Result<String, String> {
        let directory = match self.lasting {
            true => Some(self.ledger.make_directory().map_err(|error| {
                format!("cannot make a directory for it: {error}; is $TMPDIR writable?")
            })?),
            false => None,
        };
        self.start_at(server, None, directory.as_deref())
    }

    fn start_at(
        &self,
        server: &str,
        at: Option<&str>,
        directory: Option<&Path>,
    ) -> Result<String, String> {
        let say = |error: rustix::io::Errno| error.to_string();
        let (input, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(say)?;
        let (address, output) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(say)?;
        let secret = match self.secret.get() {
            Some(secret) => secret,
            None => {
                let new = secret().map_err(|SetupError(said)| said)?;
                self.secret.get_or_init(|| new)
            }
        };
        let keeper = rustix::process::getpid();
        let mut ends = Some((input, output));
        let pid = self.context.forker.fork(|| {
            let Some((input, output)) = ends.take() else {
                return 1;
            };
            if process::die_with(keeper).is_err() {
                return 1;
            }
            let _ = process::leave_group();
            if !self.cpus.is_empty() && cpu::pin(self.cpus).is_err() {
                return 1;
            }
            // Only returns if it failed.
            let mut command = Command::new("/proc/self/exe");
            command.args([VERB, server]).env(PASSWORD, secret);
            command.envs(WallClock::environment(self.clock.as_ref()));
            if let Some(address) = at.filter(|address| !address.starts_with('/')) {
                command.args(["--at", address]);
            }
            if let Some(directory) = directory {
                command.arg("--keep").arg(directory);
            }
            let error = command
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output))
                .exec();
            error.raw_os_error().unwrap_or(1)
        });
        let pid = pid
            .map_err(|error| error.to_string())?
            .as_raw_nonzero()
            .get() as u32;
        // The child's ends: with ours open, its end would go unseen.
        drop(ends);
        let stop = Stop::Close { _input: stop };
        let running = Running {
            pid,
            name: server.to_owned(),
            stop,
            again: None,
        };
        self.running.borrow_mut().push(running);
        let address = first_line(address)?;
        if let (Some(running), Some(directory)) = (self.running.borrow_mut().last_mut(), directory)
        {
            running.again = Some(Again::Ours {
                server: server.to_owned(),
                address: address.clone(),
                directory: directory.to_owned(),
            });
        }
        Ok(address)
    }
}

/// The line in which a server says where it listens.
fn first_line(output: OwnedFd) -> Result<String, String> {
    let mut waited = Waited::begin();
    let mut output = File::from(output);
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: waited::LOOK.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready == 0) {
            match waited.so_far() < PATIENCE {
                true => continue,
                false => return Err(format!("it said nothing within {} s", PATIENCE.as_secs())),
            }
        }
        let mut bytes = [0; 128];
        match output.read(&mut bytes) {
            Ok(0) => return Err("it ended at once".to_owned()),
            Ok(count) => line.extend_from_slice(&bytes[..count]),
            Err(error) => return Err(error.to_string()),
        }
    }
    let line = String::from_utf8_lossy(&line);
    match line.trim().strip_prefix(NOT_LAUNCHED) {
        Some(why) => Err(why.to_owned()),
        None => Ok(line.trim().to_owned()),
    }
}

impl Launcher for Servers<'_> {
    fn launch(&self, server: &str) -> Result<String, SetupError> {
        self.start(server)
            .map_err(|error| SetupError(format!("cannot launch the server `{server}`: {error}")))
    }

    fn secret(&self) -> Option<String> {
        self.secret.get().cloned()
    }

    fn follow(&self, recipe: &dyn LaunchRecipe) -> Result<Launched, SetupError> {
        let name = recipe.program().file;
        self.site()
            .follow(recipe, |started| self.note(name, started))
    }

    fn follow_all(&self, recipes: &[&dyn LaunchRecipe]) -> Result<Vec<Launched>, SetupError> {
        match recipes {
            [one] => Ok(vec![self.follow(*one)?]),
            [] => Ok(Vec::new()),
            [first, ..] => {
                let name = first.program().file;
                self.lay_links(recipes);
                self.site()
                    .follow_all(recipes, |started| self.note(name, started))
            }
        }
    }

    fn launched(&self) -> Vec<u32> {
        let running = self.running.borrow();
        running.iter().map(|running| running.pid).collect()
    }

    fn answering_program(&self) -> Vec<String> {
        ["/proc/self/exe", VERB, ANSWERING_PROGRAM]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Service for Servers<'_> {
    fn start_again(&self) -> Result<(), String> {
        self.restart(false, |_| true)
    }

    fn start_empty(&self) -> Result<(), String> {
        self.restart(true, |_| true)
    }

    fn start_member(&self, pid: u32) -> Result<(), String> {
        self.restart(false, |one| one.pid == pid)
    }

    fn members(&self) -> Vec<Member> {
        let running = self.running.borrow();
        let members = running.iter().filter_map(|Running { pid, again, .. }| {
            let Some(Again::Followed(restart)) = again else {
                return None;
            };
            Some(Member {
                pid: *pid,
                address: restart.address.clone(),
                secret: restart.secret.clone(),
                leads: restart.leads?,
                host: restart.host(),
            })
        });
        members.collect()
    }

    fn switch(&self) -> Result<&Switch, String> {
        match self.switch.get() {
            Some(made) => made.as_ref().map_err(String::clone),
            None => Err("its servers have no hosts of their own".to_owned()),
        }
    }

    fn places(&self) -> Vec<(String, Option<String>)> {
        let running = self.running.borrow();
        let places = running
            .iter()
            .filter_map(|running| match running.again.as_ref()? {
                Again::Ours { address, .. } => Some((address.clone(), self.secret())),
                Again::Followed(restart) => {
                    Some((restart.address.clone(), Some(restart.secret.clone())))
                }
            });
        places.collect()
    }

    fn set_clock(&self, ahead_ns: i64) -> Result<(), String> {
        let clock = self.clock.as_ref();
        let clock = clock.ok_or("the servers run by the machine's own clock")?;
        clock.set(ahead_ns)
    }
}

impl Servers<'_> {
    /// Starts those of them again that were killed; `empties`: without what they had written.
    fn restart(&self, empties: bool, which: impl Fn(&Running) -> bool) -> Result<(), String> {
        let mut running = self.running.borrow_mut();
        let killed: Vec<Running> = running.extract_if(.., |one| which(one)).collect();
        drop(running);
        for Running {
            pid, again, name, ..
        } in &killed
        {
            while !process::is_gone(*pid) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let again = again
                .as_ref()
                .ok_or_else(|| "the server cannot be started again".to_owned())?;
            match again {
                Again::Ours {
                    server,
                    address,
                    directory,
                } => {
                    if empties {
                        empty(directory).map_err(|error| {
                            format!("cannot empty {}: {error}", directory.display())
                        })?;
                    }
                    self.start_at(server, Some(address), Some(directory))?;
                }
                Again::Followed(restart) => {
                    let site = self.site();
                    let pid = match empties {
                        true => site.start_empty(restart)?,
                        false => site.start_again(restart)?,
                    };
                    let restart = restart.clone();
                    self.note(name, Started { pid, restart });
                }
            }
            self.until_it_accepts(again.address())?;
        }
        Ok(())
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for Running { pid, stop, .. } in self.running.take() {
            let patience = match stop {
                Stop::Close { _input } => PATIENCE,
                Stop::Kill { quits: false } => Duration::ZERO,
                Stop::Kill { quits: true } => {
                    process::quit(pid);
                    QUIT_PATIENCE
                }
            };
            let mut waited = Waited::begin();
            while !process::is_gone(pid) {
                if waited.so_far() >= patience {
                    process::kill(pid);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
