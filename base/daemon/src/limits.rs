//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to what is allowed; returns how many
/// connections fit, leaving `spare` for other files.
#[must_use]
pub fn connections_that_fit(wanted: usize, spare: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let needed = (wanted + spare) as u64;
    if limit.current.is_some_and(|current| current < needed) {
        let current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If it fails, the limit that holds is read below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(wanted, |current| {
        wanted.min((current as usize).saturating_sub(spare))
    })
}

/// A line of the log where fewer connections fit than are wanted.
#[must_use]
pub fn fewer(fit: usize, wanted: usize) -> Option<String> {
    (fit < wanted).then(|| {
        format!(
            "{fit} connections instead of {wanted}: the limit of open files allows no more \
             (ulimit -n, or LimitNOFILE= of systemd)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_fit_as_the_limit_leaves_beside_other_files() {
        assert_eq!(connections_that_fit(10, 20), 10);
        let Some(most) = getrlimit(Resource::Nofile).maximum else {
            return;
        };
        let fit = connections_that_fit(most as usize, 20);
        let current = getrlimit(Resource::Nofile).current;
        assert_eq!(current, Some(most));
        assert_eq!(fit, most as usize - 20);
    }
}
