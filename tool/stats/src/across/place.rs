//! The possible positions of a host's grant on the common clock.

use super::{Grant, HostLog, LEASE_RATE_PPM};

/// A clock that is off by this (centuries) says nothing.
const FAR: i64 = i64::MAX / 8;

/// A host's clock beside the common one, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When, by the host's clock.
    pub at_ns: u64,
    /// The host's clock less the common one.
    pub ahead_ns: i64,
    /// Give or take.
    pub within_ns: u64,
}

/// The known bounds of a host's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Clock {
    readings: Vec<Reading>,
    drift_ppm: f64,
}

impl Clock {
    /// A clock with a constant offset from the common clock, and an uncertainty.
    pub fn steady(ahead_ns: i64, within_ns: u64) -> Clock {
        let reading = Reading {
            at_ns: 0,
            ahead_ns,
            within_ns,
        };
        Clock::read(vec![reading], 0.0)
    }

    /// A clock with several readings, such as before and after a run. Between readings it
    /// drifts from the common clock by at most `drift_ppm` in either direction. Its offset
    /// at any time follows from all readings together. If readings contradict each other,
    /// nothing is known about the clock.
    pub fn read(readings: Vec<Reading>, drift_ppm: f64) -> Clock {
        Clock {
            readings,
            drift_ppm,
        }
    }

    /// The least and the most that it can be ahead when it shows `at_ns`.
    fn ahead(&self, at_ns: u64) -> (i64, i64) {
        let (mut least, mut most) = (-FAR, FAR);
        for reading in &self.readings {
            let apart = at_ns.abs_diff(reading.at_ns) as f64 * self.drift_ppm * 1e-6;
            let within = i64::try_from(reading.within_ns).unwrap_or(FAR);
            // Rounded up; what is beyond all measure saturates.
            let doubt = within.saturating_add(apart.ceil() as i64).min(FAR);
            least = least.max(reading.ahead_ns.saturating_sub(doubt));
            most = most.min(reading.ahead_ns.saturating_add(doubt));
        }
        if least <= most {
            (least, most)
        } else {
            (-FAR, FAR)
        }
    }

    /// Where on the common clock the host's time `at_ns` may lie.
    pub(super) fn place(&self, at_ns: u64) -> Span {
        let (least, most) = self.ahead(at_ns);
        let at = i64::try_from(at_ns).unwrap_or(i64::MAX);
        Span {
            least: at.saturating_sub(most),
            most: at.saturating_sub(least),
        }
    }
}

/// A time that is known to lie between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub least: i64,
    pub most: i64,
}

impl Span {
    pub(super) fn middle(self) -> i64 {
        self.least / 2 + self.most / 2
    }

    pub(super) fn contains(self, at: i64) -> bool {
        self.least <= at && at <= self.most
    }
}

/// A grant on the common clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub key: u32,
    /// The log's index.
    pub host: usize,
    pub worker: u32,
    /// By the host's own clock: grant and release.
    pub raw: (u64, u64),
    pub g: Span,
    pub r: Span,
    /// The release, or the certain end of the lease; None: nothing is certain.
    pub entitled: Option<Span>,
    pub token: Option<u64>,
    pub shared: bool,
}

impl Placed {
    fn new(host: usize, clock: &Clock, grant: &Grant) -> Placed {
        let raw = (grant.g_ns, grant.r_ns.max(grant.g_ns));
        let r = clock.place(raw.1);
        Placed {
            key: grant.key,
            host,
            worker: grant.worker,
            raw,
            g: clock.place(raw.0),
            r,
            entitled: Some(r),
            token: grant.token,
            shared: grant.shared,
        }
    }
}

/// The grants of all logs.
pub(super) fn all(hosts: &[HostLog<'_>]) -> Vec<Placed> {
    let of_host = |(host, log): (usize, &HostLog<'_>)| {
        let clock = log.clock.clone();
        let grants = log.grants.to_vec();
        grants
            .into_iter()
            .map(move |grant| Placed::new(host, &clock, &grant))
    };
    hosts.iter().enumerate().flat_map(of_host).collect()
}

/// Cuts off what leases do not certainly give.
pub(super) fn entitle(placed: &mut [Placed], hosts: &[HostLog<'_>]) {
    let lease = |grant: &Placed| hosts[grant.host].lease_ns;
    let leased = (0..placed.len()).filter(|at| lease(&placed[*at]).is_some());
    let mut order: Vec<usize> = leased.collect();
    order.sort_unstable_by_key(|at| (placed[*at].host, placed[*at].worker, placed[*at].raw));
    let mut before: Option<(usize, u32, u64)> = None;
    for at in order {
        let grant = placed[at];
        let asked =
            before.filter(|(host, worker, _)| (*host, *worker) == (grant.host, grant.worker));
        let lasts =
            lease(&grant).map_or(u64::MAX, |ns| ns - ns.div_ceil(1_000_000) * LEASE_RATE_PPM);
        let until = asked.map(|(_, _, released)| released.saturating_add(lasts).min(grant.raw.1));
        let until = until.filter(|until| *until > grant.raw.0);
        placed[at].entitled = until.map(|until| hosts[grant.host].clock.place(until));
        before = Some((grant.host, grant.worker, grant.raw.1));
    }
}

/// The time that all logs cover.
pub(super) fn common(hosts: &[HostLog<'_>]) -> Span {
    let from = hosts.iter();
    let from = from.map(|host| host.clock.place(host.from_ns).middle());
    let hosts = hosts.iter();
    let until = hosts.map(|host| host.clock.place(host.until_ns).middle());
    Span {
        least: from.max().unwrap_or(0),
        most: until.min().unwrap_or(0),
    }
}

/// How far a host's clock may be off, at most.
pub(super) fn doubt(host: &HostLog<'_>) -> u64 {
    let at = [host.from_ns, host.until_ns].map(|at| host.clock.place(at));
    let widths = at.map(|span| span.most.abs_diff(span.least).div_ceil(2));
    widths[0].max(widths[1])
}

/// How long two overlapping grants were certainly inside together, for all positions of
/// their clocks.
pub(super) fn together_ns(one: &Placed, other: &Placed) -> i64 {
    let end = |grant: &Placed| grant.entitled.unwrap_or(grant.r).least;
    let spans = [one, other].map(|grant| (grant.raw.1 - grant.raw.0) as i64);
    let crossed = [end(one) - other.g.most, end(other) - one.g.most];
    spans.into_iter().chain(crossed).min().unwrap_or(0)
}
