//! A program without start-up: an entry point of its own, and the few system
//! calls of a client that lives for a fraction of a millisecond.
//!
//! The C library's start (relocations, thread-local storage, locale, its many pages) costs
//! more than everything that such a client does. The client is therefore linked statically,
//! starts at [`bare_main!`](crate::bare_main) and makes system calls directly. Do not use
//! this module in any other program: the C library has not been set up, so none of its
//! functions may be called, and of `std` only what is also in `core`.
//!
//! It is worth that while a call gains a tenth or more. CPU time of a process, medians of
//! three series of 1000 in turns on one CPU of a busy virtual machine, by wait4(2):
//! a whole call of `jostle-call` 264, 330, 269 us; a program that does nothing, started
//! like this 125, 118, 113 us, by Rust's `main` with static musl 228, 211, 200 us, with
//! static glibc 713, 651, 608 us. A call would take 87 to 103 us more with musl: the gain
//! is 22 to 28 % of it.

use core::arch::asm;

/// The level of options that every socket has.
const SOCKET_LEVEL: usize = libc::SOL_SOCKET as usize;

/// A system call that failed, with its `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// # Safety
/// The arguments must meet the requirements in the call's manual page.
#[inline(always)]
unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention; it changes rcx and r11 alone, and
    // memory only as the caller vouches for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention; it changes memory only as the
    // caller vouches for.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    if result < 0 {
        Err(Errno(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// socket(2) for a stream, closed on exec; the descriptor.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn stream_socket(family: u16) -> Result<i32, Errno> {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    let args = [family.into(), kind, 0, 0, 0, 0];
    // SAFETY: plain numbers.
    unsafe { call(libc::SYS_socket, args) }.map(|fd| fd as i32)
}

/// connect(2) to a socket address as the kernel lays it out.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn connect(fd: i32, address: &[u8]) -> Result<(), Errno> {
    let (at, length) = (address.as_ptr() as usize, address.len());
    let args = [fd as usize, at, length, 0, 0, 0];
    // SAFETY: the kernel reads `address`, which is borrowed, and checks its form.
    unsafe { call(libc::SYS_connect, args) }.map(drop)
}

/// setsockopt(2) at level SOL_SOCKET.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn set_socket_option(fd: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let (at, length) = (value.as_ptr() as usize, value.len());
    let args = [fd as usize, SOCKET_LEVEL, option as usize, at, length, 0];
    // SAFETY: the kernel reads `value`, which is borrowed.
    unsafe { call(libc::SYS_setsockopt, args) }.map(drop)
}

/// The user of the process that listens at the other end of a Unix socket
/// (SO_PEERCRED): as it was when it began to listen.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn peer_user(fd: i32) -> Result<u32, Errno> {
    // Process, user and group.
    let mut credentials = [0u32; 3];
    let mut length = size_of_val(&credentials) as u32;
    let (option, at) = (
        libc::SO_PEERCRED as usize,
        credentials.as_mut_ptr() as usize,
    );
    let args = [
        fd as usize,
        SOCKET_LEVEL,
        option,
        at,
        &raw mut length as usize,
        0,
    ];
    // SAFETY: the kernel writes at most `length` bytes of `credentials`, which is
    // as long, and `length` itself; both live until the call is over.
    unsafe { call(libc::SYS_getsockopt, args) }?;
    let [_, user, _] = credentials;
    Ok(user)
}

/// The user of this process.
#[inline(always)]
pub fn user() -> u32 {
    // SAFETY: it has no arguments.
    unsafe { call(libc::SYS_geteuid, [0; 6]) }.unwrap_or(usize::MAX) as u32
}

/// Milliseconds of the monotonic clock; 0 if it cannot be read.
#[inline(always)]
pub fn monotonic_ms() -> u64 {
    let mut time = [0i64; 2];
    let at = time.as_mut_ptr() as usize;
    let args = [libc::CLOCK_MONOTONIC as usize, at, 0, 0, 0, 0];
    // SAFETY: the kernel writes two words, seconds and nanoseconds, to `time`.
    let read = unsafe { call(libc::SYS_clock_gettime, args) };
    let [seconds, nanos] = time;
    match read {
        Ok(_) => (seconds as u64)
            .wrapping_mul(1000)
            .wrapping_add(nanos as u64 / 1_000_000),
        Err(_) => 0,
    }
}

/// send(2) without a signal if nobody reads; how many bytes went. With `more`
/// the kernel waits for further bytes before a packet leaves.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn send(fd: i32, bytes: &[u8], more: bool) -> Result<usize, Errno> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    let (at, length) = (bytes.as_ptr() as usize, bytes.len());
    let args = [fd as usize, at, length, flags as usize, 0, 0];
    // SAFETY: the kernel reads `bytes`, which is borrowed.
    unsafe { call(libc::SYS_sendto, args) }
}

/// recv(2); how many bytes came, 0 at the end. Without `wait` it fails with
/// EAGAIN if nothing has come yet.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn receive(fd: i32, buffer: &mut [u8], wait: bool) -> Result<usize, Errno> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    let (at, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    let args = [fd as usize, at, length, flags as usize, 0, 0];
    // SAFETY: the kernel writes at most the length of `buffer`, which is
    // borrowed mutably.
    unsafe { call(libc::SYS_recvfrom, args) }
}

/// sched_yield(2): lets others run, if any want to.
#[inline(always)]
pub fn let_others_run() {
    // SAFETY: it has no arguments.
    let _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// write(2); how many bytes went.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    let args = [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the kernel reads `bytes`, which is borrowed.
    unsafe { call(libc::SYS_write, args) }
}

/// Everything that can be read from a descriptor, in memory that stays until the process ends;
/// reading stops behind `most` bytes.
///
/// # Errors
/// The system's, of read(2), mmap(2) or mremap(2).
#[inline(always)]
pub fn read_to_end(fd: i32, most: usize) -> Result<&'static [u8], Errno> {
    const INTERRUPTED: Errno = Errno(libc::EINTR);
    let (mut room, mut filled) = (1 << 16, 0);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: new memory, at a place that the kernel chooses.
    let mut at = unsafe { call(libc::SYS_mmap, [0, room, access, kind, usize::MAX, 0]) }?;
    loop {
        if filled == room {
            let grow = [at, room, 2 * room, libc::MREMAP_MAYMOVE as usize, 0, 0];
            // SAFETY: `room` bytes at `at` are this function's own, and nothing refers to them.
            at = unsafe { call(libc::SYS_mremap, grow) }?;
            room *= 2;
        }
        let place = [fd as usize, at + filled, room - filled, 0, 0, 0];
        // SAFETY: the kernel writes at most to the end of that memory.
        let count = match unsafe { call(libc::SYS_read, place) } {
            Err(INTERRUPTED) => continue,
            count => count?,
        };
        filled += count;
        if count == 0 || filled > most {
            // SAFETY: so many bytes have been written, and nobody changes or unmaps them.
            return Ok(unsafe { core::slice::from_raw_parts(at as *const u8, filled) });
        }
    }
}

/// readlink(2): the target, cut off at the end of `buffer`.
///
/// # Errors
/// The system's.
#[inline(always)]
pub fn read_link<'a>(path: &core::ffi::CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let (at, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    let path = path.as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, path, at, length, 0, 0];
    // SAFETY: `path` ends with a zero; the kernel writes at most the length of `buffer`, which
    // is borrowed mutably.
    let length = unsafe { call(libc::SYS_readlinkat, args) }?;
    Ok(buffer.get(..length).unwrap_or_default())
}

/// Ends the process.
#[inline(always)]
pub fn exit(code: u8) -> ! {
    loop {
        // SAFETY: plain numbers. It does not return; were it to, the loop would
        // ask again.
        let _ = unsafe { call(libc::SYS_exit_group, [code.into(), 0, 0, 0, 0, 0]) };
    }
}

/// The kernel's data on the stack of a new process: arguments, then environment.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    argc: usize,
    /// `argc` pointers, a null, the environment's pointers, a null.
    pointers: *const *const u8,
}

impl Start {
    /// Reads the first words of the stack.
    ///
    /// # Safety
    /// `stack` is the stack pointer with which the kernel started this process.
    #[inline(always)]
    pub unsafe fn at(stack: *const usize) -> Start {
        // SAFETY: there the kernel put the number of arguments, and the pointers
        // behind it.
        unsafe {
            Start {
                argc: *stack,
                pointers: stack.add(1).cast(),
            }
        }
    }

    /// How many arguments, the program's name among them.
    #[inline(always)]
    pub fn arguments(&self) -> usize {
        self.argc
    }

    /// One argument, without its final zero; empty beyond the last one.
    #[inline(always)]
    pub fn argument(&self, index: usize) -> &'static [u8] {
        if index >= self.argc {
            return &[];
        }
        // SAFETY: within the arguments, which live as long as the process.
        unsafe { text(*self.pointers.add(index)) }
    }

    /// A variable of the environment.
    #[inline(always)]
    pub fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        let mut index = self.argc + 1;
        loop {
            // SAFETY: the environment ends with a null, at which this returns.
            let entry = unsafe { *self.pointers.add(index) };
            if entry.is_null() {
                return None;
            }
            // SAFETY: a string of the environment, which lives as long as the
            // process; no byte behind its zero is read.
            if let Some(value) = unsafe { value_of(entry, name) } {
                return Some(value);
            }
            index += 1;
        }
    }
}

/// # Safety
/// `entry` ends with a zero and lives as long as the process.
#[inline(always)]
unsafe fn value_of(entry: *const u8, name: &[u8]) -> Option<&'static [u8]> {
    for (index, byte) in name.iter().enumerate() {
        // SAFETY: every byte before this one was equal to one of `name`, so none
        // was the zero, unless a name holds one, which then ends it here.
        if *byte == 0 || unsafe { *entry.add(index) } != *byte {
            return None;
        }
    }
    // SAFETY: likewise.
    unsafe { (*entry.add(name.len()) == b'=').then(|| text(entry.add(name.len() + 1))) }
}

/// # Safety
/// `start` ends with a zero and lives as long as the process.
#[inline(always)]
unsafe fn text(start: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: up to the zero.
    while unsafe { *start.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: `length` bytes before the zero, which nobody changes.
    unsafe { core::slice::from_raw_parts(start, length) }
}

/// The entry point of a program without start-up: calls `$main` with a
/// [`Start`] and exits with the `u8` that it returns.
///
/// The program is `#![no_main]` and `#![no_builtins]` (else the compiler makes
/// a call to `memcpy` of the loop that is `memcpy`), and is linked with
/// `-nostartfiles -static -no-pie`.
#[macro_export]
macro_rules! bare_main {
    ($main:path) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            ".globl _start",
            "_start:",
            "xor ebp, ebp",
            "mov rdi, rsp",
            "and rsp, -16",
            "call {begin}",
            "ud2",
            begin = sym begin,
        );

        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            ".globl _start",
            "_start:",
            "mov x29, xzr",
            "mov x0, sp",
            "bl {begin}",
            "brk 1",
            begin = sym begin,
        );

        extern "C-unwind" fn begin(stack: *const usize) -> ! {
            // SAFETY: `_start` passes the stack pointer as it found it.
            let start = unsafe { $crate::bare::Start::at(stack) };
            let main: fn($crate::bare::Start) -> u8 = $main;
            $crate::bare::exit(main(start))
        }

        // The compiler calls these for copies and comparisons; those of the C
        // library are chosen for the processor by its start-up, which never ran.

        // SAFETY: memcpy(3); the compiler keeps its contract.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
            let mut index = 0;
            while index < count {
                // SAFETY: by the contract, both have `count` bytes.
                unsafe { *to.add(index) = *from.add(index) };
                index += 1;
            }
            to
        }

        // SAFETY: memmove(3); the compiler keeps its contract.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
            if (to as usize) <= (from as usize) {
                // SAFETY: forwards no byte is overwritten before it was read.
                return unsafe { memcpy(to, from, count) };
            }
            let mut index = count;
            while index > 0 {
                index -= 1;
                // SAFETY: by the contract, both have `count` bytes.
                unsafe { *to.add(index) = *from.add(index) };
            }
            to
        }

        // SAFETY: memset(3); the compiler keeps its contract.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
            let mut index = 0;
            while index < count {
                // SAFETY: by the contract, it has `count` bytes.
                unsafe { *to.add(index) = byte as u8 };
                index += 1;
            }
            to
        }

        // SAFETY: memcmp(3); the compiler keeps its contract.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
            let mut index = 0;
            while index < count {
                // SAFETY: by the contract, both have `count` bytes.
                let (a, b) = unsafe { (*left.add(index), *right.add(index)) };
                if a != b {
                    return i32::from(a) - i32::from(b);
                }
                index += 1;
            }
            0
        }

        // SAFETY: bcmp(3); the compiler keeps its contract.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
            // SAFETY: the same contract.
            unsafe { memcmp(left, right, count) }
        }
    };
}
