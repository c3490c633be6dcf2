//! `--html FILE`: opens and writes the page's file. The report makes the page.

use crate::Failure;
use anyhow::{Context, anyhow};
use jostle_model::text::redacted;
use jostle_report::{FileError, ResultSet, Writer};
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

/// Opens the files of -o and --html, as [`reserve`] and `open` do. The page
/// comes first, because reserving it changes nothing that could not be taken back.
///
/// # Errors
/// As those two, and where both are the same file.
pub(crate) fn reserve_both(
    output: Option<&Path>,
    open: &dyn Fn(&Path) -> Result<Writer, FileError>,
    page: Option<&Path>,
) -> Result<(Option<Writer>, Option<Page>), Failure> {
    refuse_one_file(output, page)?;
    let reserved = reserve(page)?;
    // Once more: two names of a file that did not exist, such as a link and what it points
    // to, are known to be the same only now.
    refuse_one_file(output, page)?;
    let writer = output.map(open);
    let writer = writer.transpose().map_err(anyhow::Error::from)?;
    Ok((writer, reserved))
}

/// Refuses one file for both, because the page would be written over the result.
fn refuse_one_file(output: Option<&Path>, page: Option<&Path>) -> Result<(), Failure> {
    match (output, page) {
        (Some(output), Some(page)) if is_one_file(output, page) => Err(Failure::Usage(format!(
            "-o {} and --html {} are the same file; name another file with --html",
            output.display(),
            page.display()
        ))),
        _ => Ok(()),
    }
}

/// Whether both names lead to the same regular file. Devices may be named twice.
fn is_one_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => false,
    }
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
            "jostle did not write {name} and does not replace it; name another file with --html"
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
            // If the name is a link, the file that was created is the one behind it.
            let created = fs::canonicalize(&self.path);
            let _ = fs::remove_file(created.as_ref().unwrap_or(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(output: &Path, page: &Path) -> String {
        match reserve_both(Some(output), &|path| Writer::create(path, true), Some(page)) {
            Err(Failure::Usage(text)) => text,
            Err(Failure::Failed(error)) => format!("failed: {error:#}"),
            Ok(_) => "accepted".to_owned(),
        }
    }

    #[test]
    fn one_file_for_the_result_and_its_page_is_refused_and_stays_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        let same = directory.path().join("./x");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("x", &link).unwrap();
        for (output, page) in [(&file, &same), (&link, &file), (&file, &link)] {
            let said = refusal(output, page);
            assert!(said.contains("name another file with --html"), "{said}");
            assert!(!file.exists(), "{} {}", output.display(), page.display());
        }
        fs::write(&file, "results").unwrap();
        let said = refusal(&link, &file);
        assert!(said.contains("are the same file"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "results");
        let device = Path::new("/dev/null");
        assert_eq!(refusal(device, device), "accepted");
    }

    #[test]
    fn a_page_that_cannot_be_written_costs_no_old_result() {
        let directory = tempfile::tempdir().unwrap();
        let [old, notes] = ["old.jsonl", "notes.txt"].map(|name| directory.path().join(name));
        fs::write(&old, "results").unwrap();
        fs::write(&notes, "notes").unwrap();
        let said = refusal(&old, &notes);
        assert!(said.contains("does not replace it"), "{said}");
        assert_eq!(fs::read_to_string(&old).unwrap(), "results");
        // Nor does a refused result leave an empty page.
        let page = directory.path().join("page.html");
        assert!(
            reserve_both(Some(&old), &|path| Writer::create(path, false), Some(&page)).is_err()
        );
        assert!(!page.exists());
    }
}
