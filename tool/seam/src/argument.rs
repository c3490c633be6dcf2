//! Checks of what follows the colon of a target that several targets share.

use crate::address::Address;
use crate::login::Login;

/// For targets without an argument.
pub fn none(argument: Option<&str>) -> Result<(), String> {
    match argument {
        None => Ok(()),
        Some(_) => Err("it takes no argument".to_owned()),
    }
}

/// For targets that take a path or use their own files.
pub fn path(argument: Option<&str>) -> Result<(), String> {
    match argument {
        Some("") => {
            Err("nothing follows the colon; write a path, or leave the colon out".to_owned())
        }
        Some(path) if path.contains(['\0', '\n']) => {
            Err("a path with a line break or a zero byte is not taken".to_owned())
        }
        _ => Ok(()),
    }
}

/// For services whose addresses have users.
pub fn login(argument: Option<&str>) -> Result<(), String> {
    argument.map_or(Ok(()), |place| Login::parse(place).map(drop))
}

/// For services of several servers.
pub fn servers(argument: Option<&str>, tls_scheme: Option<&str>) -> Result<(), String> {
    argument.map_or(Ok(()), |places| {
        Address::several(places, tls_scheme).map(drop)
    })
}

/// For services that are reached over TCP, or launched for the run.
pub fn service(argument: Option<&str>) -> Result<(), String> {
    service_or(argument, None)
}

/// [`service`] where this scheme before the address means TLS.
pub fn service_or(argument: Option<&str>, tls_scheme: Option<&str>) -> Result<(), String> {
    argument.map_or(Ok(()), |place| Address::one(place, tls_scheme).map(drop))
}
