//! Whether the machine stood still while tests ran.
//!
//! Two things have done that. The host of a virtual machine may suspend it, while the
//! guest's monotonic clock goes on. And the scheduler of some kernels starves whole
//! sessions: beside busy loops, Linux 6.18.44 gave all sessions but theirs, and the
//! kernel's own threads, no CPU for up to 132 s. It places a group of tasks that is running
//! wrongly when its weight changes; sessions are such groups ("autogroup", sched(7)).
//!
//! After either, all timeouts are over at once: sessions have expired, servers were "not
//! ready within 60 s". A test that fails then says nothing of jostle.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Whether sessions are groups for the scheduler: 1 or 0.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Says a line after each nap, in a session of its own; with autogroups, tests and their
/// neighbours are in another. When nobody reads the lines any more, however that came
/// about, it leaves [`AUTOGROUP`] as it was.
const SENTINEL: &str = r#"
trap "" PIPE
was=$(cat "$0" 2>/dev/null)
while sleep 0.2 && echo; do :; done 2>/dev/null
[ "$(cat "$0" 2>/dev/null)" = "$was" ] || echo "$was" > "$0"
"#;

/// How long one nap takes, [`SENTINEL`] agreeing.
const NAP: Duration = Duration::from_millis(200);

/// A nap that ends later than this is no matter of a busy CPU.
const LATE: Duration = Duration::from_secs(5);

/// How late the naps ended that were too late, and when they ended.
static SEEN: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Watches from now on, until the program ends. What is started after the first
/// standstill belongs to no group of its session, if we have the right to decide that.
///
/// # Errors
/// Where `setsid` (util-linux) cannot be run.
pub(crate) fn watch() -> io::Result<()> {
    let mut sentinel = Command::new("setsid")
        .args(["sh", "-c", SENTINEL, AUTOGROUP])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = sentinel.stdout.take().map(BufReader::new);
    thread::spawn(move || {
        let mut before = Instant::now();
        let lines = lines.into_iter().flat_map(BufRead::lines);
        for _ in lines.map_while(Result::ok) {
            let now = Instant::now();
            if note(before, now) {
                let _ = std::fs::write(AUTOGROUP, "0");
            }
            before = now;
        }
    });
    Ok(())
}

/// A nap from the one time to the other; whether it ended too late.
fn note(before: Instant, after: Instant) -> bool {
    let late = (after - before).saturating_sub(NAP);
    if late > LATE {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((after, late));
    }
    late > LATE
}

/// The longest time for which nothing ran, of those that have ended since then.
pub(crate) fn longest_since(start: Instant) -> Option<Duration> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let since = seen.iter().filter(|(end, _)| *end >= start);
    since.map(|(_, late)| *late).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_that_ends_much_too_late_is_a_standstill_and_a_slow_one_is_not() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!note(start, after(5_200)));
        assert_eq!(longest_since(start), None);
        assert!(note(start, after(60_200)));
        assert!(note(start, after(8_200)));
        assert_eq!(longest_since(start), Some(Duration::from_secs(60)));
        assert_eq!(longest_since(after(60_201)), None);
    }

    /// Also when whoever read its lines was killed: nothing else would.
    #[test]
    fn the_sentinel_leaves_the_setting_as_it_was() {
        let setting = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(setting.path(), "1\n").unwrap();
        let mut sentinel = Command::new("sh")
            .args(["-c", SENTINEL])
            .arg(setting.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(sentinel.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        std::fs::write(setting.path(), "0\n").unwrap();
        drop(lines);
        sentinel.wait().unwrap();
        assert_eq!(std::fs::read_to_string(setting.path()).unwrap(), "1\n");
    }
}
