//! The user's command before each run (`--prepare`): started in a process group of its own, and
//! waited for. Not for what runs along with a run: that is `--during`.

use crate::keeper::KeeperError;
use jostle_harness::during::words;
use jostle_sys::process;
use jostle_sys::waited::Waited;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(2);

/// How long it may take to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs it to its end, or ends it when the user wants to stop.
///
/// # Errors
/// It cannot be started, it failed, or the user wants to stop.
pub(super) fn run(command: &str, ended: &mut dyn FnMut() -> bool) -> Result<(), KeeperError> {
    let failed = |how: &dyn Display| KeeperError::Failed(format!("--prepare `{command}` {how}"));
    let words = words(command, &[]).ok_or_else(|| failed(&"has no word"))?;
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        // Standard output is that of results.
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&format!("cannot be run: {error}")))?;
    let mut told: Option<Waited> = None;
    loop {
        match (child.try_wait(), &mut told) {
            (Err(error), _) => return Err(failed(&error)),
            (Ok(Some(_)), Some(_)) => {
                // What it started, too.
                process::kill_group(child.id());
                return Err(KeeperError::Interrupted);
            }
            (Ok(Some(status)), None) if status.success() => return Ok(()),
            (Ok(Some(status)), None) => return Err(failed(&format!("failed ({status})"))),
            (Ok(None), None) if ended() => {
                if let Some(group) = Pid::from_raw(child.id() as i32) {
                    let _ = kill_process_group(group, Signal::TERM);
                }
                told = Some(Waited::begin());
            }
            (Ok(None), Some(waited)) => {
                if waited.so_far() >= PATIENCE {
                    process::kill_group(child.id());
                }
            }
            (Ok(None), None) => {}
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn outcome(command: &str) -> String {
        match run(command, &mut || false) {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn it_is_waited_for_and_a_failure_is_told() {
        assert_eq!(outcome("true"), "done");
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let command = format!("sh -c 'sleep 0.1; echo done >> {path}'");
        assert_eq!(outcome(&command), "done");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "done\n");
        let said = outcome("sh -c 'exit 3'");
        assert!(said.contains("failed (exit status: 3)"), "{said}");
        let said = outcome("/no/such/program");
        assert!(said.contains("cannot be run: No such file"), "{said}");
    }

    #[test]
    fn who_wants_to_stop_need_not_wait_for_its_end() {
        let begun = Instant::now();
        // Its child sleeps on in the same group; both are deaf to SIGTERM.
        let deaf = "sh -c \"trap '' TERM; sleep 600 & wait; wait\"";
        let end = run(deaf, &mut || begun.elapsed() > Duration::from_millis(100));
        assert!(matches!(end, Err(KeeperError::Interrupted)), "{end:?}");
        assert!(begun.elapsed() < Duration::from_secs(120));
    }
}
