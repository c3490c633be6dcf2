//! `cargo xtask screens`: the pictures of `tool/docs/screens/`, made again from the results of
//! `record/`: the page on a screen and on a phone, light and dark, and the table on
//! terminals of two widths.
//!
//! Pages are shots of Chromium, which also makes them small (WebP). Terminals are SVG made
//! from the text that the program prints to a terminal of that width.

use anyhow::{Context, bail};
use jostle_testbed::shell;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Name and record of what is shown.
const SHOWN: [(&str, &str); 2] = [
    ("contend", "lockscale.jsonl"),
    ("connect", "connect-20k.jsonl"),
];

/// A view of a page: its name, its width and height in pixels, and the scale of the picture.
const VIEWS: [(&str, [u32; 2], f64); 2] =
    [("screen", [1300, 1240], 0.7), ("phone", [400, 1800], 0.75)];

/// Widths of terminals, in columns.
const COLUMNS: [usize; 2] = [80, 120];

/// Bytes of a picture, at most.
const LIMIT: usize = 50_000;

/// The width of a letter in a terminal, in pixels.
const LETTER: f64 = 7.9;
const LINE: f64 = 17.0;
const AROUND: f64 = 14.0;

/// Writes all of them.
pub(crate) fn screens() -> anyhow::Result<()> {
    let out = shell::root().join("tool/docs/screens");
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    shell::run(&mut shell::cargo(&["build", "--package", "jostle"]))?;
    let jostle = shell::target_directory().join("debug/jostle");
    let work = tempfile::tempdir()?;
    for (name, record) in SHOWN {
        let record = shell::root().join("lab/record").join(record);
        let page = work.path().join("page.html");
        let mut report = Command::new(&jostle);
        report.arg("report").arg(&record).arg("--html").arg(&page);
        shell::output(&mut report)?;
        for (view, size, scale) in VIEWS {
            for dark in [false, true] {
                let shade = if dark { "dark" } else { "light" };
                let picture = shot(work.path(), &page, size, scale, dark)?;
                write(&out.join(format!("{name}-{view}-{shade}.webp")), &picture)?;
            }
        }
        for columns in COLUMNS {
            let text = printed(&jostle, &record, columns)?;
            let file = out.join(format!("{name}-terminal-{columns}.svg"));
            write(&file, terminal(&text, columns).as_bytes())?;
        }
    }
    Ok(())
}

fn write(path: &Path, picture: &[u8]) -> anyhow::Result<()> {
    let name = path.display();
    if picture.len() > LIMIT {
        bail!(
            "{name} would have {} bytes, more than {LIMIT}",
            picture.len()
        );
    }
    println!("{name}: {} bytes", picture.len());
    fs::write(path, picture).with_context(|| format!("cannot write {name}"))
}

fn chromium(work: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "90",
        "chromium",
        "--headless",
        "--no-sandbox",
    ]);
    command.args([
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
    ]);
    command.args(["--virtual-time-budget=8000"]);
    command.arg(format!(
        "--user-data-dir={}",
        work.join("profile").display()
    ));
    command.env("HOME", work);
    command
}

/// What it writes to stdout. What Chromium complains of on a machine without a desktop is
/// of no interest while it succeeds.
fn quiet(command: &mut Command) -> anyhow::Result<String> {
    let done = command
        .output()
        .context("cannot run chromium; apt install chromium")?;
    if !done.status.success() {
        bail!("chromium failed: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A page in a frame of this size, since a window of Chromium's is never as narrow as a
/// phone, as WebP.
fn shot(
    work: &Path,
    page: &Path,
    [width, height]: [u32; 2],
    scale: f64,
    dark: bool,
) -> anyhow::Result<Vec<u8>> {
    let frame = work.join("frame.html");
    let text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\"><iframe src=\"file://{}\" \
         style=\"border:0;width:{width}px;height:{height}px\"></iframe>",
        page.display()
    );
    fs::write(&frame, text)?;
    let shot = work.join("shot.png");
    let mut command = chromium(work);
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command.arg(format!("--window-size={},{height}", width.max(500)));
    command.arg(format!("--screenshot={}", shot.display()));
    quiet(command.arg(format!("file://{}", frame.display())))?;
    smaller(work, &shot, [width, height], scale)
}

/// A canvas of Chromium's draws it smaller, and packs it with the best quality that keeps
/// the limit.
fn smaller(
    work: &Path,
    shot: &Path,
    [width, height]: [u32; 2],
    scale: f64,
) -> anyhow::Result<Vec<u8>> {
    let packing = work.join("packing.html");
    let text = format!(
        "<!DOCTYPE html><img src=\"file://{}\"><pre></pre><script>
         const image = document.querySelector('img');
         image.onload = () => {{
           const canvas = document.createElement('canvas');
           canvas.width = Math.round({width} * {scale}); canvas.height = Math.round({height} * {scale});
           const drawn = canvas.getContext('2d');
           drawn.imageSmoothingQuality = 'high';
           drawn.drawImage(image, 0, 0, {width}, {height}, 0, 0, canvas.width, canvas.height);
           let bytes = '';
           for (let quality = 0.9; quality > 0.2; quality -= 0.1) {{
             bytes = atob(canvas.toDataURL('image/webp', quality).split(',')[1]);
             if (bytes.length <= {LIMIT}) break;
           }}
           document.querySelector('pre').textContent = 'packed:' +
             [...bytes].map(b => b.charCodeAt(0).toString(16).padStart(2, '0')).join('') + ':packed';
         }};
         </script>",
        shot.display()
    );
    fs::write(&packing, text)?;
    let mut command = chromium(work);
    let dom = quiet(command.args(["--dump-dom", &format!("file://{}", packing.display())]))?;
    let packed = dom.split("<pre>packed:").nth(1);
    let packed = packed.and_then(|rest| rest.split(":packed").next());
    let digits = packed
        .context("Chromium did not pack the picture")?
        .as_bytes();
    let byte = |pair: &[u8]| -> anyhow::Result<u8> {
        Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)
    };
    digits.chunks(2).map(byte).collect()
}

/// What the program prints to a terminal of this width.
fn printed(jostle: &Path, record: &Path, columns: usize) -> anyhow::Result<String> {
    let typed = format!(
        "stty cols {columns} rows 100; '{}' report '{}'",
        jostle.display(),
        record.display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &typed, "/dev/null"]);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    Ok(shell::output(&mut command)?.replace('\r', ""))
}

/// Colour and weight of what follows, as a terminal's escape sequences set them.
#[derive(Clone, Copy, Default)]
struct Pen {
    colour: Option<&'static str>,
    bold: bool,
    dim: bool,
}

impl Pen {
    /// After a sequence `ESC [ codes m`.
    fn after(mut self, codes: &str) -> Pen {
        for code in codes.split(';') {
            match code {
                "" | "0" => self = Pen::default(),
                "1" => self.bold = true,
                "2" => self.dim = true,
                "22" => (self.bold, self.dim) = (false, false),
                "31" | "91" => self.colour = Some("#c03030"),
                "32" | "92" => self.colour = Some("#1a7f37"),
                "33" | "93" => self.colour = Some("#8a5a00"),
                "34" | "94" => self.colour = Some("#0063b1"),
                "39" => self.colour = None,
                _ => {}
            }
        }
        self
    }
}

/// The text as a picture of a terminal.
fn terminal(text: &str, columns: usize) -> String {
    let lines = text.trim_end().lines();
    let lines: Vec<String> = lines.flat_map(|line| wrapped(line, columns)).collect();
    let width = 2.0 * AROUND + LETTER * columns as f64;
    let height = 2.0 * AROUND + LINE * lines.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"a terminal of {columns} \
         columns\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#fbfbfa\" stroke=\"#d6d9dc\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"13\" fill=\"#1b1f24\" xml:space=\"preserve\">\n"
    );
    let mut pen = Pen::default();
    for (number, line) in lines.iter().enumerate() {
        let y = AROUND + LINE * (number as f64 + 0.75);
        draw_line(&mut svg, line, y, &mut pen);
    }
    svg + "</g>\n</svg>\n"
}

/// As a terminal breaks a line that is too long for it; escape sequences take no room.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut shown, mut escaped) = (vec![String::new()], 0, false);
    for letter in line.chars() {
        escaped |= letter == '\u{1b}';
        if !escaped && shown == columns {
            rows.push(String::new());
            shown = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push(letter);
        }
        shown += usize::from(!escaped);
        escaped &= letter != 'm';
    }
    rows
}

/// Each word at its own place, so that columns stand where they do in a terminal whatever
/// font a viewer has.
fn draw_line(svg: &mut String, line: &str, y: f64, pen: &mut Pen) {
    let mut column = 0;
    for (part, piece) in line.split('\u{1b}').enumerate() {
        let mut text = piece;
        if part > 0 {
            let Some((codes, rest)) = piece.strip_prefix('[').and_then(|p| p.split_once('m'))
            else {
                continue;
            };
            *pen = pen.after(codes);
            text = rest;
        }
        for word in text.split_inclusive(' ') {
            let letters = word.chars().count();
            draw_word(
                svg,
                word.trim_end(),
                (AROUND + LETTER * column as f64, y),
                *pen,
            );
            column += letters;
        }
    }
}

fn draw_word(svg: &mut String, word: &str, (x, y): (f64, f64), pen: Pen) {
    if word.is_empty() {
        return;
    }
    let escaped = word.replace('&', "&amp;").replace('<', "&lt;");
    let wide = LETTER * word.chars().count() as f64;
    let colour = pen.colour.map(|colour| format!(" fill=\"{colour}\""));
    let bold = if pen.bold { " font-weight=\"700\"" } else { "" };
    let dim = if pen.dim { " opacity=\".65\"" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{wide:.1}\"{}{bold}{dim}>{escaped}</text>",
        colour.unwrap_or_default()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_broken_as_a_terminal_does() {
        assert_eq!(wrapped("abcdef", 3), ["abc", "def"]);
        assert_eq!(
            wrapped("\u{1b}[1mabc\u{1b}[0m", 3),
            ["\u{1b}[1mabc\u{1b}[0m"]
        );
        assert_eq!(wrapped("", 3), [""]);
    }

    #[test]
    fn words_stand_in_their_columns_with_their_colours() {
        let svg = terminal("ab \u{1b}[1;33mSUSPECT\u{1b}[0m <x>\n", 20);
        assert!(
            svg.contains(&format!("x=\"{:.1}\"", AROUND + 3.0 * LETTER)),
            "{svg}"
        );
        assert!(
            svg.contains("fill=\"#8a5a00\" font-weight=\"700\">SUSPECT<"),
            "{svg}"
        );
        assert!(svg.contains(">&lt;x></text>"), "{svg}");
    }
}
