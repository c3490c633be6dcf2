//! The Debian packages that tests and tasks need beside the Rust toolchain: one
//! list, and what to do about those that are missing.

#![allow(
    clippy::print_stdout,
    reason = "developers read what is installed on their machine"
)]

use crate::shell;
use anyhow::bail;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A package, how to see that it is there, and what for.
#[derive(Clone, Copy)]
struct Package {
    name: &'static str,
    /// A program in PATH, or a file by its whole path, that comes with it.
    brings: &'static str,
    why: &'static str,
}

/// Everything that is needed. A new line needs a reason.
const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        brings: "cc",
        why: "links Rust programs, and compiles tests and examples in C",
    },
    Package {
        name: "libc6-dev",
        brings: "/usr/include/stdio.h",
        why: "headers for those C programs",
    },
    Package {
        name: "g++",
        brings: "c++",
        why: "compiles libFuzzer, which is C++, and the lock in C++ of tool/own-locks/",
    },
    Package {
        name: "golang-go",
        brings: "go",
        why: "builds the locks in Go of tool/own-locks/",
    },
    Package {
        name: "git",
        brings: "git",
        why: "tests of tool/ci-gate/ compare two revisions of a repository",
    },
    Package {
        name: "util-linux",
        brings: "prlimit",
        why: "tests lower limits with prlimit, look for semaphores with ipcs, pin servers with taskset",
    },
    Package {
        name: "iproute2",
        brings: "ip",
        why: "tests make network namespaces for connections, and cut the link of jostled's clients",
    },
    Package {
        name: "openmpi-bin",
        brings: "mpirun",
        why: "starts the ranks of world `mpi` across the hosts of `cargo xtask hosts`",
    },
    Package {
        name: "libopenmpi-dev",
        brings: "mpicc",
        why: "the library that jostle is linked with for world `mpi`",
    },
    Package {
        name: "libclang-dev",
        brings: "/usr/share/doc/libclang-dev/copyright",
        why: "the crate `mpi` reads MPI's headers with it",
    },
    Package {
        name: "openssh-server",
        brings: "sshd",
        why: "mpirun reaches the hosts of `cargo xtask hosts` over ssh",
    },
    Package {
        name: "openssh-client",
        brings: "ssh",
        why: "the other side of it, and its keys",
    },
    Package {
        name: "gnuplot-nox",
        brings: "gnuplot",
        why: "a test plots jostle's output with a script written for lockscale",
    },
    Package {
        name: "chromium",
        brings: "chromium",
        why: "a test opens the pages of `--html` in it",
    },
    Package {
        name: "prometheus",
        brings: "prometheus",
        why: "a test has it scrape `--metrics` and answer the queries of tool/grafana/jostle.json",
    },
    Package {
        name: "librsvg2-bin",
        brings: "rsvg-convert",
        why: "`report --figures` makes PNG files with it",
    },
    Package {
        name: "man-db",
        brings: "man",
        why: "the manual page is rendered to find mistakes in it",
    },
    Package {
        name: "redis-server",
        brings: "redis-server",
        why: "the peer that the target `redis` is tested on, and jostled measured beside",
    },
    Package {
        name: "redis-tools",
        brings: "redis-cli",
        why: "tests and `cargo xtask peers` run redis-cli and redis-benchmark against jostled",
    },
    Package {
        name: "wrk",
        brings: "wrk",
        why: "a load generator with threads that tests of `jostle judge` run against nginx",
    },
    Package {
        name: "apache2-utils",
        brings: "ab",
        why: "a load generator with a connection for each request, for the same tests",
    },
    Package {
        name: "postgresql",
        brings: "/usr/share/doc/postgresql/copyright",
        why: "the server that the targets `postgres` and `postgres-try` launch",
    },
    Package {
        name: "mariadb-server",
        brings: "mariadbd",
        why: "the server that the target `mariadb` launches",
    },
    Package {
        name: "mariadb-client",
        brings: "mariadb-slap",
        why: "a load generator with a thread for each connection, for the tests of `jostle judge`",
    },
    Package {
        name: "etcd-server",
        brings: "etcd",
        why: "the server that the target `etcd` launches",
    },
    Package {
        name: "zookeeper",
        brings: "/usr/share/java/zookeeper.jar",
        why: "the server that the target `zookeeper` launches, in Java",
    },
    Package {
        name: "memcached",
        brings: "memcached",
        why: "the server that the target `memcached` launches",
    },
    Package {
        name: "nats-server",
        brings: "nats-server",
        why: "the server that the target `nats` launches",
    },
    Package {
        name: "nginx-light",
        brings: "nginx",
        why: "the web server beside which `cargo xtask validate` plants neighbours",
    },
    Package {
        name: "slapd",
        brings: "slapd",
        why: "the directory server that the target `ldap` is tested and measured on",
    },
    Package {
        name: "ldap-utils",
        brings: "ldapsearch",
        why: "tests search with ldapsearch beside jostle",
    },
    Package {
        name: "libhiredis-dev",
        brings: "/usr/include/hiredis/hiredis.h",
        why: "a test runs a C client written with hiredis against jostled",
    },
    Package {
        name: "pkg-config",
        brings: "pkg-config",
        why: "finds hiredis for that client",
    },
    Package {
        name: "curl",
        brings: "curl",
        why: "tests call the procedures of procd with it",
    },
    Package {
        name: "openssl",
        brings: "openssl",
        why: "makes certificates for the tests of TLS",
    },
    Package {
        name: "python3-venv",
        brings: "/usr/share/doc/python3-venv/copyright",
        why: "keeps two versions of redis-py apart for the tests of jostled, and has pandas and \
              DuckDB for the examples of tool/docs/data.md",
    },
    Package {
        name: "python3-kazoo",
        brings: "/usr/lib/python3/dist-packages/kazoo/client.py",
        why: "observes ZooKeeper's locks in `cargo xtask validate recover`",
    },
    Package {
        name: "python3-psycopg2",
        brings: "/usr/lib/python3/dist-packages/psycopg2/__init__.py",
        why: "observes PostgreSQL's locks in `cargo xtask validate recover`",
    },
    Package {
        name: "r-base-core",
        brings: "Rscript",
        why: "runs the example in R of tool/docs/data.md",
    },
    Package {
        name: "python3-wheel",
        brings: "/usr/lib/python3/dist-packages/wheel/__main__.py",
        why: "packs the wheel, and compares its files with their sums",
    },
];

/// What `cargo xtask long` needs beside them.
const OF_LIBRARIES: &[Package] = &[
    Package {
        name: "python3-pandas",
        brings: "/usr/share/doc/python3-pandas/copyright",
        why: "reads a table of tool/docs/questions.md",
    },
    Package {
        name: "npm",
        brings: "npm",
        why: "fetches the lock for Node.js that `pipe` is tested with",
    },
    Package {
        name: "maven",
        brings: "mvn",
        why: "builds the locks in Java that `pipe` is tested with",
    },
    Package {
        name: "default-jdk-headless",
        brings: "javac",
        why: "compiles and runs them",
    },
];

/// What `cargo xtask peers --clients` needs beside all of these.
const OF_REFERENCE: &[Package] = &[
    Package {
        name: "libmemcached-dev",
        brings: "/usr/include/libmemcached/memcached.h",
        why: "the client that the target `memcached` is compared with",
    },
    Package {
        name: "libmariadb-dev",
        brings: "/usr/include/mariadb/mysql.h",
        why: "the client that the target `mariadb` is compared with",
    },
    Package {
        name: "hey",
        brings: "hey",
        why: "a load generator in Go that `validate judge-cases` runs",
    },
    Package {
        name: "sysbench",
        brings: "sysbench",
        why: "one for databases, in C and Lua, for the same",
    },
    Package {
        name: "siege",
        brings: "siege",
        why: "one in C with threads, which opens a connection for each request",
    },
    Package {
        name: "nghttp2-client",
        brings: "h2load",
        why: "h2load, one in C with epoll",
    },
    Package {
        name: "libmemcached-tools",
        brings: "memcslap",
        why: "memcslap, one for memcached",
    },
    Package {
        name: "haproxy",
        brings: "haproxy",
        why: "a server and proxy of those cases",
    },
    Package {
        name: "lighttpd",
        brings: "lighttpd",
        why: "a server of those cases",
    },
    Package {
        name: "php-cli",
        brings: "php",
        why: "a server of one worker for those cases",
    },
    Package {
        name: "ruby",
        brings: "ruby",
        why: "a generator and a server whose threads need one lock, for those cases",
    },
    Package {
        name: "php8.2-curl",
        brings: "/usr/lib/php/20220829/curl.so",
        why: "a generator by curl's multi interface, for those cases",
    },
    Package {
        name: "libwww-perl",
        brings: "/usr/share/perl5/LWP.pm",
        why: "one by LWP, for the same",
    },
    Package {
        name: "httperf",
        brings: "httperf",
        why: "one that keeps a pace by spinning, for the same",
    },
    Package {
        name: "libapache2-mod-php8.2",
        brings: "/usr/lib/apache2/modules/libphp8.2.so",
        why: "Apache, a server of those cases, and what its prefork serves",
    },
    Package {
        name: "caddy",
        brings: "caddy",
        why: "a server and proxy in Go, for those cases",
    },
    Package {
        name: "h2o",
        brings: "h2o",
        why: "a server of HTTP/2, for those cases",
    },
    Package {
        name: "mini-httpd",
        brings: "mini_httpd",
        why: "a server with a process for each request, for those cases",
    },
    Package {
        name: "puma",
        brings: "puma",
        why: "a server of Ruby with a pool of threads, for those cases",
    },
    Package {
        name: "starman",
        brings: "starman",
        why: "one of Perl with a pool of processes",
    },
    Package {
        name: "ruby-webrick",
        brings: "/usr/share/doc/ruby-webrick/copyright",
        why: "a server that writes header and body apart, for those cases",
    },
    Package {
        name: "beanstalkd",
        brings: "beanstalkd",
        why: "a queue that is a server of those cases",
    },
    Package {
        name: "pgbouncer",
        brings: "pgbouncer",
        why: "a proxy with a small pool, for those cases",
    },
    Package {
        name: "varnish",
        brings: "varnishd",
        why: "a proxy of those cases",
    },
    Package {
        name: "squid",
        brings: "squid",
        why: "a proxy of those cases",
    },
    Package {
        name: "socat",
        brings: "socat",
        why: "a proxy with a process for each connection, for those cases",
    },
    Package {
        name: "stunnel4",
        brings: "stunnel4",
        why: "a server whose CPU goes to TLS, for those cases",
    },
];

/// What `cargo xtask dist` needs beside them.
const OF_DIST: &[Package] = &[
    Package {
        name: "gcc-aarch64-linux-gnu",
        brings: "aarch64-linux-gnu-gcc",
        why: "links jostle-call for AArch64; its strip and libraries are used, too",
    },
    Package {
        name: "libc6-dev-arm64-cross",
        brings: "/usr/aarch64-linux-gnu/lib/libc.a",
        why: "that compiler asks for it, even where nothing of it is taken",
    },
    Package {
        name: "qemu-user",
        brings: "qemu-aarch64",
        why: "runs programs for AArch64",
    },
    Package {
        name: "ca-certificates",
        brings: "/etc/ssl/certs/ca-certificates.crt",
        why: "the authorities that the image brings",
    },
    Package {
        name: "mmdebstrap",
        brings: "mmdebstrap",
        why: "makes the clean root in which packages are installed",
    },
    Package {
        name: "skopeo",
        brings: "skopeo",
        why: "reads the image and compares its digests",
    },
    Package {
        name: "umoci",
        brings: "umoci",
        why: "unpacks the image",
    },
];

/// What is to be done about packages.
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
    let packages = install(&PACKAGES.iter().collect::<Vec<_>>());
    if !is_root() {
        let missing = packages.err().map(|error| format!("{error}\n"));
        bail!(
            "{}become root: tests make namespaces, control groups and users. \
             `cargo xtask test` runs those that need neither root nor packages",
            missing.unwrap_or_default()
        );
    }
    packages?;
    println!("all {} packages are installed", PACKAGES.len());
    Ok(())
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Makes sure that all packages are there with which libraries of other languages are
/// built.
///
/// # Errors
/// What is missing, where it cannot be installed.
pub fn ensure_for_libraries() -> anyhow::Result<()> {
    install(&PACKAGES.iter().chain(OF_LIBRARIES).collect::<Vec<_>>())
}

/// Makes sure that all packages are there with which packages for users are made and
/// checked.
///
/// # Errors
/// What is missing, where it cannot be installed.
pub fn ensure_for_dist() -> anyhow::Result<()> {
    install(&PACKAGES.iter().chain(OF_DIST).collect::<Vec<_>>())
}

/// Makes sure that these packages of the lists are there; silent if they are.
pub fn ensure(names: &[&str]) -> anyhow::Result<()> {
    let all = || [PACKAGES, OF_LIBRARIES, OF_REFERENCE].into_iter().flatten();
    if let Some(name) = names
        .iter()
        .find(|name| all().all(|one| one.name != **name))
    {
        bail!("the package {name} is in no list");
    }
    let listed: Vec<_> = all().filter(|one| names.contains(&one.name)).collect();
    install(&listed)
}

fn install(packages: &[&'static Package]) -> anyhow::Result<()> {
    let missing = || {
        let missing = packages.iter().filter(|package| !present(package.brings));
        missing.copied().collect()
    };
    match action(missing(), is_root(), present("apt-get")) {
        Action::Nothing => Ok(()),
        Action::Install(names) => {
            println!("installing {}", names.join(" "));
            let apt = |arguments: &[&str]| {
                let mut apt = Command::new("apt-get");
                // Packages of servers start them; tests start their own.
                apt.env("DEBIAN_FRONTEND", "noninteractive")
                    .env("RUNLEVEL", "1")
                    .args(arguments);
                shell::run(&mut apt)
            };
            apt(&["update", "-qq"])?;
            apt(&[
                &["install", "-qq", "-y", "--no-install-recommends"],
                &names[..],
            ]
            .concat())?;
            match action(missing(), false, false) {
                Action::Nothing => Ok(()),
                _ => bail!(
                    "apt-get installed {}, yet something is missing",
                    names.join(" ")
                ),
            }
        }
        Action::Ask(names) => {
            for package in packages
                .iter()
                .filter(|package| names.contains(&package.name))
            {
                println!("missing: {} ({})", package.name, package.why);
            }
            bail!(
                "install what is missing: `sudo apt-get install {}`",
                names.join(" ")
            );
        }
    }
}

/// Installs only as root and where apt-get exists; elsewhere people decide.
fn action(missing: Vec<&'static Package>, root: bool, apt_get: bool) -> Action {
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    match names {
        names if names.is_empty() => Action::Nothing,
        names if root && apt_get => Action::Install(names),
        names => Action::Ask(names),
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
        let some = || PACKAGES.iter().take(2).collect::<Vec<_>>();
        let names = || vec![PACKAGES[0].name, PACKAGES[1].name];
        let table = [
            // missing, root, apt-get, what is done
            (vec![], true, true, Action::Nothing),
            (vec![], false, false, Action::Nothing), // present: nothing to ask for
            (some(), true, true, Action::Install(names())),
            (some(), false, true, Action::Ask(names())),
            (some(), true, false, Action::Ask(names())),
        ];
        for (missing, root, apt_get, expected) in table {
            assert_eq!(action(missing, root, apt_get), expected);
        }
    }

    #[test]
    fn every_package_is_listed_once_with_a_reason() {
        let all: Vec<_> = [PACKAGES, OF_LIBRARIES, OF_REFERENCE, OF_DIST].concat();
        for (at, package) in all.iter().enumerate() {
            assert!(!package.why.is_empty(), "{}", package.name);
            assert!(all[at + 1..].iter().all(|other| other.name != package.name));
        }
    }

    #[test]
    fn programs_are_found_in_the_path_and_files_by_their_own() {
        assert!(present("sh") && present("/bin/sh"));
        assert!(!present("no-such-program") && !present("/no/such/file"));
    }
}
