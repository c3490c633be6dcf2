//! Runs with nothing to judge: no server, no traffic, or a command that failed.

use super::window::Window;
use super::{SEEN, STILL, State, waits, words};
use jostle_model::judged::{Limit, Network, Side, StartedBy};

/// Connections opened a second from which some of them may have been the command's, though
/// no look met one.
const MANY: f64 = 20.0;

/// Looks in which a command that has TCP connections is met with a socket.
const LOOKS: usize = 10;

/// There was no traffic at all. None where traffic cannot be seen: with a server that is
/// named, and in older records.
pub(super) fn at_all(window: &Window<'_>) -> Option<State> {
    let watched = window.watched;
    let network = watched.network.as_ref()?;
    let sum = |column: &[f64]| column.iter().sum::<f64>();
    let most = |column: &[f64]| column.iter().copied().fold(0.0, f64::max);
    if let Some(traffic) = &watched.traffic {
        let (open, all) = (most(&traffic.connections), window.whole());
        let is_still = |side: &Side| all.share(&side.stopped_s) >= STILL;
        let mut sides = [Some(&watched.generator), watched.server.as_ref()].into_iter();
        // Those that live from look to look: of shorter ones the bytes were not met.
        let lasts = open > 0.0 && sum(&traffic.opened) < 2.0 * open;
        // The kernel counts the opening of each as a byte.
        let is_empty = sum(&traffic.bytes) <= 2.0 * open;
        if lasts && is_empty && !sides.any(|side| side.is_some_and(is_still)) {
            return Some(State::new(Limit::Nothing, words::no_byte(open)));
        }
        // A look may meet attempts that are refused a moment later.
        let may_be_met = is_empty && are_refused(network);
        if (open > 0.0 && !may_be_met) || sum(&traffic.bytes) > 0.0 {
            return None;
        }
    }
    if watched.server.is_some() {
        return None;
    }
    let (opened, failed) = (sum(&network.opened), sum(&network.failed));
    let seen_s = sum(&watched.span_s);
    let has_tcp = watched.protocols.as_ref().map(|names| {
        let mut names = names.iter();
        names.any(|name| name.contains("TCP"))
    });
    // A process that lives from look to look, and connects again and again, is met with a socket.
    let is_seen =
        watched.seen_share.is_none_or(|seen| seen >= SEEN) && watched.span_s.len() >= LOOKS;
    let (limit, reason) = if has_tcp != Some(false) && are_refused(network) {
        (Limit::Nothing, words::refused(opened, failed, watched))
    } else if watched.unix_sockets {
        (Limit::Undecided, words::UNIX_SOCKETS.to_owned())
    } else if opened < 1.0 {
        (Limit::Nothing, words::NO_CONNECTION.to_owned())
    } else if has_tcp == Some(false) && is_seen {
        (Limit::Nothing, words::no_tcp(watched))
    } else if opened < MANY * seen_s.max(1.0) {
        (
            Limit::Nothing,
            words::no_connection_of_its_own(opened, watched),
        )
    } else {
        (Limit::Undecided, words::too_brief(opened, watched))
    };
    Some(State::new(limit, reason))
}

/// Whether most attempts to connect fail.
fn are_refused(network: &Network) -> bool {
    let [opened, failed] = [&network.opened, &network.failed].map(|each| each.iter().sum::<f64>());
    failed >= 1.0 && failed >= 0.5 * opened
}

/// A command that failed has no figures to judge, unless the reason of its failure is known:
/// its server ended, or the ports did.
pub(super) fn failed(window: &Window<'_>, state: State) -> State {
    let watched = window.watched;
    let has_ended = watched.exit.is_some() || watched.signal.is_some();
    if watched.interrupted || watched.exit == Some(0) || !has_ended {
        return state;
    }
    let all = window.whole();
    if let Some(ports) = waits::few_ports(&all) {
        return ports;
    }
    if all.gone() > 0.0 {
        return State::new(Limit::Server, words::gone(&all, all.gone()));
    }
    let server = watched.server.as_ref();
    let own = server.filter(|side| side.started_by == Some(StartedBy::Command));
    if let (Some(_), Some(code @ (130 | 137 | 143))) =
        (own.and_then(|side| side.gone_s.as_ref()), watched.exit)
    {
        let mut state = state;
        state.reasons.push(words::exit_of_server(code));
        return state;
    }
    let output = watched.output.as_ref();
    if let Some(line) = output.and_then(|output| output.no_port.as_ref()) {
        return State::new(Limit::Ports, words::no_port(line));
    }
    if state.limit == Limit::Nothing {
        return state;
    }
    let mut failed = State::new(Limit::Nothing, words::failed(watched));
    failed.reasons.extend(state.reasons);
    failed
}
