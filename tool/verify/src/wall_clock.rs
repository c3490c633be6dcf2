//! A wall clock of the servers' own, which a fault sets: `wall_clock.c`, compiled when a run needs
//! it and preloaded into each server. The machine's clock stays as it is.

use jostle_sys::ledger::Ledger;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// The compiler.
const COMPILER: &str = "cc";

/// A clock that is right until it is set.
#[derive(Debug)]
pub struct WallClock {
    object: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// Whether there is a compiler for it.
    pub(crate) fn can_be_made() -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|place| place.join(COMPILER).is_file())
    }

    /// Compiles what is preloaded, in a directory that ends with the run.
    ///
    /// # Errors
    /// In words for the user: what the compiler said.
    pub fn make(ledger: &Ledger) -> Result<WallClock, String> {
        let failed = |error: io::Error| {
            format!(
                "cannot make a clock for the servers: {error}; without the fault clock none is needed"
            )
        };
        let place = ledger.make_directory().map_err(failed)?;
        // Servers may run as another user.
        fs::set_permissions(&place, Permissions::from_mode(0o711)).map_err(failed)?;
        let clock = WallClock {
            object: place.join("wall_clock.so"),
            offset: place.join("offset"),
        };
        let source = place.join("wall_clock.c");
        fs::write(&source, include_str!("wall_clock.c")).map_err(failed)?;
        fs::write(&clock.offset, 0_i64.to_ne_bytes()).map_err(failed)?;
        let mut compile = Command::new(COMPILER);
        compile.args(["-O2", "-shared", "-fPIC"]).arg(&source);
        let done = compile
            .arg("-o")
            .arg(&clock.object)
            .output()
            .map_err(failed)?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(failed(io::Error::other(format!("{COMPILER}: {said}"))));
        }
        for file in [&clock.object, &clock.offset] {
            fs::set_permissions(file, Permissions::from_mode(0o644)).map_err(failed)?;
        }
        Ok(clock)
    }

    /// The variables of a server that runs by it; none without a clock.
    pub fn environment(
        clock: Option<&WallClock>,
    ) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let both = clock
            .map(|WallClock { object, offset }| [("LD_PRELOAD", object), ("JOSTLE_CLOCK", offset)]);
        both.into_iter().flatten()
    }

    /// Sets it so far before the right time, or behind it.
    ///
    /// # Errors
    /// In words for the user.
    pub fn set(&self, ahead_ns: i64) -> Result<(), String> {
        // Not made anew: the servers have mapped it.
        let file = OpenOptions::new().write(true).open(&self.offset);
        let set = file.and_then(|mut file| file.write_all(&ahead_ns.to_ne_bytes()));
        set.map_err(|error| format!("cannot set the servers' clock: {error}"))
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn a_program_runs_by_the_clock_that_is_set() {
        let ledger = Ledger::create().unwrap();
        let clock = WallClock::make(&ledger).unwrap();
        for ahead_s in [0_i64, 1_000_000, -1_000_000] {
            clock.set(ahead_s * 1_000_000_000 + 1).unwrap();
            let mut date = Command::new("date");
            date.arg("+%s").envs(WallClock::environment(Some(&clock)));
            let said = String::from_utf8(date.output().unwrap().stdout).unwrap();
            let right = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let off = said.trim().parse::<i64>().unwrap() - right.as_secs() as i64 - ahead_s;
            assert!(off.abs() < 100, "{off} s");
        }
        assert_eq!(WallClock::environment(None).count(), 0);
        ledger.sweep().unwrap();
    }
}
