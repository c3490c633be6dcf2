//! A connection as data, for a handover.

use std::sync::Arc;

use jostle_resp::Protocol;

use super::{Conn, Leases, Phase};
use crate::handover::state::ConnState;
use crate::server::stream::Stream;
use crate::table::{ClientId, Time};
use crate::users::User;

impl Conn {
    /// Everything that is not its socket.
    pub(in crate::server) fn state(&self) -> ConnState {
        let fresh_leases = self.fresh_leases.iter();
        ConnState {
            id: self.id.number(),
            peer: self.peer,
            resp3: self.protocol == Protocol::Resp3,
            authenticated: self.authenticated,
            user: self.user.as_ref().map(|user| user.name.clone()),
            number: self.number,
            probation: self.probation,
            transaction: self.transaction.clone(),
            waiting: self.waits() && !matches!(self.phase, Phase::Unchecked),
            wrong_passwords: self.wrong_passwords,
            refusal_due: match self.phase {
                Phase::Refused(due) => Some(due.0),
                _ => None,
            },
            intake: self.intake.clone(),
            // Nothing is held any more when it is handed over.
            output: self.output[self.sent..].to_vec(),
            wanted: self
                .wanted
                .iter()
                .map(|(_, name, _)| name.to_vec())
                .collect(),
            fresh_leases: fresh_leases
                .map(|(token, name, at)| (token, name.to_vec(), at - self.sent))
                .collect(),
            profile: self.profile.clone(),
        }
    }

    /// The connection with this socket and user.
    pub(in crate::server) fn restored(
        state: &ConnState,
        stream: Stream,
        user: Option<Arc<User>>,
    ) -> Self {
        let id = ClientId::from_number(state.id);
        let (mut wanted, mut fresh_leases) = (Leases::default(), Leases::default());
        state.wanted.iter().for_each(|name| wanted.push(0, name, 0));
        for (token, name, at) in &state.fresh_leases {
            fresh_leases.push(*token, name, *at);
        }
        let mut conn = Self {
            protocol: match state.resp3 {
                true => Protocol::Resp3,
                false => Protocol::Resp2,
            },
            authenticated: state.authenticated,
            user,
            number: state.number,
            probation: state.probation,
            transaction: state.transaction.clone(),
            phase: match state.refusal_due {
                Some(due) => Phase::Refused(Time(due)),
                None if state.waiting => Phase::Waiting,
                None => Phase::Open,
            },
            wrong_passwords: state.wrong_passwords,
            intake: state.intake.clone(),
            output: state.output.clone(),
            wanted,
            fresh_leases,
            profile: state.profile.clone(),
            ..Self::new(stream, id, state.peer, state.profile.since)
        };
        conn.update_guard();
        conn
    }
}
