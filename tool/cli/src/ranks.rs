//! A job of several ranks: rank 0 runs the experiments on the hosts of all ranks. The other
//! ranks read no plan and print nothing. `jostle_engine::world` has the communication.

use crate::signals::Signals;
use crate::{COMMIT, Failure, VERSION, complain, messages};
use jostle_engine::keeper::Keeper;
use jostle_engine::world::{self, Joined, Launched, Link, Rank, World};
use jostle_sys::clock::Clock;
use jostle_sys::ledger;
use std::sync::OnceLock;

/// Joins the job that a launcher has put this process into; None if it was joined before.
pub(crate) type JoinJob = fn() -> Option<Box<dyn Link>>;

/// Set at the start of a program that is linked with MPI.
static JOIN_JOB: OnceLock<JoinJob> = OnceLock::new();

/// From now on jobs are joined in this way.
pub(crate) fn join_by(join_job: JoinJob) {
    JOIN_JOB.get_or_init(|| join_job);
}

/// The means of every measurement, started in this order.
pub(crate) struct Crew {
    /// The clock of all stamps.
    pub clock: Clock,
    /// This host, or all of a job.
    pub world: World,
    /// From the terminal, or from the launcher.
    pub signals: Signals,
}

/// The role of this process in a job.
pub(crate) enum Place {
    /// No job; nothing is started yet.
    Alone,
    /// The first rank.
    Coordinator(Box<Crew>),
    /// Another rank, which has served to its end.
    Served(u8),
}

/// Whether this is a rank other than 0, which prints nothing.
pub(crate) fn are_others() -> bool {
    world::launched().is_some_and(|launched| launched.rank > 0)
}

/// Joins the job that a launcher has put this process into, if one has.
///
/// # Errors
/// No keeper; several ranks without MPI, or ranks that have been joined before.
pub(crate) fn join(dry_run: bool) -> Result<Place, Failure> {
    let Some(launched) = world::launched() else {
        return Ok(Place::Alone);
    };
    let Some(join_job) = JOIN_JOB.get() else {
        return match launched.refusal() {
            Some(text) => refused(launched, &text),
            // A single rank works without MPI.
            None => Ok(Place::Alone),
        };
    };
    match (dry_run, launched.rank) {
        (true, 0) => return Ok(Place::Alone),
        (true, _) => return Ok(Place::Served(0)),
        (false, _) => {}
    }
    let clock = match launched.size {
        // A single rank uses the same clock as a process without a launcher, so that their
        // figures agree.
        1 => Clock::new(),
        _ => Clock::monotonic(),
    };
    let (mut keeper, signals) = begin(clock)?;
    let rank = Rank {
        version: VERSION,
        commit: COMMIT,
        ended: &mut || signals.exit_code(),
        complain: &complain,
    };
    if launched.rank > 0 {
        // Rank 0 reports its own result of this.
        let _ = ledger::sweep_dead();
    }
    let Some(link) = join_job() else {
        return refused(launched, "MPI has been joined before");
    };
    Ok(match world::join(link, &mut keeper, rank) {
        Joined::Participant(code) => Place::Served(code),
        Joined::Coordinator(hosts) => Place::Coordinator(Box::new(Crew {
            clock,
            world: World::over(keeper, hosts),
            signals,
        })),
    })
}

/// Only rank 0 reports and fails: a launcher ends the job at the first rank that fails,
/// which could cut off rank 0's message.
fn refused(launched: Launched, text: &str) -> Result<Place, Failure> {
    match launched.rank {
        0 => Err(Failure::Failed(anyhow::anyhow!(text.to_owned()))),
        _ => Ok(Place::Served(0)),
    }
}

impl Crew {
    /// Without a launcher.
    ///
    /// # Errors
    /// No keeper, or no signals.
    pub(crate) fn alone() -> Result<Crew, Failure> {
        let clock = Clock::new();
        let (keeper, signals) = begin(clock)?;
        Ok(Crew {
            clock,
            world: World::alone(keeper),
            signals,
        })
    }
}

fn begin(clock: Clock) -> Result<(Keeper, Signals), Failure> {
    // Before anything starts a thread.
    let keeper = Keeper::start(clock).map_err(failed)?;
    let signals = Signals::listen().map_err(|error| Failure::Failed(error.into()))?;
    messages::start();
    Ok((keeper, signals))
}

fn failed(error: jostle_engine::keeper::KeeperError) -> Failure {
    Failure::Failed(error.into())
}
