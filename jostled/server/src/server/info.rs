//! The server's figures. One list feeds `INFO` and the Prometheus metrics, so that the
//! two cannot differ.

use std::fmt::Write;

use super::Server;
use super::commands::table::COMMANDS;
use super::conn::Conn;
use crate::config::Config;
use crate::table::Time;

pub(crate) enum Value {
    Text(String),
    /// Only grows.
    Counter(u64),
    /// Goes up and down.
    Gauge(u64),
    /// Seconds that only grow.
    Seconds(f64),
}

/// A figure: its section in `INFO`, its name, and what it means.
pub(crate) struct Field {
    section: &'static str,
    name: String,
    value: Value,
    help: &'static str,
}

/// Adds figures of a section, a line each.
macro_rules! figures {
    ($fields:ident, $section:expr; $($name:tt $kind:ident($value:expr) $help:literal)*) => {
        $($fields.push(Field {
            section: $section,
            name: $name.into(),
            value: Value::$kind($value),
            help: $help,
        });)*
    };
}

/// Everything, in the order in which it is shown.
pub(crate) fn fields(server: &Server, now: Time) -> Vec<Field> {
    let mut fields = Vec::with_capacity(80);
    about_server(server, now, &mut fields);
    about_clients(server, &mut fields);
    about_locks(server, now, &mut fields);
    about_work(server, &mut fields);
    for (spec, count) in COMMANDS.iter().zip(&server.stats.per_command) {
        let name = format!("cmd_{}", spec.name.to_lowercase());
        figures! { fields, "commands";
            name Counter(*count) "Requests of this command"
        }
    }
    fields
}

fn about_server(server: &Server, now: Time, fields: &mut Vec<Field>) {
    let (log_dropped, audit_dropped) = crate::log::dropped();
    // Tools for Redis look for `redis_mode`.
    figures! { fields, "server";
        "jostled_version" Text(env!("CARGO_PKG_VERSION").to_owned()) ""
        "redis_mode" Text("standalone".to_owned()) ""
        "os" Text(std::env::consts::OS.to_owned()) ""
        "process_id" Gauge(u64::from(std::process::id())) "Process id"
        "uptime_in_seconds" Gauge(server.life.started.seconds_until(now))
            "Seconds since the start"
        "log_lines_dropped" Counter(log_dropped)
            "Lines of the log that nobody read in time or that could not be written"
        "audit_lines_dropped" Counter(audit_dropped)
            "Lines of --audit that nobody read in time or that could not be written"
        "handovers" Counter(server.stats.handovers)
            "Programs that took over from the one before them"
        "handover_failures" Counter(server.stats.handover_failures)
            "Handovers that were refused or failed; the program before went on"
    }
    if let Some((at, stall_us)) = server.life.taken_over {
        figures! { fields, "server";
            "handover_age_seconds" Gauge(at.seconds_until(now)) "Seconds since the last handover"
            "handover_stall_microseconds" Gauge(stall_us)
                "Microseconds of the last handover in which nobody was served"
        }
    }
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9;
    figures! { fields, "cpu";
        "used_cpu_seconds" Seconds(seconds) "CPU time of the process, all threads"
    }
    let resident = resident_bytes().unwrap_or(0);
    figures! { fields, "memory";
        "used_memory_rss" Gauge(resident) "Resident memory of the process in bytes"
        "table_memory" Gauge(server.table.bytes() as u64)
            "Memory of the lock table in bytes; it is kept for the next peak"
        "buffer_memory" Gauge(server.buffered as u64) "Memory of the clients' buffers in bytes"
    }
    let trouble = server.reserver.as_ref().and_then(|found| found.state());
    let store = match trouble {
        _ if server.config.data.is_none() => "not kept".to_owned(),
        Some(trouble) => trouble.replace(['\r', '\n'], " "),
        None => "ok".to_owned(),
    };
    if let Some(gate) = &server.gate {
        let full = gate.full.as_ref().map(|why| why.replace(['\r', '\n'], " "));
        figures! { fields, "store";
            "store" Text(full.unwrap_or_else(|| "ok".to_owned())) ""
            "store_commits" Counter(gate.commits) "Batches that the store has committed"
            "store_entries" Counter(gate.entries) "Changes in these batches"
            "store_commit_seconds" Seconds(gate.commit_ns as f64 * 1e-9)
                "Time that these commits took, together"
        }
    }
    #[cfg(feature = "ha")]
    if let Some(ha) = &server.ha {
        about_group(&ha.shared, fields);
        figures! { fields, "ha";
            "ha_held_clients" Gauge(server.gate.as_ref().map_or(0, |gate| gate.waiting() as u64))
                "Clients whose replies wait for etcd"
        }
    }
    figures! { fields, "tokens";
        "token_store" Text(store) ""
        "next_token" Gauge(server.table.next_token()) "The fencing token of the next grant"
        "tokens_left" Gauge(server.table.tokens_left()) "Tokens that are reserved"
        "token_reservations" Counter(server.stats.reservations) "Ranges of tokens made durable"
        "token_reservation_failures" Counter(server.stats.reservation_failures)
            "Ranges of tokens that could not be made durable"
    }
}

/// The group of jostleds, and its etcd.
#[cfg(feature = "ha")]
pub(crate) fn about_group(shared: &crate::etcd::Shared, fields: &mut Vec<Field>) {
    use std::sync::atomic::Ordering::Relaxed;
    let view = shared.view();
    let (epoch, sequence) = view.head.map_or((0, 0), |head| (head.epoch, head.sequence));
    let statuses = || view.health.iter().filter_map(|found| found.status.as_ref());
    let well = view.health.iter().filter(|found| found.trouble.is_none());
    let most = |of: fn(&jostle_etcd::messages::StatusResponse) -> i64| {
        statuses().map(of).max().unwrap_or(0).max(0) as u64
    };
    figures! { fields, "ha";
        "ha_leads" Gauge(u64::from(view.leads)) "Whether this jostled serves its group"
        "ha_epoch" Gauge(epoch) "How often the serving jostled has changed"
        "ha_refuses" Gauge(u64::from(view.trouble.is_some()))
            "Whether this standby would not take over; its log and /healthz have the reason"
        "ha_settings_differ" Gauge(u64::from(view.differs))
            "Whether the serving jostled has other settings or users than this one"
        "ha_sequence" Gauge(sequence) "Writes of the group's state so far"
        "ha_members" Gauge(view.others.len() as u64) "Other members of the group that run"
        "ha_operations" Counter(shared.batches.load(Relaxed))
            "Transactions of etcd that this jostled has had answers to"
        "ha_unknown_outcomes" Counter(shared.unknown.load(Relaxed))
            "Transactions that failed or had no answer in time, so that they were sent again"
        "ha_etcd_members" Gauge(view.health.len() as u64) "Members of etcd that are named"
        "ha_etcd_members_well" Gauge(well.count() as u64) "Those of them that answer in time"
        "ha_etcd_bytes" Gauge(most(|status| status.database_bytes)) "Size of etcd's database"
        "ha_etcd_quota_bytes" Gauge(most(|status| status.quota_bytes))
            "The size at which etcd refuses writes; 0: it does not tell, usually 2 GiB"
        "ha_etcd_alarms" Gauge(statuses().map(|status| status.errors.len() as u64).max().unwrap_or(0))
            "Alarms of etcd, such as NOSPACE"
    }
}

fn about_clients(server: &Server, fields: &mut Vec<Field>) {
    let stats = &server.stats;
    figures! { fields, "clients";
        "connected_clients" Gauge(server.table.clients()) "Clients connected"
        "maxclients" Gauge(server.doors.max_connections as u64) "Clients that may connect"
        "blocked_clients" Gauge(server.table.waiting()) "Clients that wait for a lock"
        "total_connections_received" Counter(stats.connections) "Clients that were let in"
        "rejected_connections" Counter(stats.rejected) "Clients turned away at --max-connections"
        "closed_idle" Counter(stats.closed_idle) "Clients closed by --idle-timeout"
        "closed_slow" Counter(stats.closed_slow) "Clients closed by --request-timeout"
        "closed_output" Counter(stats.closed_output)
            "Clients closed because they did not read, or for --max-buffers"
        "closed_request" Counter(stats.closed_request)
            "Clients closed for malformed requests or size"
        "closed_http" Counter(stats.closed_http) "Clients closed because they spoke HTTP"
        "closed_killed" Counter(stats.killed) "Clients closed by CLIENT KILL"
        "protocol_errors" Counter(stats.protocol_errors) "Requests that were malformed or too long"
        "closed_handshake" Counter(server.handshakes_failed())
            "Clients whose TLS handshake failed or took too long"
        "auth_failures" Counter(stats.auth_failures) "Wrong passwords"
        "auth_waiting" Gauge(server.doors.guesses.waiting().count() as u64)
            "Logins that wait because of wrong passwords from their address"
        "total_net_input_bytes" Counter(stats.bytes_in) "Bytes received"
        "total_net_output_bytes" Counter(stats.bytes_out) "Bytes sent"
    }
}

impl Server {
    /// TLS handshakes that failed, also before a handover.
    pub(super) fn handshakes_failed(&self) -> u64 {
        let before = self.stats.handshakes_failed;
        #[cfg(feature = "tls")]
        if let Some(handshakes) = &self.doors.handshakes {
            return before + handshakes.failed();
        }
        before
    }
}

fn about_locks(server: &Server, now: Time, fields: &mut Vec<Field>) {
    let table = &server.table;
    figures! { fields, "locks";
        "locks_held" Gauge(table.names_held()) "Names that are held"
        "holds" Gauge(table.holds()) "Holds; each holder of a shared lock counts"
        "leases" Gauge(table.leases()) "Holds that are leases"
        "draining" Gauge(u64::from(server.is_draining()))
            "Whether the daemon waits for holders before its end"
        "loading_ms" Gauge(server.loading_ms(now).unwrap_or(0))
            "Milliseconds until locks are granted: leases from before the start may still run"
        "crash_wait_ms" Gauge(server.crash_wait_ms())
            "Milliseconds without a grant if the daemon crashed and started again now, at most"
        "sessions" Gauge(table.sessions()) "Sessions that are open"
        "waiters" Gauge(table.waiting()) "Clients that wait for a lock"
    }
}

fn about_work(server: &Server, fields: &mut Vec<Field>) {
    let counters = server.table.counters();
    figures! { fields, "stats";
        "total_commands_processed" Counter(server.stats.commands) "Requests, unknown ones included"
        "grants" Counter(counters.granted()) "Locks granted"
        "grants_at_once" Counter(counters.granted_at_once) "Locks granted without a wait"
        "grants_after_wait" Counter(counters.granted_after_wait) "Locks granted after a wait"
        "releases" Counter(counters.released) "Holds ended by UNLOCK"
        "releases_by_disconnect" Counter(counters.released_by_disconnect)
            "Holds ended with their connection"
        "releases_by_session" Counter(counters.released_by_session) "Holds ended with their session"
        "expirations" Counter(counters.expired) "Leases that ran out"
        "forced_releases" Counter(counters.forced) "Holds ended by FORCEUNLOCK"
        "renewals" Counter(counters.renewed) "Leases renewed"
        "busy" Counter(counters.busy) "Requests answered nil at once"
        "waits" Counter(counters.waits) "Waits begun"
        "wait_timeouts" Counter(counters.wait_timeouts) "Waits ended by their time"
        "wait_cancels" Counter(counters.wait_cancels) "Waits ended because the client was gone"
        "waits_without_session" Counter(counters.waits_without_session)
            "Waits ended because their session was over"
        "waits_already_held" Counter(counters.waits_already_held)
            "Waits ended because their session got the lock by another request"
        "waits_unblocked" Counter(server.stats.unblocked)
            "Those of wait_cancels that CLIENT UNBLOCK ended"
        "grants_passed_on" Counter(server.stats.passed_on)
            "Leases whose client was gone before the reply, released at once"
        "refused" Counter(counters.refused) "Locks refused: bounds, memory, tokens"
        "not_owner" Counter(counters.not_owner) "Releases and renewals by others than the holder"
        "not_held" Counter(counters.not_held) "Releases of locks that nobody held"
        "waited_seconds" Seconds(counters.waited_ns as f64 * 1e-9)
            "Time that granted waits took, together"
    }
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// `INFO`: all sections, or those that are named.
pub(crate) fn text(fields: &[Field], sections: &[&[u8]]) -> String {
    let wanted = |section: &str| {
        let words = [section.as_bytes(), b"all", b"everything", b"default"];
        let is_one = |name: &&[u8]| words.iter().any(|word| name.eq_ignore_ascii_case(word));
        sections.is_empty() || sections.iter().any(is_one)
    };
    let mut order: Vec<&str> = Vec::new();
    for field in fields {
        if wanted(field.section) && !order.contains(&field.section) {
            order.push(field.section);
        }
    }
    let mut text = String::new();
    for section in order {
        let (first, rest) = section.split_at(1);
        let start = if text.is_empty() { "" } else { "\r\n" };
        let _ = write!(text, "{start}# {}{rest}\r\n", first.to_uppercase());
        for field in fields.iter().filter(|field| field.section == section) {
            let _ = match &field.value {
                Value::Text(value) => write!(text, "{}:{value}\r\n", field.name),
                Value::Counter(value) | Value::Gauge(value) => {
                    write!(text, "{}:{value}\r\n", field.name)
                }
                Value::Seconds(value) => write!(text, "{}:{value:.6}\r\n", field.name),
            };
        }
    }
    text
}

/// The metrics in the text format of Prometheus, version 0.0.4.
pub(crate) fn metrics(server: &Server, now: Time) -> String {
    let mut text = metrics_of(&fields(server, now));
    text.push_str("# HELP jostled_requests_total Requests by command.\n");
    text.push_str("# TYPE jostled_requests_total counter\n");
    for (spec, count) in COMMANDS.iter().zip(&server.stats.per_command) {
        let name = spec.name.to_lowercase();
        let _ = writeln!(text, "jostled_requests_total{{command=\"{name}\"}} {count}");
    }
    wait_histogram(server, &mut text);
    text
}

/// Those of these figures.
pub(crate) fn metrics_of(fields: &[Field]) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
        let _ = write!(
            text,
            "# HELP jostled_{name} {help}.\n# TYPE jostled_{name} {kind}\njostled_{name} {value}\n"
        );
    };
    for field in fields.iter().filter(|field| field.section != "commands") {
        let total = format!("{}_total", field.name.trim_start_matches("total_"));
        match &field.value {
            Value::Text(_) => {}
            Value::Gauge(value) => add(&field.name, "gauge", field.help, value),
            Value::Counter(value) => add(&total, "counter", field.help, value),
            Value::Seconds(value) => add(&total, "counter", field.help, value),
        }
    }
    text
}

fn wait_histogram(server: &Server, text: &mut String) {
    let counters = server.table.counters();
    text.push_str("# HELP jostled_wait_seconds Time that granted waits took.\n");
    text.push_str("# TYPE jostled_wait_seconds histogram\n");
    let mut sum = 0;
    let (last, finite) = counters.waited_ms_log2.split_last().unwrap_or((&0, &[]));
    for (power, count) in finite.iter().enumerate() {
        sum += count;
        let upper = (1u64 << power) as f64 / 1000.0;
        let _ = writeln!(text, "jostled_wait_seconds_bucket{{le=\"{upper}\"}} {sum}");
    }
    sum += last;
    let _ = writeln!(text, "jostled_wait_seconds_bucket{{le=\"+Inf\"}} {sum}");
    let _ = writeln!(
        text,
        "jostled_wait_seconds_sum {}",
        counters.waited_ns as f64 * 1e-9
    );
    let _ = writeln!(text, "jostled_wait_seconds_count {sum}");
}

/// One line of `CLIENT LIST`, in the form that Redis's tools read.
pub(crate) fn client_line(server: &Server, conn: &Conn, now: Time) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let flags = match (conn.waits(), conn.peer) {
        (true, _) => "b",
        (false, None) => "U",
        (false, Some(_)) => "N",
    };
    format!(
        "id={} addr={} name={} age={} idle={} flags={flags} db=0 qbuf={} obl={} tot-cmds={} \
         owns={} user={} resp={} lib-name={} lib-ver={}\n",
        conn.id.number(),
        conn.address(),
        text(&conn.profile.name),
        conn.profile.since.seconds_until(now),
        conn.profile.last_request.seconds_until(now),
        conn.intake.input.len(),
        conn.pending(),
        conn.profile.commands,
        u8::from(server.table.owns_any(conn.id)),
        conn.user.as_ref().map_or("", |user| &user.name),
        conn.protocol.number(),
        text(&conn.profile.library),
        text(&conn.profile.library_version),
    )
}

/// The settings that `CONFIG GET` returns: those that redis-benchmark and other tools
/// read, and the bounds.
pub(crate) fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let seconds = |time: Option<std::time::Duration>| {
        time.map_or_else(|| "0".to_owned(), |time| time.as_secs().to_string())
    };
    vec![
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("maxclients", config.max_connections.to_string()),
        ("maxmemory", config.table.memory_bytes.to_string()),
        ("timeout", seconds(config.idle_timeout)),
        ("tcp-keepalive", config.tcp_keepalive.as_secs().to_string()),
        ("max-waiters", config.table.waiters.to_string()),
        (
            "max-waiters-per-lock",
            config.table.waiters_per_lock.to_string(),
        ),
        ("max-sessions", config.table.sessions.to_string()),
        ("max-name", config.table.name_bytes.to_string()),
        ("max-request", config.max_request.to_string()),
        ("max-output", config.max_output.to_string()),
        ("request-timeout", seconds(config.request_timeout)),
    ]
}
