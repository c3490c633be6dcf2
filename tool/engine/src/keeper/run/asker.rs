//! The asker: a process that asks the server who holds the locks, while nothing is granted and
//! when the first call has failed. It is forked before the workers, over a connection that has
//! been used once, and sleeps until then. The keeper never waits for it within the window.
//!
//! It asks nothing that the trouble may block: a question has 200 ms, and what takes longer (the
//! server's own counts, its slow log, its list of clients) is asked when the workers have ended.

use super::causes::Looker;
use jostle_harness::{Context, readable, receive, send};
use jostle_model::record::{Look, LookedAt, When, sign};
use jostle_sys::process;
use jostle_sys::stat::CpuClock;
use jostle_sys::waited;
use jostle_targets::signs::{NoSigns, Told, late};
use jostle_worker::work::Work;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long after the end of a run an answer to the last question is waited for.
const LAST_ANSWER: Duration = Duration::from_millis(300);
/// So long after an answer the keeper has seen whether anything was granted meanwhile.
const SETTLED_NS: u64 = 100_000_000;
/// How long the end of a killed process may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The keeper's side.
pub(super) struct Asker {
    looker: Looker,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    helper: Option<Helper>,
    /// The question under way, and since when.
    asked: Option<(When, u64)>,
    /// Whether something was granted since that was asked.
    is_over: bool,
    /// An answer during a standstill, and when it came. It may be one that came as the standstill
    /// ended.
    fresh: Option<(Look, u64)>,
    /// Answers.
    looks: Vec<Look>,
}

struct Helper {
    pid: u32,
    stream: UnixStream,
}

impl Asker {
    /// Nobody is asked.
    pub(super) fn none(looker: Looker) -> Asker {
        Asker {
            looker,
            state: RefCell::default(),
        }
    }

    /// Asks once, so that the connection is there, and forks the process if this server can be
    /// asked. `all_share`: as workers take the lock.
    pub(super) fn start(
        context: &Context,
        looker: Looker,
        work: &dyn Work,
        all_share: bool,
    ) -> Asker {
        let mut connection = None;
        let mut asker = Asker::none(looker);
        let Some(locks) = work.accounted() else {
            return asker;
        };
        if locks.holders(&mut connection) != Err(NoSigns::NotAsked) {
            let mut ask = || {
                let mut signs = locks.holders(&mut connection)?;
                signs.insert(sign::WANTED_SHARED.to_owned(), all_share.into());
                Ok(signs)
            };
            asker.state.get_mut().helper = Helper::fork(context, looker, &mut ask);
        }
        asker
    }

    /// Asks. False if an answer is still to come.
    pub(super) fn ask(&self, when: When) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(helper) = state.helper.as_mut() else {
            return true;
        };
        let word = [u8::from(when == When::Failed)];
        if state.asked.is_some() || helper.stream.write_all(&word).is_err() {
            return false;
        }
        state.asked = Some((when, self.looker.now()));
        state.is_over = false;
        true
    }

    /// Takes an answer that has come. `granted`: whether something was granted since this was
    /// called last: what was said then is not about a standstill.
    pub(super) fn hear(&self, granted: bool) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let now_ns = self.looker.now();
        if granted {
            (state.is_over, state.fresh) = (true, None);
        } else if let Some((look, _)) = state
            .fresh
            .take_if(|(_, heard_ns)| now_ns >= *heard_ns + SETTLED_NS)
        {
            state.looks.push(look);
        }
        let Some(helper) = state.helper.as_mut() else {
            return;
        };
        if matches!(readable(&helper.stream, Duration::ZERO), Ok(true)) {
            match receive::<Look>(&mut helper.stream) {
                Ok(look) if look.when != When::Still => state.looks.push(look),
                Ok(look) if !state.is_over => state.fresh = Some((look, now_ns)),
                Ok(_) => {}
                Err(_) => state.helper = None,
            }
            state.asked = None;
        }
    }

    /// CPU time of the process so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        let state = self.state.borrow();
        let clock = |helper: &Helper| CpuClock::of(helper.pid).ok()?.read();
        state.helper.as_ref().and_then(clock).unwrap_or(0)
    }

    /// Ends the process. Returns the first and the last answer of the latest standstill, which
    /// began then, and that after the first failure.
    pub(super) fn end(&self, still_since_ns: Option<u64>) -> Vec<Look> {
        waited::within(LAST_ANSWER, Duration::from_millis(1), || {
            self.hear(false);
            self.state.borrow().asked.is_none().then_some(())
        });
        let state = self.state.take();
        let mut all = state.looks;
        all.extend(state.fresh.map(|(look, _)| look));
        if let Some((when, asked_ns)) = state.asked.filter(|_| !state.is_over) {
            let look = self.looker.ask(LookedAt::Holders, when, || Err(late()));
            all.push(Look { asked_ns, ..look });
        }
        let of_it = |look: &Look| match look.when {
            When::Still => still_since_ns.is_some_and(|since_ns| look.asked_ns >= since_ns),
            _ => true,
        };
        all.retain(of_it);
        let (still, mut kept): (Vec<Look>, Vec<Look>) =
            all.into_iter().partition(|look| look.when == When::Still);
        kept.extend(still.first().cloned());
        kept.extend(still.get(1..).and_then(<[Look]>::last).cloned());
        kept
    }
}

impl Helper {
    fn fork(context: &Context, looker: Looker, ask: &mut dyn FnMut() -> Told) -> Option<Helper> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        // It may be stopped in the middle of an answer.
        ours.set_read_timeout(Some(LAST_ANSWER)).ok()?;
        let mut ours = Some(ours);
        let keeper = rustix::process::getpid();
        let pid = context.forker.fork(|| {
            process::set_name("jostle-asker");
            drop(ours.take());
            if process::die_with(keeper).is_err() {
                return 1;
            }
            let _ = process::leave_group();
            live(theirs, looker, ask);
            0
        });
        Some(Helper {
            pid: pid.ok()?.as_raw_nonzero().get() as u32,
            stream: ours?,
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        process::end_child(self.pid, PATIENCE);
    }
}

/// The process's own life, until the keeper closes its end.
fn live(mut stream: UnixStream, looker: Looker, ask: &mut dyn FnMut() -> Told) {
    let mut word = [0];
    while stream.read_exact(&mut word).is_ok() {
        let when = match word {
            [0] => When::Still,
            _ => When::Failed,
        };
        let look = looker.ask(LookedAt::Holders, when, &mut *ask);
        if send(&mut stream, &look).is_err() {
            return;
        }
    }
}
