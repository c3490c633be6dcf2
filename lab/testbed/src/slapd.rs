//! A real directory server to try things on: OpenLDAP's slapd, as the system's
//! package installs it, with a configuration and a directory of its own.
//!
//! For tests and for `cargo xtask slapd`. Not a way to run a directory that somebody needs: it
//! writes without waiting for the disk, everybody may read all of it, and
//! everything is gone with the process that started it, however that ends.

use crate::certificate::Certificate;
use crate::ports::free_port_of;
use crate::servers::{Placed, Running, Server, launch_at};
use crate::shell;
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The suffix of the directory.
pub const BASE: &str = "dc=example,dc=org";
/// Who may write, and read what others may not.
pub const ADMIN: &str = "cn=admin,dc=example,dc=org";
/// The administrator's password.
pub const ADMIN_PASSWORD: &str = "only-for-tests";

/// One group for so many users.
const USERS_PER_GROUP: u32 = 100;
/// Members of each group.
const MEMBERS: u32 = 20;
/// For its process to be noted, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration to start.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Users, `uid=user0` to the last; groups come beside them.
    pub entries: u32,
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
    running: Running,
    directory: PathBuf,
    /// Where `ldap://` answers at that address.
    pub port: u16,
    /// Where `ldaps://localhost` answers, if it was asked to.
    pub tls_port: Option<u16>,
}

impl Slapd {
    /// Fills a new directory and starts a server on it.
    ///
    /// # Errors
    /// In words for the user: what could not be done, and what is missing.
    pub fn start(wanted: &Wanted) -> anyhow::Result<Slapd> {
        let free_port = || free_port_of(wanted.address);
        let port = wanted.port.map_or_else(free_port, Ok)?;
        let tls_port = wanted.tls.then(free_port).transpose()?;
        let at = |port| SocketAddr::new(wanted.address, port);
        let log = match &wanted.log {
            Some(path) => File::create(path)
                .with_context(|| path.display().to_string())?
                .into(),
            None => Stdio::null(),
        };
        let placed = Placed {
            cpu: wanted.cpu,
            ..Placed::default()
        };
        let mut directory = PathBuf::new();
        let running = launch_at(Server::Slapd, placed, (at(port), log), |_, place| {
            place.clone_into(&mut directory);
            fill(place, wanted)?;
            let socket = place.join("ldapi").display().to_string();
            let mut places = format!("ldap://{} ldapi://{}", at(port), socket.replace('/', "%2F"));
            if let Some(port) = tls_port {
                let _ = write!(places, " ldaps://{}", at(port));
            }
            // With -d it stays the shell's child; `stats` is what the log is made of.
            let level = if wanted.log.is_some() { "stats" } else { "0" };
            let (slapd, settings) = (program("slapd"), place.join("slapd.conf"));
            let [slapd, settings] = [slapd, settings].map(|path| path.display().to_string());
            Ok([&slapd, "-d", level, "-h", &places, "-f", &settings]
                .map(str::to_owned)
                .to_vec())
        })?;
        let slapd = Slapd {
            running,
            directory,
            port,
            tls_port,
        };
        let start = Instant::now();
        while slapd.pid().is_none() {
            ensure!(start.elapsed() < PATIENCE, "slapd names no process");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(slapd)
    }

    /// The server alone.
    pub(crate) fn into_running(self) -> Running {
        self.running
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
        format!("ldap://{}/{BASE}?{filter}", self.running.address)
    }
}

/// Writes its settings and its entries.
fn fill(place: &Path, wanted: &Wanted) -> anyhow::Result<()> {
    if wanted.tls {
        Certificate::make(place, "DNS:localhost")?;
    }
    fs::create_dir(place.join("db"))?;
    fs::write(place.join("slapd.conf"), configuration(place, wanted.tls))?;
    fs::write(place.join("all.ldif"), ldif(wanted.entries))?;
    let mut fill = Command::new(program("slapadd"));
    fill.args(["-q", "-f", "slapd.conf", "-l", "all.ldif"]);
    shell::quiet(fill.current_dir(place)).context("is the Debian package slapd installed?")
}

/// Debian keeps the server's programs where users do not look for programs.
fn program(name: &str) -> PathBuf {
    let usual = Path::new("/usr/sbin").join(name);
    if usual.exists() { usual } else { name.into() }
}

/// slapd.conf(5): the entries in `mdb`, the server's own counts in `monitor`.
fn configuration(place: &Path, tls: bool) -> String {
    let place = place.display();
    let tls = match tls {
        true => format!(
            "TLSCertificateFile {place}/certificate.pem\nTLSCertificateKeyFile {place}/key.pem\n"
        ),
        false => String::new(),
    };
    format!(
        "include /etc/ldap/schema/core.schema\n\
         include /etc/ldap/schema/cosine.schema\n\
         include /etc/ldap/schema/inetorgperson.schema\n\
         modulepath /usr/lib/ldap\n\
         moduleload back_mdb\n\
         pidfile {place}/slapd.pid\n\
         argsfile {place}/slapd.args\n\
         threads 8\n\
         {tls}database mdb\n\
         suffix \"{BASE}\"\n\
         rootdn \"{ADMIN}\"\n\
         rootpw {ADMIN_PASSWORD}\n\
         directory {place}/db\n\
         maxsize 1073741824\n\
         dbnosync\n\
         index objectClass,uid,cn,sn,mail,member eq\n\
         database monitor\n"
    )
}

/// The entries: `uid=userN,ou=people` with names, a mail address and a password
/// (`userN`), `cn=groupN,ou=groups` with members among them.
fn ldif(users: u32) -> String {
    const GIVEN: [&str; 12] = [
        "Ada", "Bruno", "Carla", "Dario", "Elena", "Fritz", "Greta", "Hugo", "Ines", "Jonas",
        "Klara", "Luca",
    ];
    const FAMILY: [&str; 12] = [
        "Amsler", "Bianchi", "Curie", "Dupont", "Engel", "Favre", "Gruber", "Huber", "Imhof",
        "Jost", "Keller", "Lang",
    ];
    let mut text = format!(
        "dn: {BASE}\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n\n\
         dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups\n\n"
    );
    for n in 0..users {
        // Every pair in turn, and numbers that follow no order.
        let given = GIVEN[n as usize % GIVEN.len()];
        let family = FAMILY[n as usize / GIVEN.len() % FAMILY.len()];
        let _ = write!(
            text,
            "dn: uid=user{n},ou=people,{BASE}\nobjectClass: inetOrgPerson\nuid: user{n}\n\
             cn: {given} {family}\nsn: {family}\ngivenName: {given}\n\
             mail: {}.{}.{n}@example.org\ntelephoneNumber: +41 22 {:07}\nuserPassword: user{n}\n\n",
            given.to_lowercase(),
            family.to_lowercase(),
            u64::from(n) * 7_654_321 % 10_000_000,
        );
    }
    for n in 0..users.div_ceil(USERS_PER_GROUP) {
        let _ = write!(
            text,
            "dn: cn=group{n},ou=groups,{BASE}\nobjectClass: groupOfNames\ncn: group{n}\n"
        );
        // A member is named once: neighbours from a first one.
        for step in 0..MEMBERS.min(users) {
            let member = (n * USERS_PER_GROUP + step) % users;
            let _ = writeln!(text, "member: uid=user{member},ou=people,{BASE}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_as_many_as_asked_for() {
        let text = ldif(300);
        assert_eq!(text.matches("\nobjectClass: inetOrgPerson\n").count(), 300);
        assert_eq!(text.matches("\nobjectClass: groupOfNames\n").count(), 3);
    }

    #[test]
    fn no_group_names_a_member_twice() {
        for group in ldif(150)
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
