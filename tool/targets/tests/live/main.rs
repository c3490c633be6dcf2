//! Targets on what they lock with: the kernel, memory, and real servers, one of each for
//! all tests here. One test program, since each costs seconds to link.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

mod clusters;
mod common;
mod conformance;
mod consul;
mod credentials;
mod etcd;
mod failures;
mod holders;
mod keeping;
mod ldap;
mod looks;
mod nats;
mod paths;
mod patience;
mod redisson;
mod requests;
mod specimens;
mod tls;
mod zookeeper;
