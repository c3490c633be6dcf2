//! Joins what a watcher saw on the server's machine to the record of the run.

use super::align::{Aligned, Misfit, Resampling, align};
use super::{Ends, Seen};
use jostle_model::judged::{Machine, ServerHost, Side, Traffic, Watched};

/// Moves what was seen to the intervals of this run, or notes why it cannot be. The run began then.
pub(crate) fn join(
    watched: &mut Watched,
    host: String,
    seen: Result<Option<Seen>, String>,
    ends: &Ends,
    began_ns: u64,
) {
    let mut record = ServerHost {
        host,
        ..ServerHost::default()
    };
    let seen = seen.and_then(|seen| {
        seen.ok_or_else(|| match watched.server {
            Some(_) => {
                "the server is on this machine, so that nothing was watched there".to_owned()
            }
            None => "the command was not seen to be connected to another machine".to_owned(),
        })
    });
    let joined = seen.and_then(|seen| add(watched, &mut record, seen, ends, began_ns));
    if joined.is_ok() {
        watched.server_unseen = None;
    }
    record.unseen = joined.err();
    watched.server_host = Some(record);
}

fn add(
    watched: &mut Watched,
    record: &mut ServerHost,
    seen: Seen,
    ends: &Ends,
    began_ns: u64,
) -> Result<(), String> {
    let Seen {
        began_ns: theirs_ns,
        asked,
        same,
        ends: their_ends,
        watched: mut theirs,
    } = seen;
    let judged = watched.traffic.as_ref().map(|traffic| traffic.port);
    if judged != Some(asked.port().into()) {
        return Err("the run went on with another server than the one that was watched".to_owned());
    }
    let port = theirs.server_at.take().unwrap_or_default();
    let mut server = theirs.server.take().ok_or_else(|| {
        format!("no process was seen at {port}: the watcher runs as root, or as the server's user")
    })?;
    let look_s = usual(&watched.span_s).max(usual(&theirs.span_s));
    let (by, aligned) =
        aligned(ends, &their_ends, same, (look_s * 1e9) as u64).map_err(|misfit| match same {
            true => misfit.to_string(),
            false => format!("no client has its address there (NAT), and {misfit}"),
        })?;
    let ours_s = |end_s: f64| {
        let at_ns = theirs_ns.saturating_add((end_s * 1e9) as u64);
        aligned.ours_ns(at_ns).saturating_sub(began_ns as i64) as f64 / 1e9
    };
    let edges = |ends_s: &[f64], of: &dyn Fn(f64) -> f64| {
        let all = std::iter::once(0.0).chain(ends_s.iter().copied());
        all.map(of).collect()
    };
    let to = Resampling {
        from: edges(&theirs.end_s, &ours_s),
        to: edges(&watched.end_s, &|end_s| end_s),
    };
    let last_ns = theirs_ns.saturating_add((theirs.end_s.last().unwrap_or(&0.0) * 1e9) as u64);
    let ahead_ns = (last_ns as i64).saturating_sub(aligned.ours_ns(last_ns));
    record.seen = Some(to.covered().map(|interval| interval as u64));
    record.ahead_s = Some(ahead_ns as f64 / 1e9);
    record.ahead_error_s = Some(crate::rounded(aligned.error_ns as f64 / 1e9));
    record.aligned_by = Some(by.to_owned());
    record.bounds = Some(aligned.bounds as u64);
    machine(&to, &mut theirs.machine);
    side(&to, &mut server);
    record.machine = Some(theirs.machine);
    watched.server = Some(server);
    watched.server_at = Some(format!("{}{port}", record.host));
    watched.lookups = theirs.lookups;
    if let (Some(ours), Some(theirs)) = (&mut watched.traffic, theirs.traffic) {
        traffic(&to, ours, theirs);
    }
    if let (Some(ours), Some(theirs)) = (&mut watched.network, theirs.network) {
        // What listeners refuse and what is acknowledged late is counted where it happens.
        add_to(&mut ours.overflows, &to.sums(&theirs.overflows));
        add_to(&mut ours.dropped, &to.sums(&theirs.dropped));
        add_to(&mut ours.delayed_acks, &to.sums(&theirs.delayed_acks));
    }
    Ok(())
}

/// By the first evidence that there is enough of.
fn aligned(
    ours: &Ends,
    theirs: &Ends,
    same: bool,
    look_ns: u64,
) -> Result<(&'static str, Aligned), Misfit> {
    let mut few = Misfit::Few(0);
    for (name, curves) in ours.curves(theirs, same) {
        match align(&curves, look_ns) {
            Ok(aligned) => return Ok((name, aligned)),
            Err(Misfit::Few(bounds)) => few = Misfit::Few(bounds),
            Err(other) => return Err(other),
        }
    }
    Err(few)
}

fn usual(spans_s: &[f64]) -> f64 {
    jostle_stats::intervals::median(spans_s).unwrap_or(0.0)
}

fn add_to(ours: &mut [f64], more: &[f64]) {
    ours.iter_mut()
        .zip(more)
        .for_each(|(value, more)| *value += more);
}

fn move_sums<'c>(to: &Resampling, columns: impl IntoIterator<Item = Option<&'c mut Vec<f64>>>) {
    for column in columns.into_iter().flatten() {
        *column = to.sums(column);
    }
}

fn machine(to: &Resampling, theirs: &mut Machine) {
    let maybe = [&mut theirs.others_s, &mut theirs.behind_s].map(Option::as_mut);
    move_sums(to, [&mut theirs.stolen_s, &mut theirs.tool_s].map(Some));
    move_sums(to, maybe);
}

fn side(to: &Resampling, theirs: &mut Side) {
    move_sums(to, [&mut theirs.cpu_s, &mut theirs.stopped_s].map(Some));
    let maybe = [
        &mut theirs.queued_s,
        &mut theirs.major_faults,
        &mut theirs.gone_s,
        &mut theirs.throttled_s,
    ];
    move_sums(to, maybe.map(Option::as_mut));
    move_sums(
        to,
        theirs
            .largest
            .as_mut()
            .map(|process| Some(&mut process.cpu_s)),
    );
    for thread in &mut theirs.busiest {
        move_sums(to, [&mut thread.cpu_s, &mut thread.queued_s].map(Some));
    }
    let levels = [&mut theirs.on_disk, &mut theirs.at_locks];
    for column in levels.into_iter().flatten() {
        *column = to.levels(column);
    }
}

fn traffic(to: &Resampling, ours: &mut Traffic, theirs: Traffic) {
    let levels = |column: Option<Vec<f64>>| column.map(|column| to.levels(&column));
    ours.server_unread_bytes = levels(theirs.server_unread_bytes);
    ours.server_unread = levels(theirs.server_unread);
    ours.backlog = levels(theirs.backlog);
    ours.backlog_limit = theirs.backlog_limit;
    ours.at_processes = theirs.at_processes;
    ours.downstream = theirs.downstream;
    add_to(&mut ours.retransmitted, &to.sums(&theirs.retransmitted));
    if let (Some(ours), Some(theirs)) = (&mut ours.unsent, levels(theirs.unsent)) {
        add_to(ours, &theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::sock_diag::Tcp;

    /// Looks every 100 ms at one connection that carries a byte a millisecond.
    fn looks(first_ns: u64, count: u64) -> (Watched, Ends) {
        let mut ends = Ends::default();
        let nths = 1..=count;
        for nth in nths.clone() {
            let at_ns = first_ns + nth * 100_000_000;
            let socket = Tcp {
                cookie: 1,
                own_port: 4_001,
                carried: Some(Default::default()),
                ..Tcp::default()
            };
            let mut socket = [socket];
            socket[0]
                .carried
                .iter_mut()
                .for_each(|carried| carried.left_bytes = 100 * nth);
            ends.look([at_ns; 2], &socket, 0, 0);
        }
        let each = vec![0.1; count as usize];
        let watched = Watched {
            end_s: nths.map(|nth| nth as f64 / 10.0).collect(),
            span_s: each.clone(),
            traffic: Some(Traffic {
                port: 80,
                unsent: Some(each.clone()),
                retransmitted: each.clone(),
                ..Traffic::default()
            }),
            server: Some(Side {
                cpu_s: each,
                ..Side::default()
            }),
            server_at: Some(":80".to_owned()),
            ..Watched::default()
        };
        (watched, ends)
    }

    #[test]
    fn what_was_seen_there_is_in_the_intervals_of_the_run_and_what_was_not_is_told() {
        let joined = |seen: &dyn Fn(Watched, Ends) -> Result<Option<Seen>, String>| {
            let (mut watched, ends) = looks(0, 30);
            watched.server = None;
            let (theirs, their_ends) = looks(5_000_000_000, 20);
            join(
                &mut watched,
                "db1".to_owned(),
                seen(theirs, their_ends),
                &ends,
                0,
            );
            let host = watched.server_host.take().unwrap();
            (watched, host)
        };
        let seen = |watched, ends| {
            Ok(Some(Seen {
                began_ns: 5_000_000_000,
                asked: ([127, 0, 0, 1], 80).into(),
                same: true,
                ends,
                watched,
            }))
        };
        let (watched, host) = joined(&seen);
        assert!((host.ahead_s.unwrap() - 5.0).abs() < 0.1, "{host:?}");
        let [from, to] = host.seen.unwrap();
        assert!(from <= 1 && (19..=21).contains(&to), "{host:?}");
        let server = watched.server.unwrap();
        assert_eq!(server.cpu_s.len(), 30);
        assert!(
            (server.cpu_s.iter().sum::<f64>() - 2.0).abs() < 0.11,
            "{server:?}"
        );
        assert_eq!(watched.server_at.as_deref(), Some("db1:80"));
        let traffic = watched.traffic.unwrap();
        assert_eq!(traffic.unsent.unwrap()[10], 0.2);
        assert!((traffic.retransmitted[10] - 0.2).abs() < 1e-6);
        let unseen = |seen: &dyn Fn(Watched, Ends) -> Result<Option<Seen>, String>| {
            let (watched, host) = joined(seen);
            assert!(watched.server.is_none() && host.seen.is_none());
            host.unseen.unwrap()
        };
        assert!(unseen(&|_, _| Err("lost".to_owned())).contains("lost"));
        assert!(unseen(&|_, _| Ok(None)).contains("another machine"));
        assert!(
            unseen(&|watched, _| seen(watched, Ends::default())).contains("too little traffic")
        );
        let nobody = |mut watched: Watched, ends| {
            watched.server = None;
            seen(watched, ends)
        };
        assert!(unseen(&nobody).contains("no process was seen at :80"));
    }
}
