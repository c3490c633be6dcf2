//! The control block, by which the keeper and the workers of a run wait for each other, and the
//! memory of a run as a whole.

use super::{HEAD_BYTES, PAGE_BYTES, POPULATE_AT_MOST, Page};
use jostle_sys::shared::Region;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The words of the control block. Each stands on a line of its own or with
/// others that are written as seldom.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
enum Control {
    /// Workers that are ready or failed to become so. Futex.
    Ready = 0,
    /// Workers that have stamped their arrival. Futex: the last one wakes the
    /// keeper.
    Arrived = 16,
    /// Becomes one at the common start. Futex.
    Go = 32,
    /// Becomes one when the keeper has read the CPU clocks. Futex.
    Dismissed = 40,
    /// Before, within or after the window, for workers that do not stamp.
    Phase = 48,
    /// The window, in stamps.
    Opens = 64,
    Closes = 65,
    /// `CLOCK_MONOTONIC` less stamp, for deadlines that the kernel watches.
    ToMonotonic = 66,
    /// When waits that no signal ends give up, `CLOCK_MONOTONIC`.
    LastResort = 67,
    /// The start that many hosts have agreed on, `CLOCK_MONOTONIC`; zero: none.
    Begins = 68,
    /// Workers that have done all their operations, or failed. Futex.
    Finished = 80,
    /// Workers that hold all their locks. Futex.
    Midway = 96,
    /// Becomes one when they may release them. Futex.
    Resumed = 112,
    End = 128,
}

const CONTROL_BYTES: usize = Control::End as usize * 8;

/// For workers that do not stamp.
pub mod phase {
    /// The window has not opened.
    pub(crate) const BEFORE: u64 = 0;
    /// It is open.
    pub const WITHIN: u64 = 1;
    /// It has closed.
    pub const AFTER: u64 = 2;
}

/// The shared memory of one run.
#[derive(Debug)]
pub struct Shared {
    region: Region,
    workers: usize,
}

impl Shared {
    /// Maps zeroed memory for `workers`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(workers: usize) -> std::io::Result<Shared> {
        let region = Region::new(CONTROL_BYTES + workers * PAGE_BYTES)?;
        region
            .words64(Control::Opens as usize * 8, 2)
            .iter()
            .for_each(|word| word.store(u64::MAX, Relaxed));
        Ok(Shared { region, workers })
    }

    /// How many workers.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// A worker's page.
    pub fn page(&self, worker: usize) -> Page<'_> {
        Page::new(&self.region, CONTROL_BYTES + worker * PAGE_BYTES)
    }

    /// Makes a worker's memory now, and maps it, so that it does not fault in its
    /// window. To be called by the worker: memory that is shared is mapped page by
    /// page in each process that touches it. Of many workers only the head: most of
    /// their histograms stay empty.
    pub(crate) fn populate(&self, worker: usize) {
        let bytes = match self.workers * PAGE_BYTES <= POPULATE_AT_MOST {
            true => PAGE_BYTES,
            false => HEAD_BYTES,
        };
        let at = CONTROL_BYTES + worker * PAGE_BYTES;
        self.region.populate(0, CONTROL_BYTES);
        self.region.populate(at, bytes);
    }

    fn word(&self, control: Control) -> &AtomicU64 {
        &self.region.words64(control as usize * 8, 1)[0]
    }

    /// The low half of a control word, as a futex.
    fn half(&self, control: Control) -> &AtomicU32 {
        // Little-endian machines only; the others have no port of this.
        &self.region.words32(control as usize * 8, 1)[0]
    }

    /// Futex: workers that are ready.
    pub fn ready(&self) -> &AtomicU32 {
        self.half(Control::Ready)
    }

    /// Futex: workers at the common start.
    pub fn arrived(&self) -> &AtomicU32 {
        self.half(Control::Arrived)
    }

    /// Futex: the common start.
    pub fn go(&self) -> &AtomicU32 {
        self.half(Control::Go)
    }

    /// Futex: workers may end. A worker that ends earlier takes its CPU clock
    /// with it before the keeper has read it.
    pub fn dismissed(&self) -> &AtomicU32 {
        self.half(Control::Dismissed)
    }

    /// Futex: workers that have done all their operations, or failed.
    pub fn finished(&self) -> &AtomicU32 {
        self.half(Control::Finished)
    }

    /// Futex: workers that hold all their locks.
    pub fn midway(&self) -> &AtomicU32 {
        self.half(Control::Midway)
    }

    /// Futex: they may release them.
    pub fn resumed(&self) -> &AtomicU32 {
        self.half(Control::Resumed)
    }

    /// One of [`phase`].
    pub fn phase(&self) -> &AtomicU64 {
        self.word(Control::Phase)
    }

    /// Stamp at which the window opens; `u64::MAX` until the last arrival.
    pub fn opens(&self) -> &AtomicU64 {
        self.word(Control::Opens)
    }

    /// Stamp at which it closes; as `opens`.
    pub fn closes(&self) -> &AtomicU64 {
        self.word(Control::Closes)
    }

    /// Add to a stamp for `CLOCK_MONOTONIC`, wrapping.
    pub fn to_monotonic(&self) -> &AtomicU64 {
        self.word(Control::ToMonotonic)
    }

    /// The start that many hosts have agreed on, `CLOCK_MONOTONIC`; zero where the
    /// last worker to arrive opens the window.
    pub fn begins(&self) -> &AtomicU64 {
        self.word(Control::Begins)
    }

    /// When waits that no signal ends give up, `CLOCK_MONOTONIC`.
    pub fn last_resort(&self) -> &AtomicU64 {
        self.word(Control::LastResort)
    }
}
