//! What a server says about itself before a run and after it, by which the cause of a failure
//! is recognised although it lies outside the lock.
//!
//! A service answers [`crate::Target::signs`] with the values that it knows, by the names of
//! its constants; the table of causes has how a cause is seen in them, and its words.

use std::collections::BTreeMap;

/// Values by their names in the table of causes.
pub type Signs = BTreeMap<&'static str, String>;

/// When a service started, in whatever form it says so: another one is another life.
pub const STARTED: &str = "started";
/// Seconds since then.
pub const UPTIME: &str = "uptime_s";
/// Keys that it evicted so far, to stay below its limit of memory.
pub const EVICTED: &str = "evicted";
/// Calls that remove all keys, which the recipe never makes.
pub const REMOVED: &str = "removed";
/// Milliseconds by which its wall clock is ahead of this machine's monotonic clock: the least
/// and the most, since the answer was under way for a time.
pub const WALL_CLOCK: &str = "wall_clock_ms";
/// Seconds after which it closes a session that asks nothing.
pub const IDLE_LIMIT: &str = "idle_limit_s";
/// What stands between us and it, and gives each transaction another session of its own.
pub const POOLER: &str = "pooler";
/// Who leads, where several servers are one service.
pub const LEADER: &str = "leader";
/// Its servers that do not answer.
pub const SILENT: &str = "silent";

/// How a cause is seen.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// The value is another one.
    Changed,
    /// The number is larger.
    Grew,
    /// The number is smaller.
    Shrank,
    /// The whole range lies beyond the earlier one, by more than this.
    Moved(f64),
    /// The number is at most this.
    AtMost(f64),
    /// There is a value.
    There,
}

/// A cause that signs can show: its sign; what is looked at, as in "looked at: ..."; how it is
/// seen; a clause, in which `{}` is the value, or by how much it changed.
type Cause = (&'static str, &'static str, Seen, &'static str);

const LIVES: &str = "whether the server was started anew";
const ANEW: &str =
    "the server was started anew during the run, and what it keeps in memory was gone";

static CAUSES: [Cause; 9] = [
    (STARTED, LIVES, Seen::Changed, ANEW),
    (UPTIME, LIVES, Seen::Shrank, ANEW),
    (
        LEADER,
        "whether another server became leader",
        Seen::Changed,
        "the leader changed ({}); no request is served until one is elected",
    ),
    (
        SILENT,
        "whether all of its servers answer",
        Seen::There,
        "of its servers {} did not answer",
    ),
    (
        EVICTED,
        "whether it evicted keys",
        Seen::Grew,
        "the server evicted {} keys to stay below its limit of memory, and a lock is a key \
                (maxmemory-policy noeviction, or more memory)",
    ),
    (
        REMOVED,
        "whether others removed keys by FLUSHALL or FLUSHDB",
        Seen::Grew,
        "another client removed all keys (FLUSHALL, FLUSHDB: {}), and a lock is a key",
    ),
    (
        WALL_CLOCK,
        "whether its clock was set",
        Seen::Moved(500.0),
        "the server's clock was set by {} ms, and leases end by that clock",
    ),
    (
        IDLE_LIMIT,
        "its limit on idle sessions",
        Seen::AtMost(60.0),
        "the server ends sessions that ask nothing for {} s, and with them their locks \
                (wait_timeout)",
    ),
    (
        POOLER,
        "whether a pooler stands before it",
        Seen::There,
        "{} stands between us and the server: a release may reach another session than \
                the one that owns the lock, and frees nothing there",
    ),
];

/// The value of [`WALL_CLOCK`] for what a server's clock showed at some time since `asked_ns`,
/// which is of this machine's monotonic clock.
pub fn ahead(asked_ns: u64, wall_ms: u64) -> String {
    let ahead = |own_ns: u64| wall_ms as i64 - (own_ns / 1_000_000) as i64;
    format!(
        "{} {}",
        ahead(jostle_sys::clock::monotonic()),
        ahead(asked_ns)
    )
}

/// The signs of which there is a value.
pub fn known<const N: usize>(signs: [(&'static str, Option<String>); N]) -> Signs {
    let signs = signs.into_iter();
    signs
        .filter_map(|(sign, value)| Some((sign, value?)))
        .collect()
}

/// Which causes are seen, as clauses; and what could be looked at.
pub fn compare(before: &Signs, after: &Signs) -> Vec<(&'static str, Option<String>)> {
    if after.is_empty() && !before.is_empty() {
        let words = "the server did not answer when the run had ended".to_owned();
        return vec![("whether the server still answers", Some(words))];
    }
    let known = CAUSES.iter().filter_map(|(sign, looked_at, seen, words)| {
        let shown = seen.shown(before.get(sign), after.get(sign)?);
        Some((*looked_at, shown.map(|shown| words.replace("{}", &shown))))
    });
    known.collect()
}

impl Seen {
    /// What stands in the clause; None if it is not seen.
    fn shown(self, before: Option<&String>, after: &str) -> Option<String> {
        let number = |text: &str| text.parse::<f64>().ok();
        let more = || Some(number(after)? - number(before?)?);
        match self {
            Seen::Changed => {
                let before = before.filter(|before| *before != after)?;
                Some(format!("from {before} to {after}"))
            }
            Seen::Shrank => more().filter(|more| *more < 0.0).map(|_| after.to_owned()),
            Seen::Grew => more().filter(|more| *more > 0.0).map(|n| format!("{n}")),
            Seen::Moved(by) => {
                let range = |text: &str| {
                    let (least, most) = text.split_once(' ')?;
                    Some((number(least)?, number(most)?))
                };
                let ((low, high), (least, most)) = (range(before?)?, range(after)?);
                // The least by which it moved, if it did.
                let moved = (least - high).max(0.0) + (most - low).min(0.0);
                (moved.abs() > by).then(|| format!("{moved:+.0}"))
            }
            Seen::AtMost(limit) => {
                let value = number(after).filter(|value| *value <= limit)?;
                Some(format!("{value}"))
            }
            Seen::There => (!after.is_empty()).then(|| after.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_seen_in_what_changed() {
        let table: [(&str, Option<&str>, &str, Option<&str>); 17] = [
            (STARTED, Some("a"), "a", None),
            (STARTED, Some("a"), "b", Some("started anew")),
            // Nobody knows what it was before.
            (STARTED, None, "b", None),
            (UPTIME, Some("70"), "75", None),
            (UPTIME, Some("70"), "3", Some("started anew")),
            (EVICTED, Some("7"), "7", None),
            (EVICTED, Some("7"), "19", Some("evicted 12 keys")),
            (WALL_CLOCK, Some("1000 1001"), "1400 1401", None),
            // An answer that took 9 s tells little about when the clock was read.
            (WALL_CLOCK, Some("1000 1001"), "-8000 1002", None),
            (
                WALL_CLOCK,
                Some("1000 1001"),
                "-39009 -39000",
                Some("set by -40000 ms"),
            ),
            (
                WALL_CLOCK,
                Some("1000 1001"),
                "41001 41009",
                Some("set by +40000 ms"),
            ),
            (IDLE_LIMIT, Some("2"), "2", Some("nothing for 2 s")),
            (IDLE_LIMIT, None, "28800", None),
            (POOLER, None, "", None),
            (POOLER, None, "PgBouncer", Some("PgBouncer stands between")),
            (LEADER, Some("1"), "2", Some("changed (from 1 to 2)")),
            (
                SILENT,
                Some(""),
                "10.0.0.2:2379",
                Some("10.0.0.2:2379 did not answer"),
            ),
        ];
        for (sign, before, after, expected) in table {
            let signs = |value: &str| Signs::from([(sign, value.to_owned())]);
            let found = compare(&before.map(signs).unwrap_or_default(), &signs(after));
            let [(_, words)] = &found[..] else {
                panic!("{sign}: {found:?}");
            };
            let holds = match (words, expected) {
                (Some(words), Some(part)) => words.contains(part),
                (words, part) => words.is_none() && part.is_none(),
            };
            assert!(holds, "{sign}: {words:?}");
        }
    }

    #[test]
    fn what_a_service_does_not_say_is_not_looked_at() {
        assert_eq!(compare(&Signs::new(), &Signs::new()), []);
        let before = Signs::from([(STARTED, "a".to_owned())]);
        let words = compare(&before, &Signs::new())[0].1.clone();
        assert!(words.unwrap().contains("did not answer"));
    }
}
