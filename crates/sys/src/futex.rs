//! futex
