//! The thread that talks to etcd for [`crate::ha`], from this jostled's start to its end:
//! first as a standby, then as the primary.

mod calls;
mod group;
mod health;

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jostle_etcd::Failure;
use jostle_etcd::cluster::{Cluster, Health};
use jostle_sys::clock::monotonic;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::HaConfig;
use crate::ha::{Head, Init, Keys, Member, Memory, Over, Own, Primary, Rules, Standby, Taken};
use crate::log::{self, Level, say, write};
use crate::server::{Answer, Ask};
use crate::table::Time;
use calls::Calls;
pub(crate) use group::{FILE, remembered};

/// How often the state that others see is renewed, at most.
const SHOWN_NS: u64 = 100_000_000;
/// How often failures are logged, at most, and how often the same one.
const LOGGED_NS: [u64; 2] = [5_000_000_000, 60_000_000_000];
/// How long the start waits for the first connections.
const SETTLED: Duration = Duration::from_secs(2);
// Statuses of gRPC.
const PERMISSION_DENIED: u32 = 7;
const EXHAUSTED: u32 = 8;
/// How long `--ha-init` tries.
const INIT: Duration = Duration::from_secs(10);

fn now() -> Time {
    Time(monotonic())
}

/// 128 random bits as text.
pub(crate) fn random_bits() -> String {
    let crate::table::HashKey(one, two) = crate::table::HashKey::random();
    format!("{one:016x}{two:016x}")
}

/// Everything that the thread begins with.
pub(crate) struct Start {
    pub(crate) config: HaConfig,
    /// The name of this member.
    pub(crate) member: String,
    pub(crate) own: Own,
    pub(crate) memory: Memory,
    pub(crate) restored: bool,
    /// The data directory, for what is remembered of the cluster.
    pub(crate) data: PathBuf,
    /// Where a standby answers probes of its health.
    pub(crate) health: Option<TcpListener>,
}

/// The thread, as others see it.
pub(crate) struct Link {
    pub(crate) ask: UnboundedSender<Ask>,
    pub(crate) answers: Receiver<Answer>,
    pub(crate) bell: Arc<OwnedFd>,
    /// The takeover, or why there will be none.
    pub(crate) taken: Receiver<Result<Taken, Over>>,
    pub(crate) shared: Arc<Shared>,
}

/// What the thread shows.
#[derive(Default)]
pub(crate) struct Shared {
    view: Mutex<View>,
    /// When the event loop turned last, in nanoseconds.
    pub(crate) turned: AtomicU64,
    /// The newest revision of etcd that was seen.
    revision: AtomicI64,
    pub(crate) batches: AtomicU64,
    pub(crate) unknown: AtomicU64,
}

/// The group and its etcd, as last seen.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub(crate) leads: bool,
    pub(crate) head: Option<Head>,
    /// Why this jostled does not take over.
    pub(crate) trouble: Option<Over>,
    /// Whether the serving jostled has other settings.
    pub(crate) differs: bool,
    /// Members that run, without this one.
    pub(crate) others: Vec<(String, Member)>,
    pub(crate) health: Vec<Health>,
    /// The latest failure of a call, and when that was.
    pub(crate) failure: Option<(String, Time)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self) -> View {
        self.lock().clone()
    }

    /// Notes that a call has failed. It is logged unless the member's trouble is known, or a
    /// failure was logged just now: copies and repetitions fail too.
    fn note_failure(&self, place: &str, failure: &Failure) {
        let text = format!("etcd at {place}: {}", explained(failure));
        let (mut view, now) = (self.lock(), now());
        let mut members = view.health.iter();
        let is_known = members.any(|known| known.place == place && known.trouble.is_some());
        let is_new = view
            .failure
            .as_ref()
            .is_none_or(|(last, at)| now.0 - at.0 > LOGGED_NS[usize::from(*last == text)]);
        if is_new && !is_known {
            write(Level::Warn, &text);
            view.failure = Some((text, now));
        }
    }
}

/// The failure, with what to do about it.
fn explained(failure: &Failure) -> String {
    let advice = match failure {
        Failure::Refused(PERMISSION_DENIED, _) => {
            "; the user of --ha-user needs to read and write below /jostled/NAME/"
        }
        Failure::Refused(EXHAUSTED, _) => "; free its space, and disarm the alarm NOSPACE",
        Failure::Refused(_, text) if text.contains("user name is empty") => {
            "; it wants --ha-user and --ha-password-file"
        }
        _ => "",
    };
    format!("{failure}{advice}")
}

impl Link {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(start: Start) -> io::Result<Self> {
        let (ask, asked) = unbounded_channel();
        let (answer, answers) = channel();
        let (take, taken) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let shared = Arc::new(Shared::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let rung = Arc::clone(&bell);
        let thread = Thread {
            rung: Arc::clone(&bell),
            shared: Arc::clone(&shared),
            answer,
            asked,
        };
        std::thread::Builder::new()
            .name("etcd".into())
            .spawn(move || {
                if let Err(over) = runtime.block_on(thread.work(start, &take)) {
                    // The main thread ends the process.
                    let _ = take.send(Err(over));
                    ring(&rung);
                }
            })?;
        Ok(Self {
            ask,
            answers,
            bell,
            taken,
            shared,
        })
    }
}

/// The thread's side.
struct Thread {
    rung: Arc<OwnedFd>,
    shared: Arc<Shared>,
    answer: Sender<Answer>,
    asked: UnboundedReceiver<Ask>,
}

fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl Thread {
    fn tell(&self, answer: Answer) {
        let _ = self.answer.send(answer);
        ring(&self.rung);
    }

    async fn work(self, start: Start, take: &Sender<Result<Taken, Over>>) -> Result<(), Over> {
        let keys = Keys::new(&start.config.name);
        let cluster = Cluster::open(start.config.etcd.clone()).map_err(Over::Unsound)?;
        let cluster = Arc::new(cluster);
        let mut calls = Calls::new(Arc::clone(&cluster), Arc::clone(&self.shared));
        let group = group::Group {
            cluster: Arc::clone(&cluster),
            shared: Arc::clone(&self.shared),
            keys: keys.clone(),
            name: start.member,
            own: start.own.clone(),
            compact: start.config.compact,
        };
        tokio::spawn(group.keep());
        // Failures of the very first attempts would be noise.
        cluster.settle(SETTLED).await;
        let door = start.health.map(|listener| {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(health::serve(listener, shared))
        });
        let mut notes = group::Notes::new(start.data, start.memory.clone());
        let (own, restored) = (start.own, start.restored);
        let standby = Standby::new(keys.clone(), Rules::REAL, own, start.memory, restored);
        let taken = self.watch(standby, &mut calls, &mut notes).await;
        door.iter().for_each(tokio::task::JoinHandle::abort);
        let taken = taken?;
        let _ = take.send(Ok(taken.clone()));
        ring(&self.rung);
        self.shared.lock().leads = true;
        let primary = Primary::new(keys, Rules::REAL, taken);
        self.lead(primary, calls, notes).await;
        Ok(())
    }

    /// Waits for the turn of this jostled.
    async fn watch(
        &self,
        mut standby: Standby,
        calls: &mut Calls,
        notes: &mut group::Notes,
    ) -> Result<Taken, Over> {
        loop {
            let until = calls.send(|now| standby.due(now))?;
            let Some((number, answer)) = calls.next(until).await else {
                continue;
            };
            if let Some(taken) = standby.answered(number, answer, now()) {
                return Ok(taken);
            }
            notes.note(standby.memory());
            let mut view = self.shared.lock();
            view.head = standby.head().cloned();
            if let Some(trouble) = standby.trouble()
                && view.trouble.as_ref() != Some(trouble)
            {
                write(Level::Error, &trouble.to_string());
            }
            view.trouble = standby.trouble().cloned();
        }
    }

    /// Serves the event loop, to the end of the process.
    async fn lead(mut self, mut primary: Primary, mut calls: Calls, mut notes: group::Notes) {
        let (mut asked, mut shown) = (None, Time(0));
        loop {
            primary.turned(Time(self.shared.turned.load(Relaxed)));
            let until = match calls.send(|now| primary.due(now)) {
                Ok(until) => until,
                Err(Over::Released) => return self.tell(Answer::Released),
                Err(over) => end(&over),
            };
            let woken = tokio::select! {
                biased;
                next = calls.next(until) => next,
                ask = self.asked.recv() => {
                    match ask {
                        Some(Ask::Commit(batch)) => {
                            asked = Some((batch.len() as u64, now()));
                            primary.ask(batch);
                        }
                        Some(Ask::Release) => primary.release(),
                        // No program takes over from this one: there is no rest.
                        Some(Ask::Rest(_) | Ask::Wake) => {}
                        // There is no server any more.
                        None => return,
                    }
                    continue;
                }
            };
            let Some((number, answer)) = woken else {
                continue;
            };
            let news = primary.answered(number, answer, now());
            if let Some(end) = news.tokens {
                self.tell(Answer::Tokens(end));
            }
            if news.freed
                && let Some((entries, since)) = asked.take()
            {
                let ns = now().0 - since.0;
                self.tell(Answer::Committed { entries, ns });
            }
            if now().0 - shown.0 >= SHOWN_NS {
                shown = now();
                let head = primary.head().clone();
                notes.note(&Memory::of(&head));
                self.shared.lock().head = Some(head);
            }
        }
    }
}

/// Ends the process at once: nothing that it does from now on may be told.
fn end(over: &Over) -> ! {
    write(Level::Error, &format!("{over}: the daemon ends"));
    // It waits for the log for a bounded time.
    log::flush();
    jostle_sys::bare::exit(1)
}

/// Makes the keys of a group; tokens below `first_token` were given out before.
///
/// # Errors
/// For the administrator.
pub(crate) fn init(config: &HaConfig, first_token: u64) -> Result<Head, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let shared = Arc::new(Shared::default());
        let cluster = Arc::new(Cluster::open(config.etcd.clone())?);
        cluster.settle(SETTLED).await;
        let mut calls = Calls::new(Arc::clone(&cluster), Arc::clone(&shared));
        let keys = Keys::new(&config.name);
        let mut init = Init::new(&keys, Rules::REAL, &random_bits(), first_token, now());
        let end = now().0 + INIT.as_nanos() as u64;
        while now().0 < end {
            let until = calls.send(|now| init.due(now)).map_err(|over| match over {
                Over::Initialised(head) => format!(
                    "the group {} exists already, and is left as it is: {head}",
                    config.name
                ),
                over => over.to_string(),
            })?;
            if let Some((_, answer)) = calls.next(until).await
                && let Some(head) = init.answered(answer, now())
            {
                return Ok(head);
            }
        }
        let failure = shared.view().failure;
        let failure = failure.map_or(String::new(), |(text, _)| format!("; {text}"));
        Err(format!(
            "nothing could be written to etcd within {} s{failure}",
            INIT.as_secs()
        ))
    })
}

/// Logs what has changed with the members of etcd.
fn compare(before: &View, after: &[Health]) {
    let logged = before.failure.as_ref().map(|(text, _)| text);
    for (nth, new) in after.iter().enumerate() {
        let old = before.health.get(nth);
        match (old.and_then(|old| old.trouble.as_ref()), &new.trouble) {
            (old, Some(why)) if old != Some(why) => {
                let text = format!("etcd at {}: {why}", new.place);
                if logged != Some(&text) {
                    write(Level::Warn, &text);
                }
            }
            (Some(_), None) => say(&format!("etcd at {} answers", new.place)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::info;

    #[test]
    fn each_figure_of_a_group_has_an_alert_rule_or_is_told_by_another() {
        let rules = include_str!("../../../dist/alerts.yml");
        let mut fields = Vec::new();
        info::about_group(&Shared::default(), &mut fields);
        let page = info::metrics_of(&fields);
        let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<&str> = names.filter_map(|rest| rest.split(' ').next()).collect();
        for name in &names {
            // The epoch changes with each takeover, and the sequence with each commit.
            let ruled = rules.contains(name) || *name == "jostled_ha_sequence";
            assert!(ruled, "{name}");
        }
        let word = |byte: char| !byte.is_alphanumeric() && byte != '_';
        for name in rules
            .split(word)
            .filter(|word| word.starts_with("jostled_ha_"))
        {
            let known = names.contains(&name) || name == "jostled_ha_held_clients";
            assert!(known, "{name}");
        }
    }
}
