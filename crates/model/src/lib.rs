//! Pure data that every other crate shares: times and lists as users type
//! them ([`time`], [`list`]), the resolved plan of an experiment ([`plan`]) with its
//! defaults ([`defaults`]), and the versioned records of the result file ([`record`]).
//!
//! Not for behaviour: nothing here reads a clock, a file or the machine.

pub mod calibrated;
pub mod connect;
pub mod defaults;
pub mod hosts;
pub mod list;
pub mod open_loop;
pub mod plan;
pub mod record;
pub mod remedy;
pub mod server_at;
pub mod time;

pub use list::List;
pub use plan::Plan;
pub use remedy::Remedy;
pub use server_at::ServerAt;
pub use time::{Busy, Nanos};
