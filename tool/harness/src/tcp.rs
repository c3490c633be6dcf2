//! What TCP of this machine counted.

use jostle_model::record::TcpCounts;
use jostle_sys::limits::net::Counted;

/// What TCP counted between two readings.
pub fn tcp_counts(from: Option<Counted>, to: Option<Counted>) -> Option<TcpCounts> {
    let (from, to) = from.zip(to)?;
    Some(TcpCounts {
        overflows: to.overflows.saturating_sub(from.overflows),
        syn_again: to.syn_again.saturating_sub(from.syn_again),
        delayed_acks: to.delayed_acks.saturating_sub(from.delayed_acks),
    })
}
