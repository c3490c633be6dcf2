//! posix_sem
