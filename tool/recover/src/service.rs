//! The servers that are launched for a run, and what faults do to all of them.

use crate::cluster::Member;
use jostle_sys::process;
use jostle_sys::switch::Switch;
use jostle_targets::Launcher;

/// The servers that are launched for the run.
pub trait Service: Launcher {
    /// Starts those again that were killed, and waits until they accept connections.
    ///
    /// # Errors
    /// In words for the user.
    fn start_again(&self) -> Result<(), String>;

    /// As [`Service::start_again`], with the directories as they were before the first start.
    ///
    /// # Errors
    /// In words for the user.
    fn start_empty(&self) -> Result<(), String>;

    /// Starts the member again whose process this was.
    ///
    /// # Errors
    /// In words for the user.
    fn start_member(&self, _pid: u32) -> Result<(), String> {
        Err("there is no cluster".to_owned())
    }

    /// The servers of the launched cluster that can lead it; none without a cluster.
    fn members(&self) -> Vec<Member> {
        Vec::new()
    }

    /// The switch between their hosts and those of clients.
    ///
    /// # Errors
    /// Why they have no hosts of their own, as a part of a sentence.
    fn switch(&self) -> Result<&Switch, String> {
        Err("there is no cluster".to_owned())
    }

    /// Where its servers listen, each with its password if it asks for one.
    fn places(&self) -> Vec<(String, Option<String>)>;

    /// Sets the wall clock of all of them so far before the right time, or behind it.
    ///
    /// # Errors
    /// In words for the user: they run by the machine's own clock.
    fn set_clock(&self, ahead_ns: i64) -> Result<(), String>;

    /// All processes of the service.
    fn processes(&self) -> Vec<u32> {
        let launched = self.launched().into_iter();
        launched.flat_map(process::with_descendants).collect()
    }

    /// Stops them; those that others start first, so that none is missed.
    fn stop_all(&self) {
        let mut stopped = Vec::new();
        loop {
            let mut new = self.processes();
            new.retain(|pid| !stopped.contains(pid));
            if new.is_empty() {
                return;
            }
            new.iter().copied().for_each(process::stop);
            stopped.extend(new);
        }
    }

    /// Kills them. Stopped first, none can start another one.
    fn kill_all(&self) {
        self.stop_all();
        self.processes().into_iter().for_each(process::kill);
    }

    /// Lets those go on that were stopped.
    fn let_go_on(&self) {
        self.processes().into_iter().for_each(process::go_on);
    }
}
