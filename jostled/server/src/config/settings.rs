//! The administrator's settings: flags of `jostled`, and a TOML file with the same names.

use std::path::PathBuf;

use jostle_daemon::{Size, complete};
use serde::Deserialize;

use super::{AfterCrash, Audited};
use crate::log::{Format, Level};

/// Where leases and sessions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Nowhere: they end with the daemon.
    None,
    /// In the file `log` of the data directory.
    File,
}

/// Whether etcd's history is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compact {
    /// By jostled.
    Yes,
    /// By somebody else.
    No,
}

/// Flags of `jostled`, and keys of its file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address to listen on, HOST:PORT; may be repeated; "none" for none.
    /// Default: 127.0.0.1:2626. An address other than loopback needs a password
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<String>,

    /// Address to listen on with TLS, HOST:PORT; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub tls_listen: Vec<String>,

    /// Certificate chain for TLS, a PEM file. Default: the credential
    /// jostled.cert of systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Private key for TLS, a PEM file. Default: the credential jostled.key of
    /// systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Permissions of the Unix socket, octal. Default: 600, its owner alone
    #[arg(long, value_name = "MODE")]
    pub unix_mode: Option<String>,

    /// Data directory; it keeps the range of fencing tokens that may have been used.
    /// Default: $STATE_DIRECTORY, else $XDG_STATE_HOME/jostled, else
    /// ~/.local/state/jostled; required if none of these variables is set. "none"
    /// writes nothing: tokens start at 1 with each start, and do not fence
    /// against earlier grants
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,

    /// Where leases, sessions and their locks are stored: `file` is the file `log` of --data.
    /// They survive `kill -9` and a reboot, with their whole TTL, and no start waits
    /// (--after-crash); each reply waits for the disk. Default: none
    #[arg(long, value_name = "WHAT")]
    pub store: Option<StoreKind>,

    /// How jostled starts when it ended without a handover: `wait` grants nothing until every
    /// lease that may exist has ended, `grant` grants at once. Default: wait
    #[arg(long, value_name = "WHAT")]
    pub after_crash: Option<AfterCrash>,

    /// Longest lease and session, in seconds, and so the longest wait after a crash. Default:
    /// 3600; no limit with --after-crash grant or --data none
    #[arg(long, value_name = "SECONDS")]
    pub max_ttl: Option<u64>,

    /// Accept a data directory that was copied, such as a restored backup: tokens go on
    /// 2^40 later, and locks are granted after --max-ttl
    #[arg(long)]
    #[serde(skip)]
    pub restored: bool,

    /// Name of a group of jostleds on several machines: one serves, the others wait to take over
    /// with all locks. Their state is in etcd, below /jostled/NAME/; `jostled --ha-init` creates
    /// it. Default: none, this jostled is alone
    #[arg(long, value_name = "NAME")]
    pub ha_name: Option<String>,

    /// Client addresses of etcd's members, http://HOST:PORT or https://HOST:PORT, separated by
    /// commas, the nearest one first
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub ha_etcd: Vec<String>,

    /// User of etcd; it needs to read and write below /jostled/NAME/
    #[arg(long, value_name = "NAME")]
    pub ha_user: Option<String>,

    /// File with the password of --ha-user (its first line). Default: the credential
    /// jostled.etcd-password of systemd
    #[arg(long, value_name = "FILE")]
    pub ha_password_file: Option<PathBuf>,

    /// Certificates of the authorities that signed those of etcd (https), a PEM file
    #[arg(long, value_name = "FILE")]
    pub ha_ca: Option<PathBuf>,

    /// Client certificate, if etcd asks for one, a PEM file
    #[arg(long, value_name = "FILE")]
    pub ha_cert: Option<PathBuf>,

    /// Private key of --ha-cert, a PEM file
    #[arg(long, value_name = "FILE")]
    pub ha_key: Option<PathBuf>,

    /// Name of this member of the group. Default: the machine's name and the port
    #[arg(long, value_name = "NAME")]
    pub ha_member: Option<String>,

    /// Whether the serving jostled compacts etcd's history, keeping the last minute: `no` for an
    /// etcd that others use too. Default: yes
    #[arg(long, value_name = "WHAT")]
    pub ha_compact: Option<Compact>,

    /// File with the password (its first line); else $JOSTLED_PASSWORD, else the
    /// credential jostled.password of systemd, if there is one
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// File with users, their rights and quotas, in the syntax of Redis's ACL
    /// files. Default: the credential jostled.users of systemd, if there is one;
    /// else there is one user, `default`, who may do everything
    #[arg(long, value_name = "FILE")]
    pub users_file: Option<PathBuf>,

    /// Certificates of authorities, a PEM file: a TLS client that shows a
    /// certificate of theirs is the user of its common name, without AUTH
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Connections, out of --max-connections, that are reserved for administrators.
    /// Default: 8 with --users-file, otherwise 0
    #[arg(long, value_name = "N")]
    pub reserve_connections: Option<usize>,

    /// Address of the Prometheus metrics, http://HOST:PORT/metrics. They need
    /// no password and hold no names. Default: none
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,

    /// Threshold of the log. Audit lines (FORCEUNLOCK, CLIENT KILL, SHUTDOWN, refused logins)
    /// are always logged. Default: info
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,

    /// Format of the log: lines of text, or a JSON object a line. Default: text
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<Format>,

    /// More audit lines, separated by commas: `locks` (each grant, and each end of a hold
    /// with its cause), `logins` (accepted ones), `acl` (changes of users). Default: none
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub audit: Vec<Audited>,

    /// Connections at the same time. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,

    /// Waiters of one lock. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_waiters_per_lock: Option<u32>,

    /// Waiters of all locks together. Default: 100000
    #[arg(long, value_name = "N")]
    pub max_waiters: Option<u32>,

    /// Sessions at the same time. Default: 10000
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<u32>,

    /// Longest wait of a LOCK, with or without WAIT; 0: no limit. It ends the waits of
    /// clients that have given up but kept their connection. Default: 0
    #[arg(long, value_name = "SECONDS")]
    pub max_wait: Option<u64>,

    /// Bytes of a lock's name, at most 65535. Default: 512
    #[arg(long, value_name = "BYTES")]
    pub max_name: Option<usize>,

    /// Memory for locks, names and waiters, with suffix K, M or G. Default: 1G
    #[arg(long, value_name = "BYTES")]
    pub max_memory: Option<Size>,

    /// Memory for the names with the most waiting (CONTENTION); 0 keeps none. Default: 512K
    #[arg(long, value_name = "BYTES")]
    pub contention_memory: Option<Size>,

    /// Size of one request, and of what a client may send behind a waiting LOCK.
    /// Default: 64K
    #[arg(long, value_name = "BYTES")]
    pub max_request: Option<Size>,

    /// Unread replies at which a client is disconnected. Default: 1M
    #[arg(long, value_name = "BYTES")]
    pub max_output: Option<Size>,

    /// Memory for requests and replies of all clients; above it, clients with the
    /// fullest buffers are disconnected. Default: 256M
    #[arg(long, value_name = "BYTES")]
    pub max_buffers: Option<Size>,

    /// Seconds without a request after which a client that neither owns a lock
    /// nor waits is disconnected; 0: never. Default: 0
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Seconds in which a started request must arrive whole, a new client must
    /// have authenticated, and a client must read some of its replies; 0 never.
    /// Default: 30
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u64>,

    /// Seconds of silence after which TCP probes whether a client's host is
    /// there; it is given up when 3 probes, a sixth of that time apart and at
    /// least 1 second, stay unanswered. 1 to 32767. Default: 60, so 90 in all
    #[arg(long, value_name = "SECONDS")]
    pub tcp_keepalive: Option<u32>,

    /// Microseconds for which the daemon polls for requests before it sleeps,
    /// while clients wait for locks; 0: never. Quicker hand-offs, for up to one
    /// core. Default: 50
    #[arg(long, value_name = "MICROSECONDS")]
    pub busy_poll: Option<u32>,

    /// Busy polling also while nobody waits: quicker replies to clients that send
    /// one request at a time
    #[arg(long)]
    pub busy_poll_always: bool,

    /// Seconds in which a new program must answer whether it can take over
    /// (HANDOVER, SIGUSR2). Default: 10
    #[arg(long, value_name = "SECONDS")]
    pub handover_timeout: Option<u64>,

    /// Seconds for clients to read their last replies when the daemon ends.
    /// Default: 5
    #[arg(long, value_name = "SECONDS")]
    pub drain_timeout: Option<u64>,

    /// The password itself; only in the file, since every user can see flags
    #[arg(skip)]
    pub password: Option<String>,
}

impl Settings {
    /// These settings, completed by those of `file`.
    #[must_use]
    pub fn over(mut self, file: Self) -> Self {
        complete! { self by file:
            tls_cert tls_key unix unix_mode data store after_crash max_ttl ha_name ha_user
            ha_password_file ha_ca ha_cert ha_key ha_member ha_compact password_file users_file tls_ca
            reserve_connections metrics log_level log_format max_connections
            max_waiters_per_lock max_waiters max_sessions max_wait max_name max_memory
            contention_memory max_request max_output max_buffers idle_timeout request_timeout
            tcp_keepalive busy_poll handover_timeout drain_timeout password;
            listen tls_listen ha_etcd audit
        }
        self.busy_poll_always |= file.busy_poll_always;
        self
    }
}
