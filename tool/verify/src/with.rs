//! The service that is launched for a user's own lock (`--with`). Its name in braces, among the
//! words of the target, stands for its address; name and password are in the environment, in the
//! variables of the service's own tools.

use jostle_recover::Service;
use jostle_sys::process::{self, Forker};
use jostle_targets::{Locks, Setup, SetupError, Spec, prepare};

type Variables = &'static [(&'static str, &'static str)];
/// By service: the variable of its password, and other variables with their values.
const VARIABLES: [(&str, &str, Variables); 7] = [
    ("lockd", "JOSTLED_PASSWORD", &[]),
    ("redis", "REDISCLI_AUTH", &[]),
    ("redisson", "REDISCLI_AUTH", &[]),
    (
        "memcached",
        "MEMCACHED_PASSWORD",
        &[("MEMCACHED_USER", "jostle")],
    ),
    ("nats", "NATS_PASSWORD", &[("NATS_USER", "jostle")]),
    ("mariadb", "MYSQL_PWD", &[("MYSQL_USER", "jostle")]),
    (
        "postgres",
        "PGPASSWORD",
        &[("PGUSER", "jostle"), ("PGDATABASE", "postgres")],
    ),
];

/// A service that was launched. Its own locks are nobody's.
#[derive(Debug)]
pub(crate) struct With {
    name: String,
    address: String,
    secret: Option<String>,
    _locks: Box<dyn Locks>,
}

impl With {
    /// Launches the service of this name, for the clients of this set-up.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn launch(
        name: &str,
        setup: &Setup<'_>,
        service: &dyn Service,
    ) -> Result<With, SetupError> {
        let spec = Spec::parse(name).map_err(SetupError)?;
        let argument = None;
        let _locks = prepare(spec.entry, &Setup { argument, ..*setup })?;
        let place = service.places().into_iter().next();
        let nothing = || SetupError(format!("{name} is no service that can be launched"));
        let (address, secret) = place.ok_or_else(nothing)?;
        let name = name.to_owned();
        Ok(With {
            name,
            address,
            secret,
            _locks,
        })
    }

    /// The words of a target, with the address in them.
    pub(crate) fn fill(&self, words: &str) -> String {
        words.replace(&format!("{{{}}}", self.name), &self.address)
    }

    /// Puts name and password into the environment of what is started from now on, or removes
    /// them.
    pub(crate) fn tell(&self, forker: &Forker, tells: bool) {
        let row = VARIABLES.iter().find(|(name, ..)| *name == self.name);
        if let (Some(secret), Some((_, password, others))) = (self.secret.as_deref(), row) {
            for (name, value) in others.iter().copied().chain([(*password, secret)]) {
                process::set_variable(forker, name, tells.then_some(value));
            }
        }
    }
}
