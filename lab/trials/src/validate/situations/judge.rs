//! What came of a situation: a pure function of its file and of what jostle printed.

use super::Situation;
use anyhow::Context;
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

/// claims.toml: how a sentence names a cause.
#[derive(Deserialize)]
pub(super) struct Claims {
    hedges: String,
    denials: String,
    kinds: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// Sentences that assert what is not so, each with its kind of cause.
    False(Vec<(String, String)>),
    /// A sentence names the cause, as a fact or as a possibility.
    Cause { is_asserted: bool, sentence: String },
    /// No sentence names a cause.
    NoCause,
}

impl Outcome {
    /// As the table prints it.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Outcome::False(_) => "FALSE",
            Outcome::Cause {
                is_asserted: true, ..
            } => "cause",
            Outcome::Cause { .. } => "possible cause",
            Outcome::NoCause => "no cause",
        }
    }
}

impl Claims {
    pub(super) fn read() -> anyhow::Result<Claims> {
        let path = super::directory().join("claims.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(toml::from_str(&text)?)
    }
}

/// One that is false outweighs all that are right.
pub(super) fn outcome(
    situation: &Situation,
    claims: &Claims,
    output: &str,
) -> anyhow::Result<Outcome> {
    let [hedges, denials] = [expression(&claims.hedges)?, expression(&claims.denials)?];
    let sentences = sentences(output)?;
    let names = |expression: &Regex, sentence: &str| {
        let mut found = expression.find_iter(sentence);
        found.any(|found| !denials.is_match(&sentence[..found.start()]))
    };
    let others = claims
        .kinds
        .iter()
        .filter(|(kind, _)| !situation.is.contains(kind));
    let own = situation.forbidden.iter();
    let forbidden = others
        .map(|(kind, text)| (kind.as_str(), text))
        .chain(own.map(|text| ("forbidden", text)));
    let mut wrong = Vec::new();
    for (kind, text) in forbidden {
        let expression = expression(text)?;
        for sentence in &sentences {
            if !hedges.is_match(sentence) && names(&expression, sentence) {
                wrong.push((kind.to_owned(), sentence.clone()));
            }
        }
    }
    if !wrong.is_empty() {
        return Ok(Outcome::False(wrong));
    }
    let mut right: Vec<(bool, &String)> = Vec::new();
    for text in &situation.admissible {
        let expression = expression(text)?;
        let found = sentences
            .iter()
            .filter(|sentence| names(&expression, sentence));
        right.extend(found.map(|sentence| (!hedges.is_match(sentence), sentence)));
    }
    let best = right
        .into_iter()
        .max_by_key(|(is_asserted, _)| *is_asserted);
    Ok(
        best.map_or(Outcome::NoCause, |(is_asserted, sentence)| Outcome::Cause {
            is_asserted,
            sentence: sentence.clone(),
        }),
    )
}

/// Without remedies, which stand in brackets, and without the ends of lines.
fn sentences(output: &str) -> anyhow::Result<Vec<String>> {
    let plain = expression(r"\[[^\]]*\]")?.replace_all(output, "");
    let ends = expression(r"[.;]\s+|\n\s*\n")?;
    let words = |sentence: &str| sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = ends.split(&plain).map(words);
    Ok(all.filter(|sentence| !sentence.is_empty()).collect())
}

fn expression(text: &str) -> anyhow::Result<Regex> {
    Regex::new(&format!("(?i){text}")).with_context(|| format!("`{text}`"))
}

/// The gravest that the output has.
pub(super) fn verdict(output: &str) -> &'static str {
    let words = || output.split(|one: char| !one.is_ascii_alphabetic());
    let has = |verdict: &&&str| words().any(|word| word == **verdict);
    ["INVALID", "SUSPECT", "VALID"]
        .iter()
        .find(has)
        .unwrap_or(&"none")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the forty are judged by, of one that is not among them.
    #[test]
    fn a_sentence_is_right_or_false_or_asserts_nothing() {
        let claims = Claims::read().unwrap();
        let situation = toml::from_str(
            "name = '' \n truth = '' \n before = '' \n command = '' \n at = 0.0 \n during = '' \n \
             is = ['evicted'] \n admissible = ['evict'] \n forbidden = ['swapped']",
        );
        let situation: Situation = situation.unwrap();
        let table = [
            ("2 of 30 locks were\nevicted by the server.", "cause"),
            ("The locks may have been evicted.", "possible cause"),
            ("No key was evicted.", "no cause"),
            ("The reason is not known.", "no cause"),
            ("The server was restarted.", "FALSE"),
            (
                "It evicts. The server was\n restarted; its memory was gone.",
                "FALSE",
            ),
            ("The server may have been restarted.", "no cause"),
            ("looked at: whether the server was restarted", "no cause"),
            ("The server was not restarted.", "no cause"),
            (
                "The lock was lost [was it restarted? restarted servers forget]",
                "no cause",
            ),
            ("It was swapped out.", "FALSE"),
        ];
        for (output, class) in table {
            let found = outcome(&situation, &claims, output).unwrap();
            assert_eq!(found.class(), class, "{output}: {found:?}");
        }
    }

    #[test]
    fn the_gravest_verdict_counts() {
        assert_eq!(verdict("a VALID\nb INVALID"), "INVALID");
        assert_eq!(verdict("error"), "none");
    }
}
