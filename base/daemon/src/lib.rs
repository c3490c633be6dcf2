//! The common part of the daemons `jostled` and `procd`: settings from a file, sizes and addresses
//! in them, sockets that are listened on, the limit of open files, signals, lines of a log, and how
//! they start.
//!
//! Only what is the same for both stands here. Their protocols, settings and metrics
//! are their own.

pub mod address;
pub mod file;
pub mod limits;
pub mod log;
pub mod memory;
pub mod signals;
mod size;
pub mod socket;
pub mod start;

pub use size::Size;

/// Completes settings by those of a file: options that are not set, then lists that are empty.
#[macro_export]
macro_rules! complete {
    ($mine:ident by $file:ident: $($option:ident)*; $($list:ident)*) => {
        $($mine.$option = $mine.$option.or($file.$option);)*
        $(if $mine.$list.is_empty() {
            $mine.$list = $file.$list;
        })*
    };
}
