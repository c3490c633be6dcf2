//! The console sessions of the page of recipes, run as they stand.

use std::process::Command;

use crate::common::{Daemon, JOSTLE_LOCK, root};

/// `...` in an expected line stands for any text.
fn fits(line: &str, expected: &str) -> bool {
    match expected.split_once("...") {
        Some((begin, end)) => line.starts_with(begin) && line.ends_with(end),
        None => line == expected,
    }
}

#[test]
fn the_recipes_do_what_their_page_shows() {
    let page = std::fs::read_to_string(root().join("jostled/docs/lock.md")).unwrap();
    let blocks: Vec<&str> = page.split("```console\n").skip(1).collect();
    assert!(blocks.len() >= 8, "{}", blocks.len());
    let folder = std::path::Path::new(JOSTLE_LOCK).parent().unwrap();
    for block in blocks {
        let daemon = Daemon::start();
        let place = tempfile::tempdir().unwrap();
        let bin = place.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        // In the place of programs that are not there, or would do something.
        for name in ["terraform", "backup", "deploy", "simulate", "git"] {
            let path = bin.join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\"\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        let paths = [bin, folder.to_owned()].into_iter();
        let usual = std::env::var_os("PATH").unwrap();
        let paths = paths.chain(std::env::split_paths(&usual));
        let paths = std::env::join_paths(paths).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let mut sessions: Vec<(String, Vec<&str>)> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix("$ "), line.strip_prefix("> ")) {
                (Some(command), _) => sessions.push((command.to_owned(), Vec::new())),
                (_, Some(more)) => {
                    let (command, _) = sessions.last_mut().unwrap();
                    *command += "\n";
                    *command += more;
                }
                _ => sessions.last_mut().unwrap().1.push(line),
            }
        }
        for (command, expected) in sessions {
            let mut shell = Command::new("sh");
            shell
                .arg("-c")
                .arg(format!("exec 2>&1\n{command}"))
                .current_dir(place.path());
            shell
                .env("PATH", &paths)
                .env("JOSTLE_LOCK_URL", daemon.url())
                .env("HOME", place.path());
            shell.env_remove("XDG_STATE_HOME").env_remove("MAKEFLAGS");
            let output = shell.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: Vec<&str> = said.lines().collect();
            let same = lines.len() == expected.len()
                && lines
                    .iter()
                    .zip(&expected)
                    .all(|(line, expected)| fits(line, expected));
            assert!(
                same,
                "$ {command}\n{said}\nexpected:\n{}",
                expected.join("\n")
            );
        }
    }
}
