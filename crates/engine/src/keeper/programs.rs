//! Launches the server of a [`Recipe`]: in a directory of its own, as an ordinary user
//! where it refuses root, and waits until it is ready. It dies with the keeper; the
//! ledger removes its directory.

use super::serve::Context;
use jostle_sys::ledger::Ledger;
use jostle_sys::user::User;
use jostle_sys::{cpu, files, process};
use jostle_targets::SetupError;
use jostle_targets::program::{Ground, Launched, Recipe, first_word, free_port, secret};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long making a database and starting a server may take, each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether it is ready.
const LOOK: Duration = Duration::from_millis(20);

/// Its output, in its directory.
const LOG: &str = "server.log";

/// Lines of a log that a message quotes.
const LAST_LINES: usize = 4;

/// Another port is tried so often where somebody else was faster.
const PORTS: usize = 3;

/// What launching needs to know.
pub(super) struct Site<'a> {
    pub context: &'a Context,
    pub ledger: &'a Ledger,
    /// CPUs of the server; empty: wherever it likes.
    pub cpus: &'a [usize],
}

/// A server that runs.
pub(super) struct Started {
    pub pid: u32,
    /// What starts it again where it was killed.
    pub restart: Restart,
}

/// The same server once more, in its directory.
#[derive(Clone, Debug)]
pub(super) struct Restart {
    words: Vec<String>,
    /// Its own, with its log.
    pub directory: PathBuf,
    user: Option<User>,
    /// Where it listens.
    pub address: String,
    /// Whether it is asked to end before it is killed.
    pub quits: bool,
}

/// One that was started, and may not be ready yet.
struct Begun {
    ground: Ground,
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

fn failed(what: &str, recipe: &dyn Recipe, said: &str) -> SetupError {
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
        recipe: &dyn Recipe,
        mut started: impl FnMut(Started),
    ) -> Result<Launched, SetupError> {
        let mut tries = 0..PORTS;
        loop {
            tries.next();
            let begun = self.begin(recipe, &mut started)?;
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
        recipes: &[&dyn Recipe],
        mut started: impl FnMut(Started),
    ) -> Result<Vec<Launched>, SetupError> {
        let all = recipes.iter();
        let begun: Vec<Begun> = all
            .map(|recipe| self.begin(*recipe, &mut started))
            .collect::<Result<_, _>>()?;
        for (recipe, begun) in recipes.iter().zip(&begun) {
            self.until_ready(*recipe, begun)
                .map_err(|said| failed("cannot launch", *recipe, &said))?;
        }
        Ok(begun.into_iter().map(Begun::launched).collect())
    }

    /// Starts what a recipe describes, on a ground of its own.
    fn begin(
        &self,
        recipe: &dyn Recipe,
        started: &mut impl FnMut(Started),
    ) -> Result<Begun, SetupError> {
        let ground = Ground {
            program: recipe.program().find()?,
            directory: self.make_directory().map_err(|error| {
                let text = format!("cannot make a directory for it: {error}");
                let text = format!("{text}; is $TMPDIR or /var/tmp writable?");
                failed("cannot launch", recipe, &text)
            })?,
            port: free_port()?,
            secret: secret()?,
        };
        let user = self.furnish(recipe, &ground);
        let user = user.map_err(|error| failed("cannot prepare", recipe, &error.to_string()))?;
        for words in recipe.before(&ground) {
            self.run_to_its_end(&words, &ground.directory, user)
                .map_err(|said| failed("cannot prepare", recipe, &said))?;
        }
        let words = [
            vec![first_word(recipe, &ground)?],
            recipe.arguments(&ground),
        ]
        .concat();
        let pid = self
            .spawn(&words, &ground.directory, user)
            .map_err(|error| failed("cannot start", recipe, &error.to_string()))?;
        started(Started {
            pid,
            restart: Restart {
                words,
                directory: ground.directory.clone(),
                user,
                address: ground.address(),
                quits: recipe.quits(),
            },
        });
        Ok(Begun { ground, pid })
    }

    /// Starts a server again that was killed. Returns its process.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn start_again(&self, restart: &Restart) -> Result<u32, String> {
        self.spawn(&restart.words, &restart.directory, restart.user)
            .map_err(|error| format!("cannot start {} again: {error}", restart.words[0]))
    }

    fn make_directory(&self) -> io::Result<PathBuf> {
        self.ledger.make_directory()
    }

    /// Writes the recipe's files there, and gives everything to the user that the server
    /// runs as.
    fn furnish(&self, recipe: &dyn Recipe, ground: &Ground) -> io::Result<Option<User>> {
        let user = match recipe.instead_of_root() {
            Some(name) => User::instead_of_root(name)?,
            None => None,
        };
        let give = |path: &Path| match user {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        };
        for (name, contents) in recipe.files(ground) {
            let path = ground.directory.join(name);
            fs::write(&path, contents)?;
            give(&path)?;
        }
        give(&ground.directory)?;
        Ok(user)
    }

    fn run_to_its_end(
        &self,
        words: &[String],
        directory: &Path,
        user: Option<User>,
    ) -> Result<(), String> {
        let name = words.first().map_or("", String::as_str);
        let pid = self.spawn(words, directory, user);
        let pid = pid.map_err(|error| format!("{name}: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = process::reap_one(pid) {
                return match ended.code {
                    Some(0) => Ok(()),
                    _ => Err(format!("{name} failed: {}", last_words(directory))),
                };
            }
            self.go_on(deadline, name)
                .inspect_err(|_| process::kill(pid))?;
        }
    }

    fn until_ready(&self, recipe: &dyn Recipe, begun: &Begun) -> Result<(), String> {
        let Begun { ground, pid } = begun;
        let deadline = Instant::now() + PATIENCE;
        let mut missing;
        loop {
            if process::is_gone(*pid) {
                return Err(format!("it ended: {}", last_words(&ground.directory)));
            }
            match recipe.ready(ground) {
                Ok(()) => return Ok(()),
                Err(SetupError(said)) => missing = said,
            }
            self.go_on(deadline, "the server").map_err(|said| {
                format!(
                    "{said}: {missing}; it logged: {}",
                    last_words(&ground.directory)
                )
            })?;
        }
    }

    /// Waits for a moment, unless it took too long or nobody wants it any more.
    fn go_on(&self, deadline: Instant, what: &str) -> Result<(), String> {
        if Instant::now() > deadline {
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
    fn spawn(&self, words: &[String], directory: &Path, user: Option<User>) -> io::Result<u32> {
        let log = log(directory)?;
        let mut errors = Some(log.try_clone()?);
        let keeper = rustix::process::getpid();
        let become_server = || -> io::Result<File> {
            let _ = process::leave_group();
            // What is missing shows when a connection cannot be made.
            files::raise_descriptor_limit();
            if !self.cpus.is_empty() {
                cpu::pin(self.cpus)?;
            }
            if let Some(user) = user {
                user.assume()?;
            }
            // Set after the change of user, which clears it.
            process::die_with(keeper)?;
            log.try_clone()
        };
        let pid = self.context.forker.fork(|| {
            let error = match become_server() {
                // Only returns if it failed.
                Ok(output) => Command::new(&words[0])
                    .args(&words[1..])
                    .env("LC_ALL", "C")
                    // Ours may be closed to the user that it runs as.
                    .env("TMPDIR", directory)
                    .current_dir(directory)
                    .stdin(Stdio::null())
                    .stdout(output)
                    .stderr(errors.take().map_or_else(Stdio::null, Stdio::from))
                    .exec(),
                Err(error) => error,
            };
            error.raw_os_error().unwrap_or(1)
        })?;
        Ok(pid.as_raw_nonzero().get() as u32)
    }
}

fn log(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).open(directory.join(LOG))
}

/// Whether a server found its port in use.
fn is_taken(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("already in use") || said.contains("could not bind")
}

/// Whether this line says why a server could not go on: what follows it are the
/// consequences, line after line.
fn is_of_a_full_disk(line: &str) -> bool {
    line.to_ascii_lowercase()
        .contains("no space left on device")
}

/// Whether a program in Java says here where it was.
fn is_of_a_stack(line: &str) -> bool {
    line.starts_with("\tat ") || line.starts_with("\t... ")
}

/// What it said at the end, or that its disk is full.
pub(super) fn last_words(directory: &Path) -> String {
    let text = fs::read(directory.join(LOG)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if let Some(line) = text.lines().rfind(|line| is_of_a_full_disk(line)) {
        let place = directory.parent().unwrap_or(directory).display();
        return format!(
            "{}; make room in {place}, or set $TMPDIR to a larger disk",
            line.trim()
        );
    }
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !is_of_a_stack(line))
        .collect();
    lines.drain(..lines.len().saturating_sub(LAST_LINES));
    match lines.as_slice() {
        [] => "it said nothing".to_owned(),
        lines => lines.join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_told() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(last_words(place.path()), "it said nothing");
        fs::write(place.path().join(LOG), "a\nb\n\nc\nd\ne\n").unwrap();
        assert_eq!(last_words(place.path()), "b | c | d | e");
        fs::write(
            place.path().join(LOG),
            "a\n\tat B.c(B.java:7)\n\t... 3 more\nd\n",
        )
        .unwrap();
        assert_eq!(last_words(place.path()), "a | d");
    }

    #[test]
    fn the_line_about_a_full_disk_is_quoted_with_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let log = "1\n PANIC: could not write: No space left on device\naborted\nexit 134\n2\n3\n";
        fs::write(place.path().join(LOG), log).unwrap();
        let said = last_words(place.path());
        let first = "PANIC: could not write: No space left on device; make room in ";
        assert!(said.starts_with(first), "{said}");
        assert!(
            said.ends_with(", or set $TMPDIR to a larger disk"),
            "{said}"
        );
    }

    #[test]
    fn a_taken_port_is_recognised() {
        assert!(is_taken("bind: Address already in use"));
        assert!(!is_taken("permission denied"));
    }
}
