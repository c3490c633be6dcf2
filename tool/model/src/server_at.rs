//! Where a server under test is found on this machine, as users name it.

use serde_with::{DeserializeFromStr, SerializeDisplay};
use std::fmt;
use std::str::FromStr;

/// Names the processes of a server.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum ServerAt {
    /// Whoever listens on this TCP port: `:6379`.
    Port(u16),
    /// A process with its descendants: `pid:812`.
    Pid(u32),
    /// Whoever listens on this socket of the file system: `unix:/run/x.sock`.
    Unix(String),
    /// All processes of a control group: `cgroup:/system.slice/slapd.service`.
    Group(String),
}

/// The accepted forms.
const FORMS: &str = "write :PORT, pid:N, unix:PATH or cgroup:PATH";

impl FromStr for ServerAt {
    type Err = String;

    /// A path by itself is a control group, as older result files have it.
    fn from_str(text: &str) -> Result<ServerAt, String> {
        let wrong = || format!("`{text}` names no server; {FORMS}");
        let path = |path: &str| {
            (!path.is_empty())
                .then(|| path.to_owned())
                .ok_or_else(wrong)
        };
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        match text.split_once(':') {
            Some(("", port)) => match port.parse() {
                Ok(port) if port > 0 => Ok(ServerAt::Port(port)),
                _ => Err(wrong()),
            },
            Some(("pid", pid)) => number(pid).map(ServerAt::Pid).ok_or_else(wrong),
            Some(("unix", socket)) => path(socket).map(ServerAt::Unix),
            Some(("cgroup", group)) => path(group).map(ServerAt::Group),
            _ if text.starts_with('/') => path(text).map(ServerAt::Group),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ServerAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAt::Port(port) => write!(f, ":{port}"),
            ServerAt::Pid(pid) => write!(f, "pid:{pid}"),
            ServerAt::Unix(path) => write!(f, "unix:{path}"),
            ServerAt::Group(path) => write!(f, "cgroup:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_port_process_socket_or_group() {
        for (typed, server) in [
            (":6379", ServerAt::Port(6379)),
            ("pid:812", ServerAt::Pid(812)),
            ("unix:/run/x", ServerAt::Unix("/run/x".to_owned())),
            ("cgroup:/slapd", ServerAt::Group("/slapd".to_owned())),
        ] {
            assert_eq!(typed.parse(), Ok(server.clone()), "{typed}");
            assert_eq!(server.to_string(), typed);
        }
        // Older result files have this form.
        assert_eq!("/slapd".parse(), Ok(ServerAt::Group("/slapd".to_owned())));
    }

    #[test]
    fn anything_else_is_refused_with_the_forms_that_are_not() {
        for typed in [
            "", ":", ":0", ":99999", "pid:", "pid:0", "pid:x", "unix:", "cgroup:", "6379", "x:1",
        ] {
            let error = typed.parse::<ServerAt>().unwrap_err();
            assert!(error.contains("pid:N"), "{typed}: {error}");
        }
    }
}
