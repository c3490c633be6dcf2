//! The workers of a run: their loops, what they record, and the memory that they share.
//!
//! A worker (`worker`, [`workloads`]) stamps and folds into its own shared page
//! ([`page`]), watched by the [`witness`]. The keeper, in `jostle-engine`, tells it what to
//! do ([`order`]), holds it as an object ([`work::Work`]), and reads the page.
//!
//! [`prepare`] is the one generic door: behind it, the measured loop is compiled for each
//! lock in memory, of the kernel, and specimen. Everything else is compiled once. This
//! crate is optimised as a whole; whoever calls it need not be.

pub mod crew;
pub mod grants;
pub mod order;
pub mod page;
mod recording;
mod tasks;
pub mod witness;
pub mod work;
mod worker;
pub mod workloads;

pub use worker::prepare;
