//! Whether a lock let two owners in.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The witness's report on exclusion over the whole run, warm-up and drain included. In `recover`
/// only overlaps count as violations in which both were [entitled to
/// own](recover.md#what-do-the-columns-mean); a lease entitles until it ends, less 200 millionths
/// for the drift of two clocks. Overlaps after the fault are no violations of the user's own locks,
/// which may have a lease that jostle knows nothing of.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Acquisitions that the witness checked.
    pub checked: u64,
    /// Acquisitions that found another owner inside.
    pub violations: u64,
    /// Acquisitions that found the mark of an owner that died while holding.
    pub holder_died: u64,
    /// Increments under the lock that are missing.
    pub lost_updates: u64,
    /// Fencing tokens of exclusive grants that were compared with the greatest before them.
    pub tokens_checked: Option<u64>,
    /// Those that were not greater.
    pub tokens_out_of_order: Option<u64>,
    /// Share of the readers that writers checked; only in shared mode.
    pub reader_coverage: Option<f64>,
    /// Median of the interval in which an overlap could be seen; absent with under 20 stamped
    /// grants.
    pub inner_interval_ns: Option<u64>,
    /// The first few, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
    /// Owners on different hosts, where there were several.
    pub across: Option<Box<Across>>,
}

impl Exclusion {
    /// Adds the counts of another host's witness.
    pub fn join(&mut self, other: &Exclusion) {
        let any = |all: &mut Option<u64>, one: Option<u64>| {
            *all = [*all, one]
                .into_iter()
                .flatten()
                .reduce(|all, one| all + one);
        };
        crate::joined!(self, other: checked violations holder_died lost_updates);
        any(&mut self.tokens_checked, other.tokens_checked);
        any(&mut self.tokens_out_of_order, other.tokens_out_of_order);
    }
}

/// The comparison of several hosts' logs
/// ([method](method/witness.md#how-is-exclusion-checked-across-hosts)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Across {
    /// Hosts whose logs were compared.
    pub hosts: u64,
    /// Grants that were compared with those of other hosts: grants of a lock that several hosts
    /// used, while all logs were complete.
    pub checked: u64,
    /// These, divided by all grants of the window.
    pub coverage: f64,
    /// Grants that overlapped with one of another host, whatever the offset of the clocks
    /// within its bounds.
    pub violations: u64,
    /// Grants with a fencing token that another had had.
    pub tokens_repeated: u64,
    /// Grants with an older fencing token than that of a hold that had ended before.
    pub tokens_out_of_order: u64,
    /// Grants that overlapped only with a time that the other owner's lease no longer certainly
    /// covered: not a fault of the lock.
    pub lapsed_overlap: u64,
    /// Grants for which the clocks cannot tell whether they overlapped with one of another
    /// host.
    pub undecided: u64,
    /// Those of them where the fencing tokens show which of the two came later.
    pub ordered_by_token: u64,
    /// The largest uncertainty of the offset between two hosts' clocks: no shorter overlap
    /// is certain.
    pub within_ns: u64,
    /// The first few faults, in words; times from the opening of the first host's window.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
}
