//! Hints of what is needed soon, for loops whose reads of memory shall overlap.

/// Begins to bring the cache line at the start of `place` near, and waits for nothing.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    let address: *const T = place;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses no memory in the sense of the language; x86_64 has SSE.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch accesses no memory in the sense of the language, and changes neither
    // registers nor flags.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
