//! Names of the errors that the measured calls document.

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
