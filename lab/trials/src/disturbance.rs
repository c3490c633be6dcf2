//! The disturbances that `jostle disturb` plants, beside what is measured.

use anyhow::{Context, ensure};
use jostle_testbed::servers::Placed;
use jostle_testbed::shell;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A disturbance, until it is dropped: it is ended by SIGTERM, at which it leaves nothing
/// stopped, also when this program ends.
pub(crate) struct Disturbance(Child);

impl Disturbance {
    /// Starts it, in the control group of what it disturbs, by its directory: between
    /// groups, and between sessions (autogroups), niceness counts for nothing. `how` is one of
    /// jostle's disturbances with its words.
    pub(crate) fn start(jostle: &Path, how: &str, group: Option<&Path>) -> anyhow::Result<Self> {
        let place = Placed {
            group,
            ..Placed::default()
        }
        .words();
        let mut disturb = Command::new("setpriv");
        disturb.args(["--pdeathsig", "TERM"]).args(place);
        disturb.arg(jostle).args(["disturb", "--"]);
        disturb.args(how.split(' ')).stdin(Stdio::null());
        let started = disturb.spawn();
        let started =
            started.with_context(|| format!("cannot run `{}`", shell::typed(&disturb)))?;
        Ok(Disturbance(started))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it had ended by itself: then nothing was planted.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        let ended = self.0.try_wait()?;
        ensure!(
            ended.is_none(),
            "a disturbance ended before its run: {ended:?}"
        );
        Ok(())
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
