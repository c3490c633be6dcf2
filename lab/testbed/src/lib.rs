//! The objects that tests, validations and benchmarks of jostle measure and break: real servers,
//! each in a directory of its own and gone with the process that started it; hosts made of
//! namespaces; and the Debian packages that all of it comes from.
//!
//! An ordinary dependency: of tests, of `lab` (`cargo xtask validate`, `peers`) and of
//! `xtask`. Nothing that users install is linked with it.

pub mod certificate;
#[cfg(feature = "lock-servers")]
pub mod clusters;
pub mod databases;
pub mod etcd;
#[cfg(feature = "lock-servers")]
pub mod fake_consul;
pub mod hosts;
pub mod leash;
#[cfg(feature = "lock-servers")]
pub mod lock_servers;
pub mod packages;
pub mod ports;
pub mod relay;
pub mod running;
pub mod servers;
pub mod set_clock;
pub mod shell;
pub mod slapd;
mod stores;
pub mod test_programs;
pub mod turns;
