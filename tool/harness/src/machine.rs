//! The machine's work between two readings of its counters, whoever caused it.

use jostle_model::record::{Machine, TcpCounts};
use jostle_sys::limits::net::Counted;
use jostle_sys::stat::{self, CpuClock, MachineTicks};

/// One reading.
#[derive(Clone, Debug, Default)]
pub struct MachineReading {
    /// By the tick, since boot.
    pub ticks: MachineTicks,
    /// CPU time of the tool's own processes that are no workers.
    pub harness_ns: u64,
    /// Periods in which a CPU quota stopped us.
    pub throttled: Option<u64>,
    /// TCP's counters; None where no server is asked.
    pub tcp: Option<Counted>,
}

impl MachineReading {
    /// From this reading to a later one. What more than readings would tell is left out.
    pub fn until(&self, later: &MachineReading) -> Machine {
        let (from, to) = (&self.ticks, &later.ticks);
        let moved = |figure: fn(&MachineTicks) -> u64| figure(to).saturating_sub(figure(from));
        let (busy, stolen) = (moved(|t| t.busy), moved(|t| t.stolen));
        Machine {
            ticks: busy + stolen + moved(|t| t.idle),
            busy_ticks: busy,
            stolen_ticks: stolen,
            softirq_ticks: moved(|t| t.softirq),
            interrupts: Some(moved(|t| t.interrupts)),
            ticks_per_s: stat::ticks_per_second(),
            cores: to.cpus,
            harness_cpu_s: later.harness_ns.saturating_sub(self.harness_ns) as f64 / 1e9,
            steal_share: steal_share(busy, stolen),
            throttled_periods: self
                .throttled
                .zip(later.throttled)
                .map(|(from, to)| to.saturating_sub(from)),
            tcp: self.tcp.zip(later.tcp).map(|(from, to)| TcpCounts {
                overflows: to.overflows.saturating_sub(from.overflows),
                syn_again: to.syn_again.saturating_sub(from.syn_again),
                delayed_acks: to.delayed_acks.saturating_sub(from.delayed_acks),
            }),
            ..Machine::default()
        }
    }
}

/// stolen / (busy + stolen), in ticks; None under 200 ticks, where one tick more or less
/// would decide.
pub fn steal_share(busy: u64, stolen: u64) -> Option<f64> {
    let wanted = busy + stolen;
    (wanted >= 200).then(|| stolen as f64 / wanted as f64)
}

/// CPU time so far of the keeper, which calls this, and of its parent, in nanoseconds.
pub fn harness_ns() -> u64 {
    let parent = rustix::process::getppid()
        .and_then(|pid| CpuClock::of(pid.as_raw_nonzero().get() as u32).ok()?.read());
    stat::own_cpu_ns() + parent.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_what_was_wanted_and_needs_200_ticks() {
        assert_eq!(steal_share(900, 100), Some(0.1));
        assert_eq!(steal_share(199, 0), None);
        assert_eq!(steal_share(200, 0), Some(0.0));
    }

    #[test]
    fn what_counters_moved_by_is_the_machine_and_what_one_reading_lacks_is_absent() {
        let reading = |times: u64, throttled| MachineReading {
            ticks: MachineTicks {
                busy: 300 * times,
                idle: 10 * times,
                stolen: 100 * times,
                cpus: 2,
                ..MachineTicks::default()
            },
            harness_ns: 5_000_000 * times,
            throttled,
            tcp: None,
        };
        let machine = reading(1, Some(4)).until(&reading(3, Some(9)));
        assert_eq!((machine.ticks, machine.busy_ticks), (820, 600));
        assert_eq!(machine.steal_share, Some(0.25));
        assert_eq!(machine.harness_cpu_s, 0.01);
        assert_eq!(machine.throttled_periods, Some(5));
        assert_eq!(machine.tcp, None);
        let unknown = reading(1, None).until(&reading(3, Some(9)));
        assert_eq!(unknown.throttled_periods, None);
    }
}
