//! `--html FILE`: opens and writes the page's file. The report makes the page.

use crate::Failure;
use anyhow::{Context, anyhow};
use jostle_model::text::redacted;
use jostle_report::ResultSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that the page may be written to.
#[derive(Debug)]
pub(crate) struct Page {
    path: PathBuf,
    file: File,
    /// Whether this run created the file, and so removes it if nothing is written.
    new: bool,
}

/// Opens the file before anything is measured, so that a mistake in its name
/// costs no measurement. A page of jostle's is replaced, since it can be made
/// again from the results; anything else is not.
///
/// # Errors
/// Where the file holds something else, or the system refuses.
pub(crate) fn reserve(path: Option<&Path>) -> Result<Option<Page>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display();
    let new = !path.exists();
    let mut file = File::options()
        .read(!new)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| {
            format!("cannot open {name}; name a file with --html that you may write")
        })?;
    let ordinary = file.metadata().is_ok_and(|found| found.is_file());
    if !new && ordinary && !replaceable(&mut file).with_context(|| format!("cannot read {name}"))? {
        return Err(Failure::Failed(anyhow!(
            "{name} holds something else than a page of jostle's; name another file with --html"
        )));
    }
    let path = path.to_owned();
    Ok(Some(Page { path, file, new }))
}

/// Empty, or made by this program.
fn replaceable(file: &mut File) -> std::io::Result<bool> {
    let mut head = Vec::new();
    let length = jostle_report::MARK.len() as u64;
    file.take(length).read_to_end(&mut head)?;
    Ok(head.is_empty() || head == jostle_report::MARK.as_bytes())
}

/// Writes the page of these results.
///
/// # Errors
/// Whatever the system says, such as a full disk.
pub(crate) fn write(page: Option<Page>, sets: &[ResultSet]) -> anyhow::Result<()> {
    match page {
        Some(page) => write_text(page, &jostle_report::html(sets)),
        None => Ok(()),
    }
}

/// Writes this page.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_text(mut page: Page, text: &str) -> anyhow::Result<()> {
    page.new = false;
    let whole = page
        .begin()
        .and_then(|()| page.file.write_all(redacted(text).as_bytes()));
    whole.with_context(|| {
        let name = page.path.display();
        format!("cannot write {name}; `jostle report` makes the page again from what -o wrote")
    })
}

impl Page {
    /// Truncates the file and seeks to its start; devices and pipes allow neither. A file
    /// that was removed meanwhile is created again, because writing to the removed file
    /// would lose the page.
    fn begin(&mut self) -> std::io::Result<()> {
        let found = self.file.metadata()?;
        if !found.is_file() {
            return Ok(());
        }
        if found.nlink() == 0 {
            self.file = File::create_new(&self.path)?;
            return Ok(());
        }
        self.file.set_len(0)?;
        std::io::Seek::rewind(&mut self.file)
    }
}

impl Drop for Page {
    /// An empty page helps nobody; if it cannot be removed, it harms nobody.
    fn drop(&mut self) {
        if self.new {
            let _ = fs::remove_file(&self.path);
        }
    }
}
