//! Lines of a log.

/// Without line ends and other control characters: names and messages of others must
/// not steer a terminal or look like another line.
#[must_use]
pub fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_blanks() {
        assert_eq!(one_line("a\nb\x1b[2J\té"), "a b [2J é");
    }
}
