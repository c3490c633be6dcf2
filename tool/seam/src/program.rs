//! Third-party servers that a target launches for a run: how their program is found, and
//! how it is started in a directory of its own.
//!
//! A target describes its server as a [`LaunchRecipe`] in its own file. The keeper starts the
//! server by its recipe and ends it, so that the engine knows no server by name.

use crate::SetupError;
use crate::login::Login;
use jostle_sys::ports;
use rustix::fs::{Access, access};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// A program that a Debian package brings.
#[derive(Debug)]
pub struct Program {
    /// The file's name.
    pub file: &'static str,
    /// Directories to search if `PATH` does not have the program. A last part of `*` stands
    /// for `N/bin` with the highest number N, the layout of packages with several versions.
    pub places: &'static [&'static str],
    /// The Debian package that brings it; None where there is none.
    pub package: Option<&'static str>,
    /// Approximate time from its start to its first answer, plus its end, in milliseconds
    /// on two virtual CPUs.
    pub launch_ms: u64,
    /// Whether it asks the C library for the time; else it asks the system itself, as programs in
    /// Go do.
    pub asks_libc: bool,
}

impl Program {
    /// Its path: the first in `PATH` that this user may execute, as a shell finds it, so that
    /// a user can put another version there.
    ///
    /// # Errors
    /// For the user: the package to install.
    pub fn find(&self) -> Result<PathBuf, SetupError> {
        self.find_by(&std::env::var_os("PATH").unwrap_or_default())
    }

    fn find_by(&self, path: &OsStr) -> Result<PathBuf, SetupError> {
        let mut first = std::env::split_paths(path).map(|directory| directory.join(self.file));
        let named = self.places.iter().flat_map(|place| expanded(place));
        // An interpreter only reads what lies there.
        let mut usual = named.map(|place| place.join(self.file));
        let found = first
            .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
            .or_else(|| usual.find(|file| file.is_file()));
        // It is started in another directory than ours.
        let absolute = found.and_then(|file| std::path::absolute(file).ok());
        absolute.ok_or_else(|| SetupError(not_installed(&[self])))
    }
}

/// Names the programs that are missing, all in one sentence, and what installs them.
pub fn not_installed(programs: &[&Program]) -> String {
    let quoted = |programs: &[&Program]| -> String {
        let files = programs.iter().map(|program| format!("`{}`", program.file));
        files.collect::<Vec<_>>().join(", ")
    };
    let (debian, others): (Vec<&Program>, Vec<&Program>) = programs
        .iter()
        .partition(|program| program.package.is_some());
    let packages = debian.iter();
    let packages: Vec<&str> = packages.filter_map(|program| program.package).collect();
    let install = format!("`apt install {}`", packages.join(" "));
    let remedy = match (debian.as_slice(), others.as_slice()) {
        (_, []) => format!(": {install} (Debian)"),
        ([], [_]) => ", and Debian has no package of it".to_owned(),
        ([], _) => ", and Debian has no packages of them".to_owned(),
        _ => format!(
            ": {install} (Debian, which has no package of {})",
            quoted(&others)
        ),
    };
    let (noun, verb) = match programs {
        [_] => ("program", "is"),
        _ => ("programs", "are"),
    };
    format!(
        "the {noun} {} {verb} not installed{remedy}",
        quoted(programs)
    )
}

/// The directory itself, or the `bin` of each version below it, highest first.
fn expanded(place: &str) -> Vec<PathBuf> {
    let Some(parent) = place.strip_suffix("/*") else {
        return vec![PathBuf::from(place)];
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    let paths = versions.into_iter().rev();
    paths.map(|(_, path)| path.join("bin")).collect()
}

/// Where a server is started.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Its program.
    pub program: PathBuf,
    /// A directory of its own, empty at first, and removed with the run.
    pub directory: PathBuf,
    /// Where each server of its cluster is, in the order of the recipes, itself among them; empty:
    /// all are on the loopback address.
    pub cluster: Vec<Ipv4Addr>,
    /// Its own place among them, from 0.
    pub place: usize,
    /// A port of its address that nobody listened on a moment ago.
    pub port: u16,
    /// Random letters and digits: the password of a server that takes one, so that
    /// other users of this machine are kept out.
    pub secret: String,
}

impl Ground {
    /// Where the server of this recipe of its cluster is.
    pub fn host_of(&self, place: usize) -> Ipv4Addr {
        let found = self.cluster.get(place).copied();
        found.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    /// The address of the interface at which it is to listen.
    pub fn host(&self) -> Ipv4Addr {
        self.host_of(self.place)
    }

    /// `HOST:PORT`, where it is to listen.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port)
    }

    /// How its clients log in, as this user if it has names.
    pub fn login(&self, user: Option<&str>) -> Login {
        Login::of_launched(self.address(), user, &self.secret)
    }
}

/// A port of the loopback address that nobody listens on.
///
/// # Errors
/// In words for the user.
pub fn free_port() -> Result<u16, SetupError> {
    free_ports(1).map(|ports| ports[0])
}

/// As many different free ports.
///
/// # Errors
/// In words for the user.
pub fn free_ports(count: usize) -> Result<Vec<u16>, SetupError> {
    ports::free(Ipv4Addr::LOCALHOST.into(), count)
        .map_err(|error| SetupError(format!("cannot find a free port: {error}")))
}

/// A command: a program and its arguments.
pub type Words = Vec<String>;

/// How to launch a server.
pub trait LaunchRecipe: Debug {
    /// Its program.
    fn program(&self) -> &'static Program;

    /// The interpreter, if the program's file cannot be executed directly; the arguments
    /// then name the file.
    fn runs_in(&self) -> Option<&'static Program> {
        None
    }

    /// The user to run it as if jostle runs as root and the server refuses root; its package
    /// makes it. None: the user that runs jostle.
    fn instead_of_root(&self) -> Option<&'static str> {
        None
    }

    /// The port and the password of a member that others must know before it starts.
    fn known(&self) -> Option<(u16, String)> {
        None
    }

    /// Files that it finds in its directory: names and contents.
    fn files(&self, _ground: &Ground) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Commands that end before it starts, such as one that makes its database.
    fn before(&self, _ground: &Ground) -> Vec<Words> {
        Vec::new()
    }

    /// The arguments behind the program's name on its command line.
    fn arguments(&self, ground: &Ground) -> Words;

    /// Whether it is ready for use; called repeatedly until it is.
    ///
    /// # Errors
    /// What is still missing.
    fn ready(&self, ground: &Ground) -> Result<(), SetupError>;

    /// How to ask a server whether it leads its cluster; None: it is no member that can lead.
    /// Those that can come first among the recipes of a cluster. The others share their hosts, in
    /// turn.
    fn leads(&self) -> Option<Leads> {
        None
    }

    /// Whether it has to be ended by SIGQUIT, because a kill would leave something outside
    /// of its directory.
    fn quits(&self) -> bool {
        false
    }
}

/// Whether the server at this address, with this secret, leads its cluster now.
pub type Leads = fn(address: &str, secret: &str) -> bool;

/// The first word of a recipe's command.
///
/// # Errors
/// For the user: the package to install.
pub fn first_word(recipe: &dyn LaunchRecipe, ground: &Ground) -> Result<String, SetupError> {
    let interpreter = recipe.runs_in().map(Program::find).transpose()?;
    Ok(text(&interpreter.unwrap_or_else(|| ground.program.clone())))
}

/// A server that was launched.
#[derive(Clone, Debug)]
pub struct Launched {
    /// Where it listens, `HOST:PORT`.
    pub address: String,
    /// The ground's.
    pub secret: String,
    /// Its process.
    pub pid: u32,
}

/// For [`Ground::secret`].
///
/// # Errors
/// In words for the user.
pub fn secret() -> Result<String, SetupError> {
    let mut bytes = [0u8; 16];
    // Up to 256 bytes come whole, or not at all (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| SetupError(format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Refuses more workers than a server takes connections, if it says how many (`free`);
/// `raise` is how it takes more.
///
/// # Errors
/// For the user.
pub fn has_room(free: Option<f64>, workers: usize, raise: &str) -> Result<(), SetupError> {
    match free {
        Some(free) if free < workers as f64 => Err(SetupError(format!(
            "the server takes {free} connections more, and {workers} workers need one each; fewer \
             workers (-w), or {raise}"
        ))),
        _ => Ok(()),
    }
}

/// A path as an argument; ours are of plain letters.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_missing_program_names_its_package() {
        let program = Program {
            file: "no-such-server",
            places: &["/usr/lib/postgresql/*", "/usr/sbin"],
            package: Some("some-server"),
            launch_ms: 0,
            asks_libc: true,
        };
        let error = program.find().unwrap_err().0;
        assert!(error.contains("apt install some-server"), "{error}");
    }

    /// Regression: package directories were once searched before `PATH`, so that no other
    /// version could be launched.
    #[test]
    fn the_first_in_the_path_comes_before_the_usual_places() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for (name, mode) in [
            ("own", 0o755),
            ("later", 0o711),
            ("usual", 0o644),
            ("idle", 0o644),
        ] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("server"), "").unwrap();
            fs::set_permissions(at(name).join("server"), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(at("directory").join("server")).unwrap();
        let usual: &'static str = at("usual").display().to_string().leak();
        let program = Program {
            file: "server",
            places: vec![usual].leak(),
            package: None,
            launch_ms: 0,
            asks_libc: true,
        };
        let path = |names: &[&str]| {
            let all = names.iter().map(|name| at(name));
            std::env::join_paths(all).unwrap()
        };
        for (names, found) in [
            (&["empty", "own", "later"][..], "own"),
            (&["later", "own"], "later"),
            (&["idle", "directory", "later"], "later"),
            (&["idle", "directory"], "usual"),
            (&["empty"], "usual"),
            (&[], "usual"),
        ] {
            let expected = at(found).join("server");
            assert_eq!(program.find_by(&path(names)), Ok(expected), "{names:?}");
        }
        let beside = Program {
            places: &["src"],
            file: "program.rs",
            ..program
        };
        let found = beside.find_by(OsStr::new("")).unwrap();
        assert!(
            found.is_absolute() && found.ends_with("src/program.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn the_highest_version_comes_first() {
        let place = tempfile::tempdir().unwrap();
        for version in ["9", "15", "common"] {
            fs::create_dir_all(place.path().join(version).join("bin")).unwrap();
        }
        let found = expanded(&format!("{}/*", place.path().display()));
        let names: Vec<PathBuf> = ["15/bin", "9/bin"].map(|v| place.path().join(v)).to_vec();
        assert_eq!(found, names);
        assert_eq!(expanded("/usr/sbin"), [PathBuf::from("/usr/sbin")]);
    }

    #[test]
    fn secrets_differ() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert!(one.len() == 32 && one != other);
    }
}
