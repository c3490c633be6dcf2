//! The state handed over, as data and as bytes.
//!
//! The bytes begin with a mark, the version of the format, their number and a
//! checksum. A program that does not know the version refuses it; there is no
//! attempt to guess. One older version is read.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};

use crate::table::{BadImage, HashKey, TableImage, Time, reading, since_3};

/// The format's version. Increase it with every change to the types below and to
/// [`TableImage`].
const VERSION: u32 = 3;
/// The oldest that is read: see [`since_3`].
const OLDEST: u32 = 2;
const MARK: &[u8; 8] = b"JOSTLEDH";
const HEAD: usize = 8 + 4 + 8 + 8;

/// Why a program cannot go on from a state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read.
    #[error("cannot read the state: {0}")]
    Io(#[from] io::Error),
    /// It is something else, or not whole.
    #[error("this is no state of jostled: {0}")]
    Damaged(&'static str),
    /// It is that of another version.
    #[error("the state has version {found}, and this program ({program}) reads {known}", program = env!("CARGO_PKG_VERSION"), known = VERSION)]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its locks cannot be.
    #[error(transparent)]
    Table(#[from] BadImage),
    /// Its connections do not fit its locks.
    #[error("the state is not sound: {0}")]
    Unsound(String),
    /// The settings do not fit it.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be made.
    #[error(transparent)]
    Start(#[from] crate::server::errors::StartError),
}

/// Everything that the new program needs and that is not in its settings. The
/// descriptors come beside it, in the order of `listeners` and `conns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The version of the program that wrote it.
    pub(crate) program: String,
    /// When its clients were served last.
    pub(crate) begun: u64,
    pub(crate) started: u64,
    /// The data directory; `None`: there is none. With one, the file of the tokens
    /// is the first descriptor.
    pub(crate) data: Option<Vec<u8>>,
    /// Whether there is a store; its file is the next descriptor.
    #[serde(deserialize_with = "since_3")]
    pub(crate) store: bool,
    pub(crate) table: TableImage,
    /// Names of users, from number 1 on.
    pub(crate) users: Vec<String>,
    pub(crate) stats: crate::server::stats::Stats,
    /// Requests by command.
    pub(crate) requests: Vec<(String, u64)>,
    pub(crate) listeners: Vec<ListenerState>,
    pub(crate) conns: Vec<ConnState>,
    /// Clients whose connections end because they use TLS.
    pub(crate) lost: Vec<u64>,
    /// Clients whose turn goes on, in their order.
    pub(crate) resumed: Vec<u64>,
    /// The client whose command asked for the handover.
    pub(crate) asker: Option<u64>,
}

/// A socket that is listened on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListenerState {
    pub(crate) door: crate::server::net::Door,
    pub(crate) address: Option<SocketAddr>,
    /// The file to remove at the end.
    pub(crate) file: Option<Vec<u8>>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnState {
    pub(crate) id: u64,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) resp3: bool,
    pub(crate) authenticated: bool,
    pub(crate) user: Option<String>,
    pub(crate) number: u16,
    pub(crate) probation: bool,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) waiting: bool,
    pub(crate) wrong_passwords: u32,
    pub(crate) refusal_due: Option<u64>,
    pub(crate) intake: Intake,
    /// Replies not yet sent.
    pub(crate) output: Vec<u8>,
    /// The names that the wait in progress wants as leases.
    pub(crate) wanted: Vec<Vec<u8>>,
    /// Leases whose replies were not yet sent, and where in `output` these begin.
    pub(crate) fresh_leases: Vec<(u64, Vec<u8>, usize)>,
    pub(crate) profile: Profile,
}

/// The bytes that a connection has received, and whether more can come. A handover keeps it as it
/// is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intake {
    /// The connection is to be closed once its replies are sent.
    pub(crate) closing: bool,
    /// Its socket may hold unread bytes. Epoll reports them only once.
    pub(crate) readable: bool,
    /// The client has closed its side, though not all that it sent may be read.
    pub(crate) hung_up: bool,
    /// The client has closed its side; nothing more will come.
    pub(crate) ended: bool,
    /// `input` may hold whole requests, which the next turn executes.
    pub(crate) more: bool,
    /// Received and not yet executed.
    pub(crate) input: Vec<u8>,
    /// `input` needs this many bytes before its first request can be complete.
    pub(crate) needed: usize,
}

/// The data that the sweep and administrators look at. A handover keeps it as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Profile {
    pub(crate) since: Time,
    pub(crate) last_request: Time,
    /// Since when a request has been incomplete, or the client not authenticated.
    pub(crate) incomplete_since: Option<Time>,
    /// Since when replies have waited without the client reading any.
    pub(crate) stuck_since: Option<Time>,
    pub(crate) commands: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

/// The commands queued since MULTI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    /// As they are sent.
    pub(crate) requests: Vec<u8>,
    pub(crate) count: usize,
    /// Bytes of the longest replies that they can have.
    #[serde(deserialize_with = "since_3")]
    pub(crate) replies: usize,
    /// Something was wrong: EXEC will execute nothing.
    pub(crate) aborted: bool,
}

/// A state in memory that nobody can change any more.
pub(crate) struct Sealed {
    file: File,
    checksum: u64,
}

fn checksum(bytes: &[u8]) -> u64 {
    HashKey(0, 0).hash(bytes)
}

/// The bytes of a state.
pub(crate) fn encode(state: &State) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    bytes = postcard::to_extend(state, bytes).map_err(io::Error::other)?;
    let (head, body) = bytes.split_at_mut(HEAD);
    head[..8].copy_from_slice(MARK);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..20].copy_from_slice(&(body.len() as u64).to_le_bytes());
    head[20..].copy_from_slice(&checksum(body).to_le_bytes());
    Ok(bytes)
}

/// Checks that the bytes are complete; returns the version, the checksum and the content.
fn open(bytes: &[u8]) -> Result<(u32, u64, &[u8]), StateError> {
    let Some((head, body)) = bytes.split_at_checked(HEAD) else {
        return Err(StateError::Damaged("it is too short"));
    };
    let number = |at: usize, length: usize| {
        let mut word = [0; 8];
        word[..length].copy_from_slice(&head[at..at + length]);
        u64::from_le_bytes(word)
    };
    let (version, length, sum) = (number(8, 4) as u32, number(12, 8), number(20, 8));
    if !head.starts_with(MARK) {
        return Err(StateError::Damaged("it does not begin as one"));
    }
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(StateError::Version { found: version });
    }
    if body.len() as u64 != length {
        return Err(StateError::Damaged("it is not whole"));
    }
    if checksum(body) != sum {
        return Err(StateError::Damaged("its checksum is another"));
    }
    Ok((version, sum, body))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<State, StateError> {
    let (version, _, body) = open(bytes)?;
    let older = version < VERSION;
    let unreadable = |_| StateError::Damaged("it cannot be decoded");
    let read = reading(older, || postcard::take_from_bytes::<State>(body));
    let (mut state, rest) = read.map_err(unreadable)?;
    if older {
        state.table.adopt_older();
    }
    match rest {
        [] => Ok(state),
        _ => Err(StateError::Damaged("something follows it")),
    }
}

impl Sealed {
    /// Writes a state into memory of its own.
    pub(crate) fn new(state: &State) -> io::Result<Self> {
        let bytes = encode(state)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("jostled-state", flags)?);
        file.write_all(&bytes)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let checksum = checksum(&bytes[HEAD..]);
        Ok(Self { file, checksum })
    }

    /// A state that another program has written.
    pub(crate) fn from_file(file: File) -> Result<Self, StateError> {
        let bytes = read_whole(&file)?;
        let (_, checksum, _) = open(&bytes)?;
        Ok(Self { file, checksum })
    }

    /// Decodes the state.
    pub(crate) fn read(&self) -> Result<State, StateError> {
        decode(&read_whole(&self.file)?)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }
}

/// The bytes of a whole file, whatever offset others have left in it.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = vec![0; usize::try_from(found.len()).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Gives bytes that were changed the checksum and length that they need.
#[cfg(test)]
pub(crate) fn reseal(bytes: &mut [u8]) {
    let (head, body) = bytes.split_at_mut(HEAD);
    head[12..20].copy_from_slice(&(body.len() as u64).to_le_bytes());
    head[20..].copy_from_slice(&checksum(body).to_le_bytes());
}
