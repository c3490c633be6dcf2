//! The messages between ranks: JSON, except the clock's ping and pong.

use crate::hosts::Host;
use crate::order::{Reply, Request};
use serde::{Deserialize, Serialize};

/// The first word of every rank. Its outer form (one JSON object with these keys)
/// stays as it is in all versions, so that any two of them can tell each other
/// apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Hello {
    /// This build's version.
    pub version: String,
    /// The commit it was built from, where the build knew.
    pub commit: Option<String>,
    /// The schema of its records.
    pub schema: String,
    /// The host, as it calls itself.
    pub name: String,
    /// CPUs that the rank may use.
    pub cpus: u64,
    /// See [`Host::boot_id`].
    pub boot_id: String,
}

impl Hello {
    /// This process, in this build.
    pub(super) fn new(version: &str, commit: Option<&str>) -> Hello {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Hello {
            version: version.to_owned(),
            commit: commit.map(str::to_owned),
            schema: jostle_model::record::SCHEMA.to_owned(),
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            cpus: jostle_sys::cpu::allowed().len() as u64,
            boot_id: boot_id.unwrap_or_default().trim().to_owned(),
        }
    }

    /// Why the two cannot work together, if so.
    pub(super) fn refuses(&self, other: &Hello) -> Option<String> {
        let same = self.version == other.version
            && self.commit == other.commit
            && self.schema == other.schema;
        (!same).then(|| {
            format!(
                "{} has jostle {}, and {} has jostle {}: give all hosts the same",
                other.name,
                other.build(),
                self.name,
                self.build()
            )
        })
    }

    fn build(&self) -> String {
        let known = [self.commit.as_deref(), Some(self.schema.as_str())];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let version = match self.version.as_str() {
            "" => "of an unknown version",
            version => version,
        };
        format!("{version} ({})", known.join(", "))
    }

    /// As it stands among the hosts.
    pub(super) fn host(self) -> Host {
        Host {
            version: match &self.commit {
                Some(commit) => format!("{} ({commit})", self.version),
                None => self.version,
            },
            name: self.name,
            cpus: self.cpus,
            boot_id: self.boot_id,
        }
    }
}

/// From rank 0. Runs are numbered, so that what belongs to one that was called off
/// is told from what belongs to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// This, of the keeper.
    Ask {
        run: u64,
        /// With times of the host's own `CLOCK_MONOTONIC`.
        request: Request,
    },
    /// Rank 0 is still there.
    Beat,
    /// Others work now, and you do not: look rarely.
    Sleep,
    /// Look often: another message follows soon.
    Wake,
    /// Between two runs rank 0 may be silent for longer.
    Rest,
    /// The end.
    Farewell,
}

/// From a host to rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FromHost {
    /// The keeper replied.
    Said {
        run: u64,
        /// How far it is, or what it did.
        reply: Reply,
    },
    /// It has received the abort.
    Aborting { run: u64 },
    /// It is still there.
    Beat,
    /// It was told to end by somebody else.
    Ending {
        /// In words for the user.
        text: String,
    },
    /// Nothing of it is left.
    Bye,
}

impl FromHost {
    /// Whether figures come with it.
    pub(super) fn is_gathered(&self) -> bool {
        let FromHost::Said { reply, .. } = self else {
            return false;
        };
        matches!(reply, Reply::Reached(_) | Reply::Closed(_) | Reply::Ran(_))
    }
}

/// The clock's question, and its answer. Small, since what takes time here widens
/// the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// The question's number.
    Ping(u32),
    /// The question's number, and the clock's reading.
    Pong(u32, u64),
}

impl Tick {
    const PING: u8 = b'?';
    const PONG: u8 = b'!';

    /// As it is sent.
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Tick::Ping(nth) => [&[Tick::PING][..], &nth.to_le_bytes()].concat(),
            Tick::Pong(nth, at) => {
                [&[Tick::PONG][..], &nth.to_le_bytes(), &at.to_le_bytes()].concat()
            }
        }
    }

    /// None if it is something else.
    pub(super) fn read(bytes: &[u8]) -> Option<Tick> {
        let (kind, rest) = bytes.split_first()?;
        let nth = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
        match *kind {
            Tick::PING => Some(Tick::Ping(nth)),
            Tick::PONG => {
                let at = u64::from_le_bytes(rest.get(4..12)?.try_into().ok()?);
                Some(Tick::Pong(nth, at))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: "0.1.0".into(),
            commit: Some("abc".into()),
            schema: "jostle/1".into(),
            name: "h1".into(),
            ..Hello::default()
        }
    }

    #[test]
    fn builds_that_differ_do_not_work_together() {
        let (ours, mut other) = (hello(), hello());
        other.name = "h3".into();
        assert_eq!(ours.refuses(&other), None);
        other.commit = Some("def".into());
        assert_eq!(
            ours.refuses(&other).as_deref(),
            Some(
                "h3 has jostle 0.1.0 (def, jostle/1), and h1 has jostle 0.1.0 (abc, jostle/1): \
                 give all hosts the same"
            )
        );
        let of_the_future: Hello =
            serde_json::from_str(r#"{"version":"9.0","name":"h4","seats":[1]}"#).unwrap();
        let said = ours.refuses(&of_the_future).unwrap();
        assert!(said.starts_with("h4 has jostle 9.0 ("), "{said}");
    }

    #[test]
    fn ticks_and_words_are_told_apart() {
        for tick in [Tick::Ping(7), Tick::Pong(u32::MAX, u64::MAX)] {
            assert_eq!(Tick::read(&tick.bytes()), Some(tick));
        }
        for word in [FromHost::Beat, FromHost::Aborting { run: 1 }] {
            assert_eq!(Tick::read(&serde_json::to_vec(&word).unwrap()), None);
        }
    }
}
