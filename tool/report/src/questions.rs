//! Ten questions and their answers in `lab/record/ten-questions.md`: each
//! page must answer by its title and its first figure.

use crate::{html, read_from};
use std::path::Path;

const QUESTIONS: &str = include_str!("../../../lab/record/ten-questions.md");

/// The title, and of the first figure the title and the labels.
fn first_sight(page: &str) -> String {
    let between = |text: &str, from: &str, to: &str| -> String {
        let begun = text.split(from).nth(1).unwrap_or_default();
        begun.split(to).next().unwrap_or_default().to_owned()
    };
    let figure = between(page, "<figure", "</figure>");
    let mut seen = between(page, "<h1>", "</h1>");
    seen += &format!(" <b>{}</b>", between(&figure, "<strong>", "</strong>"));
    let texts = figure.split("<text class=\"").skip(1);
    for text in texts.filter(|text| text.starts_with("label") || text.starts_with("tag")) {
        seen += &format!(
            " <i{}",
            text.split_once('>')
                .map_or("", |(_, rest)| rest)
                .split("</text>")
                .next()
                .unwrap_or_default()
        );
    }
    let words = seen
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    words
        .collect::<String>()
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[test]
fn the_title_and_the_first_figure_of_each_page_answer_its_question() {
    let rows = QUESTIONS
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2);
    let mut answered = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [question, record, experiment, words] = cells[..] else {
            panic!("{row}")
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let text = std::fs::read_to_string(folder.join(format!("{record}.jsonl"))).unwrap();
        let sets = read_from(&mut text.as_bytes(), record).unwrap();
        let nth: usize = experiment.parse().unwrap();
        let seen = first_sight(&html(&sets[nth - 1..nth]));
        for word in words.split('`').skip(1).step_by(2) {
            assert!(seen.contains(word), "{question}: no {word} in {seen}");
        }
        answered += 1;
    }
    assert_eq!(answered, 10);
}
