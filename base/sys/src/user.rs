//! Becoming another user: for servers that refuse to run as root.

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_res_uid};
use std::io::{self, ErrorKind};

/// A user of this machine and the group that it has at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Its group's number.
    pub gid: u32,
}

impl User {
    /// The user of this name. None if this process is not root's, and therefore keeps its
    /// user.
    ///
    /// # Errors
    /// If the list of users cannot be read; NotFound if it has no such user. `nobody` is no
    /// substitute: what runs as that user may read and change the server's files.
    pub fn instead_of_root(name: &str) -> io::Result<Option<User>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let text = std::fs::read_to_string("/etc/passwd")?;
        let missing = || io::Error::new(ErrorKind::NotFound, format!("there is no user {name}"));
        listed(&text, name).map(Some).ok_or_else(missing)
    }

    /// Turns this thread into one of that user, for good. Call it in a process with one
    /// thread, before it executes another program.
    ///
    /// # Errors
    /// The system's.
    pub fn assume(self) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[gid])?;
        set_thread_gid(gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// From lines of passwd(5).
fn listed(text: &str, name: &str) -> Option<User> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let (uid, gid) = (fields.nth(1)?, fields.next()?);
        Some(User {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    };
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let text = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nodd\n";
        let user = |uid, gid| Some(User { uid, gid });
        assert_eq!(listed(text, "root"), user(0, 0));
        assert_eq!(listed(text, "nobody"), user(65534, 65533));
        assert_eq!(listed(text, "no"), None);
        assert_eq!(listed(text, "odd"), None);
    }
}
