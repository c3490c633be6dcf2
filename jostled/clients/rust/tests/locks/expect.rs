//! The expectations of a test.

use crate::service::{Daemon, eventually};
use jostle_lock::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[track_caller]
pub fn error_of<T>(result: Result<T, Error>) -> Error {
    result.err().expect("it was granted")
}

#[track_caller]
pub fn not_granted<T>(result: Result<T, Error>) {
    let error = error_of(result);
    assert!(matches!(error, Error::NotGranted(_)), "{error}");
}

#[track_caller]
pub fn no_answer<T>(result: Result<T, Error>) {
    let error = error_of(result);
    assert!(matches!(error, Error::NoAnswer(_)), "{error}");
}

#[track_caller]
pub fn refused<T>(text: &str, result: Result<T, Error>) {
    let error = error_of(result);
    assert!(
        matches!(&error, Error::Refused(why) if why.contains(text)),
        "{error}"
    );
}

#[track_caller]
pub fn lost<T>(text: &str, result: Result<T, Error>) -> String {
    match error_of(result) {
        Error::LockLost(why) if why.contains(text) => why,
        other => panic!("{other}"),
    }
}

#[track_caller]
pub fn is(daemon: &Daemon, name: &str, count: u64) {
    eventually(&format!("{name} {count}"), || daemon.info(name) == count);
}

/// A counter, and a callback that increments it.
pub fn counting() -> (Arc<AtomicUsize>, impl Fn(&str) + Send + Sync + 'static) {
    let told = Arc::new(AtomicUsize::new(0));
    let tells = Arc::clone(&told);
    (told, move |_: &str| {
        tells.fetch_add(1, SeqCst);
    })
}
