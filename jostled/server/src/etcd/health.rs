//! Metrics and health of a standby, whose ports for clients are closed.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Shared;
use crate::server::{http, info};

/// A scraper's time to send its request and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Scrapers at the same time.
const SCRAPERS: usize = 16;

/// Answers scrapers until the task is aborted.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut scrapers = JoinSet::new();
    loop {
        if scrapers.len() >= SCRAPERS {
            scrapers.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                scrapers.spawn(async move { timeout(PATIENCE, answer(stream, &shared)).await });
            }
            // No descriptors are left.
            Err(_) => sleep(Duration::from_secs(1)).await,
        }
    }
}

async fn answer(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    let metrics = || -> String {
        let mut fields = Vec::new();
        info::about_group(shared, &mut fields);
        info::metrics_of(&fields)
    };
    let view = shared.view();
    let health = match (view.trouble, view.head) {
        (Some(trouble), _) => format!("standby: {trouble}"),
        (None, None) => "standby: etcd has not answered yet".to_owned(),
        (None, Some(_)) => "standby: another jostled serves, or none".to_owned(),
    };
    let answer = loop {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => request.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if let Some(answer) = http::answer(&request, metrics, Err(&health)) {
            break answer;
        }
    };
    let mut sent = 0;
    while sent < answer.len() {
        stream.writable().await?;
        match stream.try_write(&answer[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
