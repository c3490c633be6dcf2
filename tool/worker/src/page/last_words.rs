//! The message that a failed worker leaves in its page.

use super::{MESSAGE_AT, MESSAGE_WORDS, Page, Stage, Word};
use jostle_targets::CallError;
use std::sync::atomic::Ordering::Relaxed;

impl Page<'_> {
    /// Leaves the error that ended the worker.
    pub(crate) fn fail(&self, errno: i32, message: &str) {
        self.fail_as("", errno, message);
    }

    fn fail_as(&self, name: &str, errno: i32, message: &str) {
        self.write_message(&format!("{name}{message}"));
        self.set(Word::NameBytes, name.len() as u64);
        self.set(Word::Errno, errno.unsigned_abs().into());
        self.set(Word::Stage, Stage::Failed as u64);
    }

    /// Leaves the failed call that ended the worker at this stamp.
    pub(crate) fn failed(&self, error: &CallError, now: u64) {
        let granted = self.get(Word::GrantedAt);
        if self.get(Word::PendingSince) == 0 && granted > 0 {
            self.set(Word::HeldFor, now.saturating_sub(granted));
        }
        self.set(Word::FoundLost, error.is_lost().into());
        self.set(Word::FailedAt, now);
        let name = error.name.unwrap_or_default();
        self.fail_as(name, error.errno, &error.to_string());
    }

    fn write_message(&self, message: &str) {
        let bytes: Vec<u8> = message.bytes().take(MESSAGE_WORDS * 8).collect();
        for (word, chunk) in bytes.chunks(8).enumerate() {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            self.own(MESSAGE_AT + word)
                .store(u64::from_le_bytes(raw), Relaxed);
        }
        self.set(Word::MessageBytes, bytes.len() as u64);
    }

    /// The error that ended the worker, if there is one.
    pub fn message(&self) -> Option<String> {
        Some(self.failure()?.1)
    }

    /// The message behind its error's own name, which is empty where it has none.
    pub fn failure(&self) -> Option<(String, String)> {
        let bytes = usize::try_from(self.get(Word::MessageBytes)).ok()?;
        let text: Vec<u8> = (0..MESSAGE_WORDS)
            .flat_map(|word| self.own(MESSAGE_AT + word).load(Relaxed).to_le_bytes())
            .take(bytes)
            .collect();
        let (name, text) = text.split_at_checked(self.get(Word::NameBytes) as usize)?;
        let [name, text] = [name, text].map(|part| String::from_utf8_lossy(part).into_owned());
        (bytes > 0).then_some((name, text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shared;
    use super::*;

    #[test]
    fn last_words_survive_their_worker() {
        let shared = Shared::new(1).unwrap();
        let page = shared.page(0);
        assert_eq!(page.message(), None);
        page.fail(28, "semget: no space left");
        assert_eq!(page.message().as_deref(), Some("semget: no space left"));
        let own = CallError::saying("SET", rustix::io::Errno::PROTO, "OOM full").named("OOM");
        page.failed(&own, 9);
        let told = ("OOM".to_owned(), "SET: OOM full".to_owned());
        assert_eq!(page.failure(), Some(told));
        page.fail(1, &"x".repeat(10_000));
        assert_eq!(page.message().map(|m| m.len()), Some(MESSAGE_WORDS * 8));
    }
}
