//! Commands that users give to targets: split into words as a shell would, and
//! started without one.

use crate::SetupError;
use jostle_sys::spawn;
use std::io;

/// The words of a command that follows the name of a target and a colon.
///
/// # Errors
/// For the user: no command, or one that ends within a quote.
pub fn words(target: &str, argument: Option<&str>) -> Result<Vec<String>, String> {
    let command = argument.unwrap_or_default();
    match shlex::split(command) {
        None => Err(format!("`{command}` ends within a quote")),
        Some(words) if words.first().is_none_or(String::is_empty) => Err(format!(
            "no command follows the colon; write {target}:COMMAND"
        )),
        Some(words) => Ok(words),
    }
}

/// The words of a command that can be started.
///
/// # Errors
/// In words for the user, with the remedy.
pub fn found(target: &str, argument: Option<&str>) -> Result<Vec<String>, SetupError> {
    let words = words(target, argument).map_err(SetupError)?;
    spawn::find(&words[0]).map_err(|error| not_found(&words[0], &error))?;
    Ok(words)
}

/// Why a program cannot be started.
pub fn not_found(name: &str, error: &io::Error) -> SetupError {
    SetupError(match error.kind() {
        io::ErrorKind::NotFound if name.contains('/') => {
            format!("there is no program {name}")
        }
        io::ErrorKind::NotFound => {
            format!("there is no program `{name}` in $PATH; write its path")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{name} cannot be executed: {error}; chmod +x, or name its interpreter")
        }
        _ => format!("cannot start {name}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let table: [(&str, Result<&[&str], &str>); 7] = [
            ("true", Ok(&["true"])),
            ("a b  c", Ok(&["a", "b", "c"])),
            (
                r#"sh -c 'exit 3' "{n} x" \$y"#,
                Ok(&["sh", "-c", "exit 3", "{n} x", "$y"]),
            ),
            ("printf ''", Ok(&["printf", ""])),
            ("sh -c 'exit", Err("ends within a quote")),
            ("", Err("no command follows")),
            ("''", Err("no command follows")),
        ];
        for (command, expected) in table {
            match (words("exec", Some(command)), expected) {
                (Ok(words), Ok(expected)) => assert_eq!(words, expected, "{command}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{command}: {error}"),
                (found, _) => panic!("{command}: {found:?}"),
            }
        }
        assert!(words("exec", None).is_err());
    }

    mod live_tests {
        use super::*;

        #[test]
        fn what_cannot_be_started_is_said_before() {
            let directory = tempfile::tempdir().unwrap();
            let plain = directory.path().join("plain");
            std::fs::write(&plain, "x").unwrap();
            let plain = plain.display().to_string();
            let table = [
                (
                    "no-such-program-here",
                    "no program `no-such-program-here` in $PATH",
                ),
                ("/no/such/program", "there is no program /no/such/program"),
                (plain.as_str(), "cannot be executed"),
            ];
            for (command, part) in table {
                let error = found("exec", Some(command)).unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(found("exec", Some("true")).unwrap(), ["true"]);
        }
    }
}
