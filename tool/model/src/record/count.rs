//! The kernel's counts of a run's workers. One line per count is enough for the workers'
//! pages, the record and the csv.

use std::collections::BTreeMap;

/// The counts, each with its name in the record and in the csv.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $name:literal,)+) => {
        /// The kernel's counts of a worker's thread from its arrival to its end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Count {
            $($(#[$doc])* $count,)+
        }

        impl Count {
            /// All of them, in their order.
            pub const ALL: &'static [Count] = &[$(Count::$count,)+];

            /// As it stands in the record and in the csv.
            pub const fn name(self) -> &'static str {
                match self { $(Count::$count => $name,)+ }
            }
        }
    };
}

counts! {
    /// Involuntary context switches of workers. A preempted owner delays all waiters.
    Preempted = "preempted",
    /// Pages of memory that the kernel had to provide, or to read from a disk, while a worker
    /// waited for them. A lock without a hold that faults again and again measures memory.
    PageFaults = "page_faults",
}

/// By name, all workers together; a count that is not known for all of them is absent.
pub type Counts = BTreeMap<String, u64>;
