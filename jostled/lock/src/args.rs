//! The command line: flock(1)'s options, and those of a lock that is a lease.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};

use crate::{Failure, code, say};

/// The environment's address of jostled.
const URL: &str = "JOSTLE_LOCK_URL";
const DEFAULT_URL: &str = "redis://127.0.0.1:2626";

/// Runs a command while holding a lock of jostled; several NAMEs are taken in one step
///
/// It exits with the command's code, or 128 and the number of the signal that ended it.
#[derive(Parser)]
#[command(name = "jostle-lock", version, max_term_width = 100)]
#[command(
    override_usage = "jostle-lock [OPTIONS] NAME... -- COMMAND [ARG]...\n       \
                            jostle-lock [OPTIONS] NAME... -c 'COMMAND LINE'"
)]
#[command(after_help = "\
  jostle-lock backup -- /usr/local/bin/backup --full
  jostle-lock -n -E 0 nightly -- make report     # not twice, and no error
  jostle-lock --places 3 license -- simulate     # one of three places

JOSTLE_LOCK_TOKEN has the fencing token; for several locks, one after the other.

Exit codes beside the command's: 1 (or -E) the lock was not free in time; 64 wrong usage,
65 jostled refuses the request, 66 a file cannot be read, 68 unknown host, 69 jostled cannot
be reached or has no room, 71 the system has no process, 73 no file for --local, 75 the lock
was lost, 77 wrong password or no right, 126 and 127 the command cannot be executed or found.")]
pub(crate) struct Options {
    /// Names of the locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<OsString>,

    /// The command and its arguments, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Share the lock with other -s holders
    #[arg(short, long, conflicts_with = "places")]
    pub(crate) shared: bool,

    /// Hold the lock alone (the default)
    #[arg(short = 'x', long, visible_short_alias = 'e', conflicts_with_all = ["shared", "places"])]
    pub(crate) exclusive: bool,

    /// Take one of N places: at most N commands run at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) places: Option<u16>,

    /// Do not wait: exit at once if the lock is taken
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait at most this many seconds; fractions are allowed
    #[arg(short, long, visible_alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,

    /// The exit code if the lock was not free in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    pub(crate) conflict_exit_code: u8,

    /// Run this line by the shell ($SHELL, else /bin/sh) in place of COMMAND
    #[arg(short = 'c', long = "command", value_name = "COMMAND LINE")]
    pub(crate) line: Option<OsString>,

    /// Release the lock when the command itself ends, not when its process group has
    #[arg(short = 'o', long)]
    pub(crate) close: bool,

    /// With --local: become the command
    #[arg(short = 'F', long, conflicts_with = "close")]
    pub(crate) no_fork: bool,

    /// Refused: flock(1) releases a descriptor with it
    #[arg(short, long, hide = true)]
    pub(crate) unlock: bool,

    /// Print how long it took to get the lock, and what is executed
    #[arg(long)]
    pub(crate) verbose: bool,

    /// Where jostled listens: redis://USER@HOST:PORT, rediss://USER@HOST:PORT for TLS, or
    /// unix:PATH; default: $JOSTLE_LOCK_URL, else redis://127.0.0.1:2626
    #[arg(long)]
    pub(crate) url: Option<String>,

    /// File with the password in its first line
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Certificates of authorities to trust with rediss://, a PEM file; default: the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Certificate to show, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key of that certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Seconds for which the lock lasts without a renewal, at least 1; default: 15
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ttl: Option<Duration>,

    /// Seconds between SIGTERM and SIGKILL when the lock is lost, below a third of --ttl;
    /// default: a fifth
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) grace: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLoss::End)]
    pub(crate) on_loss: OnLoss,

    /// Text that others see as the holder; default: the command's name
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Use a file lock of this user on this machine, without jostled
    #[arg(long)]
    pub(crate) local: bool,
}

/// Whether the loss of the lock ends the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// It ends before anybody else can have the lock.
    End,
    /// It goes on, although another one may begin.
    Warn,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number < 1e9);
    let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    duration.ok_or_else(|| "a number of seconds, such as 15 or 0.5".to_owned())
}

/// The options of this process; otherwise the exit code, and all is said.
pub(crate) fn parse() -> Result<Options, u8> {
    if std::env::args_os().skip(1).eq(["--man"]) {
        // For `cargo xtask docs`.
        let page = clap_mangen::Man::new(Options::command());
        return Err(page.render(&mut std::io::stdout()).map_or(code::OS, |()| 0));
    }
    let options = Options::try_parse().map_err(|error| {
        let _ = error.print();
        if error.use_stderr() { code::USAGE } else { 0 }
    })?;
    options.check().map_err(|text| {
        say(&text);
        code::USAGE
    })?;
    Ok(options)
}

impl Options {
    fn check(&self) -> Result<(), String> {
        if self.unlock {
            return Err(
                "-u releases a descriptor of flock(1): this lock is released when its \
                        command ends"
                    .to_owned(),
            );
        }
        match (&self.command[..], &self.line, &self.names[..]) {
            ([], None, [only]) if only.as_bytes().iter().all(u8::is_ascii_digit) => {
                let only = only.display();
                return Err(format!(
                    "a descriptor cannot hold a lock of jostled, which has to be renewed: give a \
                     command, jostle-lock {only} -- COMMAND"
                ));
            }
            ([], None, [name, rest @ ..]) => {
                let rest: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
                let rest = if rest.is_empty() {
                    "COMMAND".to_owned()
                } else {
                    rest.join(" ")
                };
                let name = name.display();
                return Err(format!(
                    "there is no command: put `--` before it, jostle-lock {name} -- {rest}"
                ));
            }
            ([_, ..], Some(_), _) => return Err("give -c or a command, not both".to_owned()),
            _ => {}
        }
        if self.names.iter().any(|name| name.is_empty()) {
            return Err("a lock's name has at least one byte".to_owned());
        }
        match self.local {
            true => self.check_local(),
            false => self.check_lease(),
        }
    }

    /// A file lock has nothing of what jostled adds.
    fn check_local(&self) -> Result<(), String> {
        let matches = [
            ("several names", self.names.len() > 1),
            ("--places", self.places.is_some()),
            ("--url", self.url.is_some()),
            ("--password-file", self.password_file.is_some()),
            (
                "--tls-ca and --tls-cert",
                self.tls_ca.is_some() || self.tls_cert.is_some(),
            ),
            ("--ttl", self.ttl.is_some()),
            ("--grace", self.grace.is_some()),
            ("--on-loss warn", self.on_loss == OnLoss::Warn),
            ("--label", self.label.is_some()),
        ];
        match matches.iter().find(|(_, given)| *given) {
            Some((what, _)) => Err(format!("--local is a file lock, which cannot have {what}")),
            None => Ok(()),
        }
    }

    fn check_lease(&self) -> Result<(), String> {
        if self.no_fork {
            return Err("-F needs --local: this program has to stay, to renew the lock".to_owned());
        }
        if !(1.0..=3.1e7).contains(&self.ttl().as_secs_f64()) {
            return Err("--ttl is at least 1 second, and at most a year".to_owned());
        }
        if self.grace() >= self.ttl() / 3 {
            return Err(
                "--grace is below a third of --ttl, so that there is time to renew".to_owned(),
            );
        }
        if self.places.is_some() && self.names.len() > 1 {
            return Err("--places is for one lock".to_owned());
        }
        let label = self.label.as_deref().unwrap_or_default();
        if label.len() > 128 || label.contains(char::is_control) {
            return Err("--label is at most 128 bytes, without control characters".to_owned());
        }
        Ok(())
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(Duration::from_secs(15))
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.ttl() / 5)
    }

    /// How long to wait for the lock; `None`: as long as it takes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.nonblock {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    /// The address, as given.
    pub(crate) fn address(&self) -> String {
        let given = self.url.clone().or_else(|| std::env::var(URL).ok());
        given.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// The program and its arguments.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.line {
            None => self.command.clone(),
            Some(line) => {
                let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
                vec![shell, "-c".into(), line.clone()]
            }
        }
    }

    /// For messages.
    pub(crate) fn title(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| format!("{name:?}")).collect();
        names.join(", ")
    }

    /// That the lock was not free in time.
    pub(crate) fn conflict(&self) -> Failure {
        let text = match self.verbose {
            true => format!("{} is taken", self.title()),
            false => String::new(),
        };
        Failure(self.conflict_exit_code, text)
    }
}

/// The manual page's and the help's source.
#[allow(dead_code, reason = "tests check it")]
fn command() -> clap::Command {
    Options::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(words: &[&str]) -> String {
        let all = [&["jostle-lock"], words].concat();
        Options::try_parse_from(all).unwrap().check().unwrap_err()
    }

    #[test]
    fn the_options_agree_with_each_other() {
        command().debug_assert();
        let ok = |words: &[&str]| Options::try_parse_from(words).is_ok_and(|it| it.check().is_ok());
        assert!(ok(&[
            "jostle-lock",
            "-w",
            "0.5",
            "-E",
            "0",
            "a",
            "b",
            "--",
            "x",
            "-n"
        ]));
        assert!(ok(&["jostle-lock", "-n", "9", "-c", "true"]));
        for words in [
            &["-w", "x"][..],
            &["-n", "-w", "1"],
            &["-s", "-x"],
            &["-E", "256"],
            &[],
        ] {
            let all = [&["jostle-lock"], words, &["a", "--", "x"]].concat();
            assert_eq!(
                Options::try_parse_from(all).is_ok(),
                words.is_empty(),
                "{words:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        for (words, part) in [
            (&["job", "make", "all"][..], "jostle-lock job -- make all"),
            (&["job"], "jostle-lock job -- COMMAND"),
            (&["9"], "a descriptor cannot hold"),
            (&["-u", "9"], "-u releases a descriptor"),
            (&["a", "-c", "x", "--", "y"], "not both"),
            (&["-F", "a", "--", "x"], "-F needs --local"),
            (&["--ttl", "0.5", "a", "--", "x"], "at least 1 second"),
            (
                &["--ttl", "9", "--grace", "3", "a", "--", "x"],
                "below a third",
            ),
            (&["--places", "2", "a", "b", "--", "x"], "for one lock"),
            (&["--label", "\u{1b}", "a", "--", "x"], "control characters"),
            (&["", "--", "x"], "at least one byte"),
            (
                &["--local", "a", "b", "--", "x"],
                "cannot have several names",
            ),
            (
                &["--local", "--places", "2", "a", "--", "x"],
                "cannot have --places",
            ),
            (
                &["--local", "--ttl", "15", "a", "--", "x"],
                "cannot have --ttl",
            ),
            (
                &["--local", "--url", "u", "a", "--", "x"],
                "cannot have --url",
            ),
        ] {
            assert!(why(words).contains(part), "{words:?}: {}", why(words));
        }
    }
}
