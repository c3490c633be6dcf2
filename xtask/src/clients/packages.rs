//! The packages of `clients/`: each has its own tests, against a daemon that is
//! killed, stopped and cut off.

use super::Ground;
use jostle_testbed::shell;
use std::process::Command;
use std::time::Instant;

/// A package, and the commands that test it.
struct Package {
    name: &'static str,
    commands: fn(&Ground) -> anyhow::Result<Vec<Command>>,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "package python",
        commands: python,
    },
    Package {
        name: "package go",
        commands: go,
    },
    Package {
        name: "package node",
        commands: node,
    },
    Package {
        name: "package java",
        commands: java,
    },
    Package {
        name: "package rust",
        commands: rust,
    },
];

/// What went wrong, a line for each package.
pub(super) fn run(ground: &Ground, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for package in PACKAGES.iter().filter(|package| wanted(package.name)) {
        let start = Instant::now();
        println!("== {}", package.name);
        for mut command in (package.commands)(ground)? {
            if let Err(error) = shell::run(&mut command) {
                broken.push(format!("{}: {error}", package.name));
                break;
            }
        }
        let took_s = start.elapsed().as_secs_f64();
        println!("== {}: {took_s:.0} s\n", package.name);
    }
    Ok(broken)
}

fn python(ground: &Ground) -> anyhow::Result<Vec<Command>> {
    let package = shell::root().join("jostled/clients/python");
    let command = |version| {
        let python = format!("target/redis-py/{version}/bin/python");
        let python = shell::root().join(python);
        let mut command = ground.command(&python.to_string_lossy());
        command.args(["-B", "-m", "unittest", "discover"]);
        command.env("PYTHONPATH", &package);
        command.current_dir(package.join("tests"));
        command
    };
    Ok(vec![command("8"), command("4")])
}

fn go(ground: &Ground) -> anyhow::Result<Vec<Command>> {
    // Each test waits for leases to end: more of them at a time than there are CPUs.
    let commands: [&[&str]; 2] = [
        &["vet", "./..."],
        &["test", "-count=1", "-parallel=8", "./..."],
    ];
    Ok(commands
        .map(|arguments| {
            let mut command = ground.command("go");
            command.args(arguments);
            command.current_dir(shell::root().join("jostled/clients/go"));
            command
        })
        .into())
}

fn node(ground: &Ground) -> anyhow::Result<Vec<Command>> {
    let place = ground.copy("jostled/clients/node", "jostle-lock-node")?;
    let commands: [&[&str]; 2] = [
        &["install", "--silent", "--no-audit", "--no-fund"],
        &["test", "--silent"],
    ];
    Ok(commands
        .map(|arguments| {
            let mut command = ground.command("npm");
            command.args(arguments).current_dir(&place);
            command
        })
        .into())
}

fn java(ground: &Ground) -> anyhow::Result<Vec<Command>> {
    let place = ground.copy("jostled/clients/java", "jostle-lock-java")?;
    let mut command = ground.maven();
    command.arg("test").current_dir(&place);
    Ok(vec![command])
}

fn rust(ground: &Ground) -> anyhow::Result<Vec<Command>> {
    let mut command = ground.command("cargo");
    command.args(["test", "--quiet", "--locked", "--", "--test-threads=8"]);
    command.current_dir(shell::root().join("jostled/clients/rust"));
    Ok(vec![command])
}
