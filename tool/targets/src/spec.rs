//! A target as typed: its name in the table and what follows the colon.

use crate::program::{Program, not_installed};
use crate::table::Family;
use crate::{Entry, HOW_TO_GET, LEFT_OUT, SetupError, all};
use jostle_model::text::{is_redacted, redacted};
use std::fmt;
use std::path::Path;

/// One target of a command line or a plan.
#[derive(Clone)]
pub struct Spec {
    /// Its line in the table.
    pub entry: &'static Entry,
    /// The text behind the colon.
    pub argument: Option<String>,
    /// The text as typed, aliases included, for tables. The password of a URL is left out;
    /// [`Spec::whole`] has it.
    pub typed: String,
    whole: String,
}

impl Spec {
    /// Reads `flock`, `flock:/mnt/x`, `delay:5ms`.
    ///
    /// # Errors
    /// For the user: an unknown name with all valid ones and the nearest, or
    /// what is wrong with the argument.
    pub fn parse(text: &str) -> Result<Spec, String> {
        let typed = text.trim();
        let (name, argument) = match typed.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (typed, None),
        };
        let entry = all()
            .find(|entry| names(entry).any(|n| n == name))
            .ok_or_else(|| unknown(name, typed))?;
        // An alias of a service is its users' URL scheme for TLS, so that it stays part of
        // the argument.
        let argument = match entry.aliases.contains(&name) && entry.family == Family::Service {
            true => Some(typed),
            false => argument,
        };
        let shown = redacted(typed);
        if is_redacted(typed) {
            return Err(format!(
                "`{typed}`: its password was left out when the result was written; type it again"
            ));
        }
        (entry.check_argument)(argument)
            .map_err(|problem| redacted(&format!("`{shown}`: {problem}")).into_owned())?;
        Ok(Spec {
            entry,
            argument: argument.map(str::to_owned),
            typed: shown.into_owned(),
            whole: typed.to_owned(),
        })
    }

    /// The text from which [`Spec::parse`] makes this target again, passwords included. It
    /// is for orders to the keeper, and must not be printed or written.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// Checks that the target can be measured now. Connects to the server, if jostle does
    /// not launch it.
    ///
    /// # Errors
    /// In words for the user: who does not answer, and where.
    pub fn reach(&self, credentials: Option<&Path>) -> Result<(), SetupError> {
        match (&self.argument, self.entry.family) {
            (None, Family::Service) => Ok(()),
            (argument, _) => {
                (self.entry.reach)(argument.as_deref().unwrap_or_default(), credentials)
            }
        }
    }

    /// The program that the target launches where no address is named.
    pub fn launches(&self) -> Option<&'static Program> {
        self.entry.program.filter(|_| self.argument.is_none())
    }

    /// Whether that program is installed.
    ///
    /// # Errors
    /// As [`all_installed`].
    pub fn installed(&self) -> Result<(), SetupError> {
        all_installed(&[self]).map_err(|(_, error)| error)
    }

    /// The name as typed, without the argument: `fcntl` of `fcntl:/mnt/x`.
    pub fn name(&self) -> &str {
        self.typed.split(':').next().unwrap_or(&self.typed)
    }
}

/// Whether the programs that these targets launch are installed.
///
/// # Errors
/// The targets whose programs are missing, and for the user: all packages to install, in
/// one command, and how to name a server that runs.
pub fn all_installed<'a>(specs: &[&'a Spec]) -> Result<(), (Vec<&'a Spec>, SetupError)> {
    let mut missing: Vec<(&Spec, &'static Program)> = Vec::new();
    for spec in specs {
        let known = missing.iter().any(|(known, _)| known.typed == spec.typed);
        match spec.launches() {
            Some(program) if !known && program.find().is_err() => missing.push((spec, program)),
            _ => {}
        }
    }
    let Some((first, _)) = missing.first() else {
        return Ok(());
    };
    let mut programs: Vec<&Program> = Vec::new();
    for (_, program) in &missing {
        if programs.iter().all(|known| known.file != program.file) {
            programs.push(program);
        }
    }
    let or = match programs.iter().any(|program| program.package.is_some()) {
        true => "or ",
        false => "",
    };
    let yours = match missing.len() {
        1 => "a server of yours",
        _ => "servers of yours",
    };
    let text = format!(
        "{}; {or}name {yours}, such as {}://HOST:PORT",
        not_installed(&programs),
        first.entry.name
    );
    let specs = missing.into_iter().map(|(spec, _)| spec).collect();
    Err((specs, SetupError(text)))
}

/// Without passwords, as logs and failed tests show it.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spec").field(&self.typed).finish()
    }
}

/// As typed, with its argument, because two targets may differ in nothing else.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.typed)
    }
}

/// The entry's name and its aliases.
fn names(entry: &Entry) -> impl Iterator<Item = &'static str> {
    std::iter::once(entry.name).chain(entry.aliases.iter().copied())
}

/// The message for an unknown target: the nearest name and its family, then all families
/// with their targets, and how to measure a lock of one's own.
fn unknown(name: &str, typed: &str) -> String {
    if LEFT_OUT.iter().any(|(left_out, _)| *left_out == name) {
        return format!("`{name}`: {HOW_TO_GET}");
    }
    let hint = match own(name, typed).or_else(|| nearest(name).map(described)) {
        Some(near) => format!("; did you mean {near}?"),
        None => ".".to_owned(),
    };
    let shown = begun(&redacted(name));
    let mut text = format!("there is no target `{shown}`{hint} The targets are:");
    for family in Family::ALL {
        let members = all().filter(|entry| entry.family == family);
        let names: Vec<String> = members.map(with_aliases).collect();
        let heading = family.heading();
        let heading = heading.split(':').next().unwrap_or(heading);
        text += &format!("\n  {heading}: {}", names.join(", "));
    }
    text + "\nA lock of your own is lib:PATH.so (a shared library) or pipe:COMMAND (a program that \
            replies to each line it reads). `jostle targets NAME` describes one target."
}

/// The beginning of a name, so that a file pasted as a name does not fill the terminal.
fn begun(name: &str) -> String {
    const LONGEST: usize = 60;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn with_aliases(entry: &Entry) -> String {
    match entry.aliases {
        [] => entry.name.to_owned(),
        aliases => format!("{} ({})", entry.name, aliases.join(", ")),
    }
}

/// With its family: `flock`, a file lock.
fn described(name: &str) -> String {
    let entry = all().find(|entry| names(entry).any(|n| n == name));
    let noun = entry.map_or("a target", |entry| entry.family.noun());
    format!("`{name}` ({noun})")
}

/// The likely target if a path or a command was typed without `lib:`, `pipe:` or the like.
fn own(name: &str, typed: &str) -> Option<String> {
    let typed = redacted(typed);
    let path = name.split('?').next().unwrap_or(name);
    let is_library = path.ends_with(".so") || path.contains(".so.");
    if name.contains(char::is_whitespace) {
        Some(format!(
            "`pipe:{typed}` (a program that replies to each line it reads)"
        ))
    } else if is_library {
        Some(format!("`lib:{typed}` (a lock of your own)"))
    } else if path.starts_with(['/', '.']) {
        Some(format!(
            "`flock:{typed}` (a file lock) or `pipe:{typed}` (a program that replies to each line it reads)"
        ))
    } else {
        None
    }
}

/// The name that begins as typed, else the one that looks most like it.
fn nearest(name: &str) -> Option<&'static str> {
    /// The least Jaro-Winkler similarity of a suggestion.
    const ALIKE: f64 = 0.75;
    let name = name.to_ascii_lowercase();
    let all = || crate::all().flat_map(names);
    if name.is_empty() {
        return None;
    }
    all().find(|n| n.starts_with(&name)).or_else(|| {
        all()
            .map(|n| (strsim::jaro_winkler(n, &name), n))
            .filter(|(likeness, _)| *likeness >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, n)| n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_typed() {
        const SENTINELS: &str = "redis+sentinel://my-main.1@h:1,[::1]:2";
        let table = [
            ("flock", "flock", None, "flock"),
            ("fcntl", "ofd", None, "fcntl"), // lockscale's name stays in tables
            ("fcntl:/a:b", "ofd", Some("/a:b"), "fcntl"),
            (" delay:5ms ", "delay", Some("5ms"), "delay"),
            ("rediss://h:1", "redis", Some("rediss://h:1"), "rediss"),
            (SENTINELS, "redis", Some(SENTINELS), "redis+sentinel"),
            ("unfair:2to1", "unfair", Some("2to1"), "unfair"),
        ];
        for (text, entry, argument, name) in table {
            let spec = Spec::parse(text).unwrap();
            assert_eq!(spec.entry.name, entry, "{text}");
            assert_eq!(spec.argument.as_deref(), argument, "{text}");
            assert_eq!(spec.name(), name, "{text}");
            assert_eq!(spec.to_string(), text.trim());
        }
    }

    #[test]
    fn a_password_is_used_and_never_shown() {
        let spec = Spec::parse("http://user:secret@127.0.0.1:80/").unwrap();
        assert_eq!(spec.typed, "http://user:***@127.0.0.1:80/");
        assert_eq!(
            spec.argument.as_deref(),
            Some("//user:secret@127.0.0.1:80/")
        );
        assert_eq!(Spec::parse(spec.whole()).unwrap().argument, spec.argument);
        assert!(!format!("{spec:?}").contains("secret"), "{spec:?}");
        let again = Spec::parse(&spec.typed).unwrap_err();
        assert!(again.contains("type it again"), "{again}");
        let wrong = Spec::parse("http://user:secret@127.0.0.1:port/").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = "x".repeat(70_000);
        let table = [
            (
                "flok",
                "did you mean `flock` (a file lock)? The targets are:\n  File locks: flock, ofd \
                 (fcntl), posix",
            ),
            (
                "pthread-rob",
                "did you mean `pthread-robust` (a lock in shared memory)?",
            ),
            ("FLOCK", "did you mean `flock` (a file lock)?"),
            ("memcache", "did you mean `memcached` (a lock service)?"),
            (
                "./my.so?spins=3",
                "did you mean `lib:./my.so?spins=3` (a lock of your own)?",
            ),
            ("mine.so", "did you mean `lib:mine.so`"),
            (
                "./lock.py",
                "(a file lock) or `pipe:./lock.py` (a program that",
            ),
            ("python3 lock.py", "did you mean `pipe:python3 lock.py`"),
            (
                "zzz",
                "there is no target `zzz`. The targets are:\n  File locks",
            ),
            (
                "zzz",
                "A lock of your own is lib:PATH.so (a shared library) or pipe:",
            ),
            ("", "there is no target ``. The targets are"),
            (&long, "x...`. The targets are"),
            ("futex:1", "`futex:1`: it takes no argument"),
            ("rediss", "`rediss`: write //HOST:PORT"),
            ("redis+sentinel://h:1", "write redis+sentinel://NAME@HOST"),
            ("redis+sentinel://a:b@h:1", "by which the Sentinels know"),
            ("redis+sentinel://a@h:1,", "write //HOST:PORT"),
            ("lockd://h:1?tsl", "unknown parameter `tsl` in an address"),
            ("flock:", "`flock:`: nothing follows the colon"),
            ("delay:soon", "`delay:soon`: `soon` is not a time"),
            ("busted:2", "a probability"),
            ("unfair:mine", "queue, lottery, 2to1, starve"),
        ];
        for (text, part) in table {
            let error = Spec::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.len() < 2_000, "{text}");
        }
    }
}
