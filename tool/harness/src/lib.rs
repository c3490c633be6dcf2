//! The ground under every instrument of the keeper: its link to the parent ([`Context`]), the
//! owners of CPU time ([`accounts`]), the machine's counters ([`MachineReading`]) and its own speed
//! ([`anchor`]), interrupts and tracers ([`interference`]), its limits ([`limits`]), the program
//! that runs along ([`during`]), progress reports ([`watch`]).
//!
//! Not here: what is measured and how (`jostle-engine`, `jostle-connections`, `jostle-recover`).

pub mod accounts;
pub mod anchor;
mod context;
pub mod during;
pub mod interference;
pub mod limits;
mod machine;
pub mod merged;
mod refusal;
pub mod watch;

pub use context::{
    Aborted, Context, LOOK_UP, RAMP_PATIENCE_NS, Result, how_it_ended, not_removed, opened,
    readable, receive, send,
};
pub use machine::{MachineReading, harness_ns, steal_share};
pub use refusal::{Refusal, bytes};
