//! What may follow the colon of a target: checks that several targets share.

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
