//! `tool/ci-gate/gate` from end to end: what it finds between two libraries and between two
//! revisions, its exit codes, its comment, and the action that calls it.
//!
//! The slower lock is slower by a factor, since other programs may run beside. How often a
//! tenth is found is counted by `cargo xtask validate gate`.

use crate::common::{
    Place, alone, beside, flat, in_some_try, must_have, path_with_jostle, root, rows,
};
use std::fs;
use std::process::Command;

/// Short, and of enough blocks for an interval.
const SHORT: &str = "contend -w 1 -b 0 -i 0 --measure counts -t 30ms --warmup 10ms --runs 6";

/// How a lock whose owner takes so many steps is compiled, in a shell.
fn compile(steps: u32, library: &str) -> String {
    let root = root().canonicalize().unwrap();
    let root = root.display();
    format!(
        "cc -O2 -shared -fPIC -I {root}/tool/own-locks -DSTEPS={steps} -o {library} {root}/lab/trials/validate/gate.c"
    )
}

/// A place with a lock, the same lock again, and one that takes three times as long.
fn locks() -> Place {
    must_have("cc", "gcc");
    let place = Place::new();
    for (library, steps) in [("old.so", 100), ("equal.so", 100), ("slower.so", 400)] {
        place.program(&["sh", "-c", &compile(steps, library)]);
    }
    place
}

/// The gate's outcome.
struct Gated {
    code: i32,
    comment: String,
    stderr: String,
}

impl Gated {
    #[track_caller]
    fn exits(&self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.contains(says), "{says}: {}", self.stderr);
    }

    #[track_caller]
    fn comments(&self, text: &str) {
        assert!(self.comment.contains(text), "{text}: {}", self.comment);
    }
}

/// A shell command in the place, with the gate as `$GATE` and this jostle in PATH. Nothing
/// of it may be left in the directory for temporary files.
fn run(place: &Place, script: &str, variables: &[(&str, &str)]) -> Gated {
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(place.path())
        .env("PATH", path_with_jostle())
        .env("TMPDIR", place.file("tmp"))
        .env("GATE", root().join("tool/ci-gate/gate"))
        .env_remove("GITHUB_OUTPUT")
        .env_remove("GITHUB_STEP_SUMMARY")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert_eq!(place.list("tmp"), [""; 0], "{script}");
    Gated {
        code: done.status.code().unwrap(),
        comment: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
    }
}

fn gate(place: &Place, arguments: &str) -> Gated {
    run(place, &format!("exec \"$GATE\" {arguments}"), &[])
}

/// The arguments of a gate that compares two libraries of the place by short runs.
fn compare(place: &Place, options: &str, pair: &str) -> Gated {
    gate(place, &format!("{options} --measure '{SHORT}' {pair}"))
}

/// The targets of the one experiment in a result file, each of which has its six runs.
fn measured(place: &Place, file: &str) -> Vec<String> {
    let points = place.runs(file);
    let mut targets: Vec<String> = points.iter().map(|point| point.target.clone()).collect();
    targets.sort();
    targets.dedup();
    // Blocks that other programs spoilt are repeated.
    let runs = |target: &String| points.iter().filter(|p| p.target == *target).count();
    assert!(targets.iter().all(|target| runs(target) >= 6));
    targets
}

/// One of several runs has this exit code, and the comment's heading this word.
#[track_caller]
fn finds(code: i32, finding: &str, mut attempt: impl FnMut() -> Gated) -> Gated {
    in_some_try(finding, || {
        let gated = attempt();
        assert!([0, 3, 4].contains(&gated.code), "{}", gated.stderr);
        let heading = format!("## jostle: {finding}\n");
        let found = gated.code == code;
        assert!(
            !found || gated.comment.starts_with(&heading),
            "{}",
            gated.comment
        );
        found.then_some(gated)
    })
}

#[test]
fn too_few_runs_decide_nothing() {
    let _beside = beside();
    let place = locks();
    let few = SHORT.replace("--runs 6", "--runs 3");
    // On a busy machine it may be that nothing is granted within 30 ms.
    in_some_try("that there are too few runs", || {
        let pair = "lib:./old.so lib:./slower.so";
        let gated = gate(&place, &format!("--measure '{few}' {pair}"));
        gated.exits(3, "");
        let heading = gated.comment.lines().next();
        assert_eq!(heading, Some("## jostle: undecided"), "{}", gated.comment);
        // Beside other programs, whose bound on each run is wide, it is these that decide.
        let reasons = ["3 blocks with both", "other programs may have moved"];
        let mut said = reasons.iter();
        said.any(|reason| gated.comment.contains(reason))
            .then_some(())
    });
}

/// Arguments, and what is said of them.
const SENSELESS: &str = "
=> BASE and NEW are missing
lib:./old.so => BASE and NEW are missing
futex spin flock => more than BASE and NEW: flock
--judge true futex spin => --judge takes no BASE and NEW
--require server futex spin => need --judge
--judge true --require serve => expected one of `generator`
--fast futex spin => there is no option --fast
futex spin --out => --out needs a value
--build make HEAD~1 HEAD => --build needs --target
--target lib:x.so HEAD~1 HEAD => --target needs --build
--plan none.toml futex spin => cannot read the plan none.toml
--plan old.so --anchor spin futex spin => takes the place of
futex 'pipe:cat a,b' => with a comma
lib:./old.so lib:./none.so => there is no file
flok futex => did you mean `flock`
--threshold 0 --measure 'contend -t 10ms --runs 1 -w 1' futex spin => more than 0
";

#[test]
fn what_makes_no_sense_is_refused() {
    let _beside = beside();
    let place = locks();
    for [arguments, says] in rows(SENSELESS) {
        let gated = gate(&place, arguments);
        gated.exits(2, says);
        assert!(gated.comment.is_empty(), "{arguments}: {}", gated.comment);
    }
}

/// A repository whose second revision has the slower lock.
fn repository() -> Place {
    must_have("git", "git");
    let place = Place::new();
    let mut script = "git init --quiet .\n".to_owned();
    for steps in [100, 400] {
        script += &format!(
            "echo '{}' > build.sh && git add build.sh && git -c user.name=a -c user.email=a@b \
             commit --quiet -m {steps}\n",
            compile(steps, "lock.so")
        );
    }
    place.program(&["sh", "-ec", &script]);
    place
}

/// How many worktrees it has.
fn worktrees(place: &Place) -> usize {
    let (listed, _) = place.program(&["git", "worktree", "list"]);
    listed.lines().count()
}

/// The exit trap once removed `--out`'s `base` by force, whatever it was: a file that was not
/// committed was gone in 2 of 2 trials.
#[test]
fn worktrees_that_the_gate_did_not_add_survive_it() {
    let _beside = beside();
    let place = repository();
    let script = "git worktree add --quiet --detach wt/base && echo mine > wt/base/uncommitted";
    place.program(&["sh", "-ec", script]);
    let table = [
        ("true", "nosuchrev HEAD", 2, "git has no revision nosuchrev"),
        ("true", "HEAD nosuchrev", 2, "git has no revision nosuchrev"),
        ("false", "HEAD HEAD", 1, "`false` failed at HEAD"),
        ("true", "HEAD~1 HEAD", 2, "there is no file "),
    ];
    for (build, revisions, code, says) in table {
        let options = format!("--out wt --build {build} --target 'lib:{{}}/x.so'");
        gate(&place, &format!("{options} {revisions}")).exits(code, says);
        assert_eq!(place.read("wt/base/uncommitted"), "mine\n", "{revisions}");
        assert_eq!(place.list("wt"), ["base"], "{revisions}");
        assert_eq!(worktrees(&place), 2, "{revisions}");
    }
}

/// The gate's outcome is told in one word, whatever it found: a busy machine may leave it
/// undecided.
#[track_caller]
fn is_told(gated: &Gated) {
    let findings: &[&str] = match gated.code {
        0 => &["same", "better"],
        3 => &["undecided"],
        4 => &["worse"],
        code => panic!("exit code {code}: {}", gated.stderr),
    };
    let headings = findings
        .iter()
        .map(|finding| format!("## jostle: {finding}\n"));
    let found = headings.filter(|heading| gated.comment.starts_with(heading));
    assert_eq!(found.count(), 1, "{}: {}", gated.code, gated.comment);
}

const ELSEWHERE: &str = "--threshold 50 --anchor none --out here";

#[test]
fn two_libraries_and_the_anchor_take_turns_in_one_experiment() {
    let _beside = beside();
    let place = locks();
    let gated = compare(&place, "", "lib:./old.so lib:./slower.so");
    is_told(&gated);
    gated.comments("lib:./old.so -> lib:./slower.so");
    gated.comments("jostle-gate/gate.html");
    assert_eq!(place.read("jostle-gate/gate.md"), gated.comment);
    assert!(place.read("jostle-gate/gate.html").contains("slower.so"));
    assert_eq!(
        measured(&place, "jostle-gate/gate.jsonl"),
        ["futex", "lib:./old.so", "lib:./slower.so"]
    );
    // Without an anchor, and elsewhere.
    is_told(&compare(&place, ELSEWHERE, "lib:./old.so lib:./equal.so"));
    let targets = measured(&place, "here/gate.jsonl");
    assert_eq!(targets, ["lib:./equal.so", "lib:./old.so"]);
}

#[test]
fn a_plan_may_say_what_is_measured() {
    let _beside = beside();
    let place = locks();
    let plan = "[[experiment]]\nworkload = \"contend\"\ntargets = [\"{base}\", \"spin\", \"{new}\"]\n\
                workers = 1\nhold = \"0s\"\nidle = \"0s\"\nmeasure = \"counts\"\n\
                duration = \"30ms\"\nwarmup = \"10ms\"\nruns = 6\n";
    fs::write(place.file("gate.toml"), plan).unwrap();
    is_told(&gate(
        &place,
        "--plan gate.toml lib:./old.so lib:./slower.so",
    ));
    let targets = measured(&place, "jostle-gate/gate.jsonl");
    assert_eq!(targets, ["lib:./old.so", "lib:./slower.so", "spin"]);
}

#[test]
fn two_revisions_are_built_and_their_checkouts_removed() {
    let _beside = beside();
    let place = repository();
    let options = format!("--target 'lib:{{}}/lock.so' --measure '{SHORT}'");
    let build = |build: &str, revisions: &str| {
        gate(&place, &format!("--build {build} {options} {revisions}"))
    };
    let gated = build("'sh build.sh'", "HEAD~1 HEAD");
    is_told(&gated);
    gated.comments("| lib:jostle-gate/");
    gated.comments("/base/lock.so -> lib:jostle-gate/");
    gated.comments("/new/lock.so");
    let left = || {
        let mut names = place.list("jostle-gate");
        names.sort();
        names
    };
    assert_eq!(left(), ["gate.html", "gate.jsonl", "gate.md"]);
    build("false", "HEAD~1 HEAD").exits(1, "gate: `false` failed at HEAD~1");
    build("true", "v9 HEAD").exits(2, "git has no revision v9");
    assert_eq!(left(), ["gate.html", "gate.jsonl", "gate.md"]);
    assert_eq!(worktrees(&place), 1);
}

/// A command without a server is never at the server's limit, on any machine.
#[test]
fn a_load_generator_is_judged_in_place_of_two_versions() {
    let place = Place::beside_others();
    let sample = root().join("tool/stats/src/printed/samples/wrk.txt");
    let sample = sample.display();
    let gated = gate(&place, &format!("--judge 'cat {sample}' --require server"));
    assert_ne!(gated.code, 0, "{}", gated.stderr);
    assert!(gated.stderr.contains("Transfer/sec"), "{}", gated.stderr);
    gated.comments("```text\njostle judge: sh -c");
    gated.comments("wrk printed: 50,029 requests/s");
    gated.comments("jostle-gate/judge.html");
    let heading = gated.comment.lines().next().unwrap();
    assert!(heading.starts_with("## jostle judge: "), "{heading}");
    assert_eq!(place.read("jostle-gate/judge.md"), gated.comment);
    assert!(place.file("jostle-gate/judge.jsonl").exists());
    assert_eq!(gate(&place, "--judge 'exit 7'").code, 1);
}

/// The step of action.yml, as GitHub runs it: inputs in the environment, those that are not
/// set empty.
#[test]
fn the_action_runs_the_gate_and_sets_its_outputs() {
    let _beside = beside();
    let place = locks();
    let action = fs::read_to_string(root().join("action.yml")).unwrap();
    let (head, step) = action.split_once("      run: >-\n").unwrap();
    let step = flat(step);
    let variables = head.split_once("      env:\n").unwrap().1.lines();
    let mut environment: Vec<(&str, &str)> = variables
        .map(|line| (line.trim().split(':').next().unwrap(), ""))
        .collect();
    assert!(environment.len() >= 14, "{head}");
    let root = root().display().to_string();
    let [output, summary] =
        ["output", "summary"].map(|name| place.file(name).display().to_string());
    environment.extend([
        ("BASE", "lib:./old.so"),
        ("NEW", "lib:./slower.so"),
        ("MEASURE", SHORT),
        ("GITHUB_ACTION_PATH", root.as_str()),
        ("GITHUB_OUTPUT", output.as_str()),
        ("GITHUB_STEP_SUMMARY", summary.as_str()),
    ]);
    fs::write(&output, "").unwrap();
    fs::write(&summary, "").unwrap();
    let gated = run(&place, &step, &environment);
    is_told(&gated);
    let heading = gated.comment.lines().next().unwrap();
    let finding = heading.trim_start_matches("## jostle: ");
    let outputs = format!(
        "finding={finding}\ncomment=jostle-gate/gate.md\npage=jostle-gate/gate.html\n\
         result=jostle-gate/gate.jsonl\n"
    );
    assert_eq!(place.read("output"), outputs);
    for name in ["finding", "comment", "page", "result"] {
        let value = format!("steps.gate.outputs.{name} }}}}");
        assert!(head.contains(&value), "{name}");
    }
    assert_eq!(place.read("summary"), place.read("jostle-gate/gate.md"));
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_lock_that_got_slower_fails_the_gate_and_one_that_got_quicker_does_not() {
        let _alone = alone();
        let place = locks();
        let compare = |pair: &str| compare(&place, "", pair);
        let slower = finds(4, "worse", || compare("lib:./old.so lib:./slower.so"));
        slower.comments("| worse |");
        slower.comments("beside `futex`, which did not change");
        let quicker = finds(0, "better", || compare("lib:./slower.so lib:./old.so"));
        quicker.comments("| better |");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn equal_locks_pass_the_gate() {
        let _alone = alone();
        let place = locks();
        finds(0, "same", || {
            compare(&place, ELSEWHERE, "lib:./old.so lib:./equal.so")
        });
    }
}
