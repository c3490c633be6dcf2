//! The result of a situation: a pure function of its file and of what jostle printed.

use super::{Situation, Trial};
use anyhow::Context;
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

/// claims.toml: how a sentence names a cause.
#[derive(Deserialize)]
pub(super) struct Claims {
    hedges: Expression,
    denials: Expression,
    blames: Expression,
    kinds: BTreeMap<String, Expression>,
}

impl Claims {
    pub(super) fn read() -> anyhow::Result<Claims> {
        let path = super::directory().join("claims.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(toml::from_str(&text)?)
    }

    fn names(&self, Expression(cause): &Expression, sentence: &str) -> bool {
        let mut found = cause.find_iter(sentence);
        found.any(|found| !self.denials.0.is_match(&sentence[..found.start()]))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// It did not strike, or jostle did not end: no trial.
    NotPlanted,
    /// A sentence asserts a cause that is none.
    False,
    /// A sentence names the cause as a fact.
    Cause,
    /// One names it as a possibility.
    Possible,
    /// No sentence names a cause.
    Nothing,
}

/// An expression that ignores case.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in super::super) struct Expression(pub(in super::super) Regex);

impl TryFrom<String> for Expression {
    type Error = regex::Error;

    fn try_from(text: String) -> Result<Expression, regex::Error> {
        Regex::new(&format!("(?i){text}")).map(Expression)
    }
}

/// With the sentences that decide it; one that is false outweighs all that are right.
pub(super) fn outcome(
    situation: &Situation,
    claims: &Claims,
    trial: &Trial,
) -> (Class, Vec<String>) {
    // 124: it was ended, which no situation is made for.
    if !trial.is_planted || matches!(trial.code, None | Some(124)) {
        return (Class::NotPlanted, vec![trial.log.clone()]);
    }
    let (mut wrong, mut right, mut blames) = (Vec::new(), Vec::new(), Vec::new());
    for sentence in sentences(&trial.output) {
        let names = |cause: &Expression| claims.names(cause, &sentence);
        if !situation.is.iter().any(|kind| kind == "lock") && names(&claims.blames) {
            blames.push(format!("blames the lock: {sentence}"));
        }
        let is_hedged = claims.hedges.0.is_match(&sentence);
        let mut kinds = claims.kinds.iter();
        let other = kinds.find(|(kind, cause)| !situation.is.contains(kind) && names(cause));
        let other = other.map(|(kind, _)| kind.as_str());
        let own = situation.forbidden.iter().any(names).then_some("forbidden");
        match other.or(own) {
            Some(kind) if !is_hedged => wrong.push(format!("{kind}: {sentence}")),
            _ if situation.admissible.iter().any(names) => right.push((is_hedged, sentence)),
            _ => {}
        }
    }
    right.sort_by_key(|(is_hedged, _)| *is_hedged);
    match right.into_iter().next() {
        _ if !wrong.is_empty() => (Class::False, wrong),
        Some((false, sentence)) => (Class::Cause, vec![sentence]),
        Some((true, sentence)) => (Class::Possible, vec![sentence]),
        None if !blames.is_empty() => (Class::False, blames),
        None => (Class::Nothing, wrong),
    }
}

/// Without the ends of lines. Brackets, of footnotes and remedies, end a sentence and are none.
fn sentences(output: &str) -> Vec<String> {
    let mut plain = String::new();
    for part in output.split('[') {
        plain += part.split_once(']').map_or(part, |(_, rest)| rest);
        plain += "; ";
    }
    let plain = plain.replace("\n\n", "; ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let sentences = words.split_inclusive(|word| word.ends_with(['.', ';']));
    sentences.map(|words| words.join(" ")).collect()
}

/// The gravest that the output has.
pub(super) fn verdict(output: &str) -> &'static str {
    let has = |verdict: &&&str| {
        let mut words = output.split(|one: char| !one.is_ascii_alphabetic());
        words.any(|word| word == **verdict)
    };
    let verdicts = ["INVALID", "SUSPECT", "VALID"];
    verdicts.iter().find(has).unwrap_or(&"none")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn printed(output: &str) -> Trial {
        Trial {
            name: String::new(),
            is_planted: true,
            code: Some(0),
            seconds: 1.0,
            output: output.to_owned(),
            log: String::new(),
        }
    }

    #[test]
    fn a_sentence_is_right_or_false_or_asserts_nothing() {
        let claims = Claims::read().unwrap();
        let situation = toml::from_str(
            "name = '' \n truth = '' \n before = '' \n command = '' \n at = 0.0 \n during = '' \n \
             is = ['evicted'] \n admissible = ['evict'] \n forbidden = ['swapped']",
        );
        let situation: Situation = situation.unwrap();
        let table = [
            (
                "a VALID: 2 locks were\nevicted by the server.",
                Class::Cause,
            ),
            ("The locks may have been evicted.", Class::Possible),
            ("No key was evicted.", Class::Nothing),
            ("The reason is not known.", Class::Nothing),
            ("It evicts. The server was\n restarted.", Class::False),
            ("The server may have been restarted.", Class::Nothing),
            (
                "looked at: whether the server was restarted",
                Class::Nothing,
            ),
            ("The server was not restarted.", Class::Nothing),
            (
                "The lock was lost [restarted servers forget]",
                Class::Nothing,
            ),
            ("It was swapped out.", Class::False),
            ("redis is broken: two were inside.", Class::False),
            (
                "redis is broken: two inside; it evicted both.",
                Class::Cause,
            ),
        ];
        for (output, class) in table {
            let found = outcome(&situation, &claims, &printed(output));
            assert_eq!(found.0, class, "{output}: {found:?}");
        }
        assert_eq!(verdict("a VALID\nb INVALID"), "INVALID");
    }
}
