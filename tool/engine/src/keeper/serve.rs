//! The keeper's own life: one request after the other, until its parent goes.

use super::latencies::latencies;
use super::run::Run;
use super::servers::Servers;
use crate::order::{RecoverOrder, Reply, Request, RunOrder, VerifyOrder};
use jostle_harness::interference::Outside;
use jostle_harness::{Aborted, Context, anchor, not_removed, opened, receive, send};
use jostle_model::plan::Fault;
use jostle_sys::clock::Clock;
use jostle_sys::cpu;
use jostle_sys::ledger::Ledger;
use jostle_sys::process;
use jostle_targets::Spec;
use jostle_verify::WallClock;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long killed processes may take to be gone.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the parent goes. Returns the exit code.
pub(super) fn serve(mut stream: UnixStream, clock: Clock) -> i32 {
    process::set_name("jostle-keeper");
    // Without the terminal's signals: the parent receives them, and sends us a request.
    let _ = process::leave_group();
    let context = match Context::set_up(&stream, clock) {
        Ok(context) => context,
        Err(text) => {
            let _ = send(&mut stream, &Reply::Failed(text));
            return 1;
        }
    };
    if send(&mut stream, &Reply::Ready).is_ok() {
        work(&context);
    }
    0
}

fn work(context: &Context) {
    let Ok(mut stream) = context.stream.try_clone() else {
        return;
    };
    loop {
        let reply = match receive::<Request>(&mut stream) {
            Ok(Request::Run(order)) => run(context, &order, None),
            Ok(Request::Cost(cost)) => run(context, &cost.run, Some(cost.blocks)),
            Ok(Request::Sweep(sweep)) => jostle_connections::sweep(context, &sweep),
            Ok(Request::Recover(order)) => recover(context, &order),
            Ok(Request::Verify(order)) => verify(context, &order),
            Ok(Request::Latencies { timer_slack }) => {
                Reply::Latencies(latencies(context, timer_slack))
            }
            // It crossed the answer of the run that it was meant for.
            Ok(Request::Abort | Request::Go { .. } | Request::Conclude) => continue,
            // Ending without a reply would look like a crash.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Reply::Failed(format!("the keeper cannot read its order: {error}"))
            }
            Err(_) => return,
        };
        if send(&mut stream, &reply).is_err() {
            return;
        }
    }
}

/// A run, or so many blocks of the tool's own cost.
fn run(context: &Context, order: &RunOrder, cost_blocks: Option<usize>) -> Reply {
    let order = &order.clone().here(&cpu::allowed());
    // The system may have given their numbers to others.
    context.forget_ended();
    within(&order.target, |ledger, spec| {
        // Declared before the run, so that the servers outlive it.
        let servers = Servers::new(context, ledger, &order.server_cpus);
        let run = Run::prepare(context, ledger, &servers, order, spec);
        let done = run.and_then(|run| match cost_blocks {
            None => anchored(&run),
            Some(blocks) => run.cost(blocks).map(Reply::Cost),
        });
        servers.outlived(done)
    })
}

/// A run between its two anchors.
fn anchored(run: &Run<'_>) -> Result<Reply, Aborted> {
    let together = run.order.together;
    if together.is_some_and(|together| !together.takes_anchor) {
        return run.perform().map(|data| Reply::Ran(Box::new(data)));
    }
    let mut outside = Outside::default();
    run.look_outside(&mut outside);
    let mut data = run.perform()?;
    run.look_outside(&mut outside);
    let window = data.around.interference.take();
    let window = window.and_then(|found| found.window);
    let (passes, interference) = outside.tell(window);
    data.around.anchor = anchor::anchor(&passes[0], &passes[1]);
    data.around.interference = Some(Box::new(interference));
    Ok(Reply::Ran(Box::new(data)))
}

/// One fault.
fn recover(context: &Context, order: &RecoverOrder) -> Reply {
    within(&order.target, |ledger, spec| {
        // As above.
        let servers = Servers::new(context, ledger, &[]).lasting();
        // The owner's, who is cut off.
        let servers = servers.with_hosts_for(1);
        match jostle_recover::recovered(context, ledger, &servers, order, spec) {
            Ok(data) => Reply::Recovered(Box::new(data)),
            Err(Aborted(text)) => Reply::Failed(text),
        }
    })
}

/// A time of random faults.
fn verify(context: &Context, order: &VerifyOrder) -> Reply {
    within(&order.target, |ledger, spec| {
        let sets_clock = order.faults.contains(&Fault::Clock);
        let done = match sets_clock.then(|| WallClock::make(ledger)).transpose() {
            Err(said) => Err(Aborted(said)),
            Ok(clock) => {
                // As above.
                let servers = Servers::new(context, ledger, &[]).lasting().by(clock);
                let servers = servers.with_hosts_for(order.clients);
                jostle_verify::verified(context, ledger, &servers, order, spec)
            }
        };
        match done {
            Ok(data) => Reply::Verified(Box::new(data)),
            Err(Aborted(text)) => Reply::Failed(text),
        }
    })
}

/// Works on a target, and removes everything that this has made.
fn within(target: &str, work: impl FnOnce(&Ledger, &Spec) -> Reply) -> Reply {
    let (spec, ledger) = match opened(target) {
        Ok(opened) => opened,
        Err(failed) => return failed,
    };
    let reply = work(&ledger, &spec);
    // Processes that commands have left behind, or that ran when their worker ended.
    let alone = process::end_children(ORPHANS_PATIENCE);
    match ledger.sweep() {
        Err(left) => not_removed(&left),
        Ok(()) if !alone => {
            Reply::Failed("could not end the processes that the run has started".to_owned())
        }
        Ok(()) => reply,
    }
}
