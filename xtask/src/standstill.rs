//! Whether the machine stood still while tests ran.
//!
//! Two things have done that. The host of a virtual machine may suspend it, while the
//! guest's monotonic clock goes on. And the scheduler of some kernels starves whole
//! sessions: beside busy loops, Linux 6.18.44 gave all sessions but theirs, and the
//! kernel's own threads, no CPU for up to 132 s. When the weight of a running group of tasks
//! changes, that scheduler gives the group a wrong place in its queue; each session is such
//! a group ("autogroup", sched(7)).
//!
//! After either, all timeouts are over at once: sessions have expired, servers were "not
//! ready within 60 s". A test that fails then says nothing of jostle.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Whether sessions are groups for the scheduler: 1 or 0.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Switches [`AUTOGROUP`] off where it is on and we may, so that processes started from now
/// on belong to no group, and prints that as its first line (otherwise empty). Then prints an
/// empty line after each nap, from a session of its own. When nobody reads the lines any more,
/// also because the reader was killed, switches on again what it has switched off.
const SENTINEL: &str = r#"
trap "" PIPE
exec 2>/dev/null
[ "$(cat "$0")" = 1 ] && echo 0 > "$0" && off="$0 is 0 until ci ends (it was 1)"
echo "$off"
while sleep 0.2 && echo; do :; done
[ -z "$off" ] || echo 1 > "$0"
"#;

/// How long one nap takes, [`SENTINEL`] agreeing.
const NAP: Duration = Duration::from_millis(200);

/// A nap that ends later than this is no matter of a busy CPU.
const LATE: Duration = Duration::from_secs(5);

/// When the last line came, and of the naps that ended too late how late they ended, and
/// when.
static SEEN: Mutex<Seen> = Mutex::new(Seen {
    last: None,
    late: Vec::new(),
});

struct Seen {
    last: Option<Instant>,
    late: Vec<(Instant, Duration)>,
}

impl Seen {
    /// A line that came then.
    fn note(&mut self, now: Instant) {
        let late = self.late_by(now);
        self.late.extend(late.map(|late| (now, late)));
        self.last = Some(now);
    }

    /// By how much too late a line is that has not come by then.
    fn late_by(&self, now: Instant) -> Option<Duration> {
        let late = now
            .saturating_duration_since(self.last?)
            .saturating_sub(NAP);
        (late > LATE).then_some(late)
    }

    /// The longest time for which nothing ran, of those that ended between these times or
    /// go on.
    fn longest(&self, start: Instant, now: Instant) -> Option<Duration> {
        let ended = self.late.iter().filter(|(end, _)| *end >= start);
        ended.map(|(_, late)| *late).chain(self.late_by(now)).max()
    }
}

/// Watches from now on, until the program ends. Returns when the [`SENTINEL`] has begun.
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
    let mut lines = lines.into_iter().flat_map(BufRead::lines);
    if let Some(off) = lines.next().transpose()?.filter(|off| !off.is_empty()) {
        println!("== {off}");
    }
    thread::spawn(move || {
        for _ in lines.map_while(Result::ok) {
            seen().note(Instant::now());
        }
    });
    Ok(())
}

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest time for which nothing ran, of those that have ended since then or go on.
pub(crate) fn longest_since(start: Instant) -> Option<Duration> {
    seen().longest(start, Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_that_ends_much_too_late_is_a_standstill_and_a_slow_one_is_not() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut seen = Seen {
            last: Some(start),
            late: Vec::new(),
        };
        seen.note(after(5_200));
        assert_eq!(seen.longest(start, after(5_300)), None);
        // It goes on.
        let longest = seen.longest(start, after(15_400));
        assert_eq!(longest, Some(Duration::from_secs(10)));
        seen.note(after(65_400));
        seen.note(after(73_600));
        let longest = seen.longest(start, after(73_600));
        assert_eq!(longest, Some(Duration::from_secs(60)));
        assert_eq!(seen.longest(after(73_601), after(73_700)), None);
    }

    mod live_tests {
        use super::*;

        /// The first line, and the setting meanwhile and afterwards, if it was this.
        fn sentinel_on(was: &str) -> [String; 3] {
            let setting = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(setting.path(), was).unwrap();
            let mut sentinel = Command::new("sh")
                .args(["-c", SENTINEL])
                .arg(setting.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(sentinel.stdout.take().unwrap());
            let is_set_to = || std::fs::read_to_string(setting.path()).unwrap();
            let mut said = String::new();
            lines.read_line(&mut said).unwrap();
            let meanwhile = is_set_to();
            drop(lines);
            sentinel.wait().unwrap();
            [said, meanwhile, is_set_to()]
        }

        #[test]
        fn the_sentinel_switches_off_what_is_on_says_so_and_restores_it() {
            let [said, meanwhile, afterwards] = sentinel_on("1\n");
            assert!(said.contains("is 0 until ci ends"), "{said}");
            assert_eq!([&*meanwhile, &*afterwards], ["0\n", "1\n"]);
        }

        /// Another run of `ci` may have switched it off, and will switch it on.
        #[test]
        fn the_sentinel_leaves_alone_what_is_off() {
            assert_eq!(sentinel_on("0\n"), ["\n", "0\n", "0\n"]);
        }
    }
}
