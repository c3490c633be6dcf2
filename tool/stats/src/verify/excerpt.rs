//! The smallest part of a history that shows a violation.

use super::check::{First, Window};
use super::ends::Judge;
use super::history::{ALL_KEYS, Entry, Kind, Struck};
use jostle_model::record::{Excerpt, ExcerptLine};
use std::borrow::Borrow;

/// The calls of the clients that are part of it, the faults that struck them or their service in
/// that time or last before it, and the ends of leases by which it was judged.
pub(super) fn of<E>(judge: &Judge<'_>, at: u64, first: &First, entries: E) -> Excerpt
where
    E: IntoIterator<Item: Borrow<Entry>>,
{
    let mut calls: Vec<Vec<Entry>> = vec![Vec::new(); first.windows.len()];
    for entry in entries {
        let entry = entry.borrow();
        for (window, calls) in first.windows.iter().zip(&mut calls) {
            let of_key =
                entry.key == first.key || entry.key == ALL_KEYS || entry.kind == Kind::Left;
            let inside = (window.since..=window.until).contains(&entry.at_ns);
            if entry.client == window.client && of_key && inside {
                calls.push(*entry);
            }
        }
    }
    let calls = calls.into_iter().flat_map(|calls| that_matter(&calls, at));
    let mut lines: Vec<ExcerptLine> = calls.map(|entry| line(&entry)).collect();
    let since = first.windows.first().map_or(0, |earlier| earlier.since);
    lines.extend(faults(judge, &first.windows, since, at));
    let leases = first.windows.iter().filter_map(|window| {
        Some(ExcerptLine {
            at_ns: window.lease_end?,
            client: None,
            what: format!("the lease of client {} ends", window.client),
            token: None,
        })
    });
    lines.extend(leases.filter(|line| line.at_ns <= first.until_ns));
    lines.sort_by_key(|line| line.at_ns);
    lines.dedup();
    Excerpt {
        kind: first.kind,
        key: u64::from(first.key),
        from_ns: first.from_ns,
        until_ns: first.until_ns,
        lines,
    }
}

/// Of the renewals only the last that had been sent by then, and one that was refused.
fn that_matter(calls: &[Entry], at: u64) -> Vec<Entry> {
    let ends = |nth: usize| calls.get(nth + 1).map(|end| end.kind);
    let sent = |nth: &usize| calls[*nth].kind == Kind::Renew && calls[*nth].at_ns <= at;
    let succeeded = |nth: &usize| ends(*nth) == Some(Kind::Renewed);
    let last = (0..calls.len()).rev().filter(sent).find(succeeded);
    let matters = |nth: usize| match calls[nth].kind {
        Kind::Renew => Some(nth) == last || ends(nth) == Some(Kind::RenewLost),
        Kind::Renewed => nth.checked_sub(1) == last,
        Kind::RenewFailed => false,
        _ => true,
    };
    (0..calls.len())
        .filter(|nth| matters(*nth))
        .map(|nth| calls[nth])
        .collect()
}

fn line(entry: &Entry) -> ExcerptLine {
    ExcerptLine {
        at_ns: entry.at_ns,
        client: Some(u64::from(entry.client)),
        what: match entry.kind {
            Kind::Ask => "asks",
            Kind::Granted => "granted",
            Kind::Refused => "refused",
            Kind::AskFailed => "request failed",
            Kind::Leased => "asks again",
            Kind::Renew => "renews",
            Kind::Renewed => "renewed",
            Kind::RenewLost => "renewal refused",
            Kind::RenewFailed => "renewal failed",
            Kind::Release => "releases",
            Kind::Released => "released",
            Kind::ReleaseRefused => "release refused",
            Kind::ReleaseFailed => "release failed",
            Kind::Left => "gives up its session",
            Kind::Dropped => "entries missing",
        }
        .to_owned(),
        token: match entry.kind {
            Kind::Granted => entry.extra.checked_sub(1),
            _ => None,
        },
    }
}

fn faults(judge: &Judge<'_>, windows: &[Window], since: u64, at: u64) -> Vec<ExcerptLine> {
    let concerns = |struck: &&&Struck| {
        let of = |client| windows.iter().any(|window| window.client == client);
        struck.from_ns <= at && struck.client.is_none_or(of)
    };
    let all: Vec<&&Struck> = judge.struck.iter().filter(concerns).collect();
    let last = all.len().saturating_sub(1);
    let mut all = all.into_iter().enumerate();
    let line = |struck: &Struck| {
        let (who, how) = struck.fault.struck();
        ExcerptLine {
            at_ns: struck.struck_ns,
            client: None,
            what: match struck.client {
                Some(client) => format!("client {client} {how}"),
                None => format!("{who} {how}"),
            },
            token: None,
        }
    };
    let near = all
        .by_ref()
        .filter(|(nth, struck)| *nth == last || struck.struck_ns >= since);
    near.map(|(_, struck)| line(struck)).collect()
}
