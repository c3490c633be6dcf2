//! The distributions of a run's times.

use super::Distribution;
use serde::{Deserialize, Serialize};

/// A struct of distributions, none of which every run has, with access to them by name.
macro_rules! distributions {
    ($(#[$of_all:meta])* pub struct $all:ident {
        $($(#[$of_one:meta])* pub $one:ident: Option<Distribution>,)*
    }) => {
        $(#[$of_all])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $all {
            $($(#[$of_one])*
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub $one: Option<Distribution>,)*
        }

        impl $all {
            /// Their names, in their order.
            pub const NAMES: &[&str] = &[$(stringify!($one)),*];

            /// The one of this name, if the run has it.
            pub fn get(&self, name: &str) -> Option<&Distribution> {
                match name {
                    $(stringify!($one) => self.$one.as_ref(),)*
                    _ => None,
                }
            }
        }
    };
}

distributions! {
/// How long the calls of a run took, and what lies between them. A new one is a field here, and
/// what fills it.
pub struct Times {
    /// Time for which the lock was really held.
    pub hold_ns: Option<Distribution>,
    /// From the previous owner's release to the grant, contended ones only.
    pub handoff_ns: Option<Distribution>,
    /// From the previous owner's release to the contended grant, for owners on one CPU, or where
    /// the CPUs are unknown.
    pub handoff_same_cpu_ns: Option<Distribution>,
    /// From the previous owner's release to the contended grant, for owners on two CPUs.
    pub handoff_cross_cpu_ns: Option<Distribution>,
    /// Time in the release call.
    pub release_ns: Option<Distribution>,
    /// With `pipeline` above 1, in place of `acquire_ns` and `release_ns`: time from the
    /// sending of requests that were sent together to their last reply. These are `pipeline`
    /// requests; a quarter of that (at least 25) where one task is alone on its generator
    /// thread.
    pub batch_ns: Option<Distribution>,
    /// In place of `release_ns` with `pipeline` above 1, in `hold` only: time from the sending of
    /// releases that were sent together to their last reply.
    pub release_batch_ns: Option<Distribution>,
    /// Time of refused tries (`--try`), and of attempts that their own timeout ended
    /// (`--acquire-timeout`).
    pub failed_try_ns: Option<Distribution>,
    /// Time of connect(2), for the connections that this point adds.
    pub connect_ns: Option<Distribution>,
    /// Time of connect(2) for the last hundred connections before the listed number; absent where
    /// that is all of them.
    pub connect_last_ns: Option<Distribution>,
    /// Time of connect(2) for connections to which the kernel gave an even port; absent where all
    /// were even.
    pub connect_even_ns: Option<Distribution>,
    /// Time of connect(2) for connections to which the kernel gave an odd port; absent where all
    /// were even.
    pub connect_odd_ns: Option<Distribution>,
    /// Time in bind(), where an address is bound.
    pub bind_ns: Option<Distribution>,
    /// Calls of accept4(2) that took a connection.
    pub accept_ns: Option<Distribution>,
    /// Time of close(2) on the client's side, which closes first; the file has it in the record
    /// `closing`.
    pub close_ns: Option<Distribution>,
    /// Time of close(2) on the server's side, afterwards.
    pub server_close_ns: Option<Distribution>,
    /// `rate`: from the intended start to the answer, for successes whose intended start lay in
    /// the window. `connect` with `rate`: to the end of connect().
    pub response_ns: Option<Distribution>,
    /// From the sending of a request to its answer, successful ones only.
    pub service_ns: Option<Distribution>,
    /// As `service_ns`, for requests that were not answered, or with a code that is not a
    /// success.
    pub failed_ns: Option<Distribution>,
}
}
