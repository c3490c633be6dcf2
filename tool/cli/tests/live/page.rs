//! The page as a reader sees it: on a phone and on a screen nothing is cut off and no words
//! lie on each other, whichever record it shows; the conclusion stands first. Labels,
//! figures as files, and the page of a comparison.

use crate::common::browser::{Browser, load_and_do};
use crate::common::{Place, beside, flat, must_have};
use std::fs;
use std::path::{Path, PathBuf};

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/record");
const PAGES_OF_TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages");
const COMPARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compare.in");

/// Every result file of record/; the other files there are series of the lab.
fn records() -> Vec<PathBuf> {
    let files = fs::read_dir(RECORDS).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        let result = file.extension().is_some_and(|ending| ending == "jsonl");
        result
            && fs::read_to_string(file)
                .unwrap()
                .starts_with("{\"record\":\"experiment\"")
    });
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    files
}

/// By how much a page is too wide, the words of figures that lie on others, and the tables
/// whose columns are out of sight.
const LOOK: &str = "
    const apart = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) <= 1
        || Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) <= 3;
    const width = innerWidth;
    const over = [], cut = [];
    for (const chart of document.querySelectorAll('svg.chart')) {
        const words = [...chart.querySelectorAll('text')]
            .filter(t => t.textContent.trim() && t.getClientRects().length)
            .map(t => [t.textContent, t.getBoundingClientRect()]);
        words.forEach(([text, box], at) => {
            for (const [other, its] of words.slice(at + 1)) {
                if (!apart(box, its)) over.push([chart.getAttribute('aria-label'), text, other]);
            }
            if (box.left < -1 || box.right > width + 1) over.push([text, 'is outside']);
        });
    }
    for (const table of document.querySelectorAll('table.headline')) {
        const around = table.parentNode;
        if (around.scrollWidth > around.clientWidth + 1) cut.push(table.innerText.slice(0, 60));
    }
    const charts = document.querySelectorAll('svg.chart').length;
    Object.assign(found, { width, scroll: document.documentElement.scrollWidth, over, cut, charts });
";

/// The look of a page at these widths.
fn looked_at(browser: &mut Browser, page: &Path, widths: &[u32]) -> Vec<serde_json::Value> {
    browser.go(page, "");
    let look = |width: &u32| {
        browser.width(*width);
        browser.run(LOOK)
    };
    let looks = widths.iter().map(look).collect();
    assert_eq!(browser.console, [""; 0]);
    looks
}

/// Nothing of a page is cut off, and no words lie on each other.
#[track_caller]
fn fits(name: &str, frame: &serde_json::Value) {
    let (width, scroll) = (frame["width"].as_u64(), frame["scroll"].as_u64());
    assert!(scroll <= width && width > Some(0), "{name}: {frame}");
    for part in ["over", "cut"] {
        let faults = frame[part].as_array().unwrap();
        assert!(faults.is_empty(), "{name}, {part}: {frame}");
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn no_record_is_cut_off_on_a_phone_or_a_screen_and_no_words_lie_on_each_other() {
    let place = Place::beside_others();
    let mut browser = Browser::open(&place);
    for record in records() {
        let name = record.file_stem().unwrap().to_string_lossy().into_owned();
        let line = format!("report {} --html {name}.html", record.display());
        place.jostle(&line).exits(0);
        let page = place.file(&format!("{name}.html"));
        for frame in looked_at(&mut browser, &page, &[400, 1300]) {
            fits(&name, &frame);
            assert!(frame["charts"].as_u64() > Some(0), "{frame}");
        }
    }
}

#[test]
fn a_name_of_200_letters_fits_a_phone() {
    let place = Place::beside_others();
    let record = fs::read_to_string(format!("{RECORDS}/default.jsonl")).unwrap();
    let name = format!("\"lib:/{}x.so\"", "verylongdirectory/".repeat(11));
    fs::write(place.file("long.jsonl"), record.replace("\"flock\"", &name)).unwrap();
    place.jostle("report long.jsonl --html long.html").exits(0);
    let mut browser = Browser::open(&place);
    let frames = looked_at(&mut browser, &place.file("long.html"), &[390, 1280]);
    assert_eq!(frames.len(), 2);
    frames.iter().for_each(|frame| fits("long", frame));
}

#[test]
fn the_look_finds_words_that_lie_on_each_other_and_a_page_that_is_too_wide() {
    let place = Place::beside_others();
    let page = place.file("bad.html");
    let bad = "<!DOCTYPE html><meta name=\"viewport\" content=\"width=device-width\"><div \
               style=\"width:900px\">wide</div><svg class=\"chart\" width=\"90\" height=\"90\"><text \
               x=\"5\" y=\"20\">one</text><text x=\"9\" y=\"20\">other</text></svg>";
    fs::write(&page, bad).unwrap();
    let frames = looked_at(&mut Browser::open(&place), &page, &[400]);
    assert!(
        frames[0]["scroll"].as_u64() > frames[0]["width"].as_u64(),
        "{frames:?}"
    );
    assert_eq!(frames[0]["over"].as_array().unwrap().len(), 1, "{frames:?}");
}

#[test]
fn the_conclusion_is_the_first_section_and_has_the_terminal_s_closing_sentences() {
    let place = Place::beside_others();
    for record in ["default.jsonl", "connect-20k.jsonl"] {
        let line = format!("report {RECORDS}/{record} --html page.html");
        let console = place.jostle(&line).exits(0).stdout;
        let script = "
            const first = document.querySelector('main').firstElementChild;
            found.id = first.id;
            found.said = [...first.querySelectorAll('dl.sentences dd p')].map(p => p.innerText);
            found.next = first.querySelector('.next code').innerText;
            found.verdict = first.querySelector('.word').textContent;
        ";
        let (found, _) = load_and_do(&place, &place.file("page.html"), script);
        assert_eq!(found["id"], "conclusion");
        // A command that is longer than a line goes on after a backslash.
        let console = flat(&console.replace("\\\n", " "));
        let said = found["said"].as_array().unwrap();
        assert!(said.len() >= 2, "{found}");
        for sentence in said {
            let sentence = flat(sentence.as_str().unwrap());
            assert!(console.contains(&sentence), "{sentence}\n{console}");
        }
        assert!(console.contains(&flat(found["next"].as_str().unwrap())));
        let mut worst = ["INVALID", "SUSPECT", "VALID"].into_iter();
        assert_eq!(
            found["verdict"],
            worst.find(|is| console.contains(is)).unwrap()
        );
    }
}

#[test]
fn a_label_names_its_file_everywhere() {
    let place = Place::beside_others();
    let files = format!("{COMPARED}/base.jsonl {COMPARED}/slower.jsonl");
    let labels =
        format!("--label before={COMPARED}/base.jsonl --label after={COMPARED}/slower.jsonl");
    let done = place
        .jostle(&format!("report {files} {labels} --html page.html"))
        .exits(0);
    for label in ["before: ", "after: "] {
        assert!(done.stdout.contains(label), "{}", done.stdout);
    }
    let page = place.read("page.html");
    for label in ["flock · before", "flock · after", "after against before"] {
        assert!(page.contains(label), "{label}");
    }
    let one = format!("report {COMPARED}/base.jsonl");
    place
        .jostle(&format!("{one} --label x={COMPARED}/slower.jsonl"))
        .exits(2)
        .says("is not one of the results given");
    place
        .jostle(&format!("{one} --label x"))
        .exits(2)
        .says("old=before.jsonl");
    let twice = format!("--label x={COMPARED}/base.jsonl --label y={COMPARED}/base.jsonl");
    place
        .jostle(&format!("{one} {twice}"))
        .exits(2)
        .says("has two labels");
}

#[test]
fn every_figure_is_a_file_of_its_own() {
    let _beside = beside();
    must_have("rsvg-convert", "librsvg2-bin");
    let place = Place::new();
    let line = format!("report {RECORDS}/default.jsonl --figures drawn");
    let above = line.replace("drawn", "no/such/folder");
    place.jostle(&above).exits(1).says("the folder above it");
    fs::write(place.file("drawn"), "a file").unwrap();
    place
        .jostle(&line)
        .exits(1)
        .says("drawn is not a directory");
    fs::remove_file(place.file("drawn")).unwrap();
    place.jostle(&line).exits(0);
    let svg = place.read("drawn/01-contend-throughput.svg");
    assert!(svg.starts_with("<svg xmlns"), "{svg:.80}");
    let png = fs::read(place.file("drawn/01-contend-throughput.png")).unwrap();
    // Its signature, and in its head the width: twice the drawing and what is around it.
    assert!(png.starts_with(b"\x89PNG"));
    assert_eq!(
        u32::from_be_bytes(png[16..20].try_into().unwrap()),
        2 * (576 + 32)
    );
    let files = fs::read_dir(place.file("drawn")).unwrap();
    let names: Vec<String> = files
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    let of = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    assert!(of(".svg") > 5 && of(".svg") == of(".png"), "{names:?}");
    // Figures are replaced, other files are not.
    place.jostle(&line).exits(0);
    fs::write(place.file("drawn/01-contend-throughput.svg"), "mine").unwrap();
    place.jostle(&line).exits(1).says("did not write");
    assert_eq!(place.read("drawn/01-contend-throughput.svg"), "mine");
}

#[test]
fn the_figures_of_judge_are_files_too() {
    let _beside = beside();
    must_have("rsvg-convert", "librsvg2-bin");
    let place = Place::new();
    let line = format!("report {PAGES_OF_TESTS}/judge.jsonl --figures drawn");
    place.jostle(&line).exits(0);
    let svg = place.read("drawn/01-judge-busiest-threads.svg");
    assert!(svg.starts_with("<svg xmlns"), "{svg:.80}");
    let png = fs::read(place.file("drawn/01-judge-busiest-threads.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    let card = line.replace("--figures drawn", "--card card.svg");
    place.jostle(&card).exits(2).says("have no card");
}

#[test]
fn a_card_is_one_figure_below_the_finding_and_is_never_a_png() {
    let place = Place::beside_others();
    let line = format!("report {RECORDS}/old.jsonl --card card.svg");
    for _ in 0..2 {
        place.jostle(&line).exits(0);
        let card = place.read("card.svg");
        assert!(card.starts_with("<svg xmlns"), "{card:.80}");
    }
    let png = line.replace("card.svg", "card.png");
    let refused = place.jostle(&png).exits(2).prints_nothing();
    refused.says("rsvg-convert --zoom=2 card.svg -o card.png");
    fs::write(place.file("card.svg"), "mine").unwrap();
    let kept = place.jostle(&line).exits(1);
    kept.says("name another file with --card");
    assert_eq!(place.read("card.svg"), "mine");
}

#[test]
fn without_a_program_that_makes_a_png_the_message_names_one() {
    let place = Place::beside_others();
    fs::create_dir(place.file("drawn")).unwrap();
    let line = format!("report {RECORDS}/default.jsonl --figures drawn");
    let without = place.jostle(&line).under("env PATH=/nowhere").run();
    without.exits(1).says("apt install librsvg2-bin");
    assert!(
        place
            .read("drawn/01-contend-throughput.svg")
            .starts_with("<svg")
    );
}

#[test]
fn a_comparison_has_a_page_that_begins_with_its_finding() {
    let place = Place::beside_others();
    let files = format!("{COMPARED}/base.jsonl {COMPARED}/slower.jsonl");
    let done = place
        .jostle(&format!("compare {files} --html page.html"))
        .exits(4);
    let script = "
        const first = document.querySelector('main').firstElementChild;
        found.id = first.id;
        found.word = first.querySelector('.word').textContent;
        found.text = first.innerText;
        found.rows = document.querySelectorAll('svg.chart text.finding').length;
    ";
    let (found, console) = load_and_do(&place, &place.file("page.html"), script);
    assert_eq!(console, [""; 0]);
    assert_eq!(
        (&found["id"], &found["word"]),
        (&"conclusion".into(), &"worse".into())
    );
    assert_eq!(found["rows"], 2);
    let closing = done.stdout.lines().last().unwrap().trim();
    assert!(
        found["text"].as_str().unwrap().contains(closing),
        "{closing}: {found}"
    );
    fs::write(place.file("notes.html"), "mine").unwrap();
    place
        .jostle(&format!("compare {files} --html notes.html"))
        .exits(1)
        .says("did not write");
    place
        .jostle(&format!("compare {files} --label x=other.jsonl"))
        .exits(2)
        .says("is not one of the results given");
}

/// Each cell of a phone's cards had its heading above it, in every row.
#[test]
fn on_a_phone_headings_stand_once_above_their_columns() {
    let place = Place::beside_others();
    let line = format!("report {RECORDS}/connect-20k.jsonl --html page.html");
    place.jostle(&line).exits(0);
    let mut browser = Browser::open(&place);
    browser.width(390);
    browser.go(&place.file("page.html"), "");
    let found = browser.run(
        "
        const table = document.querySelector('table.points');
        const heads = [...table.querySelectorAll('th')];
        const left = e => e.getBoundingClientRect().left;
        const rows = [...table.querySelectorAll('tbody tr:not(.why)')];
        found.heads = heads.filter(th => th.getClientRects().length).length;
        found.above = [...table.querySelectorAll('td')]
            .filter(td => getComputedStyle(td, '::before').content !== 'none').length;
        found.rows = rows.length;
        found.astray = rows.flatMap(row => [...row.cells]
            .filter((td, at) => at && Math.abs(left(td) - left(heads[at])) > 1)
            .map(td => td.textContent));
    ",
    );
    assert!(found["heads"].as_u64() > Some(8), "{found}");
    assert_eq!((&found["above"], &found["rows"]), (&0.into(), &24.into()));
    assert_eq!(found["astray"].as_array().unwrap().len(), 0, "{found}");
}

#[test]
fn many_services_have_a_drawing_on_the_first_screen_and_are_switched_off_by_the_link() {
    let place = Place::beside_others();
    let line = format!("report {RECORDS}/services.jsonl --html page.html");
    place.jostle(&line).exits(0);
    let mut browser = Browser::open(&place);
    let page = place.file("page.html");
    let look = "
        const first = document.querySelector('.key li');
        const shown = e => e.getClientRects().length > 0;
        const drawn = [...document.querySelectorAll(`main > .answer svg.chart .${first.dataset.series}`)];
        found.shown = drawn.filter(shown).length;
        found.checked = first.getAttribute('aria-checked');
        found.foot = document.querySelector('svg.chart').getBoundingClientRect().bottom;
        found.bars = document.querySelector('figure strong').textContent;
    ";
    browser.go(&page, "");
    let all = browser.run(look);
    assert!(all["foot"].as_f64() < Some(1_000.0), "{all}");
    assert!(
        all["bars"]
            .as_str()
            .unwrap()
            .ends_with("relative to the best")
    );
    assert!(
        all["shown"].as_u64() > Some(0) && all["checked"] == "true",
        "{all}"
    );
    let turned =
        format!("document.querySelector('.key li').click(); {look} found.hash = location.hash;");
    let off = browser.run(&turned);
    let is_off = |found: &serde_json::Value| found["shown"] == 0 && found["checked"] == "false";
    assert!(is_off(&off), "{off}");
    browser.go(&page, off["hash"].as_str().unwrap());
    let again = browser.run(look);
    assert!(is_off(&again), "{again}");
    assert_eq!(browser.console, [""; 0]);
}
