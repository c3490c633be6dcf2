//! Who of the tests of one program has the machine: those that judge figures have it to
//! themselves, the others share it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by a test that judges figures, that disturbs the machine on purpose, or that
/// expects to be the next start of jostle: the others wait.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that measures, and asks only what was done and said. Several of them
/// run at the same time.
pub fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Does the same with each, up to four at a time: what a run waits for does not make
/// the others wait.
///
/// # Panics
/// With the first that panics.
pub fn each_at_once<T: Sync>(things: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(thing) = things.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(thing);
                }
            });
        }
    });
}
