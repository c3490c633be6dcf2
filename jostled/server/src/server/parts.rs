//! The parts of [`super::Server`]: data that other modules work on.

use std::collections::{HashMap, VecDeque};

use jostle_resp::request::decode;
use jostle_resp::{Args, Limits, Progress, RequestError};

use super::conn::Conn;
use super::guesses::Guesses;
use super::net::{Door, Listener};
use super::rounds::Rounds;
use crate::table::{AHEAD, ClientId, Output, Table, Time};
use crate::tokens::Promise;

/// Bytes read at a time: a few thousand pipelined commands.
pub(super) const SCRATCH: usize = 64 * 1024;
/// The work of a command whose reply may be long, in plain commands.
const LISTING: u64 = 512;
/// With fewer bytes than this there are hardly two requests to read ahead.
const AHEAD_BYTES: usize = 96;

/// Where clients come in, and who has not proved itself yet.
#[derive(Default)]
pub(super) struct Doors {
    pub(super) listeners: Vec<Listener>,
    /// Listeners are not watched for now, as no more files can be opened.
    pub(super) deaf: bool,
    #[cfg(feature = "tls")]
    pub(super) handshakes: Option<super::handshake::Handshakes>,
    pub(super) max_connections: usize,
    /// How many connections have come, and so the number of the next one.
    pub(super) arrivals: u64,
    /// Clients that may not have logged in yet, with their numbers, the oldest first.
    pub(super) unproved: VecDeque<(u64, ClientId)>,
    pub(super) guesses: Guesses,
}

impl Doors {
    /// Where clients connect.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Listener> {
        let all = self.listeners.iter();
        all.filter(|listener| listener.door != Door::Metrics)
    }
}

/// Whom the loop turns to next.
#[derive(Default)]
pub(super) struct Turn {
    /// Clients whose wait has ended. `granted`: nothing is behind the wait, and the
    /// client waits only for the reply. `resumed`: commands behind the wait can go on.
    pub(super) granted: VecDeque<ClientId>,
    pub(super) resumed: Rounds,
    /// Clients whose commands were executed, and whose replies are to be sent.
    pub(super) unsent: Vec<ClientId>,
    /// Several clients are ready: their replies are kept back, to be sent together.
    /// `gathered` counts the bytes kept back.
    pub(super) gather: bool,
    pub(super) gathered: usize,
    /// Clients that go on with the next turn.
    pub(super) later: VecDeque<ClientId>,
    /// Users take turns: there are several, or clients that have not logged in.
    pub(super) fair: bool,
    /// Clients that have hung up, to be served for the last time and closed, a bounded
    /// number each turn.
    pub(super) dying: VecDeque<ClientId>,
}

impl Turn {
    /// Lets a client go on when its user's turn comes.
    pub(super) fn resume(&mut self, conn: &mut Conn) {
        if !std::mem::replace(&mut conn.later, true) {
            self.resumed.push(conn.place(), conn.id);
        }
    }

    /// Whether somebody is ready to go on.
    pub(super) fn goes_on(&self) -> bool {
        let queues = [&self.later, &self.granted, &self.dying];
        self.resumed.len() > 0 || queues.iter().any(|clients| !clients.is_empty())
    }
}

/// Decodes requests; those of a pipeline before their turn.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Requests with their lengths, in their order, and room for as many as are decoded
    /// together.
    requests: Vec<(Args, usize)>,
    /// The request whose turn it is, and the one that comes next.
    current: usize,
    next: usize,
    count: usize,
    /// Bytes from the next request to the end of the input; they identify its position.
    rest: usize,
}

impl Decoder {
    /// Forgets what was decoded before its turn.
    pub(super) fn clear(&mut self) {
        self.requests.resize_with(AHEAD, Default::default);
        (self.next, self.count) = (0, 0);
    }

    /// Decodes the request at the start of `bytes`.
    #[inline]
    pub(super) fn decode(
        &mut self,
        table: &Table,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Progress, RequestError> {
        if table.outgrows_caches() {
            return self.decode_ahead(table, bytes, limits);
        }
        self.current = 0;
        decode(bytes, limits, &mut self.requests[0].0)
    }

    /// Decodes the request at the start of `bytes`, and with it as many of those behind
    /// it as the table reads ahead for. The command does not matter: in nearly all of
    /// them the first argument is the name of a lock.
    #[inline(never)]
    fn decode_ahead(
        &mut self,
        table: &Table,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Progress, RequestError> {
        if self.next == self.count || self.rest != bytes.len() {
            self.clear();
            self.rest = bytes.len();
            let few = bytes.len() < AHEAD_BYTES;
            let (mut hashes, mut from) = ([0; AHEAD], 0);
            for ((args, length), hash) in self.requests.iter_mut().zip(&mut hashes) {
                let request = &bytes[from..];
                match decode(request, limits, args) {
                    Ok(Progress::Complete { used }) => *length = used,
                    // The request is decoded again when its turn comes.
                    _ if self.count > 0 => break,
                    other => return other,
                }
                self.count += 1;
                if few {
                    break;
                }
                *hash = table.hash(args.get(request, 1).unwrap_or_default());
                table.begin_ahead(*hash);
                from += *length;
            }
            if !few {
                table.read_ahead(&hashes[..self.count]);
            }
        }
        self.current = self.next;
        self.next += 1;
        let used = self.requests[self.current].1;
        self.rest -= used;
        Ok(Progress::Complete { used })
    }

    /// The request that was decoded last.
    #[inline]
    pub(super) fn args(&self) -> &Args {
        &self.requests[self.current].0
    }
}

/// The buffers for the execution of commands, kept from turn to turn.
#[derive(Default)]
pub(super) struct Workspace {
    /// The last command was a long one: other clients come first.
    pub(super) long: bool,
    /// Work beside the commands counted, as a number of commands.
    pub(super) extra: u64,
    /// Waits that the table has ended, until their clients are notified.
    pub(super) outputs: Vec<Output>,
    /// [`SCRATCH`] bytes.
    pub(super) scratch: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) decoder: Decoder,
}

impl Workspace {
    /// A command begins that takes as long as many others.
    #[inline]
    pub(super) fn list(&mut self) {
        self.long = true;
        self.extra += LISTING;
    }
}

/// The promise about leases, and the limits set by an earlier promise.
#[derive(Debug)]
pub(super) struct Leases {
    /// Nothing is granted before this time.
    pub(super) from: Option<Time>,
    /// The promise that is kept; without a store or with `--after-crash grant`, one that
    /// covers every lease.
    pub(super) kept: Promise,
    /// The longest lease of the promise that was answered last: a shorter one may be on
    /// disk already.
    pub(super) stored_ms: u64,
    /// Leases up to this length, which `kept` covers, were asked for since the last review.
    pub(super) limit_ms: u64,
    /// Milliseconds that a promise must cover, for leases that were asked for before.
    pub(super) needed_ms: u64,
    /// When the table is searched for what is needed; `u64::MAX`: not before a promise.
    pub(super) review_at: Time,
    /// A review in progress: where it goes on, and the longest lease so far.
    pub(super) review: Option<(u64, u64)>,
    /// Clients whose LOCK waits for `from`, in the order of their requests.
    pub(super) parked: VecDeque<ClientId>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            from: None,
            kept: Promise::UNKNOWN,
            stored_ms: 0,
            limit_ms: u64::MAX,
            needed_ms: 0,
            review_at: Time(u64::MAX),
            review: None,
            parked: VecDeque::new(),
        }
    }
}

/// User numbers, which stay the same until the daemon ends: sessions and locks are booked to
/// them. Number 0 is the default user and every client that has not logged in.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Names by user number, from number 1 on.
    pub(super) names: Vec<String>,
    places: HashMap<String, u16>,
    /// Open connections by user number.
    pub(super) connections: Vec<u32>,
    /// Several users share what is bounded.
    pub(super) shared: bool,
}

impl Numbers {
    /// Those of these names, from number 1 on. No client is connected yet.
    pub(super) fn new(names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
            places: names.iter().cloned().zip(1..).collect(),
            connections: vec![0; names.len() + 1],
            shared: false,
        }
    }

    pub(super) fn name(&self, number: u16) -> &str {
        let place = usize::from(number).checked_sub(1);
        let name = place.and_then(|place| self.names.get(place));
        name.map_or(crate::users::DEFAULT, |name| name)
    }

    pub(super) fn find(&self, name: &str) -> Option<u16> {
        if name == crate::users::DEFAULT {
            return Some(0);
        }
        self.places.get(name).copied()
    }

    pub(super) fn add(&mut self, name: &str) -> u16 {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.connections.push(0);
            let number = self.names.len() as u16;
            self.places.insert(name.to_owned(), number);
            number
        })
    }
}
