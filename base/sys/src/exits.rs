//! Programs that end, as the kernel tells who listens (taskstats, over generic netlink,
//! since Linux 5.18; CAP_NET_ADMIN): who they were, and who started them.
//!
//! Not for sums: the kernel counts these times in ticks.

use crate::sock_diag::{aligned, attributes, u16_at, u32_at, u64_at};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;

/// A thread that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// As the kernel names it (comm).
    pub name: String,
    /// The process that it was of.
    pub pid: u32,
    /// The process that had started that one, or has inherited it.
    pub parent: u32,
    /// Its CPU time in microseconds, by ticks.
    pub used_us: u64,
}

/// Listens for them.
#[derive(Debug)]
pub struct Exits(OwnedFd);

/// Some thousands of messages.
const BUFFER: usize = 8 << 20;

/// struct nlmsghdr and struct genlmsghdr.
const HEADERS: usize = 20;
/// GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID and _NAME (genetlink.h).
const CONTROL: (u16, u8) = (16, 3);
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, TASKSTATS_TYPE_AGGR_PID, _PID and
/// _STATS (taskstats.h).
const GET: u8 = 1;
const REGISTER: u16 = 3;
const OF_THREAD: u16 = 4;
const THREAD: u16 = 1;
const STATS: u16 = 3;
/// NLM_F_REQUEST, NLM_F_REQUEST | NLM_F_ACK, NLMSG_ERROR.
const ASKED: u16 = 1;
const CONFIRMED: u16 = 5;
const ERROR: u16 = 2;

impl Exits {
    /// Begins to listen, on all CPUs.
    ///
    /// # Errors
    /// Without the right to, or where the kernel has no taskstats (CONFIG_TASKSTATS).
    pub fn listen() -> io::Result<Exits> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::GENERIC),
        )?;
        sockopt::set_socket_recv_buffer_size_force(&fd, BUFFER)?;
        let exits = Exits(fd);
        let found = exits.ask(message(CONTROL, ASKED, FAMILY_NAME, b"TASKSTATS\0"))?;
        let family = attributes(found.get(HEADERS..).unwrap_or_default())
            .find(|(kind, _)| *kind == FAMILY_ID)
            .and_then(|(_, value)| u16_at(value, 0));
        let family = family.ok_or(io::ErrorKind::Unsupported)?;
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let cpus = format!("{}\0", cpus.trim());
        exits.ask(message((family, GET), CONFIRMED, REGISTER, cpus.as_bytes()))?;
        Ok(exits)
    }

    /// Those that ended since the last call, thread by thread.
    ///
    /// # Errors
    /// ENOBUFS where more ended than the buffer holds, and what else the system says.
    pub fn drain(&self) -> io::Result<Vec<Exit>> {
        let mut ended = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            match rustix::net::recv(&self.0, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((read, _)) => ended.extend(exit(buffer.get(..read).unwrap_or_default())),
                Err(Errno::AGAIN) => return Ok(ended),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The first answer, or the error that it tells.
    fn ask(&self, question: Vec<u8>) -> io::Result<Vec<u8>> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.0, &question, SendFlags::empty(), &kernel)?;
        let mut answer = vec![0; 16 << 10];
        let (read, _) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.0, answer.as_mut_slice(), RecvFlags::empty())
        })?;
        answer.truncate(read);
        match (u16_at(&answer, 4), u32_at(&answer, 16)) {
            (Some(ERROR), Some(errno)) if errno != 0 => {
                Err(io::Error::from_raw_os_error(-(errno as i32)))
            }
            _ => Ok(answer),
        }
    }
}

/// A question with one attribute.
fn message((family, command): (u16, u8), flags: u16, kind: u16, value: &[u8]) -> Vec<u8> {
    let length = HEADERS + aligned(4 + value.len());
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length, 0);
    bytes
}

/// A message of the kernel's: a thread that ended. The last thread's also sums its process.
fn exit(message: &[u8]) -> Option<Exit> {
    let mut told = attributes(message.get(HEADERS..)?);
    let (_, nested) = told.find(|(kind, _)| *kind == OF_THREAD)?;
    let find = |which: u16| attributes(nested).find(|(kind, _)| *kind == which);
    let thread = u32_at(find(THREAD)?.1, 0)?;
    thread_of(find(STATS)?.1, thread)
}

/// struct taskstats from version 12 on. Version 15 moved its fields: what is not of the
/// thread that it should be of is not read.
fn thread_of(stats: &[u8], thread: u32) -> Option<Exit> {
    let name = stats.get(80..112)?;
    if u16_at(stats, 0)? < 12 || u32_at(stats, 128)? != thread {
        return None;
    }
    Some(Exit {
        name: String::from_utf8_lossy(name.split(|byte| *byte == 0).next()?).into_owned(),
        pid: u32_at(stats, 368)?,
        parent: u32_at(stats, 132)?,
        used_us: u64_at(stats, 152)? + u64_at(stats, 160)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_where_its_number_is_and_not_elsewhere() {
        let mut stats = vec![0; 400];
        stats[0] = 12;
        stats[80..83].copy_from_slice(b"cc1");
        for (at, value) in [
            (128, 71_u32),
            (132, 50),
            (368, 70),
            (152, 3000),
            (160, 1000),
        ] {
            stats[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let read = Exit {
            name: "cc1".to_owned(),
            pid: 70,
            parent: 50,
            used_us: 4000,
        };
        assert_eq!(thread_of(&stats, 71), Some(read));
        assert_eq!(thread_of(&stats, 70), None);
        assert_eq!(thread_of(&stats[..370], 71), None);
        stats[0] = 11;
        assert_eq!(thread_of(&stats, 71), None);
        assert_eq!(exit(&[0; 12]), None);
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_program_that_ends_is_told_with_who_started_it() {
            let exits = match Exits::listen() {
                // A plain user's, or in a container.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
                exits => exits.unwrap(),
            };
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            // The kernel may tell it after its parent has waited for it.
            let told = (0..120_000).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let ended = exits.drain().unwrap();
                ended.into_iter().find(|exit| exit.pid == child.id())
            });
            let told = told.expect("not within 120,000 looks");
            assert_eq!(
                (told.name.as_str(), told.parent),
                ("true", std::process::id())
            );
        }
    }
}
