//! Measures the one operation that jostled uses in etcd: it starts three members on this machine, with
//! their data on tmpfs and on the disk.
//!
//! ```text
//! cargo run --release -p jostle-etcd --features fake --example costs -- [SECONDS [KEYS [DISK-DIRECTORY]]]
//! ```
//!
//! It prints a table of Markdown: for the operation with 1, 16 and 126 puts, and for the
//! barrier, operations a second (one in flight, ever), p50 and p99 of its time; and how long a
//! load of all keys takes, by pages at one revision. It asks each member first in turn: one
//! leads.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program")]

use jostle_etcd::after;
use jostle_etcd::cluster::{Cluster, Endpoint, Settings};
use jostle_etcd::fake::Etcds;
use jostle_etcd::messages::{
    Compare, DeleteRangeRequest, PutRequest, RANGE, RangeRequest, RangeResponse, Request, TXN,
    TxnRequest, TxnResponse, VALUE,
};
use std::time::{Duration, Instant};

/// Keys of a page. An etcd before 3.5 walks the whole range for each.
const PAGE: i64 = 20_000;
const HEAD: &[u8] = b"/jostled/costs/head";
const HOLDS: &[u8] = b"/jostled/costs/h/";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| {
        let given = arguments.get(at);
        given.map_or(usual, |text| text.parse().expect("a number"))
    };
    let (seconds, keys) = (number(0, 20), number(1, 200_000));
    let disk = arguments.get(2).map_or("/var/tmp", String::as_str);
    println!("| data on | asked first | operation | a second | p50 | p99 |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (medium, place) in [("tmpfs", "/dev/shm"), ("disk", disk)] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let etcds = Etcds::launch(directory.path());
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(measure(medium, &etcds.urls, seconds, keys));
    }
}

async fn measure(medium: &str, urls: &[String], seconds: u64, keys: u64) {
    let endpoints = urls.iter().map(|url| Endpoint::parse(url).unwrap());
    let mut endpoints: Vec<Endpoint> = endpoints.collect();
    let mut chain: Option<Chain> = None;
    for _ in 0..endpoints.len() {
        let cluster = Cluster::open(Settings {
            endpoints: endpoints.clone(),
            ..Settings::default()
        });
        let cluster = cluster.unwrap();
        // Until there is a leader, whom the first one knows.
        let status = loop {
            let first = cluster.health().remove(0).status;
            match first.filter(|status| status.leader != 0) {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let leads = status.header.unwrap().member_id == status.leader;
        let first = if leads { "leader" } else { "follower" };
        let is_new = chain.is_none();
        let mut own = match chain.take() {
            Some(chain) => Chain { cluster, ..chain },
            None => Chain::begin(cluster).await,
        };
        for puts in [0, 1, 16, 126] {
            let (mut times, start) = (Vec::new(), Instant::now());
            while start.elapsed() < Duration::from_secs(seconds) {
                times.push(own.operate(puts).await);
            }
            let rate = times.len() as f64 / start.elapsed().as_secs_f64();
            times.sort_unstable();
            let [half, most] = [0.5, 0.99].map(|part| times[(times.len() as f64 * part) as usize]);
            let what = match puts {
                0 => "barrier".to_owned(),
                puts => format!("{puts} puts"),
            };
            println!("| {medium} | {first} | {what} | {rate:.0} | {half:.2?} | {most:.2?} |");
        }
        if is_new {
            for _ in (0..keys).step_by(126) {
                let from = own.token;
                own.put(from..from + 126).await;
            }
            let (found, time) = own.load().await;
            println!("| {medium} | {first} | load of {found} keys | - | {time:.2?} | - |");
        }
        chain = Some(own);
        endpoints.rotate_left(1);
    }
}

/// The head and those who write it.
struct Chain {
    cluster: Cluster,
    sequence: u64,
    token: u64,
}

fn put(key: Vec<u8>, value: String) -> Request {
    Request::Put(PutRequest {
        key,
        value: value.into_bytes(),
        lease: 0,
    })
}

fn head(sequence: u64) -> String {
    format!("{sequence:0200}")
}

impl Chain {
    async fn begin(cluster: Cluster) -> Self {
        let chain = Self {
            cluster,
            sequence: 0,
            token: 10_000,
        };
        chain.ask(None, vec![put(HEAD.to_vec(), head(0))]).await;
        chain
    }

    /// `If value(head) = V Then these`.
    async fn ask(&self, value: Option<u64>, then: Vec<Request>) {
        let compare = value.map(|sequence| Compare {
            target: VALUE,
            key: HEAD.to_vec(),
            create_revision: None,
            value: Some(head(sequence).into_bytes()),
        });
        let request = TxnRequest {
            compare: compare.into_iter().collect(),
            success: then.into_iter().map(Into::into).collect(),
            failure: Vec::new(),
        };
        let answer = self.cluster.call::<TxnResponse>(0, TXN, request).await;
        let answer = answer.unwrap();
        assert!(answer.succeeded, "somebody else has written head");
    }

    /// One operation with so many puts, to keys that are put again and again; 0: the barrier.
    async fn operate(&mut self, puts: u64) -> Duration {
        let start = Instant::now();
        match puts {
            0 => {
                let none = Request::Delete(DeleteRangeRequest {
                    key: b"/jostled/costs/none".to_vec(),
                    range_end: Vec::new(),
                });
                self.ask(Some(self.sequence), vec![none]).await;
            }
            puts => {
                let from = self.sequence * puts;
                self.put((0..puts).map(|nth| (from + nth) % 10_000)).await;
            }
        }
        start.elapsed()
    }

    async fn put(&mut self, tokens: impl Iterator<Item = u64>) {
        let mut then = vec![put(HEAD.to_vec(), head(self.sequence + 1))];
        for token in tokens {
            let key = [HOLDS, format!("{token:019}").as_bytes()].concat();
            let text = format!(
                r#"{{"name":"jobs/{token}","mode":"exclusive","user":"default","lease_ms":30000}}"#
            );
            self.token = self.token.max(token + 1);
            then.push(put(key, text));
        }
        self.ask(Some(self.sequence), then).await;
        self.sequence += 1;
    }

    /// Loads all holds by pages at one revision; returns their number, and the time.
    async fn load(&self) -> (usize, Duration) {
        let (mut key, mut revision, mut keys) = (HOLDS.to_vec(), 0, 0);
        let start = Instant::now();
        loop {
            let request = RangeRequest {
                key,
                range_end: after(HOLDS),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let page = self.cluster.call::<RangeResponse>(0, RANGE, request).await;
            let page = page.unwrap();
            if revision == 0 {
                revision = page.header.unwrap().revision;
            }
            keys += page.kvs.len();
            match page.kvs.last().filter(|_| page.more) {
                Some(last) => key = [&last.key[..], b"\0"].concat(),
                None => return (keys, start.elapsed()),
            }
        }
    }
}
