//! What goes to the log.

/// Without line ends and other control characters: what a procedure says, or the
/// interpreter quotes of it, must not steer a terminal or look like another line.
pub(crate) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}
