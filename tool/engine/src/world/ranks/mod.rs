//! The ranks of a job that an MPI launcher has started: the first is where the
//! experiment runs, the others serve it with their keepers.
//!
//! Not here: what each host is to do, and what becomes of their data (`split`,
//! `merge`).

mod clocks;
mod coordinator;
mod link;
mod local_keeper;
mod participant;
mod words;

#[cfg(test)]
mod live_tests;

use super::Hosts;
use crate::keeper::Keeper;
use std::time::Duration;

pub use link::{Link, LinkError};

/// A rank's role.
pub enum Joined {
    /// It is rank 0: it measures, with all of these.
    Coordinator(Box<dyn Hosts>),
    /// Its work is over, and it should end with this code: another one has served
    /// the first, or the first has refused the others.
    Participant(u8),
}

/// How long things may take; tests have less patience.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Between two signs of life.
    beat: Duration,
    /// A host that is silent for so long is given up.
    silence: Duration,
    /// Rank 0's silence in a run, after which the others give up.
    first_silence: Duration,
    /// Its silence between two runs, in which rank 0 may be busy by itself.
    rest: Duration,
    /// For one host to prepare: the keeper's own patience, and the way.
    ready: Duration,
    /// For any other phase, beyond what the order itself takes.
    stage: Duration,
    /// For all to hear that the user wants to stop. A launcher that was told to end
    /// kills what is still there after a second (Open MPI).
    interrupt: Duration,
    /// For all to clear away and leave: as long as one waits for its keeper, and more.
    farewell: Duration,
    /// Between two looks while nobody works, and while somebody does.
    nap: Duration,
    long_nap: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            beat: Duration::from_secs(1),
            silence: Duration::from_secs(10),
            first_silence: Duration::from_secs(20),
            rest: Duration::from_secs(600),
            ready: Duration::from_secs(150),
            stage: Duration::from_secs(60),
            interrupt: Duration::from_millis(400),
            farewell: Duration::from_secs(15),
            nap: Duration::from_millis(1),
            long_nap: Duration::from_millis(20),
        }
    }
}

/// The means that joining needs of the program that does it.
pub struct Rank<'a> {
    /// The program's version.
    pub version: &'a str,
    /// The commit it was built from, where the build knew.
    pub commit: Option<&'a str>,
    /// The exit code with which somebody wants this process to end, if so.
    pub ended: &'a mut dyn FnMut() -> Option<u8>,
    /// Logs on this host what rank 0 can no longer be told.
    pub complain: &'a dyn Fn(&str),
}

/// Joins the job whose ranks the link connects. Rank 0 gets all hosts; every other rank
/// serves it here with its keeper, until it is told to end.
///
/// From here on this process must not fork: the keeper has been forked before. A host of
/// another version, or one that does not answer, is reported, and all are told to end.
pub fn join(link: Box<dyn Link>, keeper: &mut Keeper, rank: Rank<'_>) -> Joined {
    let hello = words::Hello::new(rank.version, rank.commit);
    if link.rank() == 0 {
        let (coordinator, greeted) =
            coordinator::Coordinator::gather(link, hello, Limits::default());
        return match greeted {
            Ok(()) => Joined::Coordinator(Box::new(coordinator)),
            Err(error) => {
                // The end of the job may be that of this process.
                (rank.complain)(&error.to_string());
                drop(coordinator);
                Joined::Participant(1)
            }
        };
    }
    let well = participant::serve(link, keeper, &hello, Limits::default(), rank);
    Joined::Participant(u8::from(!well))
}
