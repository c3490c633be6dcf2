//! Lock services over TLS: each on the server of its own package, with a certificate made
//! here. Two workers contend, and what goes wrong is told.

use jostle_lockd::config::TlsConfig;
use jostle_lockd::{Config, Server};
use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::program::{Ground, LaunchRecipe, Launched, Program, Words};
use jostle_targets::{
    Launcher, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, consul, etcd, lockd, mariadb,
    memcached, nats, postgres, postgres_try, redis, redisson, zookeeper,
};
use jostle_testbed::certificate::Certificate;
use jostle_testbed::etcd::current_passes;
use jostle_testbed::fake_consul::FakeConsul;
use jostle_testbed::lock_servers as servers;
use jostle_testbed::ports::free_port;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tempfile::TempDir;

/// Pairs of each of the two workers.
const PAIRS: usize = 10;

/// A directory with a certificate for these names.
fn certified(names: &str) -> (TempDir, Certificate) {
    let place = tempfile::tempdir().unwrap();
    let own = Certificate::make(place.path(), names).unwrap();
    (place, own)
}

fn loopback() -> (TempDir, Certificate) {
    certified("IP:127.0.0.1")
}

/// Two workers contend for one lock, as the keeper would have them.
fn contend<T: Target>(argument: &str, secret: &str) -> Result<(), SetupError> {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let credentials = Some(file.as_path()).filter(|_| !secret.is_empty());
    (T::ENTRY.check_argument)(Some(argument)).map_err(SetupError)?;
    (T::ENTRY.reach)(argument, credentials)?;
    let setup = Setup {
        argument: Some(argument),
        credentials,
        ..servers::setup(&ledger, 2)
    };
    let target = T::prepare(&setup)?;
    let (inside, met) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = &|worker: usize| {
        let mut lock = target.join(worker)?;
        let said = |error: jostle_targets::CallError| SetupError(error.to_string());
        for _ in 0..PAIRS {
            let wait = Wait::Block {
                last_resort_ns: monotonic() + 30_000_000_000,
            };
            let granted = lock.acquire(0, Mode::Exclusive, wait).map_err(said)?;
            assert_eq!(granted, Outcome::Granted);
            met.fetch_add(inside.fetch_add(1, SeqCst), SeqCst);
            std::thread::yield_now();
            inside.fetch_sub(1, SeqCst);
            lock.release(0, Mode::Exclusive).map_err(said)?;
        }
        assert!(lock.traffic().unwrap().round_trips >= 2 * PAIRS as u64);
        lock.part().map_err(said)
    };
    std::thread::scope(|scope| {
        // The stack of a worker that is a thread of a real run.
        let stack = || std::thread::Builder::new().stack_size(T::THREAD_STACK);
        let workers = [0, 1].map(|worker| stack().spawn_scoped(scope, move || work(worker)));
        workers
            .map(|worker| worker.unwrap().join().unwrap())
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
    })?;
    assert_eq!(met.into_inner(), 0, "two owners at the same time");
    target.remove_leftovers()?;
    ledger.sweep().unwrap();
    Ok(())
}

/// Names and contents.
type Files = Vec<(&'static str, String)>;

/// A recipe of a target's own, with TLS added to it.
struct Added<'a> {
    plain: &'a dyn LaunchRecipe,
    /// Where TLS is spoken, where it has a port of its own.
    port: u16,
    own: &'a Certificate,
    arguments: fn(&Added<'_>, Words, &Ground) -> Words,
    files: fn(&Added<'_>, Files, &Ground) -> Files,
    ready: fn(&Added<'_>, &Ground) -> Result<(), SetupError>,
}

/// Each is another server.
impl std::fmt::Debug for Added<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with TLS on {}", self.plain, self.port)
    }
}

impl<'a> Added<'a> {
    fn new(
        plain: &'a dyn LaunchRecipe,
        own: &'a Certificate,
        arguments: fn(&Added<'_>, Words, &Ground) -> Words,
    ) -> Added<'a> {
        Added {
            plain,
            port: free_port().unwrap(),
            own,
            arguments,
            files: |_, files, _| files,
            ready: |added, ground| added.plain.ready(ground),
        }
    }

    /// Its address, that of TLS with our certificate as authority, and the password.
    fn launch(&self) -> (Launched, String) {
        let launched = servers::InProcess.follow(self).unwrap();
        let argument = format!("//127.0.0.1:{}?{}", self.port, trusting(self.own));
        (launched, argument)
    }
}

impl LaunchRecipe for Added<'_> {
    fn program(&self) -> &'static Program {
        self.plain.program()
    }

    fn runs_in(&self) -> Option<&'static Program> {
        self.plain.runs_in()
    }

    fn instead_of_root(&self) -> Option<&'static str> {
        self.plain.instead_of_root()
    }

    fn files(&self, ground: &Ground) -> Files {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let [certificate, key] = [&self.own.certificate, &self.own.key].map(|path| read(path));
        let mut files = (self.files)(self, self.plain.files(ground), ground);
        files.push(("both.pem", format!("{key}{certificate}")));
        files.push(("certificate.pem", certificate));
        files.push(("key.pem", key));
        files
    }

    fn before(&self, ground: &Ground) -> Vec<Words> {
        let mut before = self.plain.before(ground);
        let key = ground.directory.join("key.pem").display().to_string();
        // PostgreSQL takes no key that others may read.
        before.push(["/bin/chmod", "600", &key].map(str::to_owned).to_vec());
        before
    }

    fn arguments(&self, ground: &Ground) -> Words {
        (self.arguments)(self, self.plain.arguments(ground), ground)
    }

    fn ready(&self, ground: &Ground) -> Result<(), SetupError> {
        (self.ready)(self, ground)
    }

    fn quits(&self) -> bool {
        self.plain.quits()
    }
}

/// The authority, as an address names it.
fn trusting(own: &Certificate) -> String {
    format!("ca={}", own.certificate.display())
}

/// A file of the server's directory.
fn beside(ground: &Ground, name: &str) -> String {
    ground.directory.join(name).display().to_string()
}

/// A jostled that speaks plainly and over TLS: both addresses.
fn jostled(own: &Certificate) -> [SocketAddr; 2] {
    let mut server = Server::bind(Config {
        tls: Some(TlsConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            cert: own.certificate.clone(),
            key: own.key.clone(),
            ca: None,
        }),
        ..Config::embedded()
    })
    .unwrap();
    let addresses: Vec<SocketAddr> = server.addresses().collect();
    std::thread::spawn(move || {
        // Nobody ever writes to the other end: it runs as long as we do.
        let (stop, _never) = UnixStream::pair().unwrap();
        server.run(&stop).unwrap();
    });
    addresses.try_into().unwrap()
}

#[test]
fn lockd_over_tls() {
    let (_place, own) = loopback();
    let [_, tls] = jostled(&own);
    let argument = format!("//{tls}?{}", trusting(&own));
    assert_eq!(contend::<lockd::Lockd>(&argument, ""), Ok(()));
}

#[test]
fn redis_and_redisson_over_tls_with_a_certificate_of_ours() {
    let (_place, own) = loopback();
    let plain = redis::Launch::alone(100);
    let added = Added::new(&plain, &own, |added, mut words, ground| {
        let more = format!(
            "--tls-port {} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} \
             --tls-auth-clients yes",
            added.port,
            beside(ground, "certificate.pem"),
            beside(ground, "key.pem"),
            beside(ground, "certificate.pem"),
        );
        words.extend(more.split(' ').map(str::to_owned));
        words
    });
    let (launched, argument) = added.launch();
    let secret = format!("\n{}", launched.secret);
    let none = contend::<redis::Redis>(&argument, &secret).unwrap_err().0;
    assert!(none.contains("the server refuses"), "{none}");
    let (certificate, key) = (own.certificate.display(), own.key.display());
    let argument = format!("{argument}&cert={certificate}&key={key}");
    let scheme = argument.replace("//", "rediss://");
    assert_eq!(contend::<redis::Redis>(&argument, &secret), Ok(()));
    assert_eq!(contend::<redisson::Redisson>(&scheme, &secret), Ok(()));
}

fn of_postgres(own: &Certificate, place: &str, secret: &str) -> String {
    let authority = own.certificate.display();
    format!("//jostle:{secret}@{place}/postgres?sslmode=verify-full&sslrootcert={authority}")
}

fn of_mariadb(own: &Certificate, place: &str, secret: &str) -> String {
    let authority = own.certificate.display();
    format!("//jostle:{secret}@{place}?ssl-mode=VERIFY_IDENTITY&ssl-ca={authority}")
}

#[test]
fn postgres_over_tls() {
    let (_place, own) = loopback();
    let plain = postgres::Launch {
        connections: 20,
        locks_each: 64,
    };
    let mut added = Added::new(&plain, &own, |_, mut words, ground| {
        let settings = [
            "ssl=on".to_owned(),
            format!("hba_file={}", beside(ground, "hba.conf")),
            format!("ssl_cert_file={}", beside(ground, "certificate.pem")),
            format!("ssl_key_file={}", beside(ground, "key.pem")),
        ];
        words.extend(settings.into_iter().flat_map(|one| ["-c".to_owned(), one]));
        words
    });
    // It lets nobody in without TLS.
    added.files = |_, mut files, _| {
        files.push((
            "hba.conf",
            "hostssl all all 127.0.0.1/32 password\n".to_owned(),
        ));
        files
    };
    added.ready = |added, ground| {
        let argument = of_postgres(added.own, &ground.address(), &ground.secret);
        (postgres::Postgres::ENTRY.reach)(&argument, None)
    };
    let (launched, _) = added.launch();
    let argument = of_postgres(&own, &launched.address, &launched.secret);
    assert_eq!(contend::<postgres::Postgres>(&argument, ""), Ok(()));
    assert_eq!(contend::<postgres_try::PostgresTry>(&argument, ""), Ok(()));
}

#[test]
fn mariadb_over_tls() {
    let (_place, own) = loopback();
    let plain = mariadb::Launch { connections: 20 };
    let mut added = Added::new(&plain, &own, |_, mut words, ground| {
        words.push(format!("--ssl-cert={}", beside(ground, "certificate.pem")));
        words.push(format!("--ssl-key={}", beside(ground, "key.pem")));
        // It lets nobody in without TLS.
        words.push("--require-secure-transport=ON".to_owned());
        words
    });
    added.ready = |added, ground| {
        let argument = of_mariadb(added.own, &ground.address(), &ground.secret);
        (mariadb::Mariadb::ENTRY.reach)(&argument, None)
    };
    let (launched, _) = added.launch();
    let argument = of_mariadb(&own, &launched.address, &launched.secret);
    assert_eq!(contend::<mariadb::Mariadb>(&argument, ""), Ok(()));
}

#[test]
fn memcached_over_tls() {
    let (_place, own) = loopback();
    let plain = memcached::Launch {
        connections: 100,
        mebibytes: 64,
    };
    let added = Added::new(&plain, &own, |added, mut words, ground| {
        words.retain(|word| !word.starts_with("--listen"));
        words.push(format!("--listen=notls:127.0.0.1:{}", ground.port));
        words.push(format!("--listen=127.0.0.1:{}", added.port));
        words.push("--enable-ssl".to_owned());
        let files = ["certificate.pem", "key.pem"].map(|name| beside(ground, name));
        words.push(format!(
            "--extended=ssl_chain_cert={},ssl_key={}",
            files[0], files[1]
        ));
        words
    });
    let (launched, argument) = added.launch();
    let credentials = format!("jostle\n{}", launched.secret);
    let contended = contend::<memcached::Memcached>(&argument, &credentials);
    assert_eq!(contended, Ok(()));
}

/// NATS speaks first, and begins TLS after that.
#[test]
fn nats_over_tls() {
    let (_place, own) = loopback();
    let plain = nats::Launch { connections: 100 };
    let mut added = Added::new(&plain, &own, |_, words, _| words);
    added.files = |_, mut files, ground| {
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| beside(ground, name));
        files[0].1 += &format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n");
        files
    };
    added.ready = |added, ground| {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("credentials");
        std::fs::write(&file, format!("jostle\n{}\n", ground.secret)).unwrap();
        let argument = format!(
            "//{}?ca={}",
            ground.address(),
            added.own.certificate.display()
        );
        (nats::Nats::ENTRY.reach)(&argument, Some(&file))
    };
    let (launched, _) = added.launch();
    let credentials = format!("jostle\n{}", launched.secret);
    let ca = own.certificate.display();
    let argument = format!("//{}?ca={ca}", launched.address);
    assert_eq!(contend::<nats::Nats>(&argument, &credentials), Ok(()));
    for (argument, says) in [
        (format!("//{}", launched.address), "write ?tls behind"),
        (
            format!("//{}?tls", launched.address),
            "not signed by a trusted authority",
        ),
    ] {
        let said = contend::<nats::Nats>(&argument, &credentials)
            .unwrap_err()
            .0;
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn etcd_over_tls() {
    let (_place, own) = loopback();
    let plain = etcd::Launch::members(1).unwrap().remove(0);
    let added = Added::new(&plain, &own, |added, mut words, ground| {
        for word in &mut words {
            if word.starts_with("--listen-client-urls") {
                word.push_str(&format!(",https://127.0.0.1:{}", added.port));
            }
        }
        words.push(format!("--cert-file={}", beside(ground, "certificate.pem")));
        words.push(format!("--key-file={}", beside(ground, "key.pem")));
        words
    });
    let (launched, argument) = added.launch();
    let argument = format!("https:{argument}");
    assert_eq!(contend::<etcd::Etcd>(&argument, ""), Ok(()));
    // Plainly to the one, and over TLS to the other.
    let plainly = format!("//127.0.0.1:{}", added.port);
    let said = contend::<etcd::Etcd>(&plainly, "").unwrap_err().0;
    assert!(said.contains("https://"), "{said}");
    let wrongly = format!("//{}?{}", launched.address, trusting(&own));
    let said = contend::<etcd::Etcd>(&wrongly, "").unwrap_err().0;
    assert!(said.contains("does the server speak TLS"), "{said}");
}

#[test]
#[ignore = "cargo xtask long"]
fn a_current_etcd_passes_the_same() {
    current_passes(&["tls::etcd_over_tls"]);
}

#[test]
#[ignore = "cargo xtask long"]
fn zookeeper_over_tls() {
    let (_place, own) = loopback();
    let plain = zookeeper::Launch::members(1, Duration::from_secs(4))
        .unwrap()
        .remove(0);
    let mut added = Added::new(&plain, &own, |_, mut words, _| {
        // Its TLS needs Netty. Not all of the directory: some loggers refuse each other.
        for part in [
            "buffer",
            "codec",
            "common",
            "handler",
            "resolver",
            "transport",
            "transport-native-epoll",
            "transport-native-unix-common",
        ] {
            words[2].push_str(&format!(":/usr/share/java/netty-{part}.jar"));
        }
        words
    });
    added.files = |added, mut files, ground| {
        let both = beside(ground, "both.pem");
        let settings = files.iter_mut().find(|(name, _)| *name == "zoo.cfg");
        settings.unwrap().1.push_str(&format!(
            "\nsecureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={both}\nssl.keyStore.type=PEM\nssl.clientAuth=none\n",
            added.port
        ));
        files
    };
    let (_, argument) = added.launch();
    assert_eq!(contend::<zookeeper::Zookeeper>(&argument, ""), Ok(()));
}

#[test]
fn consul_over_tls() {
    let (_place, own) = loopback();
    let fake = FakeConsul::with_tls(&own).unwrap();
    let argument = format!("https://{}?{}", fake.address, trusting(&own));
    assert_eq!(contend::<consul::Consul>(&argument, ""), Ok(()));
    let (_other_place, other) = loopback();
    let argument = format!("https://{}?{}", fake.address, trusting(&other));
    let said = contend::<consul::Consul>(&argument, "").unwrap_err().0;
    assert!(said.contains("name the authority's file"), "{said}");
}

/// A server that says this as soon as it has accepted, and no more.
fn speaks_first(word: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            // A client that has gone again needs no word.
            let _ = stream.write_all(word);
            kept.push(stream);
        }
    });
    address
}

#[test]
fn databases_without_tls_are_told() {
    let (_place, own) = loopback();
    let address = |server: SocketAddr| format!("//{server}?{}", trusting(&own));
    let said = contend::<postgres::Postgres>(&address(speaks_first(b"N")), "").unwrap_err();
    assert!(said.0.contains("`ssl = off`"), "{said}");
    // A greeting whose capabilities lack it.
    let greeting = b"\x4c\0\0\0\x0a5.5.5-10.11.19-MariaDB\0\x07\0\0\0abcdefgh\0\x02\x82\x2d\x02\0\
                     \0\0\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0nothing\0";
    let said = contend::<mariadb::Mariadb>(&address(speaks_first(greeting)), "").unwrap_err();
    assert!(said.0.contains("`@@have_ssl`"), "{said}");
}

#[test]
fn what_is_wrong_with_a_server_or_its_address_is_told() {
    let (_place, own) = loopback();
    let (_other_place, other) = loopback();
    let (_elsewhere_place, elsewhere) = certified("DNS:elsewhere.example");
    let [plain, tls] = jostled(&own);
    let [_, misnamed] = jostled(&elsewhere);
    let leaves = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = leaves.local_addr().unwrap();
    std::thread::spawn(move || leaves.incoming().for_each(drop));
    for (argument, part) in [
        (
            format!("//{tls}?{}", trusting(&other)),
            "name the authority's file",
        ),
        (
            format!("//{misnamed}?{}", trusting(&elsewhere)),
            "name the server as its certificate does",
        ),
        (
            format!("//{plain}?{}", trusting(&own)),
            "does the server speak TLS on this port?",
        ),
        (
            format!("//{gone}?{}", trusting(&own)),
            "does the server speak TLS on this port?",
        ),
        (format!("//{tls}"), "the server speaks TLS; write ?tls"),
        (
            format!("//{tls}?ca=/nowhere.pem"),
            "cannot read /nowhere.pem",
        ),
        (format!("//{tls}?tsl"), "`tsl`"),
    ] {
        let said = contend::<lockd::Lockd>(&argument, "").unwrap_err().0;
        assert!(said.contains(part), "{argument}: {said}");
    }
}
