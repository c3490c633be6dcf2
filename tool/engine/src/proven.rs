//! Where the outcome of `jostle calibrate` is kept between runs, so that every
//! result can say whether the tool had proved itself there.
//!
//! One file for each host in the user's cache directory (XDG Base Directory
//! Specification): homes are shared between machines, their clocks and kernels
//! are not.

use jostle_model::calibrated::{Calibrated, Place, Specimens};
use jostle_model::record::Environment;
use jostle_model::serial::{calibrated_from_json, calibrated_to_json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// The environment that a calibration holds for.
pub fn place(environment: &Environment) -> Place {
    Place {
        jostle: environment.jostle.clone(),
        host: environment.host.clone(),
        kernel: environment.kernel.clone(),
        cpu_model: environment.cpu_model.clone(),
        cores: environment.cores,
    }
}

/// The file of a host. None for a user without a home.
pub fn path(host: &str) -> Option<PathBuf> {
    below(|name| std::env::var_os(name), host)
}

fn below(variable: impl Fn(&str) -> Option<OsString>, host: &str) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(variable(name)?);
        // By the specification, a relative path is ignored.
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let host: String = host
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    Some(
        cache
            .join("jostle")
            .join(format!("calibration-{host}.json")),
    )
}

/// Keeps it; gives where.
///
/// # Errors
/// The system's, and that there is no home.
pub fn store(calibrated: &Calibrated) -> io::Result<PathBuf> {
    let path = path(&calibrated.place.host).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "neither XDG_CACHE_HOME nor HOME is set",
        )
    })?;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let text = calibrated_to_json(calibrated);
    // Whole under its name, or not at all.
    let part = path.with_extension(format!("{}.part", std::process::id()));
    // With sudo the directory may be another user's: no link there is followed.
    let _ = std::fs::remove_file(&part);
    std::fs::File::create_new(&part)?.write_all(text.as_bytes())?;
    std::fs::rename(&part, &path)?;
    Ok(path)
}

/// The last calibration by this build on this machine, if there was one.
pub fn last(environment: &Environment) -> Option<Specimens> {
    let text = std::fs::read(path(&environment.host)?).ok()?;
    let calibrated = calibrated_from_json(&text)?;
    holds(&calibrated, environment).then(|| calibrated.summary())
}

/// Whether a calibration says something about this machine and build.
fn holds(calibrated: &Calibrated, environment: &Environment) -> bool {
    calibrated.place == place(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_lies_in_the_user_s_cache() {
        let with = |cache: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| match name {
                "XDG_CACHE_HOME" => cache.map(OsString::from),
                _ => home.map(OsString::from),
            };
            below(variable, "a/b.c").map(|path| path.display().to_string())
        };
        let file = "jostle/calibration-a_b_c.json";
        let table = [
            (Some("/var/c"), Some("/root"), Some("/var/c/")),
            (None, Some("/root"), Some("/root/.cache/")),
            (Some("relative"), Some("/root"), Some("/root/.cache/")),
            (None, None, None),
        ];
        for (cache, home, directory) in table {
            let expected = directory.map(|directory| format!("{directory}{file}"));
            assert_eq!(with(cache, home), expected);
        }
    }

    #[test]
    fn another_machine_or_build_needs_its_own() {
        let here = Environment {
            jostle: "0.1.0 (abc)".to_owned(),
            kernel: "Linux 6.1".to_owned(),
            cores: 2,
            ..Environment::default()
        };
        let calibrated = Calibrated {
            place: place(&here),
            ..Calibrated::default()
        };
        assert!(holds(&calibrated, &here));
        let changes: [fn(&mut Environment); 3] = [
            |there| there.jostle = "0.1.0 (abd)".to_owned(),
            |there| there.kernel = "Linux 6.2".to_owned(),
            |there| there.cores = 1,
        ];
        for change in changes {
            let mut there = here.clone();
            change(&mut there);
            assert!(!holds(&calibrated, &there), "{there:?}");
        }
    }
}
