//! Runs with nothing to judge: no server, no traffic, or a command that failed.

use super::window::Window;
use super::{State, waits, words};
use jostle_model::judged::Limit;

/// Connections opened a second from which some of them may have been the command's, though
/// no look met one.
const MANY: f64 = 20.0;

/// There was no traffic at all. None where traffic cannot be seen: with a server that is
/// named, and in older records.
pub(super) fn at_all(window: &Window<'_>) -> Option<State> {
    let watched = window.watched;
    let network = watched.network.as_ref()?;
    let carried = watched.traffic.as_ref().is_some_and(|traffic| {
        let columns = [&traffic.bytes, &traffic.connections];
        columns.into_iter().flatten().any(|value| *value > 0.0)
    });
    if carried || watched.server.is_some() {
        return None;
    }
    let sum = |column: &[f64]| column.iter().sum::<f64>();
    let (opened, failed) = (sum(&network.opened), sum(&network.failed));
    let seen_s = sum(&watched.span_s);
    let (limit, reason) = if failed >= 1.0 && failed >= 0.5 * opened {
        (Limit::Nothing, words::refused(opened, failed))
    } else if watched.unix_sockets {
        (Limit::Undecided, words::UNIX_SOCKETS.to_owned())
    } else if opened < 1.0 {
        (Limit::Nothing, words::NO_CONNECTION.to_owned())
    } else if opened < MANY * seen_s.max(1.0) {
        (
            Limit::Nothing,
            words::no_connection_of_its_own(opened, watched),
        )
    } else {
        (Limit::Undecided, words::too_short(window))
    };
    Some(State::new(limit, reason))
}

/// A command that failed has no figures to judge, unless the reason of its failure is known:
/// its server ended, or the ports did.
pub(super) fn failed(window: &Window<'_>, state: State) -> State {
    let watched = window.watched;
    let has_ended = watched.exit.is_some() || watched.signal.is_some();
    if watched.interrupted || watched.exit == Some(0) || !has_ended {
        return state;
    }
    let all = Window::new(watched, 0..watched.span_s.len());
    if let Some(ports) = waits::few_ports(&all) {
        return ports;
    }
    if all.gone() > 0.0 {
        return State::new(Limit::Server, words::gone(&all, all.gone()));
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
