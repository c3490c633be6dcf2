//! The clients that people have: redis-cli, redis-benchmark, redis-py of two
//! ages, hiredis; and our own package for Python and example in C.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Daemon, output, root, tool};

fn cli(daemon: &Daemon, args: &[&str]) -> String {
    output(
        tool("redis-cli")
            .args(["-p", &daemon.port.to_string()])
            .args(args),
    )
}

#[test]
fn redis_cli_takes_and_releases_a_lock() {
    let daemon = Daemon::start(&[]);
    assert_eq!(cli(&daemon, &["LOCK", "job", "TTL", "60000"]), "1\n");
    assert_eq!(cli(&daemon, &["TRYLOCK", "job"]), "\n");
    assert_eq!(
        cli(&daemon, &["-3", "HOLDER", "job"])
            .lines()
            .next()
            .unwrap(),
        "token 1"
    );
    assert_eq!(cli(&daemon, &["UNLOCK", "job", "1"]), "1\n");
    assert!(cli(&daemon, &["INFO"]).contains("grants:1\r\n"));
    // Its interactive mode asks for COMMAND DOCS.
    let mut command = tool("sh");
    let line = format!(
        "printf 'LOCK a\\nUNLOCK a\\n' | redis-cli -p {}",
        daemon.port
    );
    assert_eq!(output(command.args(["-c", &line])), "2\n1\n");
}

#[test]
fn redis_benchmark_runs() {
    let daemon = Daemon::start(&[]);
    let port = daemon.port.to_string();
    let text = output(tool("redis-benchmark").args(["-p", &port]).args([
        "-n",
        "20000",
        "-P",
        "16",
        "-c",
        "20",
        "-r",
        "1000",
        "--csv",
        "TRYLOCK",
        "key:__rand_int__",
        "TTL",
        "50",
    ]));
    assert!(text.contains("TRYLOCK"), "{text}");
    assert!(daemon.info("cmd_trylock") >= 20_000);
}

/// The Python of a version of redis-py.
fn python(version: &str) -> Command {
    let place = std::env::var_os("JOSTLE_REDIS_PY")
        .map_or_else(|| root().join("target/redis-py"), PathBuf::from);
    let python = place.join(version).join("bin/python");
    assert!(
        python.exists(),
        "redis-py {version} is not installed in {}: run jostled/server/tests/install-clients.sh",
        place.display()
    );
    Command::new(python)
}

#[test]
fn redis_py_pooled_threaded_and_pipelined_old_and_new() {
    let script = root().join("jostled/server/tests/redis_py.py");
    for version in ["4", "8"] {
        let daemon = Daemon::start(&[]);
        let text = output(python(version).arg(&script).arg(daemon.port.to_string()));
        assert_eq!(text, "ok\n", "redis-py {version}");
        daemon.await_info("holds", 0);
    }
}

/// The output of a test run of the Python package, and whether it passed.
fn python_tests(version: &str, module: &str) -> (bool, String) {
    let package = root().join("jostled/clients/python");
    let run = python(version)
        .args(["-W", "error::ResourceWarning", "-B", "-m", "unittest", "-v"])
        .arg(module)
        .current_dir(package.join("tests"))
        .env("PYTHONPATH", &package)
        .env("JOSTLED", crate::JOSTLED)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    (run.status.success(), text)
}

/// Some at a time: they wait for leases to end, and a machine with too much to do lets them
/// end too soon.
#[test]
fn the_python_package_keeps_its_promises_with_both() {
    let modules = [
        "test_threads",
        "test_aio",
        "test_many",
        "test_aio_many",
        "test_readme",
    ];
    let all = modules.map(|module| ["4", "8"].map(|version| (version, module)));
    for some in all.as_flattened().chunks(4) {
        let runs: Vec<_> = some
            .iter()
            .map(|&(version, module)| std::thread::spawn(move || python_tests(version, module)))
            .collect();
        for ((version, module), run) in some.iter().zip(runs) {
            let (passed, text) = run.join().unwrap();
            assert!(passed, "{module} with redis-py {version}:\n{text}");
            assert!(!text.contains("Ran 0 tests"), "{text}");
        }
    }
}

#[test]
fn the_c_example_works_with_hiredis() {
    let daemon = Daemon::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("lock");
    let flags = output(tool("pkg-config").args(["--cflags", "--libs", "hiredis"]));
    output(
        tool("cc")
            .args(["-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(root().join("jostled/clients/lock.c"))
            .args(flags.split_whitespace()),
    );
    let text = output(Command::new(program).args(["127.0.0.1", &daemon.port.to_string(), "job"]));
    assert_eq!(text, "holding job with token 1\nrenewed\nreleased\n");
}
