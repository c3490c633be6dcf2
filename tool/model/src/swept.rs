//! The values that workloads sweep: a row for each, from which plans, csv, metrics, tables,
//! sentences and laws of growth take all that they need of it.

use crate::list::List;
use crate::plan::Plan;
use crate::record::At;

/// A value that workloads sweep.
#[derive(Debug)]
pub struct Swept {
    /// Its field of plans and points.
    pub name: &'static str,
    /// Its column in csv.
    pub csv: &'static str,
    /// The option as help and messages have it: the short one, where there is one.
    pub option: &'static str,
    /// The noun behind such a number, of one and of several; empty of a rate and a fault.
    pub noun: [&'static str; 2],
    /// Above its column in the table of hosts.
    pub heading: [&'static str; 2],
    /// The value of a point; None of a fault, which is a word.
    pub of: fn(&At) -> Option<u64>,
    /// Its text.
    pub text: fn(&At) -> Option<String>,
    /// Takes it from a point.
    pub clear: fn(&mut At),
    /// The list of a plan; None of faults.
    pub list: fn(&mut Plan) -> Option<&mut List>,
}

macro_rules! swept {
    ($($(#[$doc:meta])+ $place:ident = $field:ident $csv:literal $option:literal
        $noun:expr, $heading:expr, $of:expr, $list:expr;)*) => {
        $($(#[$doc])+
        pub const $place: &Swept = &Swept {
            name: stringify!($field),
            csv: $csv,
            option: $option,
            noun: $noun,
            heading: $heading,
            of: $of,
            text: |at| at.$field.map(|value| value.to_string()),
            clear: |at| at.$field = None,
            list: $list,
        };)*

        /// All of them, in the order in which they are printed.
        pub static SWEPT: &[&Swept] = &[$($place),*];
    };
}

swept! {
    /// Workers.
    WORKERS = workers "workers" "-w" ["worker", "workers"], ["workers", "in all"],
        |at| at.workers, |plan| plan.workers.as_mut();
    /// Operations of each worker.
    OPERATIONS = operations "operations_each" "-n" ["operation", "operations"], ["", "n"],
        |at| at.operations, |plan| plan.operations.as_mut();
    /// Locks that each worker holds.
    KEYS = keys "keys_held" "--keys" ["lock", "locks"], ["", "keys"],
        |at| at.keys, |plan| plan.keys.as_mut();
    /// Connections that are open.
    OPEN = open "open" "--open" ["connection", "connections"], ["", "open"],
        |at| at.open, |plan| plan.open.as_mut();
    /// Other sockets that listen.
    LISTENERS = listeners "listeners" "--listeners" ["other listener", "other listeners"],
        ["", "listen"], |at| at.listeners, |plan| plan.listeners.as_mut();
    /// Source addresses.
    SOURCES = sources "sources" "--sources" ["source address", "source addresses"],
        ["", "addrs"], |at| at.sources, |plan| plan.sources.as_mut();
    /// Requests a second.
    RATE = rate "offered_per_s" "--rate" [""; 2], ["", "rate"],
        |at| at.rate, |plan| plan.rate.as_mut();
    /// Generators.
    GENERATORS = generators "generators" "--generators" ["generator", "generators"],
        ["gene-", "rators"], |at| at.generators, |plan| plan.generators.as_mut();
    /// The fault that strikes.
    FAULT = fault "fault" "--fault" [""; 2], [""; 2], |_| None, |_| None;
}
