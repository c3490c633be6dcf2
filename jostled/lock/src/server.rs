//! Where jostled is, and how to log in there.

use std::path::{Path, PathBuf};

use crate::args::Options;
use crate::{Failure, code};

/// A server's address, and who we are there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) place: Place,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Where it listens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The files of TLS.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) authorities: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) identity: Option<[PathBuf; 2]>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(to, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(to, "{host}:{port}"),
            Self::Unix(path) => write!(to, "{}", path.display()),
        }
    }
}

impl Server {
    pub(crate) fn from_options(options: &Options) -> Result<Self, Failure> {
        let mut server = Self::parse(&options.address()).ok_or_else(|| {
            let text =
                "the address is none of redis://[USER@]HOST[:PORT], rediss://... and unix:PATH";
            Failure(code::USAGE, text.to_owned())
        })?;
        if let Some(tls) = &mut server.tls {
            tls.authorities.clone_from(&options.tls_ca);
            tls.identity = options
                .tls_cert
                .clone()
                .zip(options.tls_key.clone())
                .map(Into::into);
        } else if options.tls_ca.is_some() || options.tls_cert.is_some() {
            let text = "--tls-ca and --tls-cert are for an address that begins with rediss://";
            return Err(Failure(code::USAGE, text.to_owned()));
        }
        if let Some(file) = &options.password_file {
            server.password = Some(first_line(file)?);
        }
        Ok(server)
    }

    /// User and password to log in with. A user without a password has the empty one, as Redis
    /// libraries have it; a certificate needs none.
    pub(crate) fn login(&self) -> Option<(&str, &str)> {
        let certified = self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        let user = self.user.as_deref();
        let empty = user.filter(|_| !certified).map(|_| "");
        let password = self.password.as_deref().or(empty)?;
        Some((user.unwrap_or("default"), password))
    }

    fn parse(url: &str) -> Option<Self> {
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return (!path.is_empty()).then(|| Self {
                place: Place::Unix(path.into()),
                tls: None,
                user: None,
                password: None,
            });
        }
        let (scheme, rest) = url.split_once("://")?;
        let tls = match scheme {
            "redis" => None,
            "rediss" => Some(Tls {
                authorities: None,
                identity: None,
            }),
            _ => return None,
        };
        let rest = rest.trim_end_matches('/');
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(unescaped(password)?)),
            None => (login, None),
        };
        let user = (!user.is_empty()).then(|| unescaped(user));
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, port.strip_prefix(':'))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map_or(Some(2626), |port| port.parse().ok())?;
        (!host.is_empty() && !host.contains(['/', '?', '#'])).then_some(())?;
        Some(Self {
            place: Place::Tcp {
                host: host.to_owned(),
                port,
            },
            tls,
            user: match user {
                Some(user) => Some(user?),
                None => None,
            },
            password,
        })
    }
}

/// Text in which %XX stands for a byte.
fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn first_line(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    let text =
        text.map_err(|error| Failure(code::NO_INPUT, format!("{}: {error}", file.display())))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_redis_libraries_read_them() {
        let shown = |url: &str| {
            Server::parse(url).map(|it| {
                let tls = if it.tls.is_some() { " tls" } else { "" };
                let (user, password) = (it.user, it.password);
                format!("{}{tls} {user:?} {password:?}", it.place)
            })
        };
        for (url, expected) in [
            ("redis://h", "h:2626 None None"),
            ("redis://h:1/", "h:1 None None"),
            ("rediss://app@[::1]:7", "[::1]:7 tls Some(\"app\") None"),
            ("redis://:p%40@h", "h:2626 None Some(\"p@\")"),
            ("redis://u:p@h", "h:2626 Some(\"u\") Some(\"p\")"),
            ("unix:/run/x", "/run/x None None"),
            ("unix:///run/x", "/run/x None None"),
        ] {
            assert_eq!(shown(url).as_deref(), Some(expected), "{url}");
        }
        for (url, expected) in [
            ("redis://h", None),
            ("redis://app@h", Some(("app", ""))),
            ("redis://:p@h", Some(("default", "p"))),
        ] {
            let server = Server::parse(url).unwrap();
            assert_eq!(server.login(), expected, "{url}");
        }
        for url in [
            "",
            "h:1",
            "http://h",
            "redis://",
            "redis://h:x",
            "redis://h/0",
            "unix:",
            "redis://%4@h",
        ] {
            assert_eq!(shown(url), None, "{url}");
        }
    }
}
