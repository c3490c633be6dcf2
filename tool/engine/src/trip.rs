//! The time of a request and its reply on this machine's loopback, for estimates: virtual
//! machines whose idle CPUs wake up slowly take four times as long as others.

use jostle_model::Nanos;
use jostle_sys::cpu;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// On the virtual machine whose records first tested the estimates, and where it cannot be
/// measured.
pub(crate) const USUAL: Nanos = Nanos(16_500);

thread_local! {
    /// Measured once, so that all estimates agree.
    static HERE: Cell<Option<Nanos>> = const { Cell::new(None) };
}

/// On this machine, between the first and the last CPU that this thread may use.
pub(crate) fn here() -> Nanos {
    let known = HERE.get();
    let here = known.unwrap_or_else(|| measured(&cpu::allowed()));
    HERE.set(Some(here));
    here
}

/// Estimates of this thread take a trip to be so long.
#[cfg(test)]
pub(crate) fn assume(trip: Nanos) {
    HERE.set(Some(trip));
}

const TRIPS: usize = 101;

/// The median of 101, between the first and the last of these CPUs; 2 to 10 ms.
fn measured(cpus: &[usize]) -> Nanos {
    let Some(ends) = cpus.first().copied().zip(cpus.last().copied()) else {
        return USUAL;
    };
    // In threads of their own: where this one may run is not changed.
    let caller = thread::spawn(move || trips(ends));
    match caller.join() {
        Ok(Ok(nanos)) => nanos,
        _ => USUAL,
    }
}

fn trips((near, far): (usize, usize)) -> io::Result<Nanos> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut asking = TcpStream::connect(listener.local_addr()?)?;
    let (mut answering, _) = listener.accept()?;
    asking.set_nodelay(true)?;
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
    // It has nothing left to do, or has said why not to nobody.
    drop(echo.join());
    took.sort_unstable();
    Ok(Nanos(took[TRIPS / 2].as_nanos() as u64))
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_trip_takes_some_time_and_a_cpu_that_is_none_leaves_the_usual() {
        let allowed = cpu::allowed();
        let own = measured(&allowed);
        assert!(own > Nanos(1_000) && own != USUAL, "{own:?}");
        assert_eq!(measured(&[]), USUAL);
        assert_eq!(measured(&[100_000]), USUAL);
        assert_eq!(cpu::allowed(), allowed);
    }
}
