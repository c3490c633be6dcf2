//! The servers of lock services that targets are tested with: one of each for a whole
//! test program, on free ports of the loopback address, gone with it.

#![allow(
    clippy::unwrap_used,
    reason = "a test whose server does not start has failed"
)]

use crate::certificate::Certificate;
use crate::fake_consul::FakeConsul;
use crate::ports::free_port;
use crate::servers::{self, Placed, Running};
use crate::shell;
use jostle_lockd::{Config, Server};
use jostle_model::plan::{Carrier, Range};
use jostle_sys::ledger::Ledger;
use jostle_targets::answering::Answering;
use jostle_targets::program::{Ground, LaunchRecipe, Launched, first_word};
use jostle_targets::{Launcher, Setup, SetupError};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Launches servers as threads of the test.
#[derive(Debug)]
pub struct InProcess;

impl Launcher for InProcess {
    fn launch(&self, server: &str) -> Result<String, SetupError> {
        match server.split_once(':').map_or(server, |(name, _)| name) {
            "lockd" => Ok(jostled().0.clone()),
            "lockd+unix" => Ok(jostled().1.clone()),
            "echo" => Ok(answering().0.clone()),
            "echo+unix" => Ok(answering().1.clone()),
            other => Err(SetupError(format!("no {other} in these tests"))),
        }
    }

    /// One of each kind for all tests.
    fn follow(&self, recipe: &dyn LaunchRecipe) -> Result<Launched, SetupError> {
        static RUNNING: Mutex<BTreeMap<String, Launched>> = Mutex::new(BTreeMap::new());
        let mut running = RUNNING.lock().unwrap();
        let kind = format!("{} {recipe:?}", recipe.program().file);
        if !running.contains_key(&kind) {
            running.insert(kind.clone(), followed(recipe)?);
        }
        Ok(running[&kind].clone())
    }

    fn answering_program(&self) -> Vec<String> {
        let script = "while read -r verb rest; do case $verb in \
                      HELLO) echo READY shared timeout;; A) echo G;; U) echo K;; esac; done";
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }
}

/// Follows a recipe as the keeper does, to a server of the caller's own: one whose requests
/// a test counts, or whose users it changes.
///
/// # Errors
/// What the recipe cannot do here.
pub fn followed(recipe: &dyn LaunchRecipe) -> Result<Launched, SetupError> {
    let directory = tempfile::tempdir().unwrap().keep();
    let ground = Ground {
        program: recipe.program().find()?,
        directory: directory.clone(),
        cluster: Vec::new(),
        place: 0,
        port: free_port().unwrap(),
        secret: "secret-of-tests".to_owned(),
    };
    let files = recipe.files(&ground).into_iter();
    files.for_each(|(name, contents)| std::fs::write(directory.join(name), contents).unwrap());
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let user = recipe.instead_of_root().filter(|_| is_root);
    let place = directory.display();
    let (own, by) = match user {
        None => (String::new(), String::new()),
        Some(user) => (
            format!("chown -R {user} {place}; "),
            format!("setpriv --reuid={user} --regid={user} --clear-groups "),
        ),
    };
    let quoted = |words: Vec<String>| {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        format!("{by}{}", words.join(" "))
    };
    let before = recipe.before(&ground).into_iter();
    let before = before.map(|words| quoted(words) + " >>log 2>&1 && ");
    let before: String = before.collect();
    let server = [
        vec![first_word(recipe, &ground)?],
        recipe.arguments(&ground),
    ];
    // As below; the directory goes with the server.
    let script = format!(
        "cd {place}; export TMPDIR={place}; {own}{before}{{ {} >>log 2>&1 & }}; read -r never; kill -QUIT $!; \
         sleep 0.3; kill -KILL $!; rm -rf {place}",
        quoted(server.concat())
    );
    let child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while let Err(error) = recipe.ready(&ground) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{error}: {}",
            std::fs::read_to_string(directory.join("log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id();
    std::mem::forget(child);
    Ok(Launched {
        address: ground.address(),
        secret: ground.secret,
        pid,
    })
}

/// Where this test program keeps sockets and scripts; `cargo clean` removes it.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let own = std::process::id().to_string();
        let place = shell::target_directory().join("tmp").join(own);
        // An earlier program may have had this number. Where its socket still lies, no other
        // can be bound.
        match std::fs::remove_dir_all(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                panic!("{}: {error}", place.display())
            }
            _ => {}
        }
        std::fs::create_dir_all(&place).unwrap();
        place
    })
}

/// A setup with one lock for so many threads.
pub fn setup(ledger: &Ledger, workers: usize) -> Setup<'_> {
    Setup {
        argument: None,
        ledger,
        workers,
        keys: 1,
        carrier: Carrier::Threads,
        range: Range::Same,
        open_each: false,
        slots: 64,
        members: 1,
        wait_replicas: 0,
        holds_many: false,
        kept: false,
        stays: false,
        lease: None,
        common_name: None,
        credentials: None,
        shared: false,
        timed: false,
        seed: 7,
        launcher: &InProcess,
    }
}

/// The argument with which a target finds its server or library, where it needs one.
pub fn argument(target: &str) -> Option<&'static str> {
    match target {
        "redis" => Some(redis()),
        "consul" => Some(consul()),
        "pipe" => Some(python_lock()),
        "lib" => Some(library()),
        _ => None,
    }
}

/// The example of tool/own-locks/ that can do everything, compiled.
fn library() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let header = shell::root().join("tool/own-locks");
        let path = place().join("rwlock.so");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&path);
        cc.arg("-I").arg(&header);
        shell::quiet(cc.arg(header.join("examples/rwlock.c"))).unwrap();
        path.display().to_string()
    })
}

/// A jostled: its TCP address, and the path of its Unix socket.
fn jostled() -> &'static (String, String) {
    static PLACE: OnceLock<(String, String)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let path = place().join("jostled");
        let mut config = Config::embedded();
        config.unix = Some((path.clone(), 0o600));
        let mut server = Server::bind(config).unwrap();
        let address = server.addresses().next().unwrap().to_string();
        std::thread::spawn(move || {
            // Nobody ever writes to the other end: it runs as long as we do.
            let (stop, _never) = UnixStream::pair().unwrap();
            server.run(&stop).unwrap();
        });
        (address, path.display().to_string())
    })
}

/// A server that only answers, by its TCP address and by the path of its socket.
fn answering() -> &'static (String, String) {
    static PLACE: OnceLock<(String, String)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let path = place().join("echo");
        let (tcp, address) = Answering::bind().unwrap();
        let unix = Answering::bind_unix(&path).unwrap();
        for mut server in [tcp, unix] {
            std::thread::spawn(move || {
                let (stop, _never) = UnixStream::pair().unwrap();
                server.run(&stop).unwrap();
            });
        }
        (address.to_string(), path.display().to_string())
    })
}

/// A program that is a lock on a file in the test's own directory: one word, since
/// command lines of tests are split at white space.
fn python_lock() -> &'static str {
    // A lock of its own for each test: they run at the same time, each in its thread.
    thread_local!(static PROGRAM: OnceLock<&'static str> = const { OnceLock::new() });
    let make = || {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let program = place().join(format!("pipe-lock-{thread}"));
        let name = program.display().to_string();
        let root = shell::root();
        let python = format!(
            "python3 '{}/tool/own-locks/pipe/python/file_lock.py'",
            root.display()
        );
        let script = format!("#!/bin/sh\nexec {python} '{name}.lock'\n");
        shell::write_script(&program, &script).unwrap();
        name.leak() as &'static str
    };
    PROGRAM.with(|program| *program.get_or_init(make))
}

/// A Redis that keeps nothing on disk, as `//HOST:PORT`. Each test has one of its own, in
/// its thread: what others ask would be counted, and their keys seen.
fn redis() -> &'static str {
    thread_local!(static REDIS: OnceLock<(Running, &'static str)> = const { OnceLock::new() });
    REDIS.with(|redis| {
        let make = || {
            let redis = start_redis(|port| format!("--port {port}"));
            let address = format!("//{}", redis.address).leak() as &'static str;
            (redis, address)
        };
        redis.get_or_init(make).1
    })
}

/// A server that answers as Consul does, as `//HOST:PORT`; each test has its own.
fn consul() -> &'static str {
    thread_local!(static CONSUL: OnceLock<&'static str> = const { OnceLock::new() });
    let make = || {
        let fake = FakeConsul::start().unwrap();
        format!("//{}", fake.address).leak() as &'static str
    };
    CONSUL.with(|consul| *consul.get_or_init(make))
}

/// A Redis with a password, as `redis://HOST:PORT`, and a jostled of that kind.
pub fn guarded(password: &str) -> [String; 2] {
    let mut server = Server::bind(Config {
        users: jostle_lockd::users::Users::single(Some(password)),
        ..Config::embedded()
    })
    .unwrap();
    let address = server.addresses().next().unwrap();
    std::thread::spawn(move || {
        let (stop, _never) = UnixStream::pair().unwrap();
        server.run(&stop).unwrap();
    });
    let redis = start_redis(|port| format!("--port {port} --requirepass {password}"));
    let redis_address = format!("redis://{}", redis.address);
    // Its shell ends it when we end.
    std::mem::forget(redis);
    [redis_address, format!("lockd://{address}")]
}

/// A Redis that speaks over TLS alone, with this certificate, as `rediss://HOST:PORT` with
/// that as authority.
pub fn redis_with_tls(own: &Certificate) -> String {
    let Certificate { certificate, key } = own;
    let (certificate, key) = (certificate.display(), key.display());
    let redis = start_redis(|port| {
        format!(
            "--port 0 --tls-port {port} --tls-auth-clients no --tls-cert-file {certificate} \
             --tls-key-file {key} --tls-ca-cert-file {certificate}"
        )
    });
    let target = format!("rediss://{}?ca={certificate}", redis.address);
    // Its shell ends it when we end.
    std::mem::forget(redis);
    target
}

/// A Redis that keeps nothing on disk, with options by its port.
fn start_redis(options: impl FnOnce(u16) -> String) -> Running {
    servers::launch(
        servers::Server::Redis,
        Placed::default(),
        |address, place| {
            let (place, options) = (place.display(), options(address.port()));
            let line = format!(
                "redis-server --bind 127.0.0.1 --save --appendonly no --dir {place} {options}"
            );
            Ok(line.split(' ').map(str::to_owned).collect())
        },
    )
    .unwrap()
}
