//! The Debian packages that tests and tasks need beside the Rust toolchain: one
//! list, and what to do about those that are missing.

#![allow(
    clippy::print_stdout,
    reason = "developers read what is installed on their machine"
)]

use crate::shell;
use anyhow::{bail, ensure};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A package, a program in `PATH` or a file by its whole path that comes with it, and what it is
/// for.
type Package = (&'static str, &'static str, &'static str);

/// Everything that tests need: a line for each [`Package`]. A new line needs a reason.
const TESTS: &str = "\
gcc cc links Rust programs, and compiles tests and examples in C
libc6-dev /usr/include/stdio.h headers for those C programs
g++ c++ compiles libFuzzer, which is C++, and the lock in C++ of tool/own-locks/
golang-go go builds the locks in Go of tool/own-locks/
git git tests of tool/ci-gate/ compare two revisions of a repository
util-linux prlimit tests lower limits with prlimit, look for semaphores with ipcs, pin servers with taskset, and witness commands with flock
bsdutils script gives jostle-lock a terminal in its tests
make make runs a recipe of jostled/docs/lock.md
iproute2 ip tests make network namespaces for connections, and cut the link of jostled's clients
openmpi-bin mpirun starts the ranks of world `mpi` across the hosts of `cargo xtask hosts`
libopenmpi-dev mpicc the library that jostle is linked with for world `mpi`
libclang-dev /usr/share/doc/libclang-dev/copyright the crate `mpi` reads MPI's headers with it
openssh-server sshd mpirun reaches the hosts of `cargo xtask hosts` over ssh, and `jostle judge` a server's
openssh-client ssh the other side of it, and its keys
gnuplot-nox gnuplot a test plots jostle's output with a script written for lockscale
chromium chromium a test opens the pages of `--html` in it
prometheus prometheus a test has it scrape `--metrics` and answer the queries of tool/grafana/jostle.json
librsvg2-bin rsvg-convert `report --figures` makes PNG files with it
man-db man the manual page is rendered to find mistakes in it
redis-server redis-server the peer that the target `redis` is tested on, and jostled measured beside
redis-tools redis-cli tests and `validate judge` run redis-cli and redis-benchmark
wrk wrk a load generator with threads that tests of `jostle judge` run against nginx
nftables nft tests of `jostle judge` translate addresses between network namespaces, and `validate situations` has firewalls
socat socat a forwarder between them, and a proxy of `validate judge-cases`
apache2-utils ab a load generator with a connection for each request, for the same tests
postgresql /usr/share/doc/postgresql/copyright the server that the targets `postgres` and `postgres-try` launch
pgbouncer pgbouncer the pooler before which `jostle who` must not name a session, and a proxy of `validate judge-cases`
mariadb-server mariadbd the server that the target `mariadb` launches
mariadb-client mariadb-slap a load generator with a thread for each connection, for the tests of `jostle judge`
etcd-server etcd the server that the target `etcd` launches
etcd-client etcdctl what makes users of an etcd, for the tests of jostled's groups
zookeeper /usr/share/java/zookeeper.jar the server that the target `zookeeper` launches, in Java
memcached memcached the server that the target `memcached` launches
nats-server nats-server the server that the target `nats` launches
nginx-light nginx the web server beside which `cargo xtask validate` plants neighbours
slapd slapd the directory server that the target `ldap` is tested and measured on
ldap-utils ldapsearch tests search with ldapsearch beside jostle
libhiredis-dev /usr/include/hiredis/hiredis.h a test runs a C client written with hiredis against jostled
pkg-config pkg-config finds hiredis for that client
strace strace a test lets a sync of jostled's log fail with it
curl curl tests call the procedures of procd with it
openssl openssl makes certificates for the tests of TLS
python3-venv /usr/share/doc/python3-venv/copyright keeps two versions of redis-py apart for the tests of jostled, and has pandas and DuckDB for the examples of tool/docs/data.md
python3-kazoo /usr/lib/python3/dist-packages/kazoo/client.py observes ZooKeeper's locks in `cargo xtask validate recover`
python3-psycopg2 /usr/lib/python3/dist-packages/psycopg2/__init__.py observes PostgreSQL's locks in `cargo xtask validate recover`
r-base-core Rscript runs the example in R of tool/docs/data.md
gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc links jostle-call for AArch64; its strip and libraries are used, too
libc6-dev-arm64-cross /usr/aarch64-linux-gnu/lib/libc.a that compiler asks for it, even where nothing of it is taken
qemu-user qemu-aarch64 runs programs for AArch64, such as jostle-call with its tests
python3-wheel /usr/lib/python3/dist-packages/wheel/__main__.py packs the wheel, and compares its files with their sums
";

/// The packages that `cargo xtask long` needs beside them.
pub const LIBRARIES: &str = "\
python3-pandas /usr/share/doc/python3-pandas/copyright reads a table of tool/docs/questions.md
npm npm fetches the lock for Node.js that `pipe` is tested with
maven mvn builds the locks in Java that `pipe` is tested with
default-jdk-headless javac compiles and runs them
";

/// The packages that `cargo xtask screens`, `peers --clients`, `validate judge-cases`, `validate
/// situations` and `validate ha` need beside all of these.
const REFERENCE: &str = "\
webp cwebp makes the pictures of `cargo xtask screens` small
libmemcached-dev /usr/include/libmemcached/memcached.h the client that the target `memcached` is compared with
libmariadb-dev /usr/include/mariadb/mysql.h the client that the target `mariadb` is compared with
hey hey a load generator in Go that `validate judge-cases` runs
sysbench sysbench one for databases, in C and Lua, for the same
siege siege one in C with threads, which opens a connection for each request
nghttp2-client h2load h2load, one in C with epoll
libmemcached-tools memcslap memcslap, one for memcached
haproxy haproxy a server and proxy of those cases
lighttpd lighttpd a server of those cases
php-cli php a server of one worker for those cases
ruby ruby a generator and a server whose threads need one lock, for those cases
php8.2-curl /usr/lib/php/20220829/curl.so a generator by curl's multi interface, for those cases
libwww-perl /usr/share/perl5/LWP.pm one by LWP, for the same
httperf httperf one that keeps a pace by spinning, for the same
libapache2-mod-php8.2 /usr/lib/apache2/modules/libphp8.2.so Apache, a server of those cases, and what its prefork serves
caddy caddy a server and proxy in Go, for those cases
h2o h2o a server of HTTP/2, for those cases
mini-httpd mini_httpd a server with a process for each request, for those cases
puma puma a server of Ruby with a pool of threads, for those cases
starman starman one of Perl with a pool of processes
ruby-webrick /usr/share/doc/ruby-webrick/copyright a server that writes header and body apart, for those cases
beanstalkd beanstalkd a queue that is a server of those cases
varnish varnishd a proxy of those cases
squid squid a proxy of those cases
stunnel4 stunnel4 a server whose CPU goes to TLS, for those cases
gdb gdb a debugger that holds a server, for `validate situations`
podman podman the containers of the cases
crun crun runs them
netavark /usr/lib/podman/netavark publishes their ports
iptables iptables the rules by which it does
iperf3 iperf3 a generator and server of bulk transfers, for the cases
dnsperf dnsperf a generator of questions by TCP or UDP, for the cases
unbound unbound the server that answers them
uwsgi-core uwsgi a server with a pool of processes, for the cases
uwsgi-plugin-python3 /usr/lib/uwsgi/plugins/python3_plugin.so the application that it serves
nutcracker nutcracker a proxy before Redis, for the cases
nghttp2-proxy nghttpx a proxy of HTTP/2, for the cases
pen pen a balancer of TCP connections, for the cases
";

/// The packages that `cargo xtask dist` needs beside those of tests.
pub const DIST: &str = "\
ca-certificates /etc/ssl/certs/ca-certificates.crt the authorities that the image brings
mmdebstrap mmdebstrap makes the clean root in which packages are installed
skopeo skopeo reads the image and compares its digests
umoci umoci unpacks the image
";

/// The work to do with packages.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    /// All are there.
    Nothing,
    /// Install these.
    Install(Vec<&'static str>),
    /// Tell the user to install these.
    Ask(Vec<&'static str>),
}

/// Makes sure that we are root and that all packages are there, and says what it did. What
/// is missing is told at once, before anything is compiled.
///
/// # Errors
/// What is missing, where it cannot be installed; or that we are not root.
pub fn ensure_all() -> anyhow::Result<()> {
    let packages = ensure_beside("");
    if !is_root() {
        let missing = packages.err().map(|error| format!("{error}\n"));
        bail!(
            "{}become root: tests make namespaces, control groups and users. \
             `cargo xtask test` runs those that need neither root nor packages",
            missing.unwrap_or_default()
        );
    }
    packages?;
    println!("all {} packages are installed", TESTS.lines().count());
    Ok(())
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Makes sure that the packages of tests are there, and those of this list.
///
/// # Errors
/// What is missing, where it cannot be installed.
pub fn ensure_beside(list: &'static str) -> anyhow::Result<()> {
    install(&packages(TESTS).chain(packages(list)).collect::<Vec<_>>())
}

/// Makes sure that these packages of the lists are there; silent if they are.
pub fn ensure(names: &[&str]) -> anyhow::Result<()> {
    let all = || [TESTS, LIBRARIES, REFERENCE].into_iter().flat_map(packages);
    let is_listed = |name: &&&str| all().any(|(listed, ..)| listed == **name);
    if let Some(name) = names.iter().find(|name| !is_listed(name)) {
        bail!("the package {name} is in no list");
    }
    install(
        &all()
            .filter(|one| names.contains(&one.0))
            .collect::<Vec<_>>(),
    )
}

/// The lines of a list.
fn packages(list: &'static str) -> impl Iterator<Item = Package> {
    list.lines().map(|line| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (brings, why) = rest.split_once(' ').unwrap_or((rest, ""));
        (name, brings, why)
    })
}

fn install(packages: &[Package]) -> anyhow::Result<()> {
    let missing = || -> Vec<&'static str> {
        let missing = packages.iter().filter(|(_, brings, _)| !present(brings));
        missing.map(|(name, ..)| *name).collect()
    };
    match action(missing(), is_root(), present("apt-get")) {
        Action::Nothing => Ok(()),
        Action::Install(names) => {
            let listed = names.join(" ");
            println!("installing {listed}");
            let apt = |arguments: &str| {
                let mut apt = Command::new("apt-get");
                // Packages of servers start them; tests start their own.
                apt.env("DEBIAN_FRONTEND", "noninteractive")
                    .env("RUNLEVEL", "1")
                    .args(arguments.split(' '));
                shell::run(&mut apt)
            };
            apt("update -qq")?;
            apt(&format!("install -qq -y --no-install-recommends {listed}"))?;
            ensure!(
                missing().is_empty(),
                "apt-get installed {listed}, yet something is missing"
            );
            Ok(())
        }
        Action::Ask(names) => {
            let asked = packages.iter().filter(|(name, ..)| names.contains(name));
            asked.for_each(|(name, _, why)| println!("missing: {name} ({why})"));
            bail!(
                "install what is missing: `sudo apt-get install {}`",
                names.join(" ")
            );
        }
    }
}

/// Installs only as root and where apt-get exists; elsewhere people decide.
fn action(missing: Vec<&'static str>, root: bool, apt_get: bool) -> Action {
    match missing {
        missing if missing.is_empty() => Action::Nothing,
        missing if root && apt_get => Action::Install(missing),
        missing => Action::Ask(missing),
    }
}

/// Whether a file exists, or a program is found in PATH (or where
/// administrators' programs are, which users do not have in theirs).
fn present(brings: &str) -> bool {
    if brings.starts_with('/') {
        return Path::new(brings).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(brings).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_installed_only_by_root_with_apt_get() {
        let some = || vec!["gcc", "git"];
        let table = [
            // missing, root, apt-get, what is done
            (vec![], true, true, Action::Nothing),
            (vec![], false, false, Action::Nothing), // present: nothing to ask for
            (some(), true, true, Action::Install(some())),
            (some(), false, true, Action::Ask(some())),
            (some(), true, false, Action::Ask(some())),
        ];
        for (missing, root, apt_get, expected) in table {
            assert_eq!(action(missing, root, apt_get), expected);
        }
    }

    #[test]
    fn every_package_is_listed_once_with_a_reason() {
        let lists = [TESTS, LIBRARIES, REFERENCE, DIST];
        let all: Vec<Package> = lists.into_iter().flat_map(packages).collect();
        for (at, (name, brings, why)) in all.iter().enumerate() {
            assert!(!brings.is_empty() && !why.is_empty(), "{name}");
            assert!(all[at + 1..].iter().all(|other| other.0 != *name));
        }
    }

    #[test]
    fn programs_are_found_in_the_path_and_files_by_their_own() {
        assert!(present("sh") && present("/bin/sh"));
        assert!(!present("no-such-program") && !present("/no/such/file"));
    }
}
