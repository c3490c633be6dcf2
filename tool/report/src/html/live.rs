//! The page of `--live`: empty until its script has read the events that the program sends.
//! It has the style of the page of `--html`, and its table.

use super::chapter::chapters;
use super::{STYLE, headline};
use crate::ResultSet;
use crate::page::pages;
use jostle_model::text::printable;
use maud::{DOCTYPE, PreEscaped, html};

const LIVE_STYLE: &str = include_str!("live.css");
const LIVE_SCRIPT: &str = include_str!("live.js");

/// The content policy of a page whose style and script carry this nonce: no other script is
/// heeded, style besides in attributes alone (headings of cards), and only the place that the
/// page came from is asked for events.
pub fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; style-src-attr 'unsafe-inline'; \
         script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// The page.
pub fn page(nonce: &str) -> String {
    let figures = [
        ("Throughput", "throughput"),
        ("Latency", "latency"),
        ("CPUs in use", "cpus"),
        ("CPUs in use, last finished run", "owners"),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Or browsers ask for one, without the token.
                link rel="icon" href="data:,";
                title { "jostle" }
                style nonce=(nonce) { (PreEscaped(STYLE)) (PreEscaped(LIVE_STYLE)) }
            }
            body {
                header { h1 #title { "jostle" } span #link role="status" { "connecting" } }
                main {
                    p #progress .intro {}
                    p #run .note {}
                    dl.facts { @for (name, id) in figures {
                        div { dt id=[(id == "latency").then_some("timed")] { (name) } dd id=(id) { "none yet" } }
                    } }
                    figure.live {
                        figcaption { strong { "Fairness" } " " span.note { "operations of each worker of the run, ascending" } }
                        div #drawing {}
                        p #served .note {}
                    }
                    h3 { "Finished points" }
                    div #results { p.note { "none yet" } }
                }
                script nonce=(nonce) { (PreEscaped(LIVE_SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The part of the page of `--html` above its figures: the table of finished points with verdicts
/// and sentences.
pub fn results(sets: &[ResultSet]) -> String {
    let chapters = chapters(sets);
    let pages = pages(sets);
    let results = html! {
        @for chapter in &chapters {
            @for (set, label) in chapter.sets.iter().zip(&chapter.labels) {
                (headline(label, *set, &sets[*set], &pages[*set]))
            }
        }
    };
    printable(&results.into_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html, made};

    #[test]
    fn it_needs_nothing_from_elsewhere_and_every_part_has_the_nonce() {
        let page = page("abc");
        for part in ["<style", "<script"] {
            assert_eq!(page.matches(part).count(), 1);
            assert!(page.contains(&format!("{part} nonce=\"abc\">")), "{part}");
        }
        for outside in ["http://", "https://", "src=", " style=", "onclick"] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside}");
        }
        let policy = policy("abc");
        assert!(policy.starts_with("default-src 'none'"));
        assert_eq!(policy.matches("unsafe-inline").count(), 1, "{policy}");
    }

    #[test]
    fn the_table_is_that_of_the_page() {
        let set = made::set();
        let results = results(std::slice::from_ref(&set));
        assert!(results.contains("table class=\"headline cards points\""));
        assert!(html(&[set]).contains(&results), "{results}");
    }
}
