//! The procedures that can be called: the built-in one and the files of a
//! folder, compiled when they appear or change.
//!
//! A file that does not compile leaves the version before it in place. A changed
//! file is taken once two looks have found it the same, so that one that is
//! being written is not taken half-done.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Procedures;
use crate::lua::Code;
use crate::server::gate::Gate;
use crate::stats::ProcedureStats;

/// Bytes of a procedure's source at most.
const SOURCE_MAX: u64 = 1 << 20;
/// Names that the engine answers itself.
pub(crate) const RESERVED: [&str; 3] = ["sizecheck", "stats", "metrics"];

/// One version of a procedure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Procedure {
    /// Unique for each version.
    pub id: u64,
    /// The name behind the `/`.
    pub name: Arc<str>,
    /// Its code.
    pub body: Body,
    /// Its counters, shared by all versions.
    pub stats: Arc<ProcedureStats>,
    /// The calls that run and that wait, shared likewise.
    pub gate: Arc<Gate>,
    /// How often it was compiled with success.
    pub loads: u64,
    /// Why its file as it is now cannot be used.
    pub load_error: Option<Arc<str>>,
}

/// A procedure's code.
#[derive(Clone, Debug, Default)]
pub(crate) enum Body {
    /// The built-in `/sizecheck`.
    Sizecheck,
    /// Compiled Lua.
    Lua(Arc<Code>),
    /// Its file never compiled.
    #[default]
    Broken,
    /// Its file is gone; what it counted stays.
    Gone,
}

/// All procedures at one moment, by name.
pub(crate) type Snapshot = Arc<HashMap<Arc<str>, Arc<Procedure>>>;

/// The procedures.
#[derive(Debug)]
pub(crate) struct Catalog {
    source: Procedures,
    generation: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    snapshot: Snapshot,
    /// By name: the file that was loaded or tried last.
    files: BTreeMap<String, Fingerprint>,
    /// Files that have changed, as they were at the last look.
    changing: BTreeMap<String, Fingerprint>,
    next_id: u64,
    /// The folder could not be read at the last look.
    lost: bool,
}

/// The file's metadata that changes when the file does.
type Fingerprint = (u64, u64, u64, i64, i64, i64, i64);

fn fingerprint(path: &Path) -> io::Result<Fingerprint> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    Ok((
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

/// The result of a look at the folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Lines for the log.
    pub news: Vec<String>,
    /// Files are changing: look again soon.
    pub unsettled: bool,
}

impl Catalog {
    /// Loads everything there is.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn load(source: Procedures) -> io::Result<(Catalog, Look)> {
        let catalog = Catalog {
            source,
            generation: AtomicU64::new(0),
            inner: Mutex::default(),
        };
        let mut look = Look::default();
        {
            let mut inner = catalog.lock();
            inner.put("sizecheck", Ok(Body::Sizecheck));
            if let Procedures::Given(given) = &catalog.source {
                for (name, text) in given {
                    let code = compile(name, text.as_bytes());
                    look.news.extend(inner.put(name, code));
                }
            }
        }
        if let Procedures::Folder(path) = &catalog.source {
            std::fs::read_dir(path)?;
            look.news.extend(catalog.refresh_with(false).news);
        }
        Ok((catalog, look))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grows with each new snapshot.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// The procedures now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Arc::clone(&self.lock().snapshot)
    }

    /// The folder, if there is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.source {
            Procedures::Folder(path) => Some(path),
            _ => None,
        }
    }

    /// Looks at the folder, and takes what has changed.
    pub(crate) fn refresh(&self) -> Look {
        self.refresh_with(true)
    }

    /// Without `settle`, files are taken as they are.
    fn refresh_with(&self, settle: bool) -> Look {
        let mut look = Look::default();
        let Some(folder) = self.folder() else {
            return look;
        };
        let mut inner = self.lock();
        let found = match list(folder) {
            Ok(found) => found,
            Err(error) => {
                if !std::mem::replace(&mut inner.lost, true) {
                    let folder = folder.display();
                    look.news.push(format!(
                        "{folder}: {error}; its procedures stay as they are"
                    ));
                }
                return look;
            }
        };
        inner.lost = false;
        for (name, now) in &found {
            if inner.files.get(name) == Some(now) {
                inner.changing.remove(name);
            } else if settle && inner.changing.insert(name.clone(), *now) != Some(*now) {
                look.unsettled = true;
            } else {
                inner.changing.remove(name);
                inner.files.insert(name.clone(), *now);
                let code = read(folder, name);
                look.news.extend(inner.put(name, code));
            }
        }
        let gone = inner.files.keys().filter(|name| !found.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            inner.files.remove(&name);
            inner.changing.remove(&name);
            look.news.extend(inner.put(&name, Ok(Body::Gone)));
        }
        inner.changing.retain(|name, _| found.contains_key(name));
        if !look.news.is_empty() {
            self.generation.fetch_add(1, Release);
        }
        look
    }
}

impl Inner {
    /// Puts a new version in place, or notes why there is none; returns a line for the log.
    fn put(&mut self, name: &str, body: Result<Body, String>) -> Option<String> {
        let known = self.snapshot.get(name);
        let before = known.is_some();
        let mut procedure = known.map_or_else(Procedure::default, |known| (**known).clone());
        procedure.name = name.into();
        self.next_id += 1;
        procedure.id = self.next_id;
        let news = match body {
            Ok(body) => {
                procedure.load_error = None;
                procedure.loads += u64::from(matches!(body, Body::Lua(_)));
                let what = match body {
                    Body::Sizecheck => None,
                    Body::Gone => Some("gone"),
                    _ if before => Some("loaded again"),
                    _ => Some("loaded"),
                };
                procedure.body = body;
                what.map(|what| format!("/{name}: {what}"))
            }
            Err(error) => {
                let usable = matches!(procedure.body, Body::Lua(_) | Body::Sizecheck);
                procedure.load_error = Some(error.as_str().into());
                if !usable {
                    procedure.body = Body::Broken;
                }
                let stays = if usable {
                    "; the version before it stays"
                } else {
                    ""
                };
                Some(format!("/{name} cannot be loaded: {error}{stays}"))
            }
        };
        let mut all = (*self.snapshot).clone();
        all.insert(Arc::clone(&procedure.name), Arc::new(procedure));
        self.snapshot = Arc::new(all);
        news
    }
}

/// The procedures' files, by name.
fn list(folder: &Path) -> io::Result<BTreeMap<String, Fingerprint>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "lua") {
            continue;
        }
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let (Some(name), Ok(now)) = (name.filter(|name| is_name(name)), fingerprint(&path)) else {
            continue;
        };
        found.insert(name.to_owned(), now);
    }
    Ok(found)
}

/// Letters, digits, `_`, `-` and `.` in between; nothing that needs encoding or
/// that an editor leaves behind.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with(['.', '-'])
}

fn read(folder: &Path, name: &str) -> Result<Body, String> {
    if RESERVED.contains(&name) {
        return Err("the engine answers this name itself".to_owned());
    }
    let path = folder.join(format!("{name}.lua"));
    let size = std::fs::metadata(&path).map_err(|e| e.to_string())?.size();
    if size > SOURCE_MAX {
        return Err(format!("{size} bytes, {SOURCE_MAX} are allowed"));
    }
    let source = std::fs::read(&path).map_err(|e| e.to_string())?;
    compile(name, &source)
}

fn compile(name: &str, source: &[u8]) -> Result<Body, String> {
    Code::compile(&format!("{name}.lua"), source).map(|code| Body::Lua(Arc::new(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Catalog, Look) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let source = Procedures::Folder(folder.path().to_owned());
        let (catalog, look) = Catalog::load(source).unwrap();
        (folder, catalog, look)
    }

    fn get(catalog: &Catalog, name: &str) -> Option<Arc<Procedure>> {
        catalog.snapshot().get(name).cloned()
    }

    /// Replaces a file as one should, and looks until it is taken.
    fn replace(folder: &tempfile::TempDir, catalog: &Catalog, name: &str, text: &str) -> Look {
        let beside = folder.path().join("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, folder.path().join(name)).unwrap();
        assert!(catalog.refresh().unsettled);
        catalog.refresh()
    }

    #[test]
    fn only_files_with_proper_names_are_procedures() {
        let (_folder, catalog, _) = in_folder(&[
            ("a.lua", ""),
            ("b-c_2.x.lua", ""),
            ("notes.txt", ""),
            (".hidden.lua", ""),
            ("-x.lua", ""),
            ("with space.lua", ""),
            ("a.lua~", ""),
            (".lua", ""),
        ]);
        let mut names: Vec<_> = catalog.snapshot().keys().map(ToString::to_string).collect();
        names.sort();
        assert_eq!(names, ["a", "b-c_2.x", "sizecheck"]);
    }

    #[test]
    fn a_changed_file_is_taken_when_it_has_settled() {
        let (folder, catalog, _) = in_folder(&[("a.lua", "return 1")]);
        let (first, generation) = (get(&catalog, "a").unwrap(), catalog.generation());
        assert_eq!(catalog.refresh(), Look::default());
        std::fs::write(folder.path().join("a.lua"), "return 23").unwrap();
        assert!(catalog.refresh().unsettled);
        assert_eq!(get(&catalog, "a").unwrap().id, first.id);
        // It changes once more before the next look.
        std::fs::write(folder.path().join("a.lua"), "return 234").unwrap();
        assert!(catalog.refresh().unsettled);
        assert_eq!(catalog.refresh().news, ["/a: loaded again"]);
        let second = get(&catalog, "a").unwrap();
        assert_ne!(second.id, first.id);
        assert_eq!(second.loads, 2);
        assert!(Arc::ptr_eq(&first.stats, &second.stats));
        assert!(catalog.generation() > generation);
    }

    #[test]
    fn a_syntax_error_keeps_the_old_version_and_is_told() {
        let (folder, catalog, look) =
            in_folder(&[("a.lua", "return 1"), ("b.lua", "return return")]);
        assert!(
            look.news
                .iter()
                .any(|line| line.contains("/b cannot be loaded: b.lua:1:"))
        );
        assert!(matches!(get(&catalog, "b").unwrap().body, Body::Broken));
        let look = replace(&folder, &catalog, "a.lua", "return (");
        assert!(
            look.news[0].starts_with("/a cannot be loaded: a.lua:1:"),
            "{look:?}"
        );
        assert!(look.news[0].ends_with("the version before it stays"));
        let kept = get(&catalog, "a").unwrap();
        assert!(matches!(kept.body, Body::Lua(_)) && kept.load_error.is_some());
        // It is told once, not with every look.
        assert_eq!(catalog.refresh(), Look::default());
        replace(&folder, &catalog, "a.lua", "return 2");
        replace(&folder, &catalog, "b.lua", "return 2");
        for name in ["a", "b"] {
            let mended = get(&catalog, name).unwrap();
            assert!(matches!(mended.body, Body::Lua(_)) && mended.load_error.is_none());
        }
    }

    #[test]
    fn a_file_that_goes_is_gone_and_may_come_back() {
        let (folder, catalog, _) = in_folder(&[("a.lua", "return 1")]);
        let stats = get(&catalog, "a").unwrap().stats.clone();
        std::fs::remove_file(folder.path().join("a.lua")).unwrap();
        assert_eq!(catalog.refresh().news, ["/a: gone"]);
        assert!(matches!(get(&catalog, "a").unwrap().body, Body::Gone));
        replace(&folder, &catalog, "a.lua", "return 2");
        let back = get(&catalog, "a").unwrap();
        assert!(matches!(back.body, Body::Lua(_)) && Arc::ptr_eq(&back.stats, &stats));
    }

    #[test]
    fn a_reserved_name_and_a_huge_file_are_refused() {
        let huge = "-".repeat(SOURCE_MAX as usize + 1);
        let (_folder, catalog, look) =
            in_folder(&[("sizecheck.lua", "return 1"), ("h.lua", &huge)]);
        assert_eq!(look.news.len(), 2, "{look:?}");
        assert!(matches!(
            get(&catalog, "sizecheck").unwrap().body,
            Body::Sizecheck
        ));
        assert!(matches!(get(&catalog, "h").unwrap().body, Body::Broken));
    }

    #[test]
    fn the_examples_compile() {
        let given = crate::Config::embedded(None).procedures;
        let (catalog, _) = Catalog::load(given).unwrap();
        for (name, _) in crate::EXAMPLES {
            assert!(
                matches!(get(&catalog, name).unwrap().body, Body::Lua(_)),
                "{name}"
            );
        }
    }
}
