//! `lib:` by the whole binary: the examples of tool/own-locks/ are built and measured, and each
//! broken library is reported with its fault.

use crate::common::{
    Done, Place, beside, flat, in_some_try, must_have, path_with_jostle, reason, root, rows,
};
use jostle_model::record::{Run, Status};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a build, which must succeed.
fn build(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert!(!said.contains("warning"), "{command:?}: {said}");
}

/// Compiles a library of C, or C++, into the place.
fn compile(place: &Place, source: &Path, library: &str, defines: &[&str]) {
    let compiler = match source.extension().is_some_and(|it| it == "cpp") {
        true => "c++",
        false => "cc",
    };
    must_have(compiler, "gcc g++");
    let flags = "-O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -I".split(' ');
    build(
        Command::new(compiler)
            .args(flags)
            .arg(root().join("tool/own-locks"))
            .args(defines)
            .args([Path::new("-o"), &place.file(library), source]),
    );
}

/// A place with an example, `NAME.so`.
fn example(name: &str) -> Place {
    let place = Place::new();
    add_example(&place, name);
    place
}

fn add_example(place: &Place, name: &str) {
    let (name, kind) = name.split_once('.').unwrap_or((name, "c"));
    let source = root().join(format!("tool/own-locks/examples/{name}.{kind}"));
    compile(place, &source, &format!("{name}.so"), &[]);
}

/// A place with the broken one, `broken.so`.
fn broken(defines: &[&str]) -> Place {
    let place = Place::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/own_lib/broken.c");
    compile(&place, &source, "broken.so", defines);
    place
}

/// No check speaks against the lock, whatever the machine does beside.
#[track_caller]
fn is_sound(run: &Run) {
    for grave in ["exclusion", "lost_update", "deaths", "errors", "idle_lock"] {
        let found = reason(run, grave);
        // A waiter that got no CPU looks as if it had missed a wake-up.
        let is_bearable = |is| grave == "idle_lock" && is == Status::Suspect;
        let is_fine = found.is_none_or(|reason| is_bearable(reason.is));
        assert!(is_fine, "{}: {found:?}", run.target);
    }
}

/// Nothing speaks against any of the runs, and one of several times each grants its lock: a
/// machine may stand still for a whole window.
#[track_caller]
fn are_sound(mut measure: impl FnMut() -> Vec<Run>) {
    in_some_try("grants in each run", || {
        let runs = measure();
        runs.iter().for_each(is_sound);
        runs.iter().all(|run| run.operations > 0).then_some(())
    });
}

/// One run of a broken lock.
fn contend(place: &Place, fault: &str, options: &str) -> Done {
    let line = format!("contend lib:./broken.so?{fault} --runs 1 --format json {options}");
    place.jostle(&line).run_cleanly()
}

const SHORT: &str = "-w 4 -b 100us -t 0.1";

#[test]
fn the_examples_in_c_are_sound_with_processes_and_with_threads() {
    let place = Place::beside_others();
    let names = ["futex", "ticket", "mcs", "rwlock"];
    names.iter().for_each(|name| add_example(&place, name));
    let targets = names.map(|name| format!("lib:./{name}.so")).join(" ");
    let ways = ["", "--as threads", "--keys 3", "--try"].map(|way| format!("{SHORT} {way}"));
    let spinning = "-w 4 -b 0 -i 0 -t 0.1".to_owned();
    for options in ways.into_iter().chain([spinning]) {
        let line = format!("contend {targets} --runs 1 --format json {options}");
        are_sound(|| {
            let done = place.jostle(&line).run_cleanly().measures();
            let runs = done.runs();
            assert_eq!(runs.len(), names.len(), "{}", done.transcript());
            runs
        });
    }
}

#[test]
fn a_lock_of_ones_own_goes_through_every_workload() {
    let _beside = beside();
    let place = example("mcs");
    let lines = [
        ("stream", "-n 500 -w 3"),
        ("stream", "-n 500 -w 3 --names own --as threads"),
        ("hold", "--keys 300"),
        ("rate", "--rate 300 -t 1 -w 4"),
        ("spread", "--in-flight 4 --generators 2 -t 0.5"),
    ];
    for (verb, options) in lines {
        let line = format!("{verb} lib:./mcs.so {options} --runs 1 --format json");
        are_sound(|| {
            let done = place.jostle(&line).run_cleanly().measures();
            let runs = done.runs();
            assert!(!runs.is_empty(), "{}", done.transcript());
            runs
        });
    }
}

#[test]
fn arguments_reach_the_library_and_a_path_may_have_spaces() {
    let _beside = beside();
    let place = example("ticket");
    fs::rename(place.file("ticket.so"), place.file("my ticket.so")).unwrap();
    let with = |target: &str| {
        let line = format!("contend {SHORT} --runs 1 --format json");
        place.jostle(&line).word(target).run_cleanly()
    };
    are_sound(|| vec![with("lib:my ticket.so?spins=7").measures().only_run()]);
    with("lib:./my ticket.so?spins=many")
        .exits(1)
        .prints_nothing()
        .says("jostle_prepare failed with the arguments `spins=many`: Invalid argument");
}

#[test]
fn a_mutex_of_cpp_is_sound_with_threads_and_loses_wake_ups_between_processes() {
    let _beside = beside();
    let place = example("std_mutex.cpp");
    let line = "contend lib:./std_mutex.so -w 4 -b 1ms -i 1ms -t 2 --runs 1 --format json";
    let threads = format!("{line} --as threads");
    are_sound(|| place.jostle(&threads).run_cleanly().measures().runs());
    in_some_try("workers that are never woken", || {
        let point = place.jostle(line).run_cleanly().measures().only_run();
        let found = reason(&point, "idle_lock")?.clone();
        assert!(found.text.contains("workers waited"), "{found:?}");
        Some(())
    });
}

#[test]
#[ignore = "cargo xtask long"]
fn parking_lot_is_sound_with_threads_and_refuses_processes() {
    let place = Place::beside_others();
    let manifest = root().join("tool/own-locks/examples/rust/Cargo.toml");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("parking-lot-lock");
    build(
        Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--manifest-path",
            ])
            .arg(manifest)
            .arg("--target-dir")
            .arg(&folder),
    );
    let built = folder.join("release/libparking_lot_lock.so");
    fs::copy(built, place.file("parking_lot.so")).unwrap();
    let line = format!("contend lib:./parking_lot.so {SHORT} --runs 1 --format json");
    for options in ["", "--try", "--acquire-timeout 300us", "--keys 3"] {
        let threads = format!("{line} --as threads {options}");
        is_sound(&place.jostle(&threads).run_cleanly().measures().only_run());
    }
    let refused = place.jostle(&line).run_cleanly().exits(1);
    refused
        .says("jostle_join returned NULL")
        .says("not supported");
}

#[test]
#[ignore = "cargo xtask long"]
fn a_channel_of_go_is_sound_with_threads_and_excludes_no_process() {
    let _beside = beside();
    must_have("go", "golang-go");
    let place = Place::new();
    build(
        Command::new("go")
            .args(["build", "-buildmode=c-shared", "-o"])
            .arg(place.file("chanlock.so"))
            .current_dir(root().join("tool/own-locks/examples/go")),
    );
    let line = format!("contend lib:./chanlock.so {SHORT} --runs 1 --format json");
    for options in ["", "--try", "--acquire-timeout 300us"] {
        let threads = format!("{line} --as threads {options}");
        is_sound(&place.jostle(&threads).run_cleanly().measures().only_run());
    }
    let done = in_some_try("two owners at a time", || {
        let done = place.jostle(&line).run_cleanly();
        (done.code() == 3 && reason(&done.only_run(), "exclusion").is_some()).then_some(done)
    });
    assert_eq!(
        reason(&done.only_run(), "exclusion").unwrap().is,
        Status::Invalid
    );
}

#[test]
fn a_library_that_lets_two_in_once_in_a_thousand_times_is_caught() {
    let _beside = beside();
    let place = broken(&[]);
    let run = |fault: &str, window_s: u32| {
        let options = format!("-w 4 -b 200us -i 10us -t {window_s}");
        contend(&place, fault, &options).measures()
    };
    are_sound(|| run("", 2).runs());
    // On a machine with many busy tasks there are hardly a thousand grants in a second.
    let mut window_s = 2;
    in_some_try("an intruder", || {
        let done = run("lets-in", window_s);
        window_s *= 2;
        let found = reason(&done.only_run(), "exclusion")?.clone();
        assert_eq!((found.is, done.code()), (Status::Invalid, 3));
        Some(())
    });
}

#[test]
fn a_library_that_leaks_a_key_stands_still_and_is_caught() {
    let _beside = beside();
    let place = broken(&[]);
    // A window in which the machine stands still shows nothing.
    let found = in_some_try("a lock that nobody gets", || {
        let done = contend(&place, "leaks", "--keys 3 -w 4 -b 100us -t 2").measures();
        let found = reason(&done.only_run(), "idle_lock").cloned()?;
        (found.is == Status::Invalid).then_some(found)
    });
    assert!(
        found.text.contains("none of 4 workers was let in"),
        "{found:?}"
    );
    // With a number of operations the run has no end of its own.
    let line = "stream lib:./broken.so?leaks -n 1000 -w 2 --runs 1";
    let done = place.jostle(line).run_cleanly().exits(1);
    done.says("no worker got any further")
        .says("a wake-up lost");
}

#[test]
fn a_library_that_loses_wake_ups_is_caught() {
    let _beside = beside();
    let place = broken(&[]);
    let options = "-w 4 -b 1ms -i 1ms -t 2";
    are_sound(|| contend(&place, "", options).measures().runs());
    in_some_try("a wait for a free lock", || {
        let point = contend(&place, "loses", options).measures().only_run();
        reason(&point, "idle_lock").map(|_| ())
    });
}

#[test]
fn a_crash_is_named_by_signal_and_call() {
    let _beside = beside();
    let place = broken(&[]);
    let table = "
        dies-in-prepare => died in jostle_prepare: killed by SIGABRT
        dies-in-join => was lost before the start: killed by SIGSEGV";
    for [fault, says] in rows(table) {
        contend(&place, fault, SHORT).exits(1).says(says);
    }
    // What was measured until then is kept.
    let says = "died in jostle_finish: killed by SIGABRT";
    let done = contend(&place, "dies-in-finish", SHORT).exits(3);
    assert!(done.transcript().contains(says), "{}", done.transcript());
    // After 500 grants, which take a while on a busy machine; when all are dead, it ends.
    for (fault, how) in [
        ("dies-in-acquire", "killed by SIGSEGV"),
        ("exits-in-acquire", "exit code 0"),
    ] {
        let done = contend(&place, fault, "-w 4 -b 100us -t 5");
        let said = done.transcript();
        assert!(said.contains(how), "{said}");
        // Those that die early are all gone before the window opens.
        match done.code() {
            3 => {
                let point = done.only_run();
                let death = &reason(&point, "deaths").unwrap().text;
                let expected = format!("{how} inside jostle_acquire");
                assert!(death.contains(&expected), "{said}");
                for check in ["idle_lock", "unchecked"] {
                    assert_eq!(reason(&point, check), None, "{said}");
                }
            }
            code => assert_eq!(code, 1, "{said}"),
        }
    }
    let at_load = broken(&["-DDIES_AT_LOAD"]);
    let refused = contend(&at_load, "", SHORT).exits(2).prints_nothing();
    refused.says("died in loading it: killed by SIGILL");
}

#[test]
fn what_no_header_knows_is_named_with_its_function_and_its_value() {
    let _beside = beside();
    let place = broken(&[]);
    let table = [
        ("returns-7", "jostle_acquire: ", 7),
        ("refuses-for-ever", "jostle_acquire: ", 0),
        ("releases-9", "jostle_release: ", 9),
    ];
    for (fault, call, value) in table {
        let line = format!("contend lib:./broken.so?{fault} {SHORT} --runs 1");
        let done = place.jostle(&line).run_cleanly();
        let said = flat(&done.transcript());
        assert_ne!(done.code(), 0, "{said}");
        let value = format!("broken.so returned {value}");
        assert!(said.contains(call) && said.contains(&value), "{said}");
    }
    let refused = contend(&place, "prepares-7", SHORT).exits(1);
    refused.says("jostle_prepare returned 7, which is neither 0 nor a negative errno");
    let refused = contend(&place, "wants-all", SHORT).exits(1);
    refused.says("its jostle_shared_bytes asks for 18446744073709551615 bytes");
    let refused = contend(&place, "cannot-join", SHORT).exits(1);
    refused
        .says("its jostle_join returned NULL for worker")
        .says("No space left");
    add_example(&place, "ticket");
    for (options, what) in [
        ("--shared 0.5", "shared mode"),
        ("--acquire-timeout 1ms", "timeout"),
    ] {
        let line = format!("contend lib:./ticket.so {SHORT} --runs 1 --format json {options}");
        let done = place.jostle(&line).run_cleanly();
        let said = done.transcript();
        assert_ne!(done.code(), 0, "{said}");
        let says = format!("ticket.so has no {what} (-ENOTSUP)");
        assert!(said.contains(&says), "{said}");
    }
}

/// A minute of silence ended with "what the tool itself costs could not be measured".
#[test]
fn a_function_that_never_returns_or_dies_at_once_is_named_and_the_point_invalid() {
    let _beside = beside();
    let place = broken(&[]);
    let table = "
        hangs-in-acquire => errors => jostle_acquire did not return
        hangs-in-release => errors => jostle_release did not return
        hangs-in-leave => errors => jostle_leave did not return
        dies-in-release => deaths => killed by SIGSEGV inside jostle_release";
    for [fault, check, expected] in rows(table) {
        let done = contend(&place, fault, "-w 3 -b 100us -t 0.5").exits(3);
        let text = &reason(&done.only_run(), check).unwrap().text.clone();
        assert!(text.contains(expected), "{text}: {}", done.transcript());
    }
}

#[test]
fn a_library_that_hears_no_signal_is_ended() {
    let _beside = beside();
    let place = broken(&[]);
    let done = contend(&place, "deaf", "-w 3 -b 100us -t 1").exits(3);
    let run = done.only_run();
    assert!(
        run.around.errors["stuck_at_end"] > 0,
        "{:?}",
        run.around.errors
    );
}

/// Two seconds are for the waits: whoever has ended them may take longer to leave. The
/// library aborts if not all have left when it is finished.
#[test]
fn a_library_that_leaves_late_is_waited_for() {
    let _beside = beside();
    let place = broken(&[]);
    in_some_try("grants", || {
        let run = contend(&place, "leaves-late", SHORT).measures().only_run();
        assert!(run.around.errors.is_empty(), "{:?}", run.around.errors);
        (run.operations > 0).then_some(())
    });
}

/// It takes the ten seconds that a call may take.
#[test]
#[ignore = "cargo xtask long"]
fn a_library_that_stands_still_is_killed() {
    let _beside = beside();
    let done = contend(&broken(&[]), "hangs-in-prepare", SHORT).exits(1);
    done.ends_within_a_minute()
        .says("jostle_prepare did not return within 10 s; its process was killed");
}

#[test]
fn what_is_no_library_of_ours_is_a_usage_error_before_anything_starts() {
    let _beside = beside();
    let place = example("futex");
    fs::create_dir(place.file("folder.so")).unwrap();
    fs::write(place.file("text.so"), "not a library\n").unwrap();
    let mut other = fs::read(place.file("futex.so")).unwrap();
    // e_machine of elf(5); the order of bytes is this machine's.
    let foreign: u16 = if cfg!(target_arch = "aarch64") {
        62
    } else {
        183
    };
    other[18..20].copy_from_slice(&foreign.to_ne_bytes());
    fs::write(place.file("foreign.so"), &other).unwrap();
    let whole = fs::read(place.file("futex.so")).unwrap();
    fs::write(place.file("cut.so"), &whole[..200]).unwrap();
    let table = [
        ("lib", "it needs the path of a shared library"),
        ("lib:", "it needs the path of a shared library"),
        ("lib:./none.so", "there is no file "),
        ("lib:./folder.so", "is a directory"),
        ("lib:./text.so", "is no shared library (no ELF file)"),
        ("lib:./foreign.so", "compile it for this machine"),
        ("lib:./cut.so", "cannot read file data"),
        (
            "lib:/proc/self/exe",
            "cannot dynamically load position-independent executable",
        ),
    ];
    let refuses = |place: &Place, target: &str, says: &str| {
        let line = format!("contend {target} {SHORT} --runs 1 -o result.jsonl");
        let done = place.jostle(&line).run_cleanly().exits(2).prints_nothing();
        done.says(says).does_not_say("1 run, about");
        assert!(!place.file("result.jsonl").exists(), "{target}");
    };
    for (target, says) in table {
        refuses(&place, target, says);
    }
    let table = "
        -DWITHOUT_ACQUIRE => it has no function jostle_acquire
        -DABI=2 => its jostle_abi() is 2, and this jostle supports 1";
    for [define, says] in rows(table) {
        refuses(&broken(&[define]), "lib:./broken.so", says);
    }
}

#[test]
fn what_a_library_prints_does_not_get_into_the_result() {
    let _beside = beside();
    let place = broken(&["-DPRINTS"]);
    are_sound(|| {
        let done = contend(&place, "", SHORT).measures();
        done.says("the library speaks").runs()
    });
}

/// The walk of tool/docs/own-locks.md, command by command.
#[test]
#[ignore = "cargo xtask long"]
fn the_commands_of_the_page_run_as_they_stand() {
    let place = Place::beside_others();
    std::os::unix::fs::symlink(root().join("tool"), place.file("tool")).unwrap();
    let page = fs::read_to_string(root().join("tool/docs/own-locks.md")).unwrap();
    let section = page.split("\n## A shared library\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 3, "{section}");
    for block in blocks {
        for command in block.lines().filter(|line| !line.is_empty()) {
            let output = Command::new("sh")
                .args(["-c", command])
                .current_dir(place.path())
                .env("PATH", path_with_jostle())
                .env("CARGO_TARGET_DIR", place.file("target"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            // 3: a point is INVALID, as those of locks between processes that are for
            // threads, or on a machine that is busy elsewhere.
            assert!(
                [Some(0), Some(3)].contains(&output.status.code()),
                "{command}: {said}"
            );
        }
    }
}
