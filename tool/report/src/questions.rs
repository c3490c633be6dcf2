//! Ten questions that pages of lab/record must answer by their title and first figure alone: no
//! later title may lose the words of an answer. They were chosen with the titles in view. Titles and
//! a question were changed after the first of two readers who had seen neither code nor program;
//! the second answered ten of ten, nine of them surely.

use crate::{html, read_from};
use std::path::Path;

/// Question, record, which of its experiments, words of the answer.
const QUESTIONS: &str = "\
From how many open connections on does connect() get slow, and by how much? | connect-20k | 1 | 15,000 open | 73 times | 73x
What does connect() cost with a million connections open? | connect-1M | 1 | 5.8 us in the median with 1,000 open | 9.2 us with 1,000,000
Is there such a cliff for Unix sockets? | connect-unix | 1 | connect() has no jump | 40,000 open
Which way to call a program is the cheapest: a process each time, a thin client, or a connection? | scope | 1 | procd 3.5 us | procd-call 45 us | 642 us
Who was the limit when the generators were weak? | cern | 1 | With 3 and 6 generators the generators were the limit | gen.
Who was the limit when they were strong? | cern | 2 | the server was the limit | server
How long does a lock stay taken when its owner is killed? | recover-zookeeper | 1 | zookeeper owner killed median 2.55 s
Which server needs less CPU for a held lock, lockd or redis? | old | 5 | The server of redis uses | lockd 453 ns | redis 2.7 us
Which of the two answers faster when two workers ask for one lock after another? | old | 2 | p99 time to acquire | lockd 28 us | redis 1.1 ms
Which of flock, fcntl and sysv is the fairest? | lockscale | 1 | flock 3 to 18 (varied as by lot) | sysv 9 to 10 (in order)";

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
    assert_eq!(QUESTIONS.lines().count(), 10);
    for row in QUESTIONS.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [question, record, experiment, words @ ..] = &cells[..] else {
            panic!("{row}")
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let text = std::fs::read_to_string(folder.join(format!("{record}.jsonl"))).unwrap();
        let sets = read_from(&mut text.as_bytes(), record).unwrap();
        let nth: usize = experiment.parse().unwrap();
        let seen = first_sight(&html(&sets[nth - 1..nth]));
        assert!(!words.is_empty(), "{row}");
        for word in words {
            assert!(seen.contains(word), "{question}: no {word} in {seen}");
        }
    }
}
