//! Sizes in settings.

use serde::Deserialize;

/// A number of bytes, written as `65536`, `64K`, `1M` or `2G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SizeText")]
pub struct Size(pub usize);

#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Number(usize),
    Text(String),
}

impl TryFrom<SizeText> for Size {
    type Error = String;

    fn try_from(text: SizeText) -> Result<Self, String> {
        match text {
            SizeText::Number(bytes) => Ok(Self(bytes)),
            SizeText::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size such as 65536, 64K, 1M or 2G");
        let (digits, shift) = match text.chars().last().map(|unit| unit.to_ascii_uppercase()) {
            Some('K') => (&text[..text.len() - 1], 10),
            Some('M') => (&text[..text.len() - 1], 20),
            Some('G') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let number: usize = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_none_and_fits_into_memory() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64K", 65_536),
            ("64k", 65_536),
            ("1M", 1 << 20),
            ("2G", 2 << 30),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "K", "1T", "-1", "1.5M", "18446744073709551615K", "1 M"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_may_have_a_number_or_a_text() {
        #[derive(Deserialize)]
        struct File {
            size: Size,
        }
        for text in ["size = 2048", "size = '2K'"] {
            assert_eq!(toml::from_str::<File>(text).unwrap().size, Size(2048));
        }
        assert!(toml::from_str::<File>("size = 'much'").is_err());
    }
}
