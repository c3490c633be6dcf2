//! The machine's influence on a measurement, reported before one starts: [`survey`] for users who
//! ask (`jostle doctor`), [`allow`] for a point that is about to be run and would not fit, [`busy`]
//! for programs that are busy beside us.
//!
//! The first two are pure functions of one reading of the machine. What happens during a
//! run is left to the verdicts.

mod allow;
pub mod busy;
mod one_host;
mod survey;

pub use allow::{Need, allow, fits};
pub use jostle_connections::limits::{demand, forecast};
pub use jostle_harness::Refusal;
pub use one_host::OneHost;
pub use survey::{Finding, SHELL, Severity, survey};
