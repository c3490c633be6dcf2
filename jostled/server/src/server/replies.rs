//! The lock table's decision about a request for locks, as a reply: the same for a request that is
//! answered at once and for one that has waited.

use jostle_resp::Writer;

use super::Server;
use crate::table::{Mode, Outcome, Refusal, Which};

/// The reply if a session is not open, or belongs to another user.
pub(super) const NO_SESSION: &str =
    "NOSESSION no such session, or it has ended: open another one (SESSION OPEN TTL ms)";

/// The reply to a wrong password, which is delayed.
pub(super) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";

impl Server {
    /// Writes the reply to a request for one lock or several.
    #[inline]
    pub(super) fn answer(&self, mut reply: Writer<'_>, outcome: &Outcome) {
        match *outcome {
            Outcome::Granted(token) => reply.integer(token as i64),
            Outcome::GrantedAll { first, count } => {
                reply.array(count as usize);
                let tokens = first..first + u64::from(count);
                tokens.for_each(|token| reply.integer(token as i64));
            }
            Outcome::TimedOut => reply.nil(),
            Outcome::NoSession => reply.error(NO_SESSION),
            Outcome::AlreadyHeld { token, mode, which } => {
                already_held(&mut reply, token, mode, which);
            }
            Outcome::Refused(refusal) => self.refuse(reply, refusal),
        }
    }

    /// Replies with the reason why a lock was not granted.
    #[cold]
    pub(super) fn refuse(&self, mut reply: Writer<'_>, refusal: Refusal) {
        let limits = &self.config.table;
        reply.error(&match refusal {
            Refusal::Tokens => {
                let why = self.token_trouble();
                format!("NOTOKENS no fencing tokens can be reserved: {why}")
            }
            Refusal::Memory => {
                let bytes = limits.memory_bytes;
                format!("OOM the lock table may not exceed {bytes} bytes (--max-memory)")
            }
            Refusal::WaitersOfLock => format!(
                "TOOMANYWAITERS {} wait for this lock (--max-waiters-per-lock)",
                limits.waiters_per_lock
            ),
            Refusal::Waiters => {
                let waiters = limits.waiters;
                format!("TOOMANYWAITERS {waiters} wait for locks (--max-waiters)")
            }
            Refusal::Name => {
                let most = limits.name_bytes;
                format!("BADNAME a name has 1 to {most} bytes (--max-name)")
            }
            Refusal::Places(places) => format!(
                "BADLIMIT this lock has {places} places (OF) as long as anybody holds it or waits"
            ),
            Refusal::Clients => "ERR too many connections".to_owned(),
            Refusal::QuotaLocks(most) => {
                format!("QUOTA this user may hold and wait for {most} locks (max-locks)")
            }
            Refusal::QuotaWaiters(most) => {
                format!("QUOTA this user may wait in {most} lines (max-waiters)")
            }
            Refusal::QuotaSessions(most) => {
                format!("QUOTA this user may have {most} sessions (max-sessions)")
            }
            Refusal::QuotaBytes(most) => format!(
                "QUOTA what this user holds and waits for may take {most} bytes, its share of \
                 --max-memory"
            ),
            Refusal::Sessions => {
                let sessions = limits.sessions;
                format!("TOOMANYSESSIONS {sessions} sessions are open (--max-sessions)")
            }
        });
    }
}

/// A client that missed the reply to its first request learns the token from this one.
#[cold]
fn already_held(reply: &mut Writer<'_>, token: u64, mode: Mode, which: Which) {
    let mode = mode.word();
    reply.error(&match which {
        Which::OfSession => format!("ALREADYHELD {token} {mode} the session holds the lock"),
        Which::OfClient => format!("ALREADYHELD {token} {mode} this connection holds the lock"),
        Which::OneOf {
            at,
            count,
            of_session,
        } => {
            let owner = ["this connection", "the session"][usize::from(of_session)];
            let at = at + 1;
            format!("ALREADYHELD {token} {mode} {owner} holds number {at} of the {count} locks")
        }
    });
}
