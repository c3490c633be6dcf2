//! Pure maths on records: histograms and quantiles, fairness, intervals,
//! comparisons, and the checks that decide whether a number may be believed.
//!
//! Nothing here measures, or reads a clock, a file or the machine. Everything is a function
//! of the records of a result file, so that every figure can be recomputed from it years
//! later. The two exceptions serve the measured loop: [`histogram::index`] and
//! [`rng::Rng`], which neither branch on data nor allocate.

pub mod across;
mod beta;
pub mod binomial;
pub mod bursts;
pub mod causes;
pub mod censor;
pub mod checks;
pub mod clean;
pub mod comparison;
pub mod fairness;
pub mod figures;
pub mod find;
pub mod fit;
mod gamma;
pub mod harm;
pub mod histogram;
pub mod intervals;
pub mod judge;
pub mod kept;
pub mod look;
pub mod numbers;
pub mod open_loop;
mod path;
pub mod printed;
mod ranks;
pub mod ratio;
pub mod recover;
pub mod requested;
pub mod rng;
pub mod sleeping;
pub mod spoilt;
pub mod spread;
pub mod summary;
pub mod tail;
mod tcp;
pub mod trend;
pub mod verify;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
