//! The mutex of the crate `parking_lot`. It parks waiters in a table of its own process,
//! so that it is for threads: `jostle contend lib:PATH.so --as threads`. With processes
//! as workers `jostle_join` refuses: each of them would have a table for itself.
//!
//! ```text
//! cargo build --release --manifest-path tool/own-locks/examples/rust/Cargo.toml
//! ```

use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use parking_lot::RawMutex;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// No signal ends a wait: so often it looks up, and jostle calls again.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The head of the shared memory, before the locks: the workers' process.
#[repr(C, align(128))]
struct Head {
    process: AtomicU32,
}

#[repr(C, align(128))]
struct Lock(RawMutex);

/// The lock of this number.
///
/// # Safety
/// `shared` is what `jostle_prepare` has set up, and `key` one of its locks.
unsafe fn lock<'a>(shared: *mut c_void, key: c_uint) -> &'a RawMutex {
    let locks = shared.cast::<Head>().add(1).cast::<Lock>();
    &(*locks.add(key as usize)).0
}

#[no_mangle]
pub extern "C" fn jostle_abi() -> c_int {
    1
}

#[no_mangle]
pub extern "C" fn jostle_shared_bytes(_: *const c_char, _: c_uint, keys: c_uint) -> usize {
    size_of::<Head>() + keys as usize * size_of::<Lock>()
}

/// # Safety
/// Called by jostle, as jostle_lock.h says; so are the others.
#[no_mangle]
pub unsafe extern "C" fn jostle_prepare(
    shared: *mut c_void,
    _: *const c_char,
    _: c_uint,
    keys: c_uint,
) -> c_int {
    for key in 0..keys {
        let at: *const RawMutex = lock(shared, key);
        at.cast_mut().write(RawMutex::INIT);
    }
    0
}

/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn jostle_join(shared: *mut c_void, _: c_uint) -> *mut c_void {
    let own = std::process::id();
    let process = &(*shared.cast::<Head>()).process;
    match process.compare_exchange(0, own, Relaxed, Relaxed) {
        Ok(_) => shared,
        Err(other) if other == own => shared,
        Err(_) => {
            // The waiters of another process would never be woken.
            *libc::__errno_location() = libc::ENOTSUP;
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn jostle_acquire(
    shared: *mut c_void,
    key: c_uint,
    is_shared: c_int,
    deadline_ns: i64,
    _: *mut u64,
) -> c_int {
    let lock = lock(shared, key);
    match deadline_ns {
        _ if is_shared != 0 => -libc::ENOTSUP,
        0 => c_int::from(lock.try_lock()),
        -1 if lock.try_lock_for(LOOK_UP) => 1,
        -1 => -libc::EINTR,
        until => {
            let left = until.saturating_sub(now_ns()).max(0);
            c_int::from(lock.try_lock_for(Duration::from_nanos(left as u64)))
        }
    }
}

/// # Safety
/// As above.
#[no_mangle]
pub unsafe extern "C" fn jostle_release(shared: *mut c_void, key: c_uint, _: c_int) -> c_int {
    lock(shared, key).unlock();
    0
}

#[no_mangle]
pub extern "C" fn jostle_leave(_: *mut c_void) {}

/// CLOCK_MONOTONIC.
fn now_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
