//! The programs that run beside a session, from files in lab/trials/plants.
//!
//! A plant's command is given to `sh -c` in a process group of its own. It disturbs within 3 s and
//! goes on until its group gets SIGTERM; what it has changed it then restores.

use anyhow::{Context, ensure};
use jostle_testbed::leash::Leash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// From its start until it disturbs.
const SETTLES: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
struct File {
    plant: Vec<Plant>,
}

/// A disturbance. For people its file also has the rights and packages that it needs (`rights`,
/// `needs`), and why its author expects what they do (`why`).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Plant {
    pub name: String,
    pub command: String,
    pub expected: Expected,
}

/// The expected fate of the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Expected {
    /// VALID.
    Figure,
    Suspect,
    Invalid,
}

/// All plants of these files.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Plant>> {
    let mut plants = Vec::new();
    for path in paths {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        plants.extend(toml::from_str::<File>(&text).with_context(name)?.plant);
    }
    let names: BTreeSet<&str> = plants.iter().map(|plant| plant.name.as_str()).collect();
    ensure!(names.len() == plants.len(), "two plants have one name");
    Ok(plants)
}

impl Plant {
    pub(super) fn start(&self) -> anyhow::Result<Planted> {
        // With `set -m` it has a process group of its own, which ends with the shell's input.
        const SCRIPT: &str = "set -m
            sh -c \"$1\" < /dev/null > /dev/null 2>&1 &
            read _ && { kill -0 $! && echo there || echo gone; }; read _
            kill -- -$!
            for _ in {1..200}; do kill -0 -- -$! || exit; sleep 0.05; done
            kill -KILL -- -$!";
        let mut shell = Command::new("bash");
        shell.args(["-c", SCRIPT, "plant", &self.command]);
        shell.stdout(Stdio::piped()).stderr(Stdio::null());
        let leash = Leash::start(&mut shell)?;
        std::thread::sleep(SETTLES);
        Ok(Planted {
            name: self.name.clone(),
            leash,
        })
    }
}

/// A plant, until it is dropped.
pub(super) struct Planted {
    name: String,
    leash: Leash,
}

impl Planted {
    /// Ends it.
    ///
    /// # Errors
    /// If it had ended by itself: then nothing was planted.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let answers = self.leash.stdout().context("no output")?;
        self.leash.tell("")?;
        let mut answer = String::new();
        BufReader::new(answers).read_line(&mut answer)?;
        ensure!(
            answer.trim() == "there",
            "the plant `{}` ended before its session did: try its command by hand, with what it needs",
            self.name
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_testbed::shell;

    #[test]
    fn plants_are_read_and_each_has_a_name_of_its_own() {
        let files = ["first", "open"]
            .map(|name| shell::root().join(format!("lab/trials/plants/{name}.toml")));
        assert_eq!(read(&files).unwrap().len(), 12);
        assert!(read(&[files[0].clone(), files[0].clone()]).is_err());
    }

    mod live_tests {
        use super::*;

        /// The programs that a command has started are ended with it; one that ends too early is
        /// told.
        #[test]
        fn a_plant_is_there_until_it_is_ended() {
            let place = tempfile::tempdir().unwrap();
            let pid = place.path().join("pid");
            let start = |command: &str| {
                let plant = Plant {
                    name: "test".to_owned(),
                    command: command.to_owned(),
                    expected: Expected::Figure,
                };
                plant.start().unwrap()
            };
            let command = format!(
                "sh -c 'echo $$ > {0}.new; mv {0}.new {0}; sleep 600; :'; :",
                pid.display()
            );
            let planted = start(&command);
            while !pid.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_there = || {
                let pid = fs::read_to_string(&pid).unwrap();
                PathBuf::from("/proc").join(pid.trim()).exists()
            };
            assert!(is_there());
            planted.end().unwrap();
            assert!(!is_there());
            let ended = start("true").end();
            assert!(ended.unwrap_err().to_string().contains("`test` ended"));
        }
    }
}
