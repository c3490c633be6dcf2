//! The time of a request and its reply on this machine's loopback, for estimates: virtual
//! machines whose idle CPUs wake up slowly take four times as long as others.

use jostle_model::Nanos;
use jostle_sys::cpu;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// On the virtual machine whose records first tested the estimates, and where it cannot be
/// measured.
pub(crate) const USUAL: Nanos = Nanos(16_500);

thread_local! {
    /// Measured once in a thread, so that all its estimates agree.
    static HERE: Cell<Option<Nanos>> = const { Cell::new(None) };
}

/// On this machine, between the first and the last CPU that this thread may use.
pub(crate) fn here() -> Nanos {
    let known = HERE.get();
    let here = known.or_else(|| measured(&cpu::allowed()));
    let here = here.unwrap_or(USUAL);
    HERE.set(Some(here));
    here
}

/// Estimates of this thread take a trip to be so long.
#[cfg(test)]
pub(crate) fn assume(trip: Nanos) {
    HERE.set(Some(trip));
}

const TRIPS: usize = 101;

/// The median of 101, between the first and the last of these CPUs; 2 to 10 ms. None where it
/// cannot be measured.
fn measured(cpus: &[usize]) -> Option<Nanos> {
    let ends = cpus.first().copied().zip(cpus.last().copied())?;
    // In threads of their own: where this one may run is not changed.
    let caller = thread::spawn(move || trips(ends));
    caller.join().ok()?.ok()
}

fn trips((near, far): (usize, usize)) -> io::Result<Nanos> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut asking = TcpStream::connect(listener.local_addr()?)?;
    let (mut answering, _) = listener.accept()?;
    asking.set_nodelay(true)?;
    asking.set_read_timeout(Some(Duration::from_secs(1)))?;
    answering.set_nodelay(true)?;
    let echo = thread::spawn(move || -> io::Result<()> {
        cpu::pin(&[far])?;
        let mut byte = [0];
        while answering.read(&mut byte)? > 0 {
            answering.write_all(&byte)?;
        }
        Ok(())
    });
    cpu::pin(&[near])?;
    let mut took = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let begun = Instant::now();
        asking.write_all(&[0])?;
        asking.read_exact(&mut [0])?;
        took.push(begun.elapsed());
    }
    drop(asking);
    // Its own error does not matter: the trips were made.
    drop(echo.join());
    took.sort_unstable();
    Ok(Nanos(took[TRIPS / 2].as_nanos() as u64))
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_trip_takes_some_time_and_none_is_made_on_a_cpu_that_is_none() {
        let allowed = cpu::allowed();
        assert!(measured(&allowed) > Some(Nanos(1_000)));
        assert_eq!(measured(&[]), None);
        assert_eq!(measured(&[100_000]), None);
        assert_eq!(cpu::allowed(), allowed);
    }
}
