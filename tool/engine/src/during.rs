//! The command of `--during`, before it is started.

/// The words of a command, as a shell would split them, with `{pid}` (the first)
/// and `{pids}` (all, with commas) in place. None if a quote has no end or there
/// is no word.
pub(crate) fn words(command: &str, pids: &[u32]) -> Option<Vec<String>> {
    let all: Vec<String> = pids.iter().map(u32::to_string).collect();
    let first = all.first().cloned().unwrap_or_default();
    let words = shlex::split(command)?;
    let filled = words.iter().map(|word| {
        word.replace("{pids}", &all.join(","))
            .replace("{pid}", &first)
    });
    Some(filled.collect()).filter(|words: &Vec<String>| !words.is_empty())
}
