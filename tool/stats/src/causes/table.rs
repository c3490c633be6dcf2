//! The rows, and the tests that they name.

use super::{Cause, Facts, Test};
use crate::checks::{errors, exclusion, idle_lock, leases, lost_update, server_still};
use jostle_model::record::{LookedAt, When, sign};

/// A lock that was lost, or a call that failed.
const LOSS: &[&str] = &[
    exclusion::CHECK.name,
    lost_update::CHECK.name,
    errors::CHECK.name,
    leases::CHECK.name,
];
/// A lock that granted nothing.
const STILL: &[&str] = &[idle_lock::CHECK.name];
/// Either.
const BOTH: &[&str] = &[
    exclusion::CHECK.name,
    lost_update::CHECK.name,
    errors::CHECK.name,
    leases::CHECK.name,
    idle_lock::CHECK.name,
];

/// `NAME: "what is so", |facts| answer;`, each a [`Test`].
macro_rules! tests {
    ($($name:ident: $words:literal, |$facts:ident| $of:expr;)*) => {
        $(static $name: Test = Test { words: $words, of: |$facts: &Facts<'_>| $of };)*
    };
}

tests! {
    ANOTHER_LIFE: "another life of the server answers than before the run",
        |f| f.changed(sign::LIFE);
    SAME_LIFE: "the same life of the server answers",
        |f| f.changed(sign::LIFE).map(|is| !is);
    STARTED_WITHIN: "its uptime is shorter than the monotonic time since it was asked first",
        |f| f.started_within();
    CLOCK_SET: "its wall clock moved against our monotonic one",
        |f| f.set_by_ms().map(|by| by != 0);
    CLOCK_AHEAD: "its wall clock was set forward",
        |f| f.set_by_ms().map(|by| by > 0);
    CLOCK_BACK: "its wall clock was set back",
        |f| f.set_by_ms().map(|by| by < 0);
    NO_LEASE_BY_CLOCK: "its wall clock ends no lease",
        |f| f.server(sign::LEASE_BY_CLOCK_MS).map(|ms| ms == 0);
    JUMP_TOO_SHORT: "the lease was longer than the jump and the hold",
        |f| Some(f.set_by_ms()? + f.worker_ms(sign::HELD_MS)? < f.server(sign::LEASE_BY_CLOCK_MS)?);
    SILENT_AFTER: "it did not answer after the run", |f| f.was_silent(When::After);
    SILENT_BEFORE: "it did not answer before the run", |f| f.was_silent(When::Before);
    EVICTED: "its count of evicted keys grew", |f| f.grew(sign::EVICTED);
    EVICTED_ITEMS: "its count of evicted items grew", |f| f.grew(sign::EVICTED_ITEMS);
    FLUSHED: "its count of FLUSHALL and FLUSHDB grew", |f| f.grew(sign::FLUSHED);
    FLUSHED_ITEMS: "its count of flush_all grew", |f| f.grew(sign::FLUSHED_ITEMS);
    EVICTED_SOME: "its count of evictions grew",
        |f| f.grew(sign::EVICTED).or(f.grew(sign::EVICTED_ITEMS));
    FLUSHED_SOME: "its count of flushes grew",
        |f| f.grew(sign::FLUSHED).or(f.grew(sign::FLUSHED_ITEMS));
    CLOCK_ENDS: "its wall clock, which ends leases, moved against our monotonic one",
        |f| match f.server(sign::LEASE_BY_CLOCK_MS)? {
            0 => Some(false),
            _ => f.set_by_ms().map(|by| by != 0),
        };
    MARKER_GONE: "a key that jostle had put beside its locks is gone",
        |f| Some(f.is(When::Before, sign::MARKER)? && !f.is(When::After, sign::MARKER)?);
    MARKER_THERE: "a key that jostle had put beside its locks is still there",
        |f| f.is(When::After, sign::MARKER);
    DELETED_BEYOND: "it counts more deletions than our releases made",
        |f| f.deleted_beyond().map(|by| by > 0);
    HELD_TOO_LONG: "the lock was held for its lease or longer",
        |f| Some(f.worker_ms(sign::HELD_MS)? >= f.worker_ms(sign::LEASE_MS)?);
    RENEWED: "the lease was renewed", |f| f.worker_is(sign::RENEWS);
    ENDS_IDLE: "it ends sessions that ask nothing for a minute or less",
        |f| f.server(sign::IDLE_LIMIT_S).map(|s| (1..=60).contains(&s));
    ASKED_SOONER: "the session had asked something within that time",
        |f| Some(f.worker_ms(sign::QUIET_MS)? < 1_000 * f.server(sign::IDLE_LIMIT_S)?);
    POOLER: "another process answers than the one that opened the session",
        |f| f.is(When::After, sign::POOLER);
    ONE_BACKEND: "a session keeps its process while another is in a transaction",
        |f| f.is(When::After, sign::ONE_BACKEND);
    LEADER_CHANGED: "another server leads", |f| f.changed(sign::LEADER);
    MEMBERS_SILENT: "members do not answer after the run",
        |f| Some(!f.texts(When::After, sign::SILENT_MEMBERS)?.is_empty());
    SILENT_ALREADY: "the same members did not answer before the run",
        |f| f.changed(sign::SILENT_MEMBERS).map(|is| !is);
    OWNED: "a process that is no worker held it during the standstill",
        |f| f.stood(LookedAt::Owners, sign::OWNERS);
    LET_GO: "it had let go before the standstill ended",
        |f| f.stood_no_longer(LookedAt::Owners, sign::OWNERS);
    OTHER_BYTES: "it holds other bytes than workers want",
        |f| f.owner_wants_the_same().map(|is| !is);
    MODES_AGREE: "it shares the lock, as all workers do",
        |f| f.owner_excludes(LookedAt::Owners, sign::OWNERS).map(|is| !is);
    HELD: "the server names another session or value that had it during the standstill",
        |f| f.stood(LookedAt::Holders, sign::HOLDERS);
    HELD_NO_LONGER: "it had let go before the standstill ended",
        |f| f.stood_no_longer(LookedAt::Holders, sign::HOLDERS);
    HELD_SHARED: "it shares the lock, as all workers do",
        |f| f.owner_excludes(LookedAt::Holders, sign::HOLDERS).map(|is| !is);
    HELD_WHEN_FAILED: "the server named another session or value that had it after the first failure",
        |f| f.held_when_failed();
    ANSWERED: "it answered another question while nothing was granted",
        |f| f.answered_meanwhile();
    SLOW: "a command of others took 0.2 s or longer",
        |f| f.server(sign::SLOW_MS).map(|ms| ms >= 200);
    SLOW_SHORTER: "that command took less time than nothing was granted",
        |f| Some(f.server(sign::SLOW_MS)? + 100 < f.still_number(LookedAt::Path, sign::STOOD_MS)?);
    SLOW_AS_LONG: "a command of others took as long as nothing was granted",
        |f| Some(f.server(sign::SLOW_MS)? + 100 >= f.still_number(LookedAt::Path, sign::STOOD_MS)?);
    PAUSED: "its count of CLIENT PAUSE grew", |f| f.grew(sign::PAUSED);
    KILLED: "its count of CLIENT KILL grew", |f| f.grew(sign::KILLED);
    CONNECTED: "the first call failed on a connection that had not ended",
        |f| f.worker_is(sign::CUT_OFF).map(|is| !is);
    BUSY: "it answered BUSY after the first failure",
        |f| f.refused_when_failed("BUSY ");
    OOM_KILLED: "the kernel killed a process of its control group for want of memory",
        |f| f.grew(sign::OOM_KILLED);
    LIVES_ON: "the server that was there before the run still answers", |f| f.lives_on();
    UNACKNOWLEDGED: "nothing came back on connections of workers, who sent again",
        |f| f.stood_some(LookedAt::Path, sign::UNACKNOWLEDGED);
    ACKNOWLEDGED: "something came back on them before the standstill ended",
        |f| match f.still_growth(LookedAt::Path, sign::STOOD_MS) {
            None => None,
            Some(_) => f.still_number(LookedAt::Path, sign::UNACKNOWLEDGED).map(|now| now == 0),
        };
    FLOWING: "something came back on other connections of workers",
        |f| f.stood_some(LookedAt::Path, sign::FLOWING);
    REFUSED: "its address refused connections after the run", |f| f.was_refused();
    LISTENS: "its process from before the run still listens", |f| f.listens();
    SERVER_HALTED: "all processes of the server stood still",
        |f| f.stood(LookedAt::Halted, sign::SERVER_HALTED);
    SERVER_RAN: "it ran again before the standstill ended",
        |f| f.stood_no_longer(LookedAt::Halted, sign::SERVER_HALTED);
    PARTS_HALTED: "a single process of the server stood still",
        |f| f.stood(LookedAt::Halted, sign::PARTS_HALTED);
    PART_RAN: "it ran again before the standstill ended",
        |f| f.stood_no_longer(LookedAt::Halted, sign::PARTS_HALTED);
    WORKER_HALTED: "a worker stood still",
        |f| f.stood(LookedAt::Halted, sign::WORKERS_HALTED);
    WORKER_RAN: "it ran again before the standstill ended",
        |f| f.stood_no_longer(LookedAt::Halted, sign::WORKERS_HALTED);
    FAILED_LATER: "the first call failed when the standstill was over",
        |f| f.failed_after_still();
    NOT_INSIDE: "the witness saw none of them inside the lock",
        |f| f.owner_stood().map(|is| !is);
    SERVER_WORKED: "the server used half a CPU or more",
        |f| f.run_number(sign::SERVER_CPU_MILLI).map(|milli| milli >= 500);
    GRANTED: "the lock was granted in this run",
        |f| f.run_number(sign::GRANTED).map(|grants| grants > 0);
    NEVER_GRANTED: "the lock was never granted in this run",
        |f| f.run_number(sign::GRANTED).map(|grants| grants == 0);
    GRANTED_BEFORE: "it was granted before this run", |f| f.run_is(sign::GRANTED_BEFORE);
    OWN_NAMES: "no other run has locks of these names",
        |f| f.is(When::Before, sign::OWN_NAMES);
    GRANTED_LATER: "locks were granted for 0.1 s or more after the first failure",
        |f| f.worker_ms(sign::GRANTED_LATER_MS).map(|ms| ms >= 100);
    STOPPED: "all processes of the server stood still at a hundredth of the looks or more",
        |f| f.run_number(sign::SERVER_STILL_MILLI).map(|milli| milli >= 10);
    TRACED: "a tracer held one of them at more than half of these looks",
        |f| Some(2 * f.run_number(sign::SERVER_TRACED_MILLI)?
            > f.run_number(sign::SERVER_STILL_MILLI)?);
    THROTTLED: "the CPU quota of its control group held that for a hundredth of the window or more",
        |f| f.run_number(sign::SERVER_THROTTLED_MILLI).map(|milli| milli >= 10);
    HAS_CLIENTS: "its list of clients has others than ours", |f| f.has_clients();
}

/// The values that most rows share.
const ROW: Cause = Cause {
    name: "",
    needs: &[],
    refuted: &[],
    doubted: &[],
    explains: BOTH,
    says: "",
    may: "",
    alone: false,
    rivals: "",
};

/// `NAME { field: value, ... }`, each a [`Cause`] whose other fields are those of [`ROW`].
macro_rules! causes {
    ($($name:literal { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// Every cause, in the order in which they are said.
        pub static CAUSES: &[Cause] = &[$(Cause { name: $name, $($field: $value,)+ ..ROW }),+];
    };
}

causes! {
    "other-owner" {
        needs: &[&OWNED],
        refuted: &[&OTHER_BYTES, &MODES_AGREE, &LET_GO],
        explains: STILL,
        says: "{owners} held it while nothing was granted",
        may: "{owners} may have held it while nothing was granted",
        rivals: "a lock on other bytes, a shared lock among readers, an owner that let go while a \
                 broken lock went on standing still",
    }
    "holder" {
        needs: &[&HELD],
        refuted: &[&HELD_NO_LONGER, &HELD_SHARED],
        explains: STILL,
        says: "{holders} held it while nothing was granted",
        may: "{holders} may have held it while nothing was granted",
        rivals: "a session that shares the lock among readers, or that let go while a broken lock \
                 went on standing still",
    }
    "taken-over" {
        needs: &[&HELD_WHEN_FAILED],
        refuted: &[&ANOTHER_LIFE, &MARKER_GONE, &HELD_TOO_LONG],
        explains: LOSS,
        may: "another client may have taken the lock over: after the first failure {holders} had it",
        rivals: "another client that took it when a new start, a removal of all keys or the end of \
                 its lease had made it free",
    }
    "slow-command" {
        needs: &[&SLOW],
        refuted: &[&SLOW_SHORTER, &ANSWERED, &SERVER_HALTED, &UNACKNOWLEDGED],
        explains: STILL,
        says: "the server did nothing else for {slow_ms}: {slow_command}",
        may: "the server may have done nothing else for {slow_ms}: {slow_command}",
        rivals: "a slow command at another time, or one that is slow because the server was \
                 stopped, or whose connections were cut",
    }
    "busy-script" {
        needs: &[&BUSY],
        refuted: &[&SERVER_HALTED],
        says: "a script of another client ran for longer than the server lets others wait, and the \
               server answered BUSY (busy-reply-threshold)",
        may: "a script of another client may have run for longer than the server lets others wait: \
              the server answered BUSY (busy-reply-threshold)",
        rivals: "a script that was slow because the server was stopped",
    }
    "paused" {
        needs: &[&PAUSED],
        refuted: &[&ANSWERED, &SERVER_HALTED, &UNACKNOWLEDGED, &SLOW_AS_LONG, &ANOTHER_LIFE],
        explains: STILL,
        may: "another client may have let all others wait (CLIENT PAUSE: {+paused})",
        rivals: "how long a pause lasts is told nowhere: a short one at another time beside a stop of the server, a slow command, a cut \
                 of the connections, or a lock that stands free while the server answers",
    }
    "killed-client" {
        needs: &[&KILLED],
        refuted: &[&CONNECTED, &ANOTHER_LIFE],
        explains: LOSS,
        may: "another client may have ended our connections (CLIENT KILL: {+killed})",
        rivals: "an end of others' connections; a server that was started anew",
    }
    "oom-killed" {
        needs: &[&OOM_KILLED],
        doubted: &[&LIVES_ON],
        says: "the kernel killed a process of the server's control group for want of memory \
               (oom_kill: {+oom_killed})",
        may: "the kernel killed a process of the server's control group for want of memory \
              (oom_kill: {+oom_killed}), and it may have been one of the server's",
        rivals: "another program in that group",
    }
    "dropped-packets" {
        needs: &[&UNACKNOWLEDGED],
        refuted: &[&ACKNOWLEDGED, &FAILED_LATER],
        doubted: &[&FLOWING],
        says: "nothing came back on {unacknowledged} of {connections} connections of workers, \
               whose kernel sent again ({retransmitted} segments): something on the way drops \
               packets, or the server's machine does not run",
        may: "nothing came back on {unacknowledged} of {connections} connections of workers, whose \
              kernel sent again ({retransmitted} segments): something on the way may drop packets",
        rivals: "a short cut, after which a broken lock went on standing still; a cut of some \
                 connections, beside which others stood still",
    }
    "refused-connections" {
        needs: &[&REFUSED, &LISTENS],
        refuted: &[&SILENT_BEFORE],
        says: "something on the way refuses connections to the server, whose process still listens",
        may: "something on the way may refuse connections to the server, whose process still listens",
        rivals: "a server that was not reached before the run either, or that listens no more",
    }
    "server-halted" {
        needs: &[&SERVER_HALTED],
        refuted: &[&SERVER_RAN, &FAILED_LATER],
        says: "the server stood still: {server_halted}",
        may: "the server may have stood still: {server_halted}",
        rivals: "a short stop, after which a broken lock went on standing still, or a call failed",
    }
    "part-halted" {
        needs: &[&PARTS_HALTED],
        refuted: &[&PART_RAN, &FAILED_LATER],
        may: "a process of the server stood still, and may have had the lock: {parts_halted}",
        rivals: "a process of another session, or one that writes a snapshot",
    }
    "worker-halted" {
        needs: &[&WORKER_HALTED],
        refuted: &[&WORKER_RAN, &FAILED_LATER],
        doubted: &[&NOT_INSIDE],
        says: "a worker stood still inside the lock: {workers_halted}",
        may: "a worker stood still, and may have had the lock: {workers_halted}",
        rivals: "a worker that waited when it was stopped, while somebody else held the lock",
    }
    "server-busy" {
        needs: &[&SERVER_WORKED],
        refuted: &[&SERVER_HALTED],
        doubted: &[&GRANTED],
        explains: STILL,
        says: "its server used {server_cpu_milli} CPUs while it granted nothing: look at what it \
               does with so many waiters (perf top)",
        may: "its server used {server_cpu_milli} CPUs over the whole window, and may have been busy \
              with something else than granting",
        rivals: "a server that worked before the standstill, and then waited or was stopped",
    }
    "server-stopped" {
        needs: &[&STOPPED],
        refuted: &[&TRACED],
        explains: &[server_still::CHECK.name],
        says: "it was stopped by a signal (SIGSTOP) or frozen by its control group at \
               {server_still_milli} of the looks",
        may: "it may have been stopped by a signal (SIGSTOP) or frozen by its control group",
        rivals: "a tracer or debugger that holds it",
    }
    "server-throttled" {
        needs: &[&THROTTLED],
        explains: &[server_still::CHECK.name],
        may: "the CPU quota of its control group held it for {server_throttled_milli} of the \
              window, summed over CPUs",
        rivals: "the quota of a group in which another program used it up",
    }
    "left-behind" {
        needs: &[&NEVER_GRANTED, &GRANTED_BEFORE],
        refuted: &[&OWN_NAMES, &OWNED, &SERVER_HALTED],
        explains: STILL,
        may: "a run before may have left it taken (a program that does not release at the end of \
              its input, or a lease that outlasts its owner), or somebody else took it in between",
        rivals: "another client that took it between the runs, another owner, a stopped server",
    }
    "restarted" {
        needs: &[&STARTED_WITHIN],
        refuted: &[&SAME_LIFE],
        doubted: &[&GRANTED_LATER],
        says: "the server that answered after the run had started {uptime_s} s before, within the \
               run: what an earlier one had in memory alone was gone",
        may: "the server may have been started anew during the run",
        rivals: "a wall clock that was set back, by which some services count their uptime; a start \
                 after a lock was lost, while others went on",
    }
    "another-server" {
        needs: &[&ANOTHER_LIFE],
        refuted: &[&STARTED_WITHIN],
        doubted: &[&CLOCK_SET, &GRANTED_LATER],
        says: "another server answers at its address than before the run ({~life})",
        may: "another server may answer at its address than before the run, or it was started anew \
              ({~life})",
        rivals: "a new start; a new start of a server whose clock was then set forward; a change \
                 after a lock was lost, while others went on",
    }
    "silent" {
        needs: &[&SILENT_AFTER],
        refuted: &[&SILENT_BEFORE],
        doubted: &[&GRANTED_LATER],
        says: "the server did not answer when the run had ended ({words})",
        may: "the server did not answer when the run had ended ({words}), and may not have before",
        rivals: "a server that never answers this question, a refusal (which is an answer), an end \
                 after a lock was lost, while others went on",
    }
    "leader" {
        needs: &[&LEADER_CHANGED],
        refuted: &[&ANOTHER_LIFE],
        says: "the leader changed ({~leader}); no request is served until one is elected",
        may: "another leader may have been elected ({~leader}); no request is served until then",
        rivals: "another cluster that answers at these addresses",
    }
    "members" {
        needs: &[&MEMBERS_SILENT],
        refuted: &[&SILENT_ALREADY],
        says: "of its servers {silent_members} did not answer",
        may: "of its servers {silent_members} did not answer, and may not have before",
        rivals: "members that were away before the run, too",
    }
    "evicted" {
        needs: &[&EVICTED],
        refuted: &[&ANOTHER_LIFE],
        doubted: &[&MARKER_THERE, &FLUSHED],
        explains: LOSS,
        says: "the server evicted {+evicted} keys to stay below its limit of memory, ours among them \
               (maxmemory-policy noeviction, or more memory)",
        may: "the server evicted {+evicted} keys to stay below its limit of memory, and a lock may \
              have been one (maxmemory-policy noeviction, or more memory)",
        rivals: "the count of another server; keys of others that were evicted while ours was \
                 deleted",
    }
    "evicted-items" {
        needs: &[&EVICTED_ITEMS],
        refuted: &[&ANOTHER_LIFE],
        doubted: &[&MARKER_THERE, &FLUSHED_ITEMS],
        explains: LOSS,
        says: "memcached evicted {+evicted_items} items to stay below its limit of memory, ours among \
               them (more memory: memcached -m)",
        may: "memcached evicted {+evicted_items} items to stay below its limit of memory, and a lock \
              may have been one (more memory: memcached -m)",
        rivals: "the count of another server; items of another size that were evicted",
    }
    "flushed" {
        needs: &[&FLUSHED],
        refuted: &[&ANOTHER_LIFE, &MARKER_THERE],
        doubted: &[&EVICTED],
        explains: LOSS,
        says: "another client removed all keys, ours among them (FLUSHALL or FLUSHDB: {+flushed})",
        may: "another client removed all keys of a database, which may be ours (FLUSHALL or FLUSHDB: \
              {+flushed})",
        rivals: "FLUSHDB of another database, which INFO counts too; that and an eviction of ours",
    }
    "flushed-items" {
        needs: &[&FLUSHED_ITEMS],
        refuted: &[&ANOTHER_LIFE, &MARKER_THERE],
        doubted: &[&EVICTED_ITEMS],
        explains: LOSS,
        says: "another client removed all items (flush_all: {+flushed_items})",
        may: "another client may have removed all items (flush_all: {+flushed_items})",
        rivals: "flush_all with a delay that is not over; that and an eviction of ours",
    }
    "keys-gone" {
        needs: &[&MARKER_GONE],
        refuted: &[&ANOTHER_LIFE, &FLUSHED_SOME, &EVICTED_SOME, &CLOCK_ENDS],
        explains: LOSS,
        says: "another client removed keys of ours: one that jostle had put beside its locks is gone",
        may: "another client may have removed keys of ours: one that jostle had put beside its locks \
              is gone",
        rivals: "a new start, a flush, an eviction, a clock that ended the lease of that key",
    }
    "deleted" {
        needs: &[&DELETED_BEYOND],
        refuted: &[&ANOTHER_LIFE, &MARKER_GONE],
        explains: LOSS,
        may: "another client may have deleted our keys (DEL or UNLINK beyond our own: {deleted})",
        rivals: "others that delete their own keys",
    }
    "lease-over" {
        needs: &[&HELD_TOO_LONG],
        refuted: &[&RENEWED],
        explains: LOSS,
        says: "the lease was over: {lease_ms}, and the lock was held for {held_ms}",
        may: "the lease may have been over: {lease_ms}, and the lock was held for {held_ms}",
        rivals: "a lease that was renewed, of a lock that others removed",
    }
    "clock-ahead" {
        needs: &[&CLOCK_AHEAD],
        refuted: &[&NO_LEASE_BY_CLOCK, &JUMP_TOO_SHORT],
        explains: LOSS,
        says: "the server's clock was set by {wall_clock_ms}, and leases end by that clock",
        may: "the server's clock was set by {wall_clock_ms}, and may have ended a lease",
        rivals: "locks without leases, a jump that is shorter than the lease",
    }
    "clock-back" {
        needs: &[&CLOCK_BACK],
        refuted: &[&NO_LEASE_BY_CLOCK],
        explains: STILL,
        may: "the server's clock was set by {wall_clock_ms}, and a lease that was to end may last \
              for as much longer",
        rivals: "locks without leases, an owner that lives",
    }
    "idle-session" {
        needs: &[&ENDS_IDLE],
        refuted: &[&ASKED_SOONER],
        explains: LOSS,
        says: "the server ends sessions that ask nothing for {idle_limit_s} s, and with them their \
               locks (wait_timeout); this one had asked nothing for {quiet_ms}",
        may: "the server ends sessions that ask nothing for {idle_limit_s} s, and may have ended \
              this one (wait_timeout)",
        rivals: "a session that an administrator ended (KILL)",
    }
    "pooler" {
        needs: &[&POOLER],
        refuted: &[&ONE_BACKEND],
        explains: LOSS,
        says: "a pooler stands before the server and gives a session several of the server's: a \
               release may reach another than the one that owns the lock, and frees nothing there",
        may: "a pooler stands before the server, and may give a session several of the server's: a \
              release may reach another than the one that owns the lock",
        rivals: "a pooler that gives each session one of the server's (pool_mode = session)",
    }
    "other-clients" {
        needs: &[&HAS_CLIENTS],
        explains: LOSS,
        may: "the server has other clients, and one of them may be the cause: {clients}",
        alone: true,
        rivals: "clients that only watch",
    }
}
