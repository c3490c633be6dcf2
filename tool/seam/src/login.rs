//! A service as the user types it, `//[USER[:PASSWORD]@]HOST:PORT[/PATH][?TLS]`, completed
//! from the environment.

use crate::address::Address;
use crate::tls::Tls;
use crate::{Result, SetupError};
use std::path::Path;
use std::{fmt, fs};

/// User and password for a service.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// As whom.
    pub user: Option<String>,
    /// By what.
    pub password: Option<String>,
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.user.as_deref().unwrap_or("anonymous"))
    }
}

impl Credentials {
    /// Reads the credentials from a file of two lines, or else from these two variables; an
    /// empty variable name means that there is none. They are never on the command line,
    /// which every user of the machine can read.
    ///
    /// # Errors
    /// In words for the user: a file that is none of that kind.
    pub fn find(file: Option<&Path>, [user, password]: [&str; 2]) -> Result<Credentials> {
        let Some(path) = file else {
            return Ok(Credentials {
                user: variable(user),
                password: variable(password),
            });
        };
        let [user, password] = lines(path)?;
        Ok(Credentials {
            user: Some(user).filter(|user| !user.is_empty()),
            password: Some(password),
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Name and password from a `--credentials` file. The first line is empty for a service
/// without user names.
///
/// # Errors
/// In words for the user.
pub fn lines(path: &Path) -> Result<[String; 2]> {
    let file = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| SetupError(format!("cannot read --credentials {file}: {error}")))?;
    let mut lines = text.lines();
    match (lines.next(), lines.next()) {
        (Some(name), Some(password)) => Ok([name.to_owned(), password.to_owned()]),
        _ => Err(SetupError(format!(
            "--credentials {file}: the name in the first line, the password in the second"
        ))),
    }
}

/// A service's address, and the user and password for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Where.
    pub address: Address,
    /// As whom.
    pub own: Credentials,
    /// The path behind the address: a database.
    pub path: Option<String>,
}

impl Login {
    /// Reads what follows the colon of a target.
    ///
    /// # Errors
    /// For the user.
    pub fn parse(argument: &str) -> Result<Login, String> {
        let (place, query) = argument.split_once('?').unwrap_or((argument, ""));
        let place = place.strip_prefix("//").unwrap_or(place);
        let (place, path) = place.split_once('/').unwrap_or((place, ""));
        let path = Some(path).filter(|path| !path.is_empty());
        let (user, password, place) = match place.rsplit_once('@') {
            Some((credentials, place)) => match credentials.split_once(':') {
                Some((user, password)) => (Some(user), Some(password), place),
                None => (Some(credentials), None, place),
            },
            None => (None, None, place),
        };
        let plain = |text: &str| unescaped(text).ok_or("a % stands before two hexadecimal digits");
        Ok(Login {
            address: Address::tcp(place)?.over(Tls::asked(query)?),
            own: Credentials {
                user: user.map(plain).transpose()?,
                password: password.map(plain).transpose()?,
            },
            path: path.map(plain).transpose()?,
        })
    }

    /// The login of a server that was launched with this password, for this user if it has names.
    pub fn of_launched(address: String, user: Option<&str>, secret: &str) -> Login {
        Login {
            address: Address::Tcp(address),
            own: Credentials {
                user: user.map(str::to_owned),
                password: Some(secret.to_owned()),
            },
            path: None,
        }
    }

    /// The login of a server whose address has neither user nor path; `tls_scheme` is that of
    /// [`Address::several`].
    ///
    /// # Errors
    /// As [`Address::one`] and [`Credentials::find`].
    pub fn named(
        argument: &str,
        tls_scheme: Option<&str>,
        file: Option<&Path>,
        variables: [&str; 2],
    ) -> Result<Login> {
        Ok(Login {
            address: Address::one(argument, tls_scheme).map_err(SetupError)?,
            own: Credentials::find(file, variables)?,
            path: None,
        })
    }

    /// Like [`Login::parse`]. User and password that the text lacks come from the file, or
    /// else from the environment.
    ///
    /// # Errors
    /// As [`Login::parse`] and [`Credentials::find`].
    pub fn found(
        argument: &str,
        file: Option<&Path>,
        [user, password, path]: [&str; 3],
    ) -> Result<Login> {
        let mut login = Login::parse(argument).map_err(SetupError)?;
        let own = Credentials::find(file, [user, password])?;
        login.own.user = login.own.user.or(own.user);
        login.own.password = login.own.password.or(own.password);
        login.path = login.path.or_else(|| variable(path));
        Ok(login)
    }
}

/// RFC 3986, 2.1.
pub fn unescaped(text: &str) -> Option<String> {
    String::from_utf8(unescaped_by(b'%', text)?).ok()
}

/// Text in which this sign and two hexadecimal digits stand for a byte; None where the
/// digits are missing.
pub fn unescaped_by(sign: u8, text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != sign {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
}

/// `15.18 (Debian ...)` as 15.018, and `3.4.23` as 3.004023: each part after the first has
/// three digits.
pub fn version(text: &str) -> Option<f64> {
    let word = text.split_whitespace().next()?;
    let mut parts = word.splitn(3, '.');
    let major: u32 = parts.next()?.parse().ok()?;
    // What follows the digits, as in `14-MariaDB`, is no part of the version.
    let mut next = || {
        let part = parts.next().unwrap_or("");
        let end = part.find(|letter: char| !letter.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().unwrap_or(0)
    };
    let (minor, patch): (u32, u32) = (next(), next());
    Some((f64::from(major) * 1e6 + f64::from(minor) * 1e3 + f64::from(patch)) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (text, number) in [
            ("15.18 (Debian 15.18-0+deb12u1)", Some(15.018)),
            ("9.6.2", Some(9.006002)),
            ("3.4.23", Some(3.004023)),
            ("10.11.14-MariaDB-0+deb12u2", Some(10.011014)),
            ("3.8.0-1+deb12u1,", Some(3.008)),
            ("3.7.0-alpha.0", Some(3.007)),
            ("17beta1", None),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
    }

    #[test]
    fn a_file_of_credentials_has_two_lines_and_its_password_is_not_shown() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("credentials");
        for (text, user, password) in [
            ("ann\nse cret\n", Some("ann"), Some("se cret")),
            ("\nsecret\n", None, Some("secret")),
        ] {
            fs::write(&file, text).unwrap();
            let found = Credentials::find(Some(&file), ["", ""]).unwrap();
            assert_eq!(found.user.as_deref(), user);
            assert_eq!(found.password.as_deref(), password);
            assert!(!format!("{found:?}").contains("cret"));
            let login = Login::found("//bob@h:1", Some(&file), ["", "", ""]).unwrap();
            assert_eq!(login.own.user.as_deref(), Some("bob"));
            assert_eq!(login.own.password.as_deref(), password);
        }
        fs::write(&file, "ann").unwrap();
        let said = Credentials::find(Some(&file), ["", ""]).unwrap_err().0;
        assert!(said.contains("the password in the second"), "{said}");
        assert_eq!(
            Credentials::find(None, ["", ""]),
            Ok(Credentials::default())
        );
    }

    #[test]
    fn names_are_taken_apart() {
        let parts = |text: &str| {
            let login = Login::parse(text).unwrap();
            let part = |part: Option<String>| part.unwrap_or_default();
            let address = login.address.to_string();
            [
                address,
                part(login.own.user),
                part(login.own.password),
                part(login.path),
            ]
            .join(" ")
        };
        for (text, expected) in [
            ("//h:5432", "h:5432   "),
            ("//h:5432/", "h:5432   "),
            ("//ann@h:1/db", "h:1 ann  db"),
            ("//ann:p%40:x@[::1]:1/db", "[::1]:1 ann p@:x db"),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        for sad in [
            "//h",
            "//ann@h/db",
            "//a:%zz@h:1",
            "//a:%4@h:1",
            "//h:1/%f",
            "",
        ] {
            assert!(Login::parse(sad).is_err(), "{sad}");
        }
        let login = Login::parse("//ann:secret@h:1").unwrap();
        assert!(!format!("{login:?}").contains("secret"));
    }
}
