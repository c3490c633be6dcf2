//! A member of a group (`--ha-name`), from its start to its end: it waits for its turn, serves,
//! and gives its place up. [`crate::ha`] decides, [`crate::etcd`] has the thread that asks etcd.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::Server;
use super::errors::StartError;
use super::gate::Gate;
use super::net::{Door, Listener};
use super::reserver::Reserver;
use super::setup::bind;
use super::storer::Storer;
use crate::config::{Config, HaConfig, machine};
use crate::etcd::{self, FILE, Link, Shared, Start, View, random_bits, remembered};
use crate::ha::{Head, Memory, Own, Taken};
use crate::log::{Level, say, write};
use crate::systemd::Notifier;
use crate::table::Tokens;
use crate::tokens::{FileStore, Opened, Promise, failed};

/// How long connections' holds outlive a jostled.
pub(crate) const ORPHAN_MS: u64 = 10_000;
/// How long the end waits for etcd to let another one go first.
const RELEASE: Duration = Duration::from_secs(3);

/// A server's side of its group.
pub(super) struct Ha {
    pub(super) shared: Arc<Shared>,
    name: String,
    member: String,
    /// Tokens below this are the group's; and those that the data directory has reserved.
    granted: u64,
    reserved: u64,
    released: bool,
}

/// A jostled that waits for its turn.
pub struct Candidate {
    member: String,
    config: Config,
    opened: Opened,
    doors: Vec<Listener>,
    link: Link,
}

/// Makes the keys of a new group in etcd.
///
/// # Errors
/// [`StartError`].
pub fn init(config: &Config) -> Result<(), StartError> {
    let (ha, data) = parts(config)?;
    // Tokens go on where those of this machine end.
    let opened = FileStore::open(data, config.restored)?;
    let head = etcd::init(ha, opened.first).map_err(StartError::Group)?;
    say(&format!(
        "the group {} is made: cluster {}, tokens from {}",
        ha.name, head.cluster, head.tokens
    ));
    Ok(())
}

fn parts(config: &Config) -> Result<(&HaConfig, &Path), StartError> {
    let both = config.ha.as_ref().zip(config.data.as_deref());
    both.ok_or_else(|| StartError::Group("--ha-init needs --ha-name and --ha-etcd".to_owned()))
}

impl Candidate {
    /// Opens the data directory, takes the addresses, and begins to watch etcd. Clients are
    /// refused until it serves.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn join(config: Config) -> Result<Self, StartError> {
        let (ha, data) = parts(&config)?;
        let opened = FileStore::open(data, config.restored)?;
        let memory = remember(data)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &config.tls {
            super::setup::load_tls(tls).map_err(StartError::Tls)?;
        }
        let doors = bind(&config)?;
        let health = doors.iter().find(|door| door.door == Door::Metrics);
        let health = health.map(|door| {
            door.open()?;
            if let Some(address) = door.address {
                say(&format!("metrics on http://{address}/metrics"));
            }
            Ok::<_, io::Error>(door.fd.try_clone()?.into())
        });
        let (addresses, port) = addresses(&doors);
        let member = ha.member.clone();
        let member = member.unwrap_or_else(|| format!("{}:{port}", machine()));
        let start = Start {
            config: ha.clone(),
            member: member.clone(),
            own: Own {
                incarnation: random_bits(),
                orphan_ms: ORPHAN_MS,
                max_ttl_ms: config.max_ttl_ms,
                addresses,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                digest: config.digest(),
            },
            memory,
            restored: config.restored,
            data: data.to_owned(),
            health: health.transpose()?,
        };
        let link = Link::start(start)?;
        say(&format!("standby of the group {}: {member}", ha.name));
        // The start is done, although another one may serve.
        tell_manager("standby: another jostled serves its group, or none yet");
        Ok(Self {
            member,
            config,
            opened,
            doors,
            link,
        })
    }

    /// Waits for its turn; returns the server, or `None` once `stop` is readable. `read` reads
    /// the settings again, which may have changed meanwhile.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn wait(
        self,
        stop: impl AsFd,
        read: impl FnOnce() -> Result<Config, crate::config::ConfigError>,
    ) -> Result<Option<Server>, StartError> {
        loop {
            match self.link.taken.try_recv() {
                Ok(Ok(taken)) => {
                    let config = read().unwrap_or_else(|error| {
                        let text = format!("settings are not read again: {error}");
                        write(Level::Error, &text);
                        self.config.clone()
                    });
                    return self.serve(config, &taken).map(Some);
                }
                Ok(Err(over)) => return Err(StartError::Group(over.to_string())),
                Err(TryRecvError::Disconnected) => {
                    let text = "the thread that talks to etcd has ended";
                    return Err(StartError::Group(text.to_owned()));
                }
                Err(TryRecvError::Empty) => {}
            }
            let (stop, bell) = (stop.as_fd(), self.link.bell.as_fd());
            let mut both = [stop, bell].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut both, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
                Ok(_) if !both[0].revents().is_empty() => return Ok(None),
                Ok(_) => drop(rustix::io::read(&self.link.bell, &mut [0; 8])),
            }
        }
    }

    fn serve(self, config: Config, taken: &Taken) -> Result<Server, StartError> {
        let Self {
            member,
            config: before,
            opened,
            doors,
            link,
        } = self;
        let (ha, _) = parts(&before)?;
        let Opened { store, .. } = opened;
        let group = Ha {
            shared: Arc::clone(&link.shared),
            name: ha.name.clone(),
            member,
            granted: taken.head.tokens,
            reserved: 0,
            released: false,
        };
        let config = Config {
            ha: before.ha,
            ..config
        };
        let (first, orphan_ms) = (taken.first_token, taken.orphan_ms);
        let mut server = Server::adopting(&taken.stored, config, first, orphan_ms)?;
        let ask = move |asked| drop(link.ask.send(asked));
        let storer = Storer::linked(ask, link.answers, link.bell);
        server.pass(Gate::around(storer, false, true, 0))?;
        server.ha = Some(Box::new(group));
        server.reserver = Some(Reserver::start(Box::new(store))?);
        server.first_tokens()?;
        // Locks that were discarded may be believed in until then.
        let longest_ms = taken.loading.ms_from(server.life.started);
        let until = u64::MAX;
        server.promise_first(&[Promise { longest_ms, until }]);
        server.adopt_users(server.config.users.clone(), server.life.started);
        server.listen(doors, Vec::new())?;
        server.note_turn();
        say(&format!("serves the group: epoch {}", taken.head.epoch));
        tell_manager("serves its group");
        Ok(server)
    }
}

fn tell_manager(status: &str) {
    if let Some(notifier) = Notifier::from_env() {
        notifier.ready();
        notifier.status(status);
    }
}

/// What this member knows of its cluster.
fn remember(data: &Path) -> Result<Memory, StartError> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => remembered(&text).ok_or_else(|| {
            let text = format!(
                "{}: it makes no sense; if this member may forget its group, delete it",
                path.display()
            );
            StartError::Group(text)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Memory::default()),
        Err(error) => Err(failed(&path, "read")(error).into()),
    }
}

/// Where clients reach it, as far as it knows, and the first port.
fn addresses(doors: &[Listener]) -> (Vec<String>, u16) {
    let clients = doors.iter().filter(|door| door.door != Door::Metrics);
    let addresses = clients.filter_map(|door| door.address);
    let port = addresses.clone().next().map_or(0, |address| address.port());
    let named = addresses.map(|address| match address.ip().is_unspecified() {
        true => format!("{}:{}", machine(), address.port()),
        false => address.to_string(),
    });
    (named.collect(), port)
}

impl Server {
    /// Notes that the loop turns: another member would take over from one that hangs.
    pub(super) fn note_turn(&self) {
        if let Some(ha) = &self.ha {
            ha.shared.turned.store(self.clock.0, Relaxed);
        }
    }

    /// The tokens of these that may be given out, if the data directory has reserved them.
    pub(super) fn of_group(&mut self, reserved: u64) -> u64 {
        match &mut self.ha {
            None => reserved,
            Some(ha) => {
                ha.reserved = reserved;
                reserved.min(ha.granted)
            }
        }
    }

    /// The group may give out tokens below this.
    pub(super) fn may_give(&mut self, end: u64) {
        if let Some(ha) = &mut self.ha {
            ha.granted = end;
            let both = end.min(ha.reserved);
            self.step(Tokens(both), self.clock);
        }
    }

    pub(super) fn note_released(&mut self) {
        if let Some(ha) = &mut self.ha {
            ha.released = true;
        }
    }

    /// Gives the place in the group up, so that another member takes over at once.
    pub(super) fn leave(&mut self) {
        if self.ha.is_none() {
            return;
        }
        let released = |server: &Self| server.ha.as_ref().is_some_and(|ha| ha.released);
        self.release_store(RELEASE, released);
        match released(self) {
            true => say("another member of the group may serve now"),
            false => write(
                Level::Warn,
                "etcd does not know that this jostled ends: another member serves in some seconds",
            ),
        }
    }

    /// Name and value of what `HA STATUS` reports.
    pub(super) fn group_status(&self) -> Option<Vec<(&'static str, String)>> {
        let ha = self.ha.as_ref()?;
        let view = ha.shared.view();
        let head = view.head.as_ref();
        let shown = |of: fn(&Head) -> String| head.map_or(String::new(), of);
        let others = view.others.iter().map(|(name, member)| {
            let differs = head.is_some_and(|head| head.digest != member.digest);
            let differs = if differs { " other-settings" } else { "" };
            format!(
                "{name} {} {}{differs}",
                member.version,
                member.addresses.join(",")
            )
        });
        Some(vec![
            ("group", ha.name.clone()),
            ("member", ha.member.clone()),
            ("role", "primary".to_owned()),
            ("cluster", shown(|head| head.cluster.clone())),
            ("epoch", shown(|head| head.epoch.to_string())),
            ("sequence", shown(|head| head.sequence.to_string())),
            ("standbys", others.collect::<Vec<_>>().join("; ")),
            ("etcd", etcd_status(&view)),
        ])
    }

    /// Whether another member would take over.
    pub(super) fn has_standby(&self) -> Option<bool> {
        let ha = self.ha.as_ref()?;
        Some(!ha.shared.view().others.is_empty())
    }
}

fn etcd_status(view: &View) -> String {
    let members = view.health.iter().map(|member| {
        let place = &member.place;
        match (&member.trouble, &member.status) {
            (Some(why), _) => format!("{place} {why}"),
            (None, None) => format!("{place} ok"),
            (None, Some(status)) => {
                let mb = status.database_bytes >> 20;
                let alarms = status.errors.join(" ");
                format!("{place} ok {} {mb}M {alarms}", status.version)
            }
        }
    });
    let members: Vec<String> = members.map(|text| text.trim_end().to_owned()).collect();
    members.join("; ")
}
