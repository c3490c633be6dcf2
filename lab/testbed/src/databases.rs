//! The databases among [`crate::servers`]: what is done once before each starts, and its
//! command line. Everybody on this machine may log in, and nothing is kept.

use crate::shell;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who owns the databases, and logs in to them.
pub const POSTGRES_USER: &str = "postgres";
/// The administrator of MariaDB.
pub const MARIADB_USER: &str = "root";

/// The programs of the newest PostgreSQL that is installed.
///
/// # Errors
/// Where there is none.
pub fn postgres_programs() -> anyhow::Result<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql");
    let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let newest = numbers
        .max()
        .context("PostgreSQL is not installed: `apt install postgresql` (Debian)")?;
    Ok(versions.join(newest.to_string()).join("bin"))
}

/// Makes PostgreSQL's database in this directory; the server's command line.
pub(crate) fn postgres(address: SocketAddr, directory: &Path) -> anyhow::Result<String> {
    let by = owned_by("postgres", directory)?;
    let (bin, place) = (postgres_programs()?, directory.display());
    let bin = bin.display();
    prepare(
        &format!("{by}{bin}/initdb -D {place}/data -A trust -U {POSTGRES_USER} --no-sync"),
        directory,
    )?;
    Ok(format!(
        "{by}{bin}/postgres -D {place}/data -c listen_addresses={} -c port={} \
         -c unix_socket_directories= -c dynamic_shared_memory_type=mmap",
        address.ip(),
        address.port()
    ))
}

/// Makes MariaDB's database in this directory; the server's command line.
pub(crate) fn mariadb(address: SocketAddr, directory: &Path) -> anyhow::Result<String> {
    let by = owned_by("mysql", directory)?;
    let place = directory.display();
    prepare(
        &format!(
            "{by}mariadb-install-db --no-defaults --skip-test-db \
             --auth-root-authentication-method=normal --datadir={place}/data"
        ),
        directory,
    )?;
    Ok(format!(
        "{by}mariadbd --no-defaults --bind-address={} --port={} --skip-name-resolve \
         --datadir={place}/data --socket={place}/socket --pid-file={place}/pid",
        address.ip(),
        address.port()
    ))
}

/// Gives the directory to the user that the server wants to be where we are root; what a
/// command line begins with.
fn owned_by(user: &str, directory: &Path) -> anyhow::Result<String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(String::new());
    }
    shell::run(Command::new("chown").arg(user).arg(directory))?;
    Ok(format!(
        "setpriv --reuid={user} --regid={user} --clear-groups "
    ))
}

fn prepare(line: &str, directory: &Path) -> anyhow::Result<()> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("no command")?);
    shell::quiet(command.args(words).current_dir(directory))
}
