//! The clocks of all other hosts, asked while nobody works.

use super::super::clocks::{self, Bounds, Exchange};
use super::super::link::Link;
use super::super::local_keeper::Port;
use super::super::words::{Tick, ToHost};
use super::{Coordinator, Round};
use crate::hosts::Offset;
use crate::keeper::{KeeperError, Result};
use jostle_sys::clock;
use jostle_sys::waited::Waited;
use std::time::{Duration, Instant};

/// Exchanges in one measurement of a clock, and how long they may take.
const EXCHANGES: usize = 100;
const EXCHANGING: Duration = Duration::from_millis(20);

/// A measurement no older than this serves as the one before a run.
const FRESH: Duration = Duration::from_secs(2);

impl<L: Link> Coordinator<L> {
    pub(super) fn offset(&self, rank: usize, now: u64) -> Offset {
        let bounds = self.states[rank].clock;
        bounds.map_or(Offset::default(), |bounds| bounds.offset(now))
    }

    pub(super) fn freshen_clocks<P: Port>(&mut self, round: &mut Round<'_, P>) -> Result<()> {
        let now = clock::monotonic();
        let fresh = |bounds: Bounds| now.saturating_sub(bounds.at) < FRESH.as_nanos() as u64;
        let all = self.states.iter().skip(1);
        let mut all = all.map(|state| state.clock);
        match all.all(|clock| clock.is_some_and(fresh)) {
            true => Ok(()),
            false => self.measure_clocks(round),
        }
    }

    /// Measures the clocks of all others, one after the other, so that none waits for
    /// two.
    pub(super) fn measure_clocks<P: Port>(&mut self, round: &mut Round<'_, P>) -> Result<()> {
        let started = Instant::now();
        self.beaten = Instant::now();
        self.say_all(&ToHost::Wake)?;
        for rank in self.others() {
            let mut bounds = None;
            // A clock that jumps in the middle is asked again.
            for _ in 0..3 {
                bounds = clocks::bounds(&self.exchange(round, rank)?);
                if bounds.is_some() {
                    break;
                }
            }
            let Some(bounds) = bounds else {
                return Err(self.said(rank, "its clock jumps to and fro"));
            };
            self.states[rank].clock = Some(bounds);
        }
        self.spent.clocks = started.elapsed();
        Ok(())
    }

    /// Nobody works now, so that it may spin.
    fn exchange<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
    ) -> Result<Vec<Exchange>> {
        let mut done = Vec::with_capacity(EXCHANGES);
        let mut start = Instant::now();
        while done.len() < EXCHANGES && (done.is_empty() || start.elapsed() < EXCHANGING) {
            self.asked = self.asked.wrapping_add(1);
            let sent = clock::monotonic();
            self.send(rank, Tick::Ping(self.asked).bytes())?;
            let (there, back) = self.answer(round, rank, done.is_empty())?;
            if done.is_empty() {
                start = Instant::now();
            }
            done.push(Exchange { sent, there, back });
        }
        Ok(done)
    }

    /// The answer to the last question, and when it came.
    fn answer<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
        is_first: bool,
    ) -> Result<(u64, u64)> {
        loop {
            if let Some((from, bytes)) = self.receive()? {
                let back = clock::monotonic();
                match Tick::read(&bytes) {
                    Some(Tick::Pong(nth, there)) if from == rank && nth == self.asked => {
                        self.states[from].heard = Waited::begin();
                        return Ok((there, back));
                    }
                    _ => self.hear(from, &bytes),
                }
                continue;
            }
            self.refuse_failures()?;
            self.heed_silence()?;
            if (round.ended)() {
                return Err(KeeperError::Interrupted);
            }
            // The first answer comes when the other wakes up.
            match is_first {
                true => std::thread::sleep(self.limits.nap / 10),
                false => std::thread::yield_now(),
            }
        }
    }
}
