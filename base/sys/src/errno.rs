//! Errors of calls, and names of those that the measured calls document.

use rustix::io::Errno;

/// The `errno` of libc's last call.
#[inline]
pub(crate) fn last_errno() -> Errno {
    // SAFETY: the address of this thread's errno is always valid.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// The outcome of a call that returns -1 and sets `errno` if it fails.
#[inline]
pub(crate) fn done(result: libc::c_int) -> Result<(), Errno> {
    if result == -1 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// The outcome of a call that returns 0 or an errno.
#[inline]
pub(crate) fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw_os_error(result))
    }
}

/// The name of an errno, such as `ENOSPC`; `errno 999` for one that no call
/// here documents, `failed` for zero (a failure without a number).
pub fn name(errno: i32) -> String {
    macro_rules! named {
        ($($name:ident)+) => {
            match errno {
                $(libc::$name => stringify!($name).to_owned(),)+
                0 => "failed".to_owned(),
                other => format!("errno {other}"),
            }
        };
    }
    named! {
        E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAGAIN EBADF EBUSY ECONNREFUSED ECONNRESET
        EDEADLK EEXIST EFAULT EFBIG EHOSTUNREACH EIDRM EINTR EINVAL EIO EISDIR ELOOP EMFILE
        ENAMETOOLONG ENETUNREACH ENFILE ENOBUFS ENODEV ENOENT ENOLCK ENOMEM ENOSPC ENOSYS
        ENOTDIR ENOTRECOVERABLE ENOTSUP ENXIO EOVERFLOW EOWNERDEAD EPERM EPIPE ERANGE EROFS
        ESRCH ESTALE ETIMEDOUT ETXTBSY
        EAFNOSUPPORT ECONNABORTED EINPROGRESS ENOPROTOOPT EPROTO EPROTONOSUPPORT
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_have_the_names_of_their_manual_pages() {
        assert_eq!(super::name(libc::ENOSPC), "ENOSPC");
        assert_eq!(super::name(0), "failed");
        assert_eq!(super::name(9999), "errno 9999");
    }
}
