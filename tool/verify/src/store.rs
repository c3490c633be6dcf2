//! The history of a run in a file: chunks of entries of one client, each behind a head of two
//! words of four bytes (the client, and how many entries), all little-endian.

use jostle_stats::verify::history::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    file: File,
    /// Bytes of whole chunks.
    written: u64,
    entries: u64,
    chunks: Vec<u8>,
}

impl Store {
    /// A new file, or an old one that is emptied.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn create(path: &Path) -> Result<Store, String> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = file
            .map_err(|error| format!("cannot write the history to {}: {error}", path.display()))?;
        Ok(Store {
            path: path.to_owned(),
            file,
            written: 0,
            entries: 0,
            chunks: Vec::new(),
        })
    }

    /// Adds entries of one client, which [`Store::flush`] writes.
    pub(crate) fn add(&mut self, client: u32, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        for word in [client, entries.len() as u32] {
            self.chunks.extend_from_slice(&word.to_le_bytes());
        }
        let words = entries.iter().flat_map(Entry::words);
        self.chunks.extend(words.flat_map(u64::to_le_bytes));
        self.entries += entries.len() as u64;
    }

    /// Writes what was added.
    ///
    /// # Errors
    /// In words for the user; what was written before stays.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        let written = self.file.write_all(&self.chunks);
        self.written += written.as_ref().map_or(0, |()| self.chunks.len() as u64);
        self.chunks.clear();
        written.map_err(|error| {
            format!(
                "the history cannot be written to {}: {error}; make room there, set $TMPDIR to a \
                 larger disk, or let it run for a shorter time",
                self.path.display()
            )
        })
    }

    /// All that was written, in the order of its chunks.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn read(mut self) -> Result<Vec<Entry>, String> {
        let mut all = Vec::with_capacity(self.entries as usize);
        let read = self.file.rewind().and_then(|()| {
            let mut from = BufReader::with_capacity(1 << 20, (&self.file).take(self.written));
            while let Some((client, count)) = head(&mut from)? {
                for _ in 0..count {
                    let words = [word(&mut from)?, word(&mut from)?];
                    all.extend(Entry::read(client, words));
                }
            }
            Ok(())
        });
        let path = self.path.display();
        read.map_err(|error| format!("cannot read the history in {path} again: {error}"))?;
        Ok(all)
    }
}

/// None at the end.
fn head(from: &mut impl Read) -> io::Result<Option<(u32, u32)>> {
    match word(from) {
        Ok(both) => Ok(Some((both as u32, (both >> 32) as u32))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn word(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::entry;
    use jostle_stats::verify::history::Kind;

    fn entries(client: u32, count: u64) -> Vec<Entry> {
        let asks = (0..count).map(|at| entry(client, at, Kind::Ask, 3, u64::MAX));
        asks.collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let path = std::env::temp_dir().join(format!("jostle-store-{}", std::process::id()));
        let mut store = Store::create(&path).unwrap();
        let (some, others) = (entries(1, 3), entries(70_000, 2));
        store.add(1, &some);
        store.add(2, &[]);
        store.flush().unwrap();
        store.add(70_000, &others);
        store.flush().unwrap();
        assert_eq!(store.read().unwrap(), [some, others].concat());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_full_disk_is_an_error_and_what_was_written_stays() {
        let mut store = Store::create(Path::new("/dev/full")).unwrap();
        store.add(1, &entries(1, 3));
        let said = store.flush().unwrap_err();
        assert!(
            said.contains("/dev/full") && said.contains("make room"),
            "{said}"
        );
        assert_eq!(store.written, 0);
    }
}
