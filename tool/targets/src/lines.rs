//! The macro that makes the table of targets from its lines.
//!
//! A line (in `lib.rs`) declares the module and its place in the table. Everything else
//! about a target is in its own file.

/// From lines of `module::Type`, each with the cargo feature that it needs if it needs
/// one, the modules, [`TABLE`](crate::TABLE) and [`visit`](crate::visit).
///
/// A line that ends with `as dyn` is not visited: an acquisition of such a lock takes long
/// compared with an indirect jump, so that all of them share one loop.
macro_rules! targets {
    ($($(#[$given:meta])* $module:ident::$target:ident $(as $shared:tt)?),+ $(,)?) => {
        $($(#[$given])* pub mod $module;)+

        /// Every target, in the order of `jostle targets`.
        pub static TABLE: &[&Entry] = &[$($(#[$given])* &<$module::$target as Target>::ENTRY),+];

        /// Makes what all workers of a lock share, as [`Target::prepare`] does.
        ///
        /// # Errors
        /// In words for the user, with the remedy.
        pub fn prepare(entry: &Entry, setup: &Setup<'_>) -> Result<Box<dyn Locks>, SetupError> {
            $($(#[$given])* if entry.name == <$module::$target as Target>::ENTRY.name {
                return Ok(Box::new($module::$target::prepare(setup)?));
            })+
            Err(SetupError(format!("{} is no lock", entry.name)))
        }

        /// Runs a computation over the target of an entry of [`TABLE`] that has a compiled
        /// loop of its own; returns it where the target shares one.
        pub fn visit<V: Visitor>(entry: &Entry, visitor: V) -> Result<V::Out, V> {
            $($(#[$given])* lines::targets!(@visit entry, visitor, $module::$target $(, $shared)?);)+
            Err(visitor)
        }
    };
    (@visit $entry:ident, $visitor:ident, $module:ident::$target:ident) => {
        if $entry.name == <$module::$target as Target>::ENTRY.name {
            return Ok($visitor.visit::<$module::$target>());
        }
    };
    (@visit $entry:ident, $visitor:ident, $module:ident::$target:ident, dyn) => {};
}

pub(crate) use targets;

#[cfg(test)]
mod tests {
    use crate::{Spec, all};
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Experiment, SCHEMA};

    #[test]
    fn an_answering_target_is_one_of_the_table_and_lets_nobody_wait() {
        let answering = all().filter_map(|entry| entry.lock.answering);
        let answering: Vec<&str> = answering.collect();
        assert!(!answering.is_empty());
        for name in answering {
            let spec = Spec::parse(name).unwrap();
            assert_eq!(spec.entry.lock.answering, None, "{name}");
            assert!(!spec.entry.lock.survives_owner, "{name}");
        }
    }

    #[test]
    fn older_files_are_read_as_if_they_stated_the_facts() {
        let older = Experiment {
            schema: SCHEMA.to_owned(),
            plan: Plan::of(Workload::Stream),
            environment: Default::default(),
            calibration: Default::default(),
            target_facts: Default::default(),
            started_at: String::new(),
        };
        for typed in [
            "lockd",
            "lockd://h:1",
            "lockd+unix:/run/jostled",
            "redis",
            "pipe:python3 lock.py",
            "echo",
            "flock:/tmp",
            "ofd",
            "fcntl",
            "posix",
            "lockfile",
            "sysv",
            "tcp",
            "ldap://h/dc=org?(uid=a)",
        ] {
            let facts = Spec::parse(typed).unwrap().entry.facts();
            assert_eq!(older.facts(typed), facts.unwrap_or_default(), "{typed}");
        }
    }
}
