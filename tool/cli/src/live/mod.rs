//! `--live` and `--metrics`: running measurements for browsers and for Prometheus.
//!
//! The measuring side calls [`Live`] from the engine's hooks, which puts what they tell
//! into a [`State`](state::State); a thread serves that. Tables are made between two runs,
//! and never during a measurement. The keeper takes the looks at a run.

mod follow;
mod http;
mod server;
mod state;

use crate::args::Output;
use crate::{Failure, complain};
use anyhow::{Context, anyhow};
use follow::Following;
use http::Serves;
use jostle_engine::experiment::Progress;
use jostle_model::record::Record;
use server::{LiveServer, Port};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Between two notes of the time.
const BEAT: Duration = Duration::from_millis(1_000);

/// The page and the metrics of this call.
pub(crate) struct Live {
    server: LiveServer,
    following: RefCell<Following>,
    began: Instant,
    beat: RefCell<Option<Instant>>,
}

impl Live {
    /// Opens the requested ports and prints their addresses; None if none is requested.
    /// Call it after the last fork, because it starts a thread.
    ///
    /// # Errors
    /// An address that is in use or not of this machine.
    pub(crate) fn open(output: &Output) -> Result<Option<Live>, Failure> {
        let token = random_hex();
        let page = (output.live, "--live", "watch it at", format!("/{token}/"));
        let metrics = (
            output.metrics,
            "--metrics",
            "metrics are at",
            "/metrics".to_owned(),
        );
        let mut ports = Vec::new();
        for (address, option, words, path) in [page, metrics] {
            let Some(address) = address else { continue };
            let to_all = !address.ip().is_loopback();
            let serves = match option {
                "--live" => Serves::Page(token.clone()),
                _ => Serves::Metrics { to_all },
            };
            let port = bind(option, address, serves)?;
            let at = port.address().context("cannot tell the port")?;
            complain(&format!("{words} http://{at}{path}"));
            ports.push(port);
        }
        if ports.is_empty() {
            return Ok(None);
        }
        let server = LiveServer::start(ports).context("cannot start the thread of --live")?;
        Ok(Some(Live {
            server,
            following: RefCell::default(),
            began: Instant::now(),
            beat: RefCell::default(),
        }))
    }

    pub(crate) fn show(&self, progress: &Progress<'_>) {
        let mut state = self.server.shared().state();
        let changed = self.following.borrow_mut().show(progress, &mut state);
        drop(state);
        if changed {
            self.server.shared().ring();
        }
    }

    /// A record was made.
    pub(crate) fn record(&self, record: &Record) {
        // The table is made before the state is taken, which the thread may want.
        let made = self.following.borrow_mut().record(record);
        if let Some((html, metrics, title)) = made {
            let shared = self.server.shared();
            shared.state().results(html, metrics, title);
            shared.ring();
        }
    }

    /// Updates the elapsed time; call it several times a second. `progress` returns the
    /// text of the progress line.
    pub(crate) fn beat(&self, progress: impl FnOnce() -> String) {
        let mut beat = self.beat.borrow_mut();
        if beat.is_some_and(|last| last.elapsed() < BEAT) {
            return;
        }
        *beat = Some(Instant::now());
        let elapsed_s = self.began.elapsed().as_secs_f64();
        self.server.shared().state().tick(elapsed_s, progress());
        self.server.shared().ring();
    }

    /// It is over; `how`, in words.
    pub(crate) fn end(&self, how: &str) {
        self.server.shared().state().end(how.to_owned());
        self.server.shared().ring();
    }
}

fn bind(option: &str, address: SocketAddr, serves: Serves) -> Result<Port, Failure> {
    Port::bind(address, serves).map_err(|error| {
        Failure::Failed(anyhow!(
            "{option}: cannot listen at {address}: {error}; name another address or port, or \
             port 0 for a free one"
        ))
    })
}

/// 128 random bits.
fn random_hex() -> String {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // It fails only before the kernel has gathered randomness, for a moment.
        if let Ok(more) =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        {
            filled += more;
        }
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
