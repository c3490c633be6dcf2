//! Reads the password, the users, the certificate and the log's settings again while
//! the daemon runs. All of it is adopted or nothing, and no lock is touched.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::Server;
use super::handover::is_readable;
use super::life::Reload;
use crate::config::{Config, ConfigError};
use crate::log::{self, Level, say, write};
use crate::systemd::Notifier;
use crate::users::Users;

impl Server {
    /// Does what SIGHUP asks for: a thread reads the settings, while clients are served.
    /// A signal during that time is heeded afterwards. The thread rings when it is done.
    pub(super) fn reload(&mut self, reload: &Reload, ring: &UnixStream) {
        let mut bytes = [0; 64];
        if self.life.reading.is_some() || !is_readable(&reload.signal) {
            return;
        }
        while let Ok(1..) = rustix::io::read(&reload.signal, &mut bytes) {}
        self.life.notify(Notifier::reloading);
        let read = Arc::clone(&reload.read);
        let begun = ring.try_clone().and_then(|ring| {
            let thread = move || {
                let settings = read();
                // The event loop adopts them when this rings.
                let _ = rustix::io::write(&ring, b"r");
                settings
            };
            std::thread::Builder::new()
                .name("reload".into())
                .spawn(thread)
        });
        match begun {
            Ok(thread) => self.life.reading = Some(thread),
            Err(error) => self.reloaded(Err(error.to_string())),
        }
    }

    /// The thread has read the settings.
    pub(super) fn adopt_read(&mut self, bell: &UnixStream) {
        // A bell that nobody empties is full after some hundred reloads.
        let mut bytes = [0; 64];
        while let Ok(1..) = rustix::io::read(bell, &mut bytes) {}
        let Some(thread) = self.life.reading.take() else {
            return;
        };
        let read = thread.join().unwrap_or_else(|_| {
            let text = "the thread that reads them has failed";
            Err(ConfigError::Value(text.to_owned()))
        });
        let outcome = read.map_err(|error| error.to_string());
        let outcome = outcome.and_then(|config| self.adopt(config));
        self.reloaded(outcome);
    }

    fn reloaded(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => say("settings read again: password, users and certificate are in force"),
            Err(why) => write(
                Level::Error,
                &format!("settings not taken over, the old ones stay: {why}"),
            ),
        }
        self.life.notify(Notifier::ready);
    }

    fn adopt(&mut self, config: Config) -> Result<(), String> {
        if self.config.password.is_some() && config.password.is_none() {
            return Err("a password cannot be taken away while the daemon runs".to_owned());
        }
        // All that can fail comes before anything is changed.
        let users = self.check_users(config.users.clone())?;
        #[cfg(feature = "tls")]
        if self.config.tls.is_some() {
            let tls = config.tls.as_ref().ok_or("TLS cannot be turned off")?;
            let tls = super::setup::load_tls(tls)?;
            if let Some(handshakes) = &mut self.doors.handshakes {
                handshakes.tls = tls;
            }
        }
        let now = self.now();
        let before = self.config.users.clone();
        self.adopt_users(users, now);
        self.audit_users(&before, None);
        self.config.audit.clone_from(&config.audit);
        self.obey_audit();
        log::set(config.log_level, config.log_format);
        (self.config.log_level, self.config.log_format) = (config.log_level, config.log_format);
        let changed = elsewhere(&self.config) != elsewhere(&config);
        self.config.password = config.password;
        // ACL LOAD reads the file whose users are in force.
        self.config.users_file = config.users_file;
        if changed {
            say("other settings have changed too: they take effect with the next start");
        }
        Ok(())
    }
}

/// Everything that is not read again.
fn elsewhere(config: &Config) -> String {
    let rest = Config {
        password: None,
        users_file: None,
        users: Users::single(None),
        ..config.clone()
    };
    format!("{rest:?}")
}
