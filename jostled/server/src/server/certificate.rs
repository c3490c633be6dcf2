//! The common name in a client's certificate.

use rustls::pki_types::CertificateDer;

/// The object identifier 2.5.4.3, encoded.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The last common name of a certificate's subject, as RFC 5280 orders them; the
/// certificate was verified before.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut found = None;
    // Sets of pairs: an identifier and a text.
    let mut sets = certificate.subject();
    while let Some((_, mut pairs, rest)) = element(sets) {
        sets = rest;
        while let Some((_, pair, rest)) = element(pairs) {
            pairs = rest;
            let (tag, identifier, text) = element(pair)?;
            if tag == OBJECT_IDENTIFIER && identifier == COMMON_NAME {
                found = element(text).map(|(_, text, _)| text.to_vec());
            }
        }
    }
    found
}

/// The first element of an encoding (DER): its tag, what it holds, and what
/// follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits
            .iter()
            .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use super::element;

    #[test]
    fn elements_are_cut_out_and_cut_off_ones_refused() {
        assert_eq!(element(&[4, 2, 1, 2, 9]), Some((4, &[1, 2][..], &[9][..])));
        assert_eq!(element(&[4, 0x81, 1, 7]), Some((4, &[7][..], &[][..])));
        for cut in [
            &[][..],
            &[4],
            &[4, 2, 1],
            &[4, 0x82, 1],
            &[4, 0x85, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(element(cut), None, "{cut:?}");
        }
    }
}
