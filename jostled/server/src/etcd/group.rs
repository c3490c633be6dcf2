//! What goes on beside the chain of writes: members show themselves to each other, the primary
//! compacts etcd's history, and a member remembers its cluster.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jostle_etcd::cluster::Cluster;
use jostle_etcd::messages::{
    COMPACT, CompactionRequest, Empty, PUT, PutRequest, RANGE, RangeRequest, RangeResponse,
};
use jostle_etcd::{Failure, Message};
use tokio::time::{sleep, timeout};

use super::{Shared, compare, now};
use crate::ha::{Keys, Member, Members, Memory, Own};
use crate::log::{Level, write};

/// How often a member shows itself.
const SHOW: Duration = Duration::from_secs(5);
/// How often etcd is compacted, in rounds of that.
const COMPACT_ROUNDS: u64 = 6;
/// Compactions by which the history that is kept lasts longer.
const KEPT: usize = 2;
/// How often the cluster is noted on disk, at most.
const NOTED_NS: u64 = 10_000_000_000;
const PATIENCE: Duration = Duration::from_secs(3);

/// A member in its group.
pub(super) struct Group {
    pub(super) cluster: Arc<Cluster>,
    pub(super) shared: Arc<Shared>,
    pub(super) keys: Keys,
    pub(super) name: String,
    pub(super) own: Own,
    pub(super) compact: bool,
}

impl Group {
    pub(super) async fn keep(self) {
        let (mut members, mut revisions) = (Members::default(), VecDeque::new());
        let mut differs = false;
        self.cluster.settle(PATIENCE).await;
        for round in 0u64.. {
            let health = self.cluster.health();
            let view = {
                let mut view = self.shared.lock();
                compare(&view, &health);
                view.health = health;
                view.clone()
            };
            // One that would not take over is no standby.
            if view.trouble.is_none() {
                self.show(round).await;
            }
            self.look(&mut members).await;
            let differs_now = view.head.as_ref().is_some_and(|head| {
                !view.leads && !head.incarnation.is_empty() && head.digest != self.own.digest
            });
            if differs_now && !differs {
                let head = view.head.as_ref();
                let places = head.map_or(String::new(), |head| head.addresses.join(", "));
                let text = format!(
                    "the serving jostled ({places}) has other settings or users than this one, \
                     which would apply after a takeover: make them equal"
                );
                write(Level::Warn, &text);
            }
            differs = differs_now;
            self.shared.lock().differs = differs;
            if view.leads && self.compact && round % COMPACT_ROUNDS == 0 {
                self.compact(&mut revisions).await;
            }
            sleep(SHOW).await;
        }
    }

    /// A call at the member that is best now.
    async fn call<A: Message + Default + 'static>(
        &self,
        path: &'static str,
        request: impl Message + 'static,
    ) -> Result<A, Failure> {
        let member = self.cluster.order()[0];
        let answer = timeout(PATIENCE, self.cluster.call(member, path, request)).await;
        let answer = answer.unwrap_or_else(|_| {
            self.cluster.note_slow(member);
            Err(Failure::Late)
        });
        answer.inspect_err(|failure| {
            // Somebody has compacted further.
            if path != COMPACT || !failure.to_string().contains("compacted") {
                let place = self.cluster.place(member);
                self.shared.note_failure(place, failure);
            }
        })
    }

    async fn show(&self, beat: u64) {
        let member = Member {
            version: self.own.version.clone(),
            addresses: self.own.addresses.clone(),
            digest: self.own.digest.clone(),
            beat,
        };
        let request = PutRequest {
            key: self.keys.member(&self.name),
            value: member.text(),
            lease: 0,
        };
        let _ = self.call::<Empty>(PUT, request).await;
    }

    async fn look(&self, members: &mut Members) {
        let (key, range_end) = self.keys.members();
        let request = RangeRequest {
            key,
            range_end,
            ..RangeRequest::default()
        };
        let found = self.call::<RangeResponse>(RANGE, request).await;
        let Ok(found) = found else { return };
        let pairs = found.kvs.into_iter().map(|pair| (pair.key, pair.value));
        members.note(&self.keys, &pairs.collect::<Vec<_>>(), now());
        let others = members.others(&self.name, now());
        let others = others.map(|(name, member)| (name.to_owned(), member.clone()));
        self.shared.lock().others = others.collect();
    }

    /// Compacts to the revision of a minute ago.
    async fn compact(&self, revisions: &mut VecDeque<i64>) {
        revisions.push_back(self.shared.revision.load(Relaxed));
        if revisions.len() > KEPT
            && let Some(revision) = revisions.pop_front()
        {
            let request = CompactionRequest { revision };
            let _ = self.call::<Empty>(COMPACT, request).await;
        }
    }
}

/// The file `cluster` of the data directory.
pub(super) struct Notes {
    path: PathBuf,
    noted: Memory,
    at: u64,
}

impl Notes {
    pub(super) fn new(data: PathBuf, noted: Memory) -> Self {
        let path = data.join(FILE);
        Self { path, noted, at: 0 }
    }

    /// Writes it, in another thread, if it has changed and is old.
    pub(super) fn note(&mut self, memory: &Memory) {
        let now = now().0;
        let new = memory.cluster != self.noted.cluster;
        if memory.cluster.is_empty() || *memory == self.noted || !new && now - self.at < NOTED_NS {
            return;
        }
        (self.noted, self.at) = (memory.clone(), now);
        let (path, text) = (self.path.clone(), written(memory));
        tokio::task::spawn_blocking(move || {
            let draft = path.with_extension("new");
            let put = std::fs::File::create(&draft).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_data()?;
                std::fs::rename(&draft, &path)
            });
            if let Err(error) = put {
                let text = format!(
                    "{}: cannot write: {error}; after a restart this member may not notice that \
                     its etcd was restored or exchanged",
                    path.display()
                );
                write(Level::Warn, &text);
            }
        });
    }
}

/// The file's name.
pub(crate) const FILE: &str = "cluster";

fn written(memory: &Memory) -> String {
    format!("{} {} {}\n", memory.cluster, memory.sequence, memory.tokens)
}

/// Reads the file's text.
pub(crate) fn remembered(text: &str) -> Option<Memory> {
    let mut words = text.split_whitespace();
    Some(Memory {
        cluster: words.next()?.to_owned(),
        sequence: words.next()?.parse().ok()?,
        tokens: words.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_was_written() {
        let memory = Memory {
            cluster: "a1".to_owned(),
            sequence: 7,
            tokens: 9,
        };
        assert_eq!(remembered(&written(&memory)), Some(memory));
        for text in ["", "a1", "a1 7", "a1 x 9\n"] {
            assert_eq!(remembered(text), None);
        }
    }
}
