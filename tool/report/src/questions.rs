//! Ten questions that pages of lab/record must answer by their title and first figure alone, and ten
//! that the terminal must answer: no later wording may lose the words of an answer. The former were
//! chosen with the titles in view. Titles and a question were changed after the first of two readers
//! who had seen neither code nor program; the second answered ten of ten, nine of them surely. Two
//! such readers answered four and five of ten questions about the terminal surely; the sentences were
//! then changed, and these questions taken from theirs.

use crate::{ResultSet, html, read_from, render};
use std::path::Path;

/// Question, record, which of its experiments, words of the answer.
const QUESTIONS: &str = "\
From how many open connections on does connect() get slow, and by how much? | connect-20k | 1 | 16,000 open | 35 times | 35x
What does connect() cost with a million connections open? | connect-1M | 1 | 5.8 us in the median with 1,000 open | 9.2 us with 1,000,000
Is there such a cliff for Unix sockets? | connect-unix | 1 | connect() has no jump | 40,000 open
Which way to call a program is the cheapest: a process each time, a thin client, or a connection? | scope | 1 | procd 26 us | procd-call 225 us | 1.8 ms
Who was the limit when the generators were weak? | cern | 1 | With 3 generators the generators were the limit | gen.
Who was the limit when they were strong? | cern | 2 | the server was the limit | server
How long does a lock stay taken when its owner is killed? | recover-zookeeper | 1 | zookeeper owner killed median 2.55 s
Which server needs less CPU for a held lock, lockd or redis? | old | 5 | The server of redis uses | lockd 1.1 us | redis 5.9 us
Which of the two answers faster when two workers ask for one lock after another? | old | 2 | p99 time to acquire | lockd 105 us | redis 2.3 ms
Which of flock and sysv is fairer with 200 processes? | lockscale | 1 | flock 33 to 74 (varied as if drawn at random) | sysv 52 to 53 (in order)";

/// Questions that the printed table and its lines must answer, in the same columns.
const IN_A_TERMINAL: &str = "\
Which of flock and sysv serves its workers more evenly? | contend | 1 | The targets differ in the order of service | (in order)
Is one of the two faster, and what would show it? | contend | 1 | a hold of 1 ms allows 1,000 locks/s at most | all come close to it (flock 962, sysv 959) | -b 0 -i 0
Which service does most with 100 clients, by how much, and what do others need more of? | services | 1 | lockd did | not judged, see the notes: zookeeper | ahead of mariadb, the second | Round trips per lock grow
Why has a service no figures, and what should one do? | services | 1 | undisturbed it would be 0.50 to 1.04 times as much (--wait-quiet 60s)
Is one service faster with 1,000 clients, and how sure is that? | services | 2 | the locks/s of memcached with 1,000 workers | 1 run, not tested | INVALID: redis, postgres | too few to tell: redisson, memcached
What does a held lock take of the server's memory? | services | 3 | The server's memory for each held lock: lockd 88 bytes
How soon is a lock granted again after a fault? | services | 4 | Worst case: lockd 12 ms (server killed), redis 1.9 s (owner paused)
From how many connections on is connect() slow, why, and how is that avoided? | connect-20k | 1 | Cliff | Why | Avoid
Were three weak generators the limit, or the server? | cern | 1 | With 3 generators the generators were the limit
Did two clients own the lock after its leader was killed? | failover | 1 | no two owners were entitled to a lock at a time";

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
    are_answered(QUESTIONS, |sets| first_sight(&html(sets)));
}

#[test]
fn the_terminal_answers_its_questions() {
    are_answered(IN_A_TERMINAL, |sets| {
        let words = render("table", sets);
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    });
}

fn are_answered(questions: &str, shown: fn(&[ResultSet]) -> String) {
    assert_eq!(questions.lines().count(), 10);
    for row in questions.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [question, record, experiment, words @ ..] = &cells[..] else {
            panic!("{row}")
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let text = std::fs::read_to_string(folder.join(format!("{record}.jsonl"))).unwrap();
        let sets = read_from(&mut text.as_bytes(), record).unwrap();
        let nth: usize = experiment.parse().unwrap();
        let seen = shown(&sets[nth - 1..nth]);
        assert!(!words.is_empty(), "{row}");
        for word in words {
            assert!(seen.contains(word), "{question}: no {word} in {seen}");
        }
    }
}
