//! Pure data that every other crate shares: times and lists as users type them ([`time`],
//! `list`), the plan of an experiment ([`plan`]) with the one table of its options
//! ([`options`]), their defaults ([`defaults`]) and the values that are swept ([`swept`]), the versioned records of the result
//! file ([`record`]), reading and writing both ([`serial`]), and the escaping of texts from
//! outside ([`text`]).
//!
//! Nothing here reads a clock, a file or the machine.

/// Joins fields of another host's part to those of one's own: sums, then the greatest.
#[macro_export]
macro_rules! joined {
    ($all:ident, $one:ident: $($sum:ident)+ $(; $($most:ident)+)?) => {
        $($all.$sum += $one.$sum;)+
        $($($all.$most = $all.$most.max($one.$most);)+)?
    };
}

pub mod calibrated;
pub mod connect;
pub mod defaults;
pub mod fields;
pub mod hosts;
pub mod judged;
mod list;
pub mod objective;
pub mod open_loop;
pub mod options;
pub mod plan;
pub mod record;
mod remedy;
pub mod serial;
mod server_at;
pub mod swept;
pub mod text;
pub mod time;
pub mod who;
pub mod workload;

pub use list::List;
pub use plan::Plan;
pub use remedy::Remedy;
pub use server_at::ServerAt;
pub use time::{Busy, Nanos};
