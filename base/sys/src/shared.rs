//! Memory that forked workers, the keeper and threads share.
//!
//! A [`Region`] is an anonymous file (memfd: not /dev/shm, which containers
//! limit to 64 MiB) mapped shared, so that it vanishes with its last process.
//! It is reached only as atomics, never as plain memory: other processes write
//! to it at any time, and a relaxed atomic store is a plain store.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Every block begins on a line of its own; 128 bytes, since CPUs fetch lines
/// of 64 in pairs.
pub const LINE: usize = 128;

/// Zeroed memory shared with every process forked after its creation.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region hands out nothing but atomics and raw addresses that
// `sys` itself gives to process-shared primitives; both may be used by any
// thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` (rounded up to whole lines) of zeroed shared memory. Pages
    /// are made when they are first touched.
    ///
    /// # Errors
    /// The system's: no memory, no descriptors, or a limit on mappings.
    pub fn new(bytes: usize) -> io::Result<Region> {
        let bytes = bytes.max(1).next_multiple_of(LINE);
        let file = memfd_create("jostle", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        // SAFETY: a fresh mapping at an address that the kernel chooses
        // overlaps no other.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, bytes })
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is mapped; never so.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// `count` 64-bit words from byte `offset`.
    ///
    /// # Panics
    /// If they are not aligned or lie outside.
    pub fn words64(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let at = self.address(offset, count, size_of::<AtomicU64>());
        // SAFETY: `address` checked bounds and alignment; the memory is valid
        // and zeroed for as long as the region lives, any bit pattern is a
        // valid atomic, and it is only ever reached through atomics.
        unsafe { std::slice::from_raw_parts(at.cast(), count) }
    }

    /// `count` 32-bit words from byte `offset`.
    ///
    /// # Panics
    /// If they are not aligned or lie outside.
    pub fn words32(&self, offset: usize, count: usize) -> &[AtomicU32] {
        let at = self.address(offset, count, size_of::<AtomicU32>());
        // SAFETY: as in `words64`.
        unsafe { std::slice::from_raw_parts(at.cast(), count) }
    }

    /// The address of `count` items of `size` bytes from byte `offset`, for
    /// primitives of `sys` that live in shared memory.
    ///
    /// # Panics
    /// If they are not aligned to `size` (at most a line) or lie outside.
    pub(crate) fn address(&self, offset: usize, count: usize, size: usize) -> *mut u8 {
        let end = count
            .checked_mul(size)
            .and_then(|n| n.checked_add(offset))
            .expect("a length that fits the address space");
        let align = 1 << size.trailing_zeros().min(LINE.trailing_zeros());
        assert!(
            end <= self.bytes && offset.is_multiple_of(align),
            "outside the shared region"
        );
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Makes the pages of `bytes` from `offset` now, so that no worker pays for
    /// the first touch within its window. Failure is harmless and ignored.
    pub fn populate(&self, offset: usize, bytes: usize) {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        let page = rustix::param::page_size();
        let first = offset / page * page;
        let last = offset.saturating_add(bytes).min(self.bytes);
        if last > first {
            // SAFETY: the range lies within this mapping; populating changes
            // no contents.
            unsafe {
                libc::madvise(
                    self.base.as_ptr().wrapping_add(first).cast(),
                    last - first,
                    MADV_POPULATE_WRITE,
                );
            }
        }
    }
}

/// Blocks of shared memory for what `sys` keeps there, each on a [`LINE`] of its own.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    base: NonNull<u8>,
    count: usize,
    /// Keeps `base` mapped.
    _region: Arc<Region>,
}

// SAFETY: it hands out nothing but addresses, to `sys` itself, of memory that the region
// keeps mapped; what lies there may be used by any thread.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// `count` lines, all zero.
    ///
    /// # Errors
    /// Those of [`Region::new`].
    pub(crate) fn new(count: usize) -> io::Result<Lines> {
        let region = Region::new(count.saturating_mul(LINE))?;
        Ok(Lines {
            base: region.base,
            count,
            _region: Arc::new(region),
        })
    }

    /// The address of line number `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.count, "no such line");
        self.base.as_ptr().wrapping_add(index * LINE)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives the region.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_are_zeroed_shared_and_where_they_were_put() {
        let region = Region::new(1000).unwrap();
        assert_eq!(region.len(), 1024);
        region.populate(0, 1024);
        region.words64(8, 1)[0].store(7 << 32, Relaxed);
        assert_eq!(region.words32(12, 1)[0].load(Relaxed), 7);
        assert_eq!(region.words64(1016, 1)[0].load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_beyond_the_end() {
        let _ = Region::new(128).unwrap().words64(128, 1);
    }
}
