//! Looks outside the lock, where a run went wrong, and the causes that they show for a reason.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// A look at something outside the lock. It judges nothing: the [table of
/// causes](method/causes.md) does.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The thing looked at.
    pub at: LookedAt,
    /// When in the course of the run.
    pub when: When,
    /// When it was asked, from the preparation of the run on; monotonic.
    pub asked_ns: u64,
    /// When the answer was there; absent where none came.
    pub answered_ns: Option<u64>,
    /// The result.
    pub came: Came,
    /// The server's or the system's own words, where it refused or was silent.
    pub words: Option<String>,
    /// The values that it showed, by name ([meanings](method/causes.md#which-signs-are-there)):
    /// `life`, `uptime_s`, `evicted`, `evicted_items`, `flushed`, `flushed_items`, `deleted`,
    /// `deleted_each`, `marker`, `wall_clock_ms`, `lease_by_clock_ms`, `idle_limit_s`, `pooler`,
    /// `one_backend`, `leader`, `silent_members`, `own_names`, `owners`, `wanted_bytes`,
    /// `wanted_shared`, `server_halted`, `parts_halted`, `workers_halted`, `owner_halted`,
    /// `clients`, `held_ms`, `quiet_ms`, `grants`, `lease_ms`, `renews`, `granted`,
    /// `granted_before`, `server_cpu_milli`, `server_still_milli`, `server_traced_milli`,
    /// `server_throttled_milli`, `granted_later_ms`, `holders`, `slow_ms`, `slow_command`, `paused`,
    /// `killed`, `stood_ms`, `connections`, `flowing`, `unacknowledged`, `retransmitted`,
    /// `listens`, `oom_killed`, `cut_off`. A process, and a session with a server,
    /// has `pid`, `name`, `state`, `shared`, `bytes`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub signs: Signs,
    /// The host that looked, where there are several.
    pub host: Option<String>,
}

/// The things that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LookedAt {
    /// The server's own report.
    Server,
    /// Who holds the lock, by the kernel's account.
    Owners,
    /// Who holds the lock, by the server's account: a process of jostle's that is connected
    /// before the run asks for it while nothing is granted, and when the first call has failed.
    Holders,
    /// Whether processes of the server or workers are stopped or frozen.
    Halted,
    /// The connections of workers, by the kernel's account.
    Path,
    /// The server's control group.
    Group,
    /// Who else is connected to the server, by its own list.
    Clients,
    /// The worker whose call failed first.
    Worker,
    /// The run as its record has it. No look at it is written.
    Run,
}

/// When a look was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before the first worker.
    Before,
    /// While nothing was granted: the first and the last look of the latest standstill.
    Still,
    /// When the first call failed.
    Failed,
    /// When all workers had ended.
    After,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Came {
    /// An answer.
    Answered,
    /// A refusal: whoever was asked is there, and does not tell.
    Refused,
    /// Nothing within the time for it, or nobody was there.
    Silent,
    /// It was not asked.
    NotAsked,
}

/// Values by name; [`sign`] has the names.
pub type Signs = BTreeMap<String, Sign>;

/// A value that a look showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sign {
    /// Whether something is so.
    Flag(bool),
    /// A count, or a time in the unit of its name.
    Number(i64),
    /// The least and the most that a value can be, or the first and the last of a range.
    Range([i64; 2]),
    /// A name.
    Text(String),
    /// Names of others.
    Texts(Vec<String>),
    /// Processes.
    Processes(Vec<Process>),
}

/// A process, or a session with a server, that a look showed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number; 0 where the kernel does not say, and where the server has none.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// How it stands still: `stopped`, `traced`, `frozen`; what a session does, and since when.
    pub state: Option<String>,
    /// Whether what it holds excludes only exclusive owners.
    pub shared: Option<bool>,
    /// The first and the last byte that it holds.
    pub bytes: Option<[u64; 2]>,
}

/// The names of signs, with the looks that show them.
pub mod sign {
    macro_rules! signs {
        ($($(#[doc = $meaning:literal])+ $name:ident $text:literal)*) => {
            $($(#[doc = $meaning])+ pub const $name: &str = $text;)*
            /// All of them, with their meanings.
            pub static ALL: &[(&str, &str)] = &[$(($text, concat!($($meaning),+))),*];
        };
    }

    signs! {
        /// Server: names this life of it, such as Redis' run id; another start has another.
        LIFE "life"
        /// Server: seconds since its start, by its own clock.
        UPTIME_S "uptime_s"
        /// Server: keys that Redis removed so far to stay below its limit of memory.
        EVICTED "evicted"
        /// Server: items that memcached removed so far to stay below its limit of memory.
        EVICTED_ITEMS "evicted_items"
        /// Server: calls of FLUSHALL and FLUSHDB, for all its databases.
        FLUSHED "flushed"
        /// Server: calls of memcached's flush_all.
        FLUSHED_ITEMS "flushed_items"
        /// Server: calls that delete keys, ours among them.
        DELETED "deleted"
        /// Server: such calls that each of our releases makes.
        DELETED_EACH "deleted_each"
        /// Server: whether a key that jostle had put beside its locks is there.
        MARKER "marker"
        /// Server: milliseconds by which its wall clock is ahead of this machine's monotonic
        /// clock: the least and the most, since the answer was under way for a time.
        WALL_CLOCK_MS "wall_clock_ms"
        /// Server: the lease of the locks, where its wall clock ends it.
        LEASE_BY_CLOCK_MS "lease_by_clock_ms"
        /// Server: seconds after which it closes a session that asks nothing.
        IDLE_LIMIT_S "idle_limit_s"
        /// Server: whether another process answers than the one that opened the session.
        POOLER "pooler"
        /// Server: whether a session keeps its process while another session is in a transaction.
        ONE_BACKEND "one_backend"
        /// Server: who leads, where several servers are one service.
        LEADER "leader"
        /// Server: its members that do not answer.
        SILENT_MEMBERS "silent_members"
        /// Server: whether the locks have names that no other run has.
        OWN_NAMES "own_names"
        /// Owners: the processes that hold the lock and are no workers.
        OWNERS "owners"
        /// Owners: the first and the last byte that workers want.
        WANTED_BYTES "wanted_bytes"
        /// Owners: whether all workers share the lock.
        WANTED_SHARED "wanted_shared"
        /// Halted: the server's own processes, where all of them stand still.
        SERVER_HALTED "server_halted"
        /// Halted: single processes of the server that stand still.
        PARTS_HALTED "parts_halted"
        /// Halted: workers that stand still.
        WORKERS_HALTED "workers_halted"
        /// Halted: whether the witness sees one of those inside the lock.
        OWNER_HALTED "owner_halted"
        /// Clients: their addresses, with the last command where it is listed.
        CLIENTS "clients"
        /// Worker: milliseconds from the grant until a release found the lock lost.
        HELD_MS "held_ms"
        /// Worker: milliseconds for which its connection had asked nothing before the call.
        QUIET_MS "quiet_ms"
        /// Worker: grants of all workers, those before and after the window too.
        GRANTS "grants"
        /// Worker: milliseconds from that failure to the last grant of any worker; 0 without one.
        GRANTED_LATER_MS "granted_later_ms"
        /// Worker: the lease of the lock.
        LEASE_MS "lease_ms"
        /// Worker: whether leases are renewed while locks are held.
        RENEWS "renews"
        /// Worker: whether its connection had ended.
        CUT_OFF "cut_off"
        /// Holders: the sessions or values that have the lock and are no worker's.
        HOLDERS "holders"
        /// Server: milliseconds that the longest command of others took since the run began.
        SLOW_MS "slow_ms"
        /// Server: that command, without its arguments, and the address of its client.
        SLOW_COMMAND "slow_command"
        /// Server: calls of CLIENT PAUSE.
        PAUSED "paused"
        /// Server: calls of CLIENT KILL.
        KILLED "killed"
        /// Path: milliseconds for which nothing had been granted.
        STOOD_MS "stood_ms"
        /// Path: the TCP connections of workers.
        CONNECTIONS "connections"
        /// Path: those of them on which something came within the latest 300 ms.
        FLOWING "flowing"
        /// Path: those of them on which a segment was sent again twice in a row, and not
        /// acknowledged.
        UNACKNOWLEDGED "unacknowledged"
        /// Path: segments that were sent again on these.
        RETRANSMITTED "retransmitted"
        /// Path: whether the server's process still listens on this machine.
        LISTENS "listens"
        /// Group: processes in it that the kernel killed for want of memory, so far.
        OOM_KILLED "oom_killed"
        /// Run: grants, from the first worker on.
        GRANTED "granted"
        /// Run: whether the lock was granted in a run before it, or in the measurement of the
        /// tool's own cost.
        GRANTED_BEFORE "granted_before"
        /// Run: thousandths of a CPU that the server used.
        SERVER_CPU_MILLI "server_cpu_milli"
        /// Run: thousandths of the looks at which all processes of the server stood still.
        SERVER_STILL_MILLI "server_still_milli"
        /// Run: thousandths of the looks at which a tracer held one of them meanwhile.
        SERVER_TRACED_MILLI "server_traced_milli"
        /// Run: thousandths of the window for which the CPU quota of the server's control group
        /// held it, summed over CPUs.
        SERVER_THROTTLED_MILLI "server_throttled_milli"
    }
}

/// The causes of a reason, by the table of causes.
///
/// Runs of older files have such findings in place of looks, as the version that wrote them
/// worded them: `found` and `looked_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Causes {
    /// Clauses with their evidence, such as `the server evicted 12 keys`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub found: Vec<String>,
    /// Clauses about what is not ruled out, since something could not be looked at.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub possible: Vec<String>,
    /// The things looked at, such as `who else holds the lock`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub looked_at: Vec<String>,
    /// The things that could not be looked at, and in whose words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unseen: Vec<String>,
}

impl Causes {
    /// Adds what is not in it yet; of texts that differ by their figures alone, the first is kept.
    pub fn add(&mut self, other: &Causes) {
        let shape = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let lists = [
            (&mut self.found, &other.found),
            (&mut self.possible, &other.possible),
            (&mut self.looked_at, &other.looked_at),
            (&mut self.unseen, &other.unseen),
        ];
        for (all, more) in lists {
            for one in more {
                if !all.iter().any(|known| shape(known) == shape(one)) {
                    all.push(one.clone());
                }
            }
        }
    }
}

impl From<bool> for Sign {
    fn from(is: bool) -> Sign {
        Sign::Flag(is)
    }
}

impl From<u64> for Sign {
    fn from(number: u64) -> Sign {
        Sign::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<String> for Sign {
    fn from(text: String) -> Sign {
        Sign::Text(text)
    }
}
