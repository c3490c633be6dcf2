//! The work of the workers of `contend`.

use jostle_model::plan::*;
use jostle_model::time::{Busy, Nanos};
use serde::{Deserialize, Serialize};

/// An order whose fields come from a plan: each stands once, with what it is where the
/// plan says nothing.
macro_rules! from_plan {
    (
        $(#[$doc:meta])* $name:ident($plan:ident) {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $value:expr,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl From<&Plan> for $name {
            fn from($plan: &Plan) -> $name {
                $name { $($field: $value,)+ }
            }
        }
    };
}

from_plan! {
    /// Acquire, hold, release, idle, until the window closes.
    ContendOrder(plan) {
        /// While holding.
        hold: Busy = plan.hold(),
        /// Between operations.
        idle: Busy = plan.idle(),
        /// Whether idle times are drawn, exponentially distributed, with this mean.
        idle_varies: bool = plan.arrivals == Some(Arrivals::Poisson),
        /// Share of shared acquisitions.
        shared: f64 = plan.shared(),
        /// Byte ranges.
        range: Range = plan.range(),
        /// Try instead of waiting.
        try_only: bool = plan.try_only(),
        /// Give up after.
        acquire_timeout: Option<Nanos> = plan.acquire_timeout,
        /// Open the file for each acquisition.
        open_each: bool = plan.open_each(),
        /// Whether workers renew the lease of what they hold, as the field's clients of this
        /// target do.
        renews: bool = plan.renew != Some(Renew::No),
        /// By how much the sleep of a hold is cut short; the rest is spun. Decided when it is
        /// known how late this machine's sleeps end.
        wake_early: Nanos = Nanos::ZERO,
    }
}

/// Neither slept nor spun.
pub const NO_TIME: Busy = Busy::Sleep(Nanos::ZERO);

impl ContendOrder {
    /// Exclusive acquisitions that wait, without hold and idle.
    pub fn bare() -> ContendOrder {
        ContendOrder::from(&Plan::of(Workload::Contend))
    }
}
