//! Clusters of servers that a test starts, and whose members it ends.

#![allow(
    clippy::unwrap_used,
    reason = "a test whose server does not start has failed"
)]

pub use crate::running::eventually as wait_for;

use crate::running::Running;
use jostle_targets::program::{Ground, LaunchRecipe, first_word, free_port};
use std::path::Path;
use std::process::{Command, Stdio};

/// The members of a cluster, ended when they are dropped.
pub struct Cluster {
    /// Their processes.
    pub members: Vec<Running>,
    /// `HOST:PORT` of each.
    pub addresses: Vec<String>,
}

impl Cluster {
    /// Starts one of each recipe, and waits until all are ready.
    pub fn start<R: LaunchRecipe>(directory: &Path, recipes: &[R]) -> Cluster {
        let begun = recipes.iter().enumerate().map(|(number, recipe)| {
            let directory = directory.join(number.to_string());
            begin(recipe, &directory)
        });
        let (members, grounds): (Vec<Running>, Vec<Ground>) = begun.unzip();
        for (recipe, ground) in recipes.iter().zip(&grounds) {
            wait_for("a member is ready", || recipe.ready(ground).is_ok());
        }
        Cluster {
            members,
            addresses: grounds.iter().map(Ground::address).collect(),
        }
    }

    /// As a target takes it.
    pub fn argument(&self) -> String {
        format!("//{}", self.addresses.join(","))
    }
}

fn begin(recipe: &dyn LaunchRecipe, directory: &Path) -> (Running, Ground) {
    std::fs::create_dir(directory).unwrap();
    let known = recipe.known();
    let (port, secret) = known.unwrap_or_else(|| (free_port().unwrap(), String::new()));
    let ground = Ground {
        program: recipe.program().find().unwrap(),
        directory: directory.to_owned(),
        cluster: Vec::new(),
        place: 0,
        port,
        secret,
    };
    for (name, contents) in recipe.files(&ground) {
        std::fs::write(directory.join(name), contents).unwrap();
    }
    let child = Command::new(first_word(recipe, &ground).unwrap())
        .args(recipe.arguments(&ground))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    (Running(child.unwrap()), ground)
}
