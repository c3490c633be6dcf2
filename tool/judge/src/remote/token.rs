//! The token of a watcher that listens. It never crosses the network: the client proves that it
//! knows it, by a hash of it and of a number that is new each time.

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// A shorter one can be guessed.
const SHORTEST: usize = 16;
const LONGEST: u64 = 4096;

/// Reads a token from a file that only its owner may read.
///
/// # Errors
/// What is wrong with the file, and what to do.
pub fn token(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot read the token in {}: {error}", path.display());
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!(
            "others may read {path} (mode {mode:o}): chmod 600 {path}"
        ));
    }
    let mut token = Vec::new();
    file.take(LONGEST).read_to_end(&mut token).map_err(cannot)?;
    let token = token.trim_ascii().to_vec();
    if token.len() < SHORTEST {
        let path = path.display();
        return Err(format!(
            "the token in {path} has less than {SHORTEST} bytes: openssl rand -hex 32 >{path}"
        ));
    }
    Ok(token)
}

/// A number that nobody has used.
pub(super) fn nonce() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(hex(&bytes))
}

/// Proof that one knows the token; empty where there is none.
pub(super) fn proof(token: Option<&[u8]>, nonce: &str) -> String {
    let digest = |token: &[u8]| {
        let inner = Sha256::new()
            .chain_update(token)
            .chain_update(nonce)
            .finalize();
        Sha256::new()
            .chain_update(token)
            .chain_update(inner)
            .finalize()
    };
    token.map_or_else(String::new, |token| hex(&digest(token)))
}

/// Whether this is that proof, in a time that does not tell how much of it is right.
pub(super) fn is_proof(given: &str, token: Option<&[u8]>, nonce: &str) -> bool {
    let right = proof(token, nonce);
    given.as_bytes().ct_eq(right.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_its_owner_s_alone_and_proof_of_it_is_good_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let with = |mode, text: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            token(&path)
        };
        let long = "0123456789abcdef\n";
        assert!(with(0o640, long).unwrap_err().contains("chmod 600"));
        assert!(with(0o600, "short\n").unwrap_err().contains("openssl rand"));
        let known = with(0o600, long).unwrap();
        assert_eq!(known, b"0123456789abcdef");
        let nonces = [nonce().unwrap(), nonce().unwrap()];
        let given = proof(Some(&known), &nonces[0]);
        assert!(is_proof(&given, Some(&known), &nonces[0]));
        assert!(!is_proof(&given, Some(&known), &nonces[1]));
        assert!(!is_proof(&given, Some(b"0123456789abcdee"), &nonces[0]));
        assert!(!is_proof("", Some(&known), &nonces[0]));
        assert!(is_proof("", None, &nonces[0]));
    }
}
