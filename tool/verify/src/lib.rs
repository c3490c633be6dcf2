//! The instrument of `jostle verify`: clients call a lock at random while faults strike, and all
//! that both did becomes a history, which `jostle_stats::verify` judges.
//!
//! The keeper ([`verified`]) strikes by a schedule of the seed (`schedule`, `strike`). Each client
//! (`client`) is a process that writes its calls to a ring of shared memory (`rings`), which the
//! keeper empties to a file (`store`).

mod client;
mod delays;
mod rings;
mod run;
mod schedule;
mod store;
mod strike;
mod wall_clock;
mod with;
mod without;

pub use run::verified;
pub use wall_clock::WallClock;
pub use without::without;
