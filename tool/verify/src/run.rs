//! One run of `verify` from the keeper's side: clients call, faults strike, and what the clients
//! have recorded goes to the history, until the time is over or somebody ends it.

use crate::client::Client;
use crate::delays::Delays;
use crate::rings::{Rings, entry};
use crate::schedule::schedule;
use crate::store::Store;
use crate::strike::Active;
use crate::with::With;
use crate::without::without;
use jostle_harness::{Aborted, Context, RAMP_PATIENCE_NS, Result, how_it_ended};
use jostle_model::plan::{Carrier, Range};
use jostle_model::record::Promise;
use jostle_model::text::alike;
use jostle_recover::Service;
use jostle_stats::verify::found;
use jostle_stats::verify::history::{Facts, Kind, Struck};
use jostle_sys::ledger::Ledger;
use jostle_sys::waited::Waited;
use jostle_sys::{clock, process, signal};
use jostle_targets::{Locks, Setup, Spec, promise};
use jostle_worker::order::{VerifyData, VerifyOrder};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Calls of all clients together in a second, at most.
const CALLS_PER_S: u64 = 20_000;
/// Between two times that the rings are emptied, and two looks at what the scheduler counts.
const EMPTY_NS: u64 = 20_000_000;
const DELAYS_NS: u64 = 250_000_000;
/// The longest that the keeper sleeps while somebody has to be struck in time.
const LOOK_NS: u64 = 2_000_000;
/// How long clients may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// What the grant of a free lock may take beside its lease and the polls.
const GRANT_NS: u64 = 1_000_000_000;
/// Different texts of failed calls that are kept.
const TEXTS: usize = 200;
const RAMP_PATIENCE: Duration = Duration::from_nanos(RAMP_PATIENCE_NS);

/// One run. Everything that could outlive it is in the ledger before it is made.
///
/// # Errors
/// In words for the user. A run that ends before its time is none: what it has recorded is judged,
/// and `cut_short` has the reason.
pub fn verified(
    context: &Context,
    ledger: &Ledger,
    service: &dyn Service,
    order: &VerifyOrder,
    spec: &Spec,
) -> Result<VerifyData> {
    let of_target = |error| Aborted(format!("{}: {error}", order.target));
    let store = Store::create(&place_of_history(ledger, order)?).map_err(Aborted)?;
    let setup = Setup {
        argument: spec.argument.as_deref(),
        ledger,
        workers: order.clients,
        keys: order.keys,
        shared: false,
        timed: is_timed(spec) && !is_program(spec),
        carrier: Carrier::Processes,
        range: Range::Same,
        open_each: false,
        slots: 1,
        members: order.members,
        wait_replicas: order.wait_replicas,
        holds_many: false,
        kept: false,
        stays: spec.entry.lock.renews,
        lease: Some(Duration::from_nanos(order.lease.0)),
        common_name: None,
        credentials: order.credentials.as_deref().map(Path::new),
        seed: order.seed,
        launcher: service,
    };
    let with = order.with.as_deref();
    let with = with.map(|name| With::launch(name, &setup, service));
    let with = with.transpose().map_err(of_target)?;
    let filled = with.as_ref().zip(setup.argument);
    let filled = filled.map(|(with, words)| with.fill(words));
    let tell = |tells| {
        if let Some(with) = &with {
            with.tell(&context.forker, tells);
        }
    };
    tell(true);
    let setup = Setup {
        argument: filled.as_deref().or(setup.argument),
        ..setup
    };
    let target = jostle_targets::prepare(spec.entry, &setup).map_err(of_target);
    let done = target.and_then(|target| {
        let rings = Rings::new(order.clients)
            .map_err(|error| Aborted(format!("no memory for the clients: {error}")))?;
        let stated = order.promise.clone();
        Run {
            context,
            service,
            order,
            spec,
            promise: stated.unwrap_or_else(|| promise(spec.entry, &target.facts())),
            store,
            target,
            rings,
            clients: Vec::new(),
            numbers: 0,
            said: Vec::new(),
            start_ns: clock::monotonic(),
            recorded_ns: 0,
            active: Vec::new(),
            struck: Vec::new(),
            delays: Delays::default(),
            deaths: Vec::new(),
        }
        .perform()
    });
    tell(false);
    done
}

/// Whether requests wait for a time: a program of the user's that cannot gives up. What a library
/// can, nobody knows.
fn is_timed(spec: &Spec) -> bool {
    spec.entry.lock.timeout && (!spec.entry.runs_argument() || is_program(spec))
}

fn is_program(spec: &Spec) -> bool {
    spec.entry.argument == Some("COMMAND")
}

fn place_of_history(ledger: &Ledger, order: &VerifyOrder) -> Result<PathBuf> {
    if let Some(path) = &order.history {
        return Ok(path.into());
    }
    // On a disk, and it ends with the run.
    let place = ledger.make_directory().map_err(|error| {
        Aborted(format!(
            "cannot make a directory for the history: {error}; is $TMPDIR or /var/tmp writable?"
        ))
    })?;
    Ok(place.join("history"))
}

/// Everything of one run. Times are from its start, unless they are a client's business.
pub(crate) struct Run<'a> {
    context: &'a Context,
    pub(crate) service: &'a dyn Service,
    pub(crate) order: &'a VerifyOrder,
    spec: &'a Spec,
    pub(crate) promise: Promise,
    target: Box<dyn Locks>,
    pub(crate) rings: Rings,
    /// By place.
    pub(crate) clients: Vec<Living>,
    /// Clients so far.
    numbers: u32,
    store: Store,
    said: Vec<String>,
    start_ns: u64,
    /// All that was recorded until then is in the history.
    recorded_ns: u64,
    pub(crate) active: Vec<Active>,
    pub(crate) struck: Vec<Struck>,
    delays: Delays,
    deaths: Vec<String>,
}

/// The client of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Living {
    pub pid: u32,
    pub number: u32,
}

/// Why a run ends before its time, and until when its history is whole.
type CutShort = (String, u64);

impl Run<'_> {
    fn perform(mut self) -> Result<VerifyData> {
        let done = self.drive();
        self.end_all_faults();
        let ended = self.end_clients();
        let cleared = self.target.finish();
        // Removes what the run left in a service that outlives it; one of our own ends with
        // the run.
        let _ = self.target.remove_leftovers();
        let (ramp_ns, took_ns, cut_short) = done?;
        let cut_short = cut_short.or(ended);
        // A service of our own may be down by now, and ends with the run.
        let is_launched = self.spec.entry.is_remote() && self.spec.argument.is_none();
        if let (Err(error), None, false) = (cleared, &cut_short, is_launched) {
            return Err(Aborted(format!("{}: {error}", self.order.target)));
        }
        let setup = self.target.facts();
        let poll_ns = setup.get("poll_ns").map_or(0, |ns| *ns as u64);
        let Promise {
            lease_ns,
            lease_lag_ns,
            ..
        } = self.promise;
        let wait_ns = lease_ns.unwrap_or(0) + lease_lag_ns.unwrap_or(0) + 2 * poll_ns;
        let facts = Facts {
            promise: self.promise,
            keys: self.order.keys as u64,
            clients: self.order.clients as u64,
            ended_ns: cut_short.as_ref().map_or(took_ns, |(_, at_ns)| *at_ns),
            // The fact is a mean where a poll is random.
            poll_ns: 2 * poll_ns,
            delayed_ns: self.delays.of_a_wait(wait_ns + GRANT_NS),
            struck: self.struck,
            said: self.said,
        };
        let entries = self.store.read().map_err(Aborted)?;
        let mut findings = found(&facts, &entries);
        let with = self.order.with.as_deref();
        let with = with.and_then(|with| Spec::parse(with).ok());
        let members = self.order.members as u64;
        findings.verified.without = without(self.spec, with.as_ref(), members);
        Ok(VerifyData {
            verified: findings.verified,
            found_ns: findings.found_ns,
            cut_short: cut_short.map(|(why, _)| why),
            ramp_ns,
            took_ns,
            deaths: self.deaths,
            setup,
        })
    }

    /// Until the time is over. Returns how long clients took to be ready, how long they called,
    /// and why not longer.
    fn drive(&mut self) -> Result<(u64, u64, Option<CutShort>)> {
        let forked_ns = clock::monotonic();
        for place in 0..self.order.clients {
            self.fork(place)?;
        }
        self.await_ready()?;
        if let (None, Some(own)) = (&self.order.promise, self.rings.promise()) {
            self.promise = own;
        }
        self.start_ns = clock::monotonic();
        self.rings.begin(self.start_ns);
        let ramp_ns = self.start_ns - forked_ns;
        let cut_short = self.work()?;
        Ok((ramp_ns, self.now(), cut_short))
    }

    fn work(&mut self) -> Result<Option<CutShort>> {
        let lasts_ns = self.order.lasts.0;
        let faults = &self.order.faults;
        let planned = schedule(self.order.seed, lasts_ns, self.promise.lease_ns, faults);
        let lasts_ns = self
            .order
            .until
            .map_or(lasts_ns, |until| until.0.min(lasts_ns));
        let mut planned = planned.into_iter().peekable();
        let (mut late_ns, mut empty_ns, mut delays_ns, mut alive_ns) = (0, 0, 0, 0);
        loop {
            let now_ns = self.now();
            if let Some(why) = self.heed()? {
                return Ok(Some((why, now_ns)));
            }
            if now_ns >= lasts_ns {
                return Ok(None);
            }
            let failed = self.end_faults_until(now_ns).err();
            let ended = self.reap().or(failed).map(|why| (why, alive_ns));
            alive_ns = now_ns;
            if now_ns >= empty_ns {
                empty_ns = now_ns + EMPTY_NS;
                if let Err(why) = self.empty_rings() {
                    return Ok(Some((why, self.recorded_ns)));
                }
            }
            if ended.is_some() {
                return Ok(ended);
            }
            if now_ns >= delays_ns {
                delays_ns = now_ns + DELAYS_NS;
                self.look_at_delays();
            }
            let due = planned.next_if(|next| {
                let is_alone = self.active.is_empty();
                now_ns >= next.at_ns + late_ns && (next.is_second || is_alone)
            });
            if let Some(due) = due {
                // Those after it come as much later.
                late_ns = now_ns - due.at_ns;
                self.strike(&due)?;
                continue;
            }
            let next_ns = planned.peek().map_or(u64::MAX, |next| next.at_ns + late_ns);
            let over_ns = self.active.iter().map(|active| active.until_ns);
            let wake_ns = over_ns
                .chain([next_ns.max(now_ns + LOOK_NS), empty_ns, lasts_ns])
                .min();
            let nap_ns = wake_ns.unwrap_or(0).saturating_sub(self.now());
            std::thread::sleep(Duration::from_nanos(nap_ns));
        }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        clock::monotonic().saturating_sub(self.start_ns)
    }

    /// Whether the parent wants the run to end.
    fn heed(&self) -> Result<Option<String>> {
        let said = self.context.hear(Duration::ZERO)?;
        Ok(said.map(|_| "interrupted".to_owned()))
    }

    /// A new client takes this place.
    pub(crate) fn fork(&mut self, place: usize) -> Result<()> {
        self.rings.renew(place);
        let number = self.numbers;
        let client = Client {
            target: &*self.target,
            rings: &self.rings,
            place,
            places: self.order.clients,
            number,
            keys: self.order.keys,
            seed: self.order.seed,
            every_ns: 1_000_000_000 * self.order.clients as u64 / CALLS_PER_S,
            lease_ns: self.promise.lease_ns,
            is_timed: is_timed(self.spec),
            counts_sessions: self.spec.entry.is_remote() || is_program(self.spec),
            keeper: rustix::process::getpid(),
        };
        let active = &mut self.active;
        let pid = self.context.forker.fork(|| {
            // Sockets of others, which they could not close.
            active.drain(..).for_each(Active::forget);
            match self.service.switch().map(|switch| switch.enter_as(place)) {
                Ok(Err(_)) => 1,
                _ => client.live(),
            }
        });
        let pid = pid.map_err(|error| {
            Aborted(format!(
                "cannot fork client {number}: {error}; raise the limit on processes (ulimit -u), \
                 or fewer clients"
            ))
        })?;
        self.numbers += 1;
        let living = Living {
            pid: pid.as_raw_nonzero().get() as u32,
            number,
        };
        match self.clients.get_mut(place) {
            Some(client) => *client = living,
            None => self.clients.push(living),
        }
        Ok(())
    }

    fn await_ready(&mut self) -> Result<()> {
        let mut waited = Waited::begin();
        while !(0..self.clients.len()).all(|place| self.rings.is_ready(place)) {
            let target = &self.order.target;
            if let Some(why) = self.heed()? {
                return Err(Aborted(why));
            }
            if waited.so_far() > RAMP_PATIENCE {
                let seconds = RAMP_PATIENCE.as_secs();
                let text = format!("{target}: not every client became ready within {seconds} s");
                return Err(Aborted(text));
            }
            if let Some(death) = self.reap() {
                self.empty_rings().map_err(Aborted)?;
                let said = self.said.first().unwrap_or(&death);
                return Err(Aborted(format!("{}: {said}", self.order.target)));
            }
            std::thread::sleep(Duration::from_nanos(LOOK_NS));
        }
        Ok(())
    }

    /// Takes those that have ended; says whose end the run cannot go on after.
    fn reap(&mut self) -> Option<String> {
        let mut lost = None;
        while let Some(ended) = process::reap() {
            let how = how_it_ended(&ended);
            if let Some(client) = self.clients.iter().find(|client| client.pid == ended.pid) {
                let death = format!("client {} (pid {}): {how}", client.number, ended.pid);
                self.deaths.push(death.clone());
                lost = Some(death);
            } else if self.service.launched().contains(&ended.pid) && !self.is_down() {
                lost = Some(format!(
                    "the server (pid {}) ended by itself: {how}",
                    ended.pid
                ));
            }
        }
        lost
    }

    /// Takes all entries of a place, for whoever has it.
    pub(crate) fn empty_ring(&mut self, place: usize, is_over: bool) {
        let client = self.clients[place].number;
        let (said, mut entries) = (&mut self.said, Vec::new());
        let number = |text: &str| {
            let known = said.iter().position(|known| alike(known, text));
            let known = known.or((said.len() >= TEXTS).then_some(TEXTS - 1));
            known.unwrap_or_else(|| {
                said.push(text.to_owned());
                said.len() - 1
            }) as u64
        };
        self.rings
            .take(place, client, number, |entry| entries.push(entry));
        if let Some(extra @ 1..) = is_over.then(|| self.rings.lost(place)) {
            entries.push(entry(client, self.now(), Kind::Dropped, 0, extra));
        }
        self.store.add(client, &entries);
    }

    fn empty_rings(&mut self) -> Result<(), String> {
        let now_ns = self.now();
        for place in 0..self.clients.len() {
            self.empty_ring(place, false);
        }
        self.store.flush()?;
        self.recorded_ns = now_ns;
        Ok(())
    }

    pub(crate) fn look_at_delays(&mut self) {
        let clients = self.clients.iter().map(|client| client.pid);
        let all: Vec<u32> = clients.chain(self.service.processes()).collect();
        self.delays.look(self.now(), &all);
    }

    /// Lets all clients end, and ends those that do not.
    fn end_clients(&mut self) -> Option<CutShort> {
        self.rings.end();
        let mut waited = Waited::begin();
        let are_gone = |clients: &[Living]| clients.iter().all(|one| process::is_gone(one.pid));
        while !are_gone(&self.clients) {
            let is_late = waited.so_far() > END_PATIENCE;
            for Living { pid, .. } in &self.clients {
                // Waits for a lock, pauses and holds.
                let _ = signal::end_waits_of(*pid, *pid);
                if is_late {
                    process::with_descendants(*pid)
                        .into_iter()
                        .for_each(process::kill);
                }
            }
            std::thread::sleep(Duration::from_nanos(2 * LOOK_NS));
        }
        for place in 0..self.clients.len() {
            self.empty_ring(place, true);
        }
        let failed = self.store.flush().err();
        failed.map(|why| (why, self.recorded_ns))
    }
}
