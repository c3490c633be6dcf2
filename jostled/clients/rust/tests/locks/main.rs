//! Against a daemon that is killed, stopped and cut off.

mod expect;
mod many;
mod one;
mod service;
mod sessions;
mod world;
