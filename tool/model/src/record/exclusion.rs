//! Whether a lock let two owners in.

use serde::{Deserialize, Serialize};

/// What the witness of exclusion saw, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Acquisitions that the witness checked.
    pub checked: u64,
    /// Acquisitions that found another owner inside.
    pub violations: u64,
    /// Acquisitions that found the mark of an owner that died while holding.
    pub holder_died: u64,
    /// Acquisitions that the holder's counter lost.
    pub lost_updates: u64,
    /// Fencing tokens of exclusive grants that were compared with those before them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens_checked: Option<u64>,
    /// Those that were not greater.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens_out_of_order: Option<u64>,
    /// Share of the readers that writers looked at, where not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_coverage: Option<f64>,
    /// Median of the interval in which an overlap could be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_interval_ns: Option<u64>,
    /// The first few, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
    /// Owners on different hosts, where there were several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub across: Option<Box<Across>>,
}

/// The comparison of several hosts' logs: owners on different hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Across {
    /// Hosts whose logs were compared.
    pub hosts: u64,
    /// Grants that were compared with those of the other hosts: of a lock that
    /// several used, while all logs were complete.
    pub checked: u64,
    /// These by all grants of the window.
    pub coverage: f64,
    /// Grants that overlapped with one of another host for all possible positions of the
    /// clocks.
    pub violations: u64,
    /// Grants with a fencing token that another had had.
    pub tokens_repeated: u64,
    /// Grants with an older fencing token than that of a hold that had ended before.
    pub tokens_out_of_order: u64,
    /// Grants that overlapped only with a time that was no longer certainly covered by a
    /// lease.
    pub lapsed_overlap: u64,
    /// Grants that may have overlapped with one of another host, or not.
    pub undecided: u64,
    /// The undecided grants that fencing tokens put in order.
    pub ordered_by_token: u64,
    /// The largest uncertainty of the offset between two hosts' clocks: no shorter overlap
    /// is certain.
    pub within_ns: u64,
    /// The first few faults, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
}
