//! Launches the server of a [`LaunchRecipe`]: in a directory of its own, as an ordinary user
//! where it refuses root, and waits until it is ready. It dies with the keeper; the
//! ledger removes its directory.

use super::server_log::ServerLog;
use jostle_harness::Context;
use jostle_sys::ledger::Ledger;
use jostle_sys::switch::Switch;
use jostle_sys::user::User;
use jostle_sys::waited::{self, Waited};
use jostle_sys::{cpu, files, process};
use jostle_targets::SetupError;
use jostle_targets::program::{
    Ground, LaunchRecipe, Launched, Leads, Words, first_word, free_port, secret,
};
use jostle_verify::WallClock;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long making a database and starting a server may take, each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether it is ready.
const LOOK: Duration = Duration::from_millis(20);

/// Another port is tried so often where somebody else was faster.
const PORTS: usize = 3;

/// The first port of servers that have hosts of their own; recipes choose others above.
const FIRST_PORT: u16 = 2_000;

/// The site of a launch.
pub(super) struct Site<'a> {
    pub context: &'a Context,
    pub ledger: &'a Ledger,
    /// CPUs of the server; empty: wherever it likes.
    pub cpus: &'a [usize],
    /// Its wall clock, where that is set; None: the machine's.
    pub clock: Option<&'a WallClock>,
    /// Where servers of a cluster have hosts of their own.
    pub switch: Option<&'a Switch>,
}

/// A server that runs.
pub(super) struct Started {
    pub pid: u32,
    /// The means to start it again where it was killed.
    pub restart: Restart,
}

/// The means to start this server once more, in its directory.
#[derive(Clone, Debug)]
pub(super) struct Restart {
    words: Vec<String>,
    /// Files that it found, and commands that ended before it started.
    files: Vec<(&'static str, String)>,
    before: Vec<Words>,
    home: Home,
    /// Where it listens.
    pub address: String,
    /// Its ground's.
    pub secret: String,
    /// Whether it is asked to end before it is killed.
    pub quits: bool,
    /// How to ask it whether it leads its cluster.
    pub leads: Option<Leads>,
}

impl Restart {
    /// The server's log, which goes on when it is started again.
    pub(super) fn log(&self) -> &ServerLog {
        &self.home.log
    }

    /// Its host on the switch.
    pub(super) fn host(&self) -> Option<usize> {
        self.home.host
    }
}

/// Where its program runs, and as whom.
#[derive(Clone, Debug)]
struct Home {
    directory: PathBuf,
    user: Option<User>,
    log: ServerLog,
    host: Option<usize>,
}

/// One that was started, and may not be ready yet.
struct Begun {
    ground: Ground,
    log: ServerLog,
    pid: u32,
}

impl Begun {
    fn launched(self) -> Launched {
        Launched {
            address: self.ground.address(),
            secret: self.ground.secret,
            pid: self.pid,
        }
    }
}

fn failed(what: &str, recipe: &dyn LaunchRecipe, said: &str) -> SetupError {
    SetupError(format!("{what} {}: {said}", recipe.program().file))
}

impl Site<'_> {
    /// Follows a recipe to its end. `started` gets the process at once, so that the process
    /// is ended whatever happens.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn follow(
        &self,
        recipe: &dyn LaunchRecipe,
        mut started: impl FnMut(Started),
    ) -> Result<Launched, SetupError> {
        let mut tries = 0..PORTS;
        loop {
            tries.next();
            let begun = self.begin(recipe, (0, &[]), &mut started)?;
            match self.until_ready(recipe, &begun) {
                Ok(()) => return Ok(begun.launched()),
                Err(said) if is_taken(&said) && !tries.is_empty() => {}
                Err(said) => return Err(failed("cannot launch", recipe, &said)),
            }
        }
    }

    /// Follows those of a cluster, none of which may be ready before all are there.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn follow_all(
        &self,
        recipes: &[&dyn LaunchRecipe],
        mut started: impl FnMut(Started),
    ) -> Result<Vec<Launched>, SetupError> {
        // The others share the hosts of those that can lead, as a Sentinel stands beside a Redis.
        let hosts = (0..recipes.len()).map(|place| place % members(recipes).max(1));
        let hosts: Vec<usize> = hosts.filter(|_| self.switch.is_some()).collect();
        let all = recipes.iter().enumerate();
        let begun: Vec<Begun> = all
            .map(|(place, recipe)| self.begin(*recipe, (place, &hosts), &mut started))
            .collect::<Result<_, _>>()?;
        for (recipe, begun) in recipes.iter().zip(&begun) {
            self.until_ready(*recipe, begun)
                .map_err(|said| failed("cannot launch", *recipe, &said))?;
        }
        Ok(begun.into_iter().map(Begun::launched).collect())
    }

    /// Starts what a recipe describes, on a ground of its own: the server of this place in a
    /// cluster, of which each has one of these hosts. Without hosts, all are on the loopback.
    fn begin(
        &self,
        recipe: &dyn LaunchRecipe,
        (place, hosts): (usize, &[usize]),
        started: &mut impl FnMut(Started),
    ) -> Result<Begun, SetupError> {
        let (port, secret) = match recipe.known() {
            Some(known) => known,
            None if hosts.is_empty() => (free_port()?, secret()?),
            None => (FIRST_PORT + place as u16, secret()?),
        };
        let ground = Ground {
            program: recipe.program().find()?,
            directory: self.ledger.make_directory().map_err(|error| {
                let text = format!("cannot make a directory for it: {error}");
                let text = format!("{text}; is $TMPDIR or /var/tmp writable?");
                failed("cannot launch", recipe, &text)
            })?,
            cluster: hosts.iter().map(|host| Switch::address(*host)).collect(),
            place,
            port,
            secret,
        };
        let (files, before) = (recipe.files(&ground), recipe.before(&ground));
        let home = furnish(recipe, &ground, &files, hosts.get(place).copied());
        let home = home.map_err(|said| failed("cannot prepare", recipe, &said))?;
        self.run_before(&before, &home)
            .map_err(|said| failed("cannot prepare", recipe, &said))?;
        let words = [
            vec![first_word(recipe, &ground)?],
            recipe.arguments(&ground),
        ]
        .concat();
        let pid = self
            .spawn(&words, &home)
            .map_err(|error| failed("cannot start", recipe, &error.to_string()))?;
        let log = home.log.clone();
        started(Started {
            pid,
            restart: Restart {
                words,
                files,
                before,
                home,
                address: ground.address(),
                secret: ground.secret.clone(),
                quits: recipe.quits(),
                leads: recipe.leads(),
            },
        });
        Ok(Begun { ground, log, pid })
    }

    /// Starts a server again that was killed. Returns its process.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn start_again(&self, restart: &Restart) -> Result<u32, String> {
        self.spawn(&restart.words, &restart.home)
            .map_err(|error| format!("cannot start {} again: {error}", restart.words[0]))
    }

    /// As [`Site::start_again`], in its directory as it was before the first start.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn start_empty(&self, restart: &Restart) -> Result<u32, String> {
        let home = &restart.home;
        empty(&home.directory)
            .and_then(|()| home.fill(&restart.files))
            .map_err(|error| format!("cannot empty {}: {error}", home.directory.display()))?;
        self.run_before(&restart.before, home)?;
        self.start_again(restart)
    }

    fn run_before(&self, commands: &[Words], home: &Home) -> Result<(), String> {
        let mut commands = commands.iter();
        commands.try_for_each(|words| self.run_to_its_end(words, home))
    }

    fn run_to_its_end(&self, words: &[String], home: &Home) -> Result<(), String> {
        let name = words.first().map_or("", String::as_str);
        let pid = self.spawn(words, home);
        let pid = pid.map_err(|error| format!("{name}: {error}"))?;
        let mut waited = Waited::begin();
        loop {
            if let Some(ended) = process::reap_one(pid) {
                return match ended.code {
                    Some(0) => Ok(()),
                    _ => Err(format!("{name} failed: {}", home.log.last_words())),
                };
            }
            self.go_on(&mut waited, name)
                .inspect_err(|_| process::kill(pid))?;
        }
    }

    fn until_ready(&self, recipe: &dyn LaunchRecipe, begun: &Begun) -> Result<(), String> {
        let Begun { ground, log, pid } = begun;
        let mut waited = Waited::begin();
        let mut missing;
        loop {
            if process::is_gone(*pid) {
                return Err(format!("it ended: {}", log.last_words()));
            }
            match recipe.ready(ground) {
                Ok(()) => return Ok(()),
                Err(SetupError(said)) => missing = said,
            }
            self.go_on(&mut waited, "the server")
                .map_err(|said| format!("{said}: {missing}; it logged: {}", log.last_words()))?;
        }
    }

    /// Waits for a moment, unless it took too long or nobody wants it any more.
    fn go_on(&self, waited: &mut Waited, what: &str) -> Result<(), String> {
        // To ask a server may take longer than a look usually does.
        if waited.so_far_by(10 * waited::LOOK) > PATIENCE {
            return Err(format!(
                "{what} was not ready within {} s",
                PATIENCE.as_secs()
            ));
        }
        match self.context.stopped(LOOK) {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    /// Starts a program there, whose output goes to the log.
    fn spawn(&self, words: &[String], home: &Home) -> io::Result<u32> {
        let (directory, user, log) = (&home.directory, &home.user, &home.log);
        let mut outputs = Some((log.output()?, log.output()?));
        let keeper = rustix::process::getpid();
        let become_server = || -> io::Result<()> {
            let _ = process::leave_group();
            if let (Some(switch), Some(host)) = (self.switch, home.host) {
                switch.enter(host)?;
            }
            // What is missing shows when a connection cannot be made.
            files::raise_descriptor_limit();
            if !self.cpus.is_empty() {
                cpu::pin(self.cpus)?;
            }
            if let Some(user) = user {
                user.assume()?;
            }
            // Set after the change of user, which clears it.
            process::die_with(keeper)
        };
        let pid = self.context.forker.fork(|| {
            let (output, errors) = outputs.take().map_or_else(
                || (Stdio::null(), Stdio::null()),
                |(output, errors)| (output.into(), errors.into()),
            );
            let error = match become_server() {
                // Only returns if it failed.
                Ok(()) => Command::new(&words[0])
                    .args(&words[1..])
                    .env("LC_ALL", "C")
                    // Ours may be closed to the user that it runs as.
                    .env("TMPDIR", directory)
                    .envs(WallClock::environment(self.clock))
                    .current_dir(directory)
                    .stdin(Stdio::null())
                    .stdout(output)
                    .stderr(errors)
                    .exec(),
                Err(error) => error,
            };
            log.note(&format!("{}: {error}", words[0]));
            error.raw_os_error().unwrap_or(1)
        })?;
        Ok(pid.as_raw_nonzero().get() as u32)
    }
}

/// How many servers of a cluster can lead it.
pub(super) fn members(recipes: &[&dyn LaunchRecipe]) -> usize {
    let can_lead = recipes.iter().filter(|recipe| recipe.leads().is_some());
    can_lead.count()
}

/// Writes the recipe's files and opens the log, and then gives the directory to the user that
/// the server runs as: from then on nothing of it is opened here.
fn furnish(
    recipe: &dyn LaunchRecipe,
    ground: &Ground,
    files: &[(&str, String)],
    host: Option<usize>,
) -> Result<Home, String> {
    let wrong = |error: io::Error| error.to_string();
    let home = Home {
        directory: ground.directory.clone(),
        user: user_of(recipe)?,
        log: ServerLog::create(&ground.directory).map_err(wrong)?,
        host,
    };
    home.fill(files).map_err(wrong).map(|()| home)
}

impl Home {
    /// Writes files into its directory, which is still ours, and gives both away.
    fn fill(&self, files: &[(&str, String)]) -> io::Result<()> {
        let give = |path: &Path| match self.user {
            Some(user) => lchown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        };
        for (name, contents) in files {
            let path = self.directory.join(name);
            fs::write(&path, contents)?;
            give(&path)?;
        }
        give(&self.directory)
    }
}

/// Makes a directory anew, which is empty and ours again: in one that belongs to a server's user,
/// a link may stand where we write. Files of killed processes may come while it is removed.
///
/// # Errors
/// The system's.
pub(super) fn empty(directory: &Path) -> io::Result<()> {
    const TRIES: usize = 50;
    let mut tries = 0..TRIES;
    while let Err(error) = fs::remove_dir_all(directory) {
        if tries.next().is_none() {
            return Err(error);
        }
        std::thread::sleep(LOOK);
    }
    fs::DirBuilder::new().mode(0o700).create(directory)
}

/// The user that a server runs as; None: ours.
fn user_of(recipe: &dyn LaunchRecipe) -> Result<Option<User>, String> {
    let Some(name) = recipe.instead_of_root() else {
        return Ok(None);
    };
    User::instead_of_root(name).map_err(|error| match (error.kind(), recipe.program().package) {
        (ErrorKind::NotFound, Some(package)) => format!(
            "{error}, as which it runs where jostle runs as root; `apt install {package}` \
             (Debian) makes that user, and another user than root needs none"
        ),
        _ => error.to_string(),
    })
}

/// Whether a server found its port in use.
fn is_taken(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("already in use") || said.contains("could not bind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_recognised() {
        assert!(is_taken("bind: Address already in use"));
        assert!(!is_taken("permission denied"));
    }
}
