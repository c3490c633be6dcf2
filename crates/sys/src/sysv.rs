//! sysv
