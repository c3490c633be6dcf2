//! A real directory server to try things on: OpenLDAP's slapd, as the system's
//! package installs it, with a configuration and a directory of its own.
//!
//! For tests and for `cargo xtask slapd`. Not a way to run a directory that somebody needs: it
//! writes without waiting for the disk, everybody may read all of it, and
//! everything is gone with the process that started it, however that ends.

use crate::certificate::Certificate;
use crate::ports::free_port_of;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The suffix of the directory.
pub const BASE: &str = "dc=example,dc=org";
/// Who may write, and read what others may not.
pub const ADMIN: &str = "cn=admin,dc=example,dc=org";
/// The administrator's password.
pub const ADMIN_PASSWORD: &str = "only-for-tests";

/// One group for so many users.
const USERS_PER_GROUP: u32 = 100;
/// Members of each group, drawn from the seed.
const MEMBERS: u32 = 20;
/// slapadd and slapd on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command beside a directory, and ends the one and removes the other when its
/// standard input closes: when whoever started it ends, in whatever way.
pub(crate) const GUARDIAN: &str = r#"
    trap '' INT HUP
    directory=$1; shift
    "$@" &
    read -r never
    kill $!; wait $!
    rm -rf "$directory""#;

/// What to start.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Users, `uid=user0` to the last; groups come beside them.
    pub entries: u32,
    /// The seed of names, numbers and members.
    pub seed: u64,
    /// Where it listens, as far as TCP is concerned.
    pub address: IpAddr,
    /// None: a free one.
    pub port: Option<u16>,
    /// The server's log of connections and operations goes to this file.
    pub log: Option<PathBuf>,
    /// Listens for TLS too, with a certificate of its own.
    pub tls: bool,
    /// The only CPU that the server runs on.
    pub cpu: Option<usize>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            entries: 10_000,
            seed: 2007,
            address: Ipv4Addr::LOCALHOST.into(),
            port: None,
            log: None,
            tls: false,
            cpu: None,
        }
    }
}

/// A running slapd. Dropping it ends it and removes its directory.
#[derive(Debug)]
pub struct Slapd {
    guardian: Child,
    /// Closing it tells the guardian to end everything.
    leash: Option<ChildStdin>,
    directory: PathBuf,
    /// Where it listens.
    address: IpAddr,
    /// Where `ldap://` answers at that address.
    pub port: u16,
    /// Where `ldaps://localhost` answers, if it was asked to.
    pub tls_port: Option<u16>,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.guardian.wait();
    }
}

impl Slapd {
    /// Fills a new directory and starts a server on it.
    ///
    /// # Errors
    /// In words for the user: what could not be done, and what is missing.
    pub fn start(wanted: &Wanted) -> Result<Slapd, String> {
        let directory = tempfile::Builder::new()
            .prefix("jostle-slapd-")
            .tempdir()
            .map_err(|error| format!("cannot make a directory: {error}"))?;
        let place = directory.path();
        let said = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
        if wanted.tls {
            Certificate::make(place, "DNS:localhost")?;
        }
        fs::create_dir(place.join("db")).map_err(|e| said("make a directory", e))?;
        fs::write(place.join("slapd.conf"), configuration(place, wanted.tls))
            .map_err(|e| said("write the configuration", e))?;
        fs::write(place.join("all.ldif"), ldif(wanted.entries, wanted.seed))
            .map_err(|e| said("write the entries", e))?;
        finish(
            Command::new(program("slapadd"))
                .args(["-q", "-f"])
                .arg(place.join("slapd.conf"))
                .arg("-l")
                .arg(place.join("all.ldif")),
        )?;
        // From here on the guardian removes it.
        let mut slapd = Slapd::guard(directory.keep(), wanted)?;
        slapd.await_answer()?;
        Ok(slapd)
    }

    /// A shell that ends the server and removes its directory when its standard
    /// input closes: when we end, whatever the way.
    fn guard(directory: PathBuf, wanted: &Wanted) -> Result<Slapd, String> {
        let free_port =
            || free_port_of(wanted.address).map_err(|error| format!("no free port: {error}"));
        let port = wanted.port.map_or_else(free_port, Ok)?;
        let tls_port = wanted.tls.then(free_port).transpose()?;
        let at = |port| SocketAddr::new(wanted.address, port);
        let socket = directory.join("ldapi").display().to_string();
        let mut places = format!("ldap://{} ldapi://{}", at(port), socket.replace('/', "%2F"));
        if let Some(port) = tls_port {
            let _ = write!(places, " ldaps://{}", at(port));
        }
        let output = match &wanted.log {
            Some(path) => File::create(path)
                .map(Stdio::from)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
            None => Stdio::null(),
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARDIAN, "sh"]).arg(&directory);
        if let Some(cpu) = wanted.cpu {
            shell.args(["taskset", "-c", &cpu.to_string()]);
        }
        // With -d it stays the shell's child; `stats` is what the log is made of.
        shell
            .arg(program("slapd"))
            .args(["-d", if wanted.log.is_some() { "stats" } else { "0" }])
            .args(["-h", &places, "-f"])
            .arg(directory.join("slapd.conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(output);
        let mut guardian = shell
            .spawn()
            .map_err(|error| format!("cannot run sh: {error}"))?;
        let leash = guardian.stdin.take();
        Ok(Slapd {
            guardian,
            leash,
            directory,
            address: wanted.address,
            port,
            tls_port,
        })
    }

    fn await_answer(&mut self) -> Result<(), String> {
        let start = Instant::now();
        let address = self.address;
        let answers = |port| TcpStream::connect((address, port)).is_ok();
        while !answers(self.port) || self.pid().is_none() {
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "slapd does not answer on port {}; another program may have it, or try `{} -d 1 -f {}`",
                    self.port,
                    program("slapd").display(),
                    self.directory.join("slapd.conf").display(),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The server's process.
    pub fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.directory.join("slapd.pid")).ok()?;
        text.trim().parse().ok()
    }

    /// The certificate that vouches for the server, of one that listens for TLS.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("certificate.pem")
    }

    /// The place of the Unix socket, as `ldapi` wants it.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("ldapi")
    }

    /// `ldap://HOST:PORT/BASE?FILTER`, with this filter.
    pub fn url(&self, filter: &str) -> String {
        let at = SocketAddr::new(self.address, self.port);
        format!("ldap://{at}/{BASE}?{filter}")
    }
}

/// Debian keeps the server's programs where users do not look for programs.
fn program(name: &str) -> PathBuf {
    let usual = Path::new("/usr/sbin").join(name);
    if usual.exists() { usual } else { name.into() }
}

fn finish(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        format!("cannot run {name}: {error}; are the Debian packages slapd and openssl installed?")
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{name} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// slapd.conf(5): the entries in `mdb`, the server's own counts in `monitor`.
fn configuration(place: &Path, tls: bool) -> String {
    let place = place.display();
    let mut text = String::new();
    for schema in ["core", "cosine", "inetorgperson"] {
        let _ = writeln!(text, "include /etc/ldap/schema/{schema}.schema");
    }
    let _ = write!(
        text,
        "modulepath /usr/lib/ldap\n\
         moduleload back_mdb\n\
         pidfile {place}/slapd.pid\n\
         argsfile {place}/slapd.args\n\
         threads 8\n"
    );
    if tls {
        let _ = write!(
            text,
            "TLSCertificateFile {place}/certificate.pem\n\
             TLSCertificateKeyFile {place}/key.pem\n"
        );
    }
    let _ = write!(
        text,
        "database mdb\n\
         suffix \"{BASE}\"\n\
         rootdn \"{ADMIN}\"\n\
         rootpw {ADMIN_PASSWORD}\n\
         directory {place}/db\n\
         maxsize 1073741824\n\
         dbnosync\n\
         index objectClass,uid,cn,sn,mail,member eq\n\
         database monitor\n"
    );
    text
}

/// The entries: `uid=userN,ou=people` with names, a mail address and a password
/// (`userN`), `cn=groupN,ou=groups` with members among them.
fn ldif(users: u32, seed: u64) -> String {
    const GIVEN: [&str; 12] = [
        "Ada", "Bruno", "Carla", "Dario", "Elena", "Fritz", "Greta", "Hugo", "Ines", "Jonas",
        "Klara", "Luca",
    ];
    const FAMILY: [&str; 12] = [
        "Amsler", "Bianchi", "Curie", "Dupont", "Engel", "Favre", "Gruber", "Huber", "Imhof",
        "Jost", "Keller", "Lang",
    ];
    let mut random = Random(seed);
    let mut text = format!(
        "dn: {BASE}\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n\n\
         dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups\n\n"
    );
    for n in 0..users {
        let given = random.of(&GIVEN);
        let family = random.of(&FAMILY);
        let _ = write!(
            text,
            "dn: uid=user{n},ou=people,{BASE}\nobjectClass: inetOrgPerson\nuid: user{n}\n\
             cn: {given} {family}\nsn: {family}\ngivenName: {given}\n\
             mail: {}.{}.{n}@example.org\ntelephoneNumber: +41 22 {:07}\nuserPassword: user{n}\n\n",
            given.to_lowercase(),
            family.to_lowercase(),
            random.below(10_000_000),
        );
    }
    for n in 0..users.div_ceil(USERS_PER_GROUP) {
        let _ = write!(
            text,
            "dn: cn=group{n},ou=groups,{BASE}\nobjectClass: groupOfNames\ncn: group{n}\n"
        );
        // A member is named once: neighbours from a random first one.
        let first = random.below(users);
        for step in 0..MEMBERS.min(users) {
            let member = (u64::from(first) + u64::from(step)) % u64::from(users);
            let _ = writeln!(text, "member: uid=user{member},ou=people,{BASE}");
        }
        text.push('\n');
    }
    text
}

/// SplitMix64 (Steele, Lea and Flood 2014): the same entries from the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit.max(1))) as u32
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.next() as usize % all.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_directory() {
        assert_eq!(ldif(300, 1), ldif(300, 1));
        assert_ne!(ldif(300, 1), ldif(300, 2));
        let text = ldif(300, 1);
        assert_eq!(text.matches("\nobjectClass: inetOrgPerson\n").count(), 300);
        assert_eq!(text.matches("\nobjectClass: groupOfNames\n").count(), 3);
    }

    #[test]
    fn no_group_names_a_member_twice() {
        for group in ldif(150, 9)
            .split("\n\n")
            .filter(|e| e.contains("groupOfNames"))
        {
            let mut members: Vec<&str> =
                group.lines().filter(|l| l.starts_with("member:")).collect();
            let all = members.len();
            members.sort_unstable();
            members.dedup();
            assert_eq!((members.len(), all), (20, 20));
        }
    }
}
