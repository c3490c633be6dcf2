//! Sessions in which every second run is left alone, the first and the last too: a planted run
//! has a control on either side. A figure *moved* if it lies a tenth or more below both
//! controls, or a tenth or more above both: one run alone moves by as much by chance.

use super::plants::Planted;
use super::store::Store;
use jostle_stats::rng::Rng;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// By what a figure must have moved.
const MOVED: f64 = 0.1;

/// Planted runs of a session.
const PLANTED: usize = 6;

/// Where a run stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    /// Runs of one session are of one kind, and stand one after the other.
    pub session: u64,
    /// Its place in it; those with even numbers are left alone.
    pub at: u32,
    /// The generator, or the kind of workload.
    #[serde(alias = "generator")]
    pub kind: String,
    /// None: left alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planted: Option<Planted>,
}

/// A run that is kept.
pub(super) trait Linked {
    fn link(&self) -> &Link;
}

/// Planted runs between their controls, of runs in the order in which they were made.
pub(super) fn trials<R: Linked>(runs: &[R]) -> impl Iterator<Item = (&R, Planted, [&R; 2])> {
    runs.windows(3).filter_map(|three| {
        let [before, run, after] = three else {
            return None;
        };
        let own = run.link();
        let is_control = |other: &&R| {
            let link = other.link();
            link.session == own.session && link.at.abs_diff(own.at) == 1 && link.planted.is_none()
        };
        let is_trial = [before, after].iter().all(is_control);
        own.planted
            .filter(|_| is_trial)
            .map(|planted| (run, planted, [before, after]))
    })
}

/// Where a figure lies in comparison with both controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Down,
    Up,
    Not,
}

/// Whether a figure moved, and its share of the geometric mean of both controls.
pub(super) fn moved(found: f64, controls: [f64; 2]) -> (Moved, f64) {
    let shares = controls.map(|control| found / control);
    let moved = match shares {
        _ if shares.iter().all(|share| *share <= 1.0 - MOVED) => Moved::Down,
        _ if shares.iter().all(|share| *share >= 1.0 + MOVED) => Moved::Up,
        _ => Moved::Not,
    };
    (moved, (shares[0] * shares[1]).sqrt())
}

/// Makes sessions of these kinds, until there are enough runs or the time is over. `run` gets a
/// run's place, and what the last control returned if something is planted.
pub(super) fn collect<R: Linked + Serialize + DeserializeOwned, C: Copy>(
    store: &mut Store<R>,
    until: Instant,
    is_enough: impl Fn(&[R]) -> bool,
    kinds: &[(&str, Vec<Planted>)],
    mut run: impl FnMut(Link, Option<C>) -> anyhow::Result<(R, C)>,
) -> anyhow::Result<()> {
    while !is_enough(&store.lines) && Instant::now() < until {
        let links = || store.lines.iter().map(R::link);
        let session = links().next_back().map_or(1, |last| last.session + 1);
        let count = |kind: &str, planted| {
            let is_it = |link: &&Link| link.kind == kind && link.planted == Some(planted);
            links().filter(is_it).count()
        };
        let Some((kind, plants)) = rarest(session, kinds, count) else {
            return Ok(());
        };
        eprintln!("session {session}: {kind}");
        self::session(&plants, until, |at, planted| {
            let (planted, control) = planted.unzip();
            let kind = kind.to_owned();
            let link = Link {
                session,
                at,
                kind,
                planted,
            };
            let (line, control) = run(link, control)?;
            store.add(line)?;
            Ok(control)
        })?;
    }
    Ok(())
}

/// The plant of the session of this number, and in which of these kinds: whatever was planted least
/// often so far. None without any.
fn rarest<'a, P: Copy>(
    session: u64,
    kinds: &'a [(&'a str, Vec<P>)],
    count: impl Fn(&str, P) -> usize,
) -> Option<(&'a str, Vec<P>)> {
    let mut rng = Rng::new(session);
    let mut kinds: Vec<_> = kinds.iter().collect();
    rng.shuffle(&mut kinds);
    // In shares of what there is to plant, which may be more or less.
    let tried = |(kind, plants): &&(&'a str, Vec<P>)| {
        let all: usize = plants.iter().map(|planted| count(kind, *planted)).sum();
        all as f64 / plants.len() as f64
    };
    let (kind, plants) = kinds
        .into_iter()
        .min_by(|a, b| tried(a).total_cmp(&tried(b)))?;
    let mut plants = plants.clone();
    rng.shuffle(&mut plants);
    plants.sort_by_key(|planted| count(kind, *planted));
    plants.truncate(PLANTED);
    Some((kind, plants))
}

/// Makes the runs of a session until this time. `run` gets a run's place and what to plant,
/// with what the last control returned.
fn session<P: Copy, C: Copy>(
    plants: &[P],
    until: Instant,
    mut run: impl FnMut(u32, Option<(P, C)>) -> anyhow::Result<C>,
) -> anyhow::Result<()> {
    let mut control = run(0, None)?;
    for (nth, planted) in (0..).zip(plants) {
        if Instant::now() >= until {
            break;
        }
        run(2 * nth + 1, Some((*planted, control)))?;
        control = run(2 * nth + 2, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_moved_if_it_did_against_both_controls() {
        let table = [
            (89.0, [100.0, 100.0], Moved::Down),
            (91.0, [100.0, 100.0], Moved::Not),
            // The machine became slower in the meantime.
            (56.0, [100.0, 55.0], Moved::Not),
            (120.0, [100.0, 100.0], Moved::Up),
            (f64::NAN, [100.0, 100.0], Moved::Not),
        ];
        for (found, controls, expected) in table {
            assert_eq!(moved(found, controls).0, expected, "{found} {controls:?}");
        }
        assert_eq!(moved(50.0, [100.0, 25.0]).1, 1.0);
    }

    #[test]
    fn a_session_begins_and_ends_with_controls_and_plants_what_is_rarest() {
        let count = |one: &str, planted: u32| usize::from(one == "a") + planted as usize;
        let kinds = ["a", "b"].map(|kind| (kind, (0..9).collect()));
        let (one, plants) = rarest(1, &kinds, count).unwrap();
        assert_eq!((one, plants.clone()), ("b", vec![0, 1, 2, 3, 4, 5]));
        let mut made = Vec::new();
        let later = Instant::now() + std::time::Duration::from_secs(600);
        session(&plants[..2], later, |at, planted| {
            made.push((at, planted));
            Ok(at)
        })
        .unwrap();
        let planted = [None, Some((0, 0)), None, Some((1, 2)), None];
        assert_eq!(made, (0..).zip(planted).collect::<Vec<_>>());
        // A session whose time was over at once.
        let mut made = 0;
        session(&plants, Instant::now(), |_, _: Option<(u32, ())>| {
            made += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(made, 1);
        assert!(rarest(1, &[], count).is_none());
    }
}
