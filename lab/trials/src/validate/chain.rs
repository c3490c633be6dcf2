//! Sessions in which every second run is left alone, the first and the last too: a planted run
//! has a control on either side. A figure *moved* if it lies a tenth or more below both
//! controls, or a tenth or more above both: one run alone moves by as much by chance.

use jostle_stats::rng::Rng;
use std::time::Instant;

/// By what a figure must have moved.
const MOVED: f64 = 0.1;

/// Planted runs of a session.
const PLANTED: usize = 6;

/// The session of a run, its place there, and whether something was planted. Runs of one session
/// stand one after the other.
pub(super) type Link = (u64, u32, bool);

/// The number of the next session.
pub(super) fn next_session<R>(runs: &[R], session: impl Fn(&R) -> u64) -> u64 {
    runs.last().map_or(1, |run| session(run) + 1)
}

/// Planted runs between their controls, of runs in the order in which they were made.
pub(super) fn trials<R>(
    runs: &[R],
    link: impl Fn(&R) -> Link,
) -> impl Iterator<Item = (&R, [&R; 2])> {
    runs.windows(3).filter_map(move |three| {
        let [before, run, after] = three else {
            return None;
        };
        let (session, at, is_planted) = link(run);
        let is_control = |other: &&R| {
            let (its_session, its_at, is_planted) = link(other);
            its_session == session && its_at.abs_diff(at) == 1 && !is_planted
        };
        let is_trial = is_planted && [before, after].iter().all(is_control);
        is_trial.then_some((run, [before, after]))
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

/// What the session of this number plants, and in which of these: whatever has the fewest
/// trials so far. None without any.
pub(super) fn rarest<S: Copy, P: Copy>(
    session: u64,
    mut among: Vec<S>,
    plants: impl Fn(S) -> Vec<P>,
    count: impl Fn(S, P) -> usize,
) -> Option<(S, Vec<P>)> {
    let mut rng = Rng::new(session);
    rng.shuffle(&mut among);
    // In shares of what there is to plant, which may be more or less.
    let tried = |one: &S| {
        let plants = plants(*one);
        let all: usize = plants.iter().map(|planted| count(*one, *planted)).sum();
        all as f64 / plants.len() as f64
    };
    let least = |a: &S, b: &S| tried(a).total_cmp(&tried(b));
    let one = among.into_iter().min_by(least)?;
    let mut plants = plants(one);
    rng.shuffle(&mut plants);
    plants.sort_by_key(|planted| count(one, *planted));
    plants.truncate(PLANTED);
    Some((one, plants))
}

/// Makes the runs of a session until this time. `run` gets a run's place and what to plant,
/// with what the last control returned.
pub(super) fn session<P: Copy, C: Copy>(
    plants: &[P],
    until: Option<Instant>,
    mut run: impl FnMut(u32, Option<(P, C)>) -> anyhow::Result<C>,
) -> anyhow::Result<()> {
    let mut control = run(0, None)?;
    for (nth, planted) in (0..).zip(plants) {
        if until.is_some_and(|until| Instant::now() >= until) {
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
        let count = |one: char, planted: u32| usize::from(one == 'a') + planted as usize;
        let (one, plants) = rarest(1, vec!['a', 'b'], |_| (0..9).collect(), count).unwrap();
        assert_eq!((one, plants.clone()), ('b', vec![0, 1, 2, 3, 4, 5]));
        let mut made = Vec::new();
        session(&plants[..2], None, |at, planted| {
            made.push((at, planted));
            Ok(at)
        })
        .unwrap();
        let planted = [None, Some((0, 0)), None, Some((1, 2)), None];
        assert_eq!(made, (0..).zip(planted).collect::<Vec<_>>());
        // A session whose time was over at once.
        let mut made = 0;
        let over = Some(Instant::now());
        session(&plants, over, |_, _: Option<(u32, ())>| {
            made += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(made, 1);
        assert!(rarest(1, Vec::<char>::new(), |_| vec![0], count).is_none());
    }
}
