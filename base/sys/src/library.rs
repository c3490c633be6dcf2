//! A user's own lock: a shared library with the functions of `jostle_lock.h`, loaded
//! by dlopen(3), behind methods with types.
//!
//! Loading runs the user's code, which can do whatever its process can. The methods keep
//! this side of the contract: pointers are valid, texts end with a zero byte, a handle
//! stays with its thread. The library's side is the user's; therefore it is loaded only
//! in processes that exist for it (workers, and the one that prepares for them). It is
//! never unloaded, since threads that it has started would crash.

use crate::shared::Region;
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// The version of `jostle_lock.h` that this build supports.
pub const ABI: i32 = 1;

type Abi = unsafe extern "C" fn() -> c_int;
type SharedBytes = unsafe extern "C" fn(*const c_char, c_uint, c_uint) -> usize;
type Prepare = unsafe extern "C" fn(*mut c_void, *const c_char, c_uint, c_uint) -> c_int;
type Join = unsafe extern "C" fn(*mut c_void, c_uint) -> *mut c_void;
type Acquire = unsafe extern "C" fn(*mut c_void, c_uint, c_int, i64, *mut u64) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void, c_uint, c_int) -> c_int;
type Leave = unsafe extern "C" fn(*mut c_void);
type Finish = unsafe extern "C" fn(*mut c_void);

/// The functions that a library must have.
const REQUIRED: [&str; 6] = [
    "jostle_abi",
    "jostle_prepare",
    "jostle_join",
    "jostle_acquire",
    "jostle_release",
    "jostle_leave",
];

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// dlopen(3) failed; its own message.
    #[error("{0}")]
    Refused(String),
    /// It lacks functions of the header.
    #[error("it has no function {}", .0.join(", "))]
    Lacks(Vec<&'static str>),
}

/// The functions of a library that has been loaded into this process.
#[derive(Clone, Copy)]
pub struct Library {
    abi: Abi,
    shared_bytes: Option<SharedBytes>,
    prepare: Prepare,
    join: Join,
    acquire: Acquire,
    release: Release,
    leave: Leave,
    finish: Option<Finish>,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Library")
    }
}

impl Library {
    /// Loads it, and runs its constructors. Loaded again, it is the same.
    ///
    /// # Errors
    /// Those of dlopen(3): no such file, another architecture, an unresolved symbol,
    /// or a program that was linked statically; and functions that it lacks.
    pub fn load(path: &Path) -> Result<Library, LoadError> {
        if cfg!(target_feature = "crt-static") {
            return Err(LoadError::Refused(
                "this jostle is linked statically, and loads no libraries; build it for a target \
                 with a shared C library, such as x86_64-unknown-linux-gnu"
                    .to_owned(),
            ));
        }
        // SAFETY: the constructors are the user's own code, and this process exists to
        // run it (see the head of this module).
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let refused = |error: libloading::Error| LoadError::Refused(error.to_string());
        let loaded = ManuallyDrop::new(loaded.map_err(refused)?);
        macro_rules! symbol {
            ($name:expr) => {
                // SAFETY: the symbol has the type that the header gives it, or is read as an
                // address that nothing follows; it stays valid, since the library is never
                // unloaded.
                unsafe { loaded.get($name.as_bytes()) }.map(|symbol| *symbol)
            };
        }
        let is_missing = |name: &&str| -> bool {
            let found: Result<*const c_void, _> = symbol!(name);
            found.is_err()
        };
        let lacks: Vec<&str> = REQUIRED.into_iter().filter(is_missing).collect();
        if !lacks.is_empty() {
            return Err(LoadError::Lacks(lacks));
        }
        Ok(Library {
            abi: symbol!("jostle_abi").map_err(refused)?,
            shared_bytes: symbol!("jostle_shared_bytes").ok(),
            prepare: symbol!("jostle_prepare").map_err(refused)?,
            join: symbol!("jostle_join").map_err(refused)?,
            acquire: symbol!("jostle_acquire").map_err(refused)?,
            release: symbol!("jostle_release").map_err(refused)?,
            leave: symbol!("jostle_leave").map_err(refused)?,
            finish: symbol!("jostle_finish").ok(),
        })
    }

    /// The version of the header that it was compiled with.
    pub fn abi(&self) -> i32 {
        // SAFETY: as the header declares it.
        unsafe { (self.abi)() }
    }

    /// Bytes that its workers share; 0 if it lacks the function.
    pub fn shared_bytes(&self, args: &CStr, workers: u32, keys: u32) -> usize {
        match self.shared_bytes {
            // SAFETY: as the header declares it; `args` lives throughout the call.
            Some(ask) => unsafe { ask(args.as_ptr(), workers, keys) },
            None => 0,
        }
    }

    /// Calls `jostle_prepare`: 0, or a negative errno.
    pub fn prepare(&self, shared: &Region, args: &CStr, workers: u32, keys: u32) -> i32 {
        let shared = shared.address(0, shared.len(), 1).cast();
        // SAFETY: as the header declares it; the region is mapped and as large as the
        // library has asked for, and `args` lives throughout the call.
        unsafe { (self.prepare)(shared, args.as_ptr(), workers, keys) }
    }

    /// One worker's handle, to be used by the calling thread.
    ///
    /// # Errors
    /// The errno that the library has set.
    pub fn join(&self, shared: &Arc<Region>, worker: u32) -> io::Result<Handle> {
        let address = shared.address(0, shared.len(), 1).cast();
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: as the header declares it; the handle keeps the region mapped.
        let own = NonNull::new(unsafe { (self.join)(address, worker) });
        let own = own.ok_or_else(io::Error::last_os_error)?;
        Ok(Handle {
            own,
            library: *self,
            token: 0,
            _shared: Arc::clone(shared),
        })
    }

    /// Calls `jostle_finish`, if the library has it.
    pub fn finish(&self, shared: &Region) {
        if let Some(finish) = self.finish {
            // SAFETY: as the header declares it; the region is mapped.
            unsafe { finish(shared.address(0, shared.len(), 1).cast()) }
        }
    }
}

/// One worker's handle; leaves when it is dropped. It stays with its thread.
pub struct Handle {
    own: NonNull<c_void>,
    library: Library,
    token: u64,
    /// Keeps what the workers share mapped.
    _shared: Arc<Region>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:?})", self.own)
    }
}

impl Handle {
    /// Asks for a lock and returns the library's result as it is. `deadline_ns` is of
    /// `CLOCK_MONOTONIC`; 0 means not to wait, -1 to wait for ever.
    #[inline]
    pub fn acquire(&mut self, key: u32, is_shared: bool, deadline_ns: i64) -> i32 {
        self.token = 0;
        // SAFETY: as the header declares it; the handle came from this library's
        // jostle_join in this thread, and has not left.
        unsafe {
            (self.library.acquire)(
                self.own.as_ptr(),
                key,
                c_int::from(is_shared),
                deadline_ns,
                &mut self.token,
            )
        }
    }

    /// Releases a lock and returns the library's result as it is.
    #[inline]
    pub fn release(&mut self, key: u32, is_shared: bool) -> i32 {
        // SAFETY: as in `acquire`.
        unsafe { (self.library.release)(self.own.as_ptr(), key, c_int::from(is_shared)) }
    }

    /// The fencing token of the last acquisition; None where it set none.
    #[inline]
    pub fn token(&self) -> Option<u64> {
        (self.token != 0).then_some(self.token)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: as in `acquire`; it is used no more.
        unsafe { (self.library.leave)(self.own.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused_in_the_words_of_the_loader() {
        let error = Library::load(Path::new("/no/such.so")).unwrap_err();
        let LoadError::Refused(text) = &error else {
            panic!("{error}");
        };
        assert!(text.contains("/no/such.so"), "{text}");
    }

    /// The C library is a library, and none of ours.
    #[test]
    fn functions_that_are_missing_are_all_named() {
        let error = Library::load(Path::new("libc.so.6")).unwrap_err();
        let LoadError::Lacks(names) = &error else {
            panic!("{error}");
        };
        assert_eq!(names.len(), 6, "{error}");
        assert!(error.to_string().contains("jostle_abi, jostle_prepare"));
    }
}
