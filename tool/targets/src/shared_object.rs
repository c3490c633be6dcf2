//! The file of a user's shared library: the text behind `lib:`, and a check of the file
//! that runs none of its code.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The text behind `lib:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Absolute, since dlopen(3) looks elsewhere for a name without a slash.
    pub path: PathBuf,
    /// The text behind the first `?`; empty where nothing follows.
    pub args: CString,
}

impl Typed {
    /// Reads `PATH.so` or `PATH.so?ARGS`. A relative path counts from the current
    /// directory.
    ///
    /// # Errors
    /// For the user: what is missing.
    pub(crate) fn parse(argument: Option<&str>) -> Result<Typed, String> {
        let whole = argument.unwrap_or_default();
        let (path, args) = whole.split_once('?').unwrap_or((whole, ""));
        if path.is_empty() {
            return Err(
                "it needs the path of a shared library: lib:./my_lock.so, or \
                 lib:./my_lock.so?ARGS (tool/docs/own-locks.md)"
                    .to_owned(),
            );
        }
        if whole.contains(['\0', '\n']) {
            return Err("a path with a line break or a zero byte is not taken".to_owned());
        }
        let absolute = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Typed {
            path: absolute,
            args: CString::new(args).unwrap_or_default(),
        })
    }
}

/// Offsets in the ELF header (elf(5)): magic number, class and byte order; kind of file;
/// machine.
const IDENT: std::ops::Range<usize> = 0..6;
const KIND: usize = 16;
const MACHINE: usize = 18;
const HEADER: usize = 20;

/// `e_type` of a shared object.
const ET_DYN: u8 = 3;

/// Checks that the file is a shared library for this machine, by its header.
///
/// # Errors
/// For the user: what the file is instead.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let own = header(Path::new("/proc/self/exe")).map_err(|error| error.to_string())?;
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no file {}; a relative path counts from the current directory",
            path.display()
        ),
        _ => format!("cannot read {}: {error}", path.display()),
    };
    let facts = std::fs::metadata(path).map_err(cannot)?;
    if facts.is_dir() {
        return Err(format!(
            "{} is a directory; name the shared library in it",
            path.display()
        ));
    }
    if !facts.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    compare(&header(path).map_err(cannot)?, &own)
        .map_err(|what| format!("{} {what}", path.display()))
}

/// The first bytes of a file; zeroes stand for those that it lacks.
fn header(path: &Path) -> io::Result<[u8; HEADER]> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(HEADER as u64)
        .read_to_end(&mut bytes)?;
    bytes.resize(HEADER, 0);
    let mut header = [0; HEADER];
    header.copy_from_slice(&bytes);
    Ok(header)
}

fn compare(file: &[u8; HEADER], own: &[u8; HEADER]) -> Result<(), String> {
    if file[..4] != own[..4] {
        return Err("is no shared library (no ELF file)".to_owned());
    }
    let machine = |of: &[u8; HEADER]| match of[5] {
        2 => u16::from_be_bytes([of[MACHINE], of[MACHINE + 1]]),
        _ => u16::from_le_bytes([of[MACHINE], of[MACHINE + 1]]),
    };
    if file[IDENT] != own[IDENT] || machine(file) != machine(own) {
        return Err(format!(
            "is for {}, and this jostle for {}; compile it for this machine",
            name(file[4], machine(file)),
            name(own[4], machine(own))
        ));
    }
    match file[KIND].max(file[KIND + 1]) {
        ET_DYN => Ok(()),
        _ => Err("is no shared library; link it with -shared".to_owned()),
    }
}

/// An architecture, as compilers call it.
fn name(class: u8, machine: u16) -> String {
    let bits = if class == 1 { "32" } else { "64" };
    match machine {
        3 => "i386".to_owned(),
        21 => "powerpc64".to_owned(),
        22 => "s390x".to_owned(),
        40 => "arm".to_owned(),
        62 if class == 1 => "x32".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => format!("riscv{bits}"),
        258 => "loongarch".to_owned(),
        other => format!("machine {other} ({bits} bits)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_what_the_library_is_told() {
        let here = std::env::current_dir().unwrap();
        let table = [
            ("/a b/x.so", PathBuf::from("/a b/x.so"), ""),
            ("x.so", here.join("x.so"), ""),
            ("./x.so?", here.join("x.so"), ""),
            ("x.so?slots=4,a:b?c", here.join("x.so"), "slots=4,a:b?c"),
        ];
        for (text, path, args) in table {
            let typed = Typed::parse(Some(text)).unwrap();
            assert_eq!(typed.path, path, "{text}");
            assert_eq!(typed.args.to_str().unwrap(), args, "{text}");
        }
        for sad in [None, Some(""), Some("?args"), Some("a\nb.so")] {
            assert!(Typed::parse(sad).is_err(), "{sad:?}");
        }
    }

    /// An ELF header of this class, order of bytes, kind and machine.
    fn elf(class: u8, order: u8, kind: u8, machine: u8) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(b"\x7fELF");
        (header[4], header[5]) = (class, order);
        let low = usize::from(order == 2);
        (header[KIND + low], header[MACHINE + low]) = (kind, machine);
        header
    }

    #[test]
    fn what_is_no_library_of_this_machine_is_named() {
        let own = elf(2, 1, 3, 62);
        assert_eq!(compare(&elf(2, 1, 3, 62), &own), Ok(()));
        let table = [
            (
                elf(2, 1, 3, 183),
                "is for aarch64, and this jostle for x86-64",
            ),
            (elf(1, 1, 3, 3), "is for i386"),
            (elf(1, 1, 3, 62), "is for x32"),
            (elf(2, 2, 3, 22), "is for s390x"),
            (elf(2, 1, 1, 62), "link it with -shared"), // an object file
            ([0; HEADER], "no ELF file"),               // empty, or a text
        ];
        for (header, part) in table {
            let error = compare(&header, &own).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
