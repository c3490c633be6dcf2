//! `--figures DIR`: every figure of the page as a file, SVG and PNG.
//!
//! The SVG is the page's own drawing. A PNG needs this machine's fonts and a rasteriser, so
//! that an installed program makes it ([`CONVERTERS`]). Linking a rasteriser (resvg and its
//! thirty dependencies) would make every build slower for a rare use.

use crate::Failure;
use anyhow::{Context, anyhow};
use jostle_model::text::redacted;
use jostle_report::{ResultSet, SvgFile};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that makes a PNG of twice the size, for dense screens and for print.
struct Converter {
    program: &'static str,
    before: &'static [&'static str],
    /// Stands before the name of the PNG; empty where that is the last argument.
    output: &'static str,
}

static CONVERTERS: [Converter; 2] = [
    Converter {
        program: "rsvg-convert",
        before: &["--zoom=2"],
        output: "--output",
    },
    Converter {
        program: "resvg",
        before: &["--zoom", "2"],
        output: "",
    },
];

/// Marks an SVG as jostle's own, which may be replaced.
const MARK: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" data-made-by=\"jostle\"";

const NO_FIGURE: &str =
    "these results have no figure: no point was measured; `jostle report` prints why";

/// Makes the directory if it is missing, and refuses a path that is not a directory, before
/// anything is printed.
///
/// # Errors
/// What the system says; that something else has this name.
pub(crate) fn reserve(dir: Option<&Path>, option: &str) -> Result<(), Failure> {
    let Some(dir) = dir else { return Ok(()) };
    let name = dir.display();
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let why = format!("cannot create {name}; create the folder above it, or name another");
            return Err(Failure::Failed(anyhow::Error::new(error).context(why)));
        }
        _ => {}
    }
    let found = fs::metadata(dir).with_context(|| format!("cannot look at {name}"))?;
    match found.is_dir() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow!(
            "{name} is not a directory; name one with {option}"
        ))),
    }
}

/// Writes every figure. The SVGs are complete before the first PNG is made.
///
/// # Errors
/// What the system says; a file of that name that holds something else; that no program
/// is installed that makes a PNG.
pub(crate) fn write(
    dir: Option<&Path>,
    drawn: impl FnOnce() -> Vec<SvgFile>,
) -> anyhow::Result<()> {
    let Some(dir) = dir else { return Ok(()) };
    let drawn = drawn();
    if drawn.is_empty() {
        return Err(anyhow!(NO_FIGURE));
    }
    let mut paths = Vec::new();
    for one in &drawn {
        let path = dir.join(format!("{}.svg", one.name));
        write_svg(&path, &one.svg, "another directory with --figures")?;
        paths.push(path);
    }
    for svg in &paths {
        write_png(dir, svg)?;
    }
    Ok(())
}

/// Refuses a file of `--card` that is named as a PNG.
///
/// # Errors
/// For the user, with the command that makes one.
pub(crate) fn check_card(path: Option<&Path>) -> Result<(), Failure> {
    let is_png = |path: &&Path| {
        path.extension()
            .is_some_and(|is| is.eq_ignore_ascii_case("png"))
    };
    let Some(png) = path.filter(is_png) else {
        return Ok(());
    };
    let (svg, png) = (png.with_extension("svg"), png.display());
    Err(Failure::Usage(format!(
        "--card writes SVG: type --card {0}, and then `rsvg-convert --zoom=2 {0} -o {png}`",
        svg.display()
    )))
}

/// Writes the first figure into the file of `--card`.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_card(path: Option<&Path>, sets: &[ResultSet]) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let card = jostle_report::card(sets).ok_or_else(|| anyhow!(NO_FIGURE))?;
    write_svg(path, &card, "another file with --card")
}

fn write_svg(path: &Path, svg: &str, instead: &str) -> anyhow::Result<()> {
    let name = path.display();
    match fs::read(path) {
        Ok(held) if !held.is_empty() && !held.starts_with(MARK.as_bytes()) => {
            return Err(anyhow!(
                "jostle did not write {name} and does not replace it; name {instead}"
            ));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot read {name}"));
        }
        _ => {}
    }
    fs::write(path, redacted(svg).as_bytes()).with_context(|| format!("cannot write {name}"))
}

/// With the first program that is installed.
fn write_png(dir: &Path, svg: &Path) -> anyhow::Result<()> {
    let png = svg.with_extension("png");
    for converter in &CONVERTERS {
        let mut command = Command::new(converter.program);
        command.args(converter.before);
        match converter.output {
            "" => command.arg(svg).arg(&png),
            option => command.arg(option).arg(&png).arg(svg),
        };
        let done = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
        match done {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot start {}", converter.program));
            }
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                return Err(anyhow!(
                    "{} made no {}: {}",
                    converter.program,
                    png.display(),
                    said.trim()
                ));
            }
        }
    }
    Err(anyhow!(
        "the SVG files are in {}, but a PNG needs rsvg-convert: apt install librsvg2-bin",
        dir.display()
    ))
}
