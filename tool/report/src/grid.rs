//! A small table of texts, which the formats for people lay out.

use crate::format::{lines, longest_word, padded};
use crate::markdown::escaped;
use jostle_model::text::one_line;

/// Columns and rows; every row has a cell for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    /// From left to right.
    pub columns: Vec<Heading>,
    /// From top to bottom.
    pub rows: Vec<Vec<String>>,
}

/// A table below the headline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Titled {
    /// The title above it.
    pub title: String,
    /// The table.
    pub grid: Grid,
    /// Its notes that the headline does not have: `[7]` and its text.
    pub notes: Vec<(String, String)>,
    /// Whether only `-v` and the page show it.
    pub is_detail: bool,
}

impl Titled {
    /// A table without notes.
    pub(crate) fn new(title: &str, columns: Vec<Heading>, rows: Vec<Vec<String>>) -> Titled {
        Titled {
            title: title.to_owned(),
            grid: Grid { columns, rows },
            notes: Vec::new(),
            is_detail: false,
        }
    }

    /// One that only `-v` and the page show.
    pub(crate) fn detail(self) -> Titled {
        Titled {
            is_detail: true,
            ..self
        }
    }
}

/// The top of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    /// Two lines, the first often empty.
    pub title: [String; 2],
    /// Texts stand left, figures right.
    pub left: bool,
    /// Whether it is printed close to the column before it, to which it belongs.
    pub close: bool,
    /// Whether it identifies a row. It is repeated where a wide table continues below.
    pub key: bool,
    /// The order in which columns give way where a line is short, the greatest first; 0 stays, and
    /// [`DETAIL`] is for `-v` alone.
    pub rank: u8,
}

/// The rank of a column that only `-v` shows.
pub(crate) const DETAIL: u8 = 9;

impl Heading {
    /// The heading of a column of figures.
    pub(crate) fn right(upper: &str, lower: &str) -> Heading {
        Heading {
            title: [upper.to_owned(), lower.to_owned()],
            left: false,
            close: false,
            key: false,
            rank: 0,
        }
    }

    /// The heading of a column of texts.
    pub(crate) fn left(lower: &str) -> Heading {
        Heading {
            left: true,
            ..Heading::right("", lower)
        }
    }

    /// A heading whose column tells rows apart.
    pub(crate) fn key(self) -> Heading {
        Heading { key: true, ..self }
    }

    /// Whether it has to stay in the line of the column before it: it is close to it, or
    /// shares its upper title.
    fn follows(&self) -> bool {
        self.close || self.title[0].is_empty() && self.title[1].starts_with("p99")
    }
}

/// The title of the column of verdicts, which stands in the first lines of a row.
const VERDICT: &str = "verdict";

impl Grid {
    /// In columns as wide as their content, for a terminal.
    pub(crate) fn text(&self) -> String {
        self.text_within(usize::MAX)
    }

    /// Without the columns that are for `-v` and, until the others fit a line of this width, without
    /// those of the greatest rank. Few columns depend on the figures: a rate and a verdict count as
    /// wide as they usually are.
    pub(crate) fn chosen(&self, width: usize) -> Grid {
        let usual = |column: &Heading| match column.title[1].as_str() {
            VERDICT => "SUSPECT[1]".len(),
            rate if rate.ends_with("/s") => "100,000".len(),
            _ => 0,
        };
        let widths = self.widths().into_iter().zip(&self.columns);
        let widths: Vec<usize> = widths
            .map(|(wide, column)| wide.max(usual(column)))
            .collect();
        let rank = |at: &usize| self.columns[*at].rank;
        let mut kept: Vec<usize> = (0..widths.len()).filter(|at| rank(at) < DETAIL).collect();
        while self.width(&kept, &widths, 1) > width {
            let gives_way = kept.iter().copied().filter(|at| rank(at) > 0);
            let Some(least) = gives_way.max_by_key(|at| (rank(at), *at)) else {
                break;
            };
            kept.retain(|at| *at != least);
        }
        self.of_columns(&kept)
    }

    fn of_columns(&self, columns: &[usize]) -> Grid {
        let cells = |row: &Vec<String>| columns.iter().map(|at| row[*at].clone()).collect();
        Grid {
            columns: columns.iter().map(|at| self.columns[*at].clone()).collect(),
            rows: self.rows.iter().map(cells).collect(),
        }
    }

    /// In lines of at most `width`, without breaking cells. If the columns do not fit, they
    /// are moved closer together. If that is not enough, the table continues below, where
    /// the columns that identify rows are repeated.
    pub(crate) fn fitted(&self, width: usize) -> String {
        let widths = self.widths();
        let all: Vec<usize> = (0..self.columns.len()).collect();
        for gap in [2, 1] {
            if self.width(&all, &widths, gap) <= width {
                return self.laid_out(&widths, gap);
            }
        }
        let blocks = self.blocks(&widths, width).into_iter();
        let blocks = blocks.map(|block| self.of_columns(&block));
        let blocks = blocks.map(|block| block.laid_out(&block.widths(), 2));
        blocks.collect::<Vec<_>>().join("\n")
    }

    /// The columns that stand side by side, each time behind those that tell rows apart, and the
    /// verdict in the first lines.
    fn blocks(&self, widths: &[usize], width: usize) -> Vec<Vec<usize>> {
        let keys = self.columns.iter().take_while(|column| column.key).count();
        let (keys, rest): (Vec<usize>, Vec<usize>) =
            (0..self.columns.len()).partition(|at| *at < keys);
        let (last, rest): (Vec<usize>, Vec<usize>) = rest
            .into_iter()
            .partition(|at| self.columns[*at].title[1] == VERDICT);
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for at in rest {
            match parts.last_mut() {
                Some(part) if self.columns[at].follows() => part.push(at),
                _ => parts.push(vec![at]),
            }
        }
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut last = last;
        let mut block: Vec<usize> = Vec::new();
        let first = parts.first().map_or(&[][..], |part| part);
        let with = [&keys[..], first, &last].concat();
        if !last.is_empty() && self.width(&with, widths, 2) > width {
            blocks.push([&keys[..], &last].concat());
            last.clear();
        }
        for part in parts {
            let with = [&keys[..], &block, &part, &last].concat();
            if !block.is_empty() && self.width(&with, widths, 2) > width {
                blocks.push([&keys[..], &block, &last].concat());
                last.clear();
                block.clear();
            }
            block.extend(part);
        }
        blocks.push([keys, block, last].concat());
        blocks
    }

    /// Whether a row has something beside its keys: those of INVALID points have dashes.
    pub(crate) fn has_figures(&self) -> bool {
        let keys = self.columns.iter().take_while(|column| column.key).count();
        let mut cells = self.rows.iter().flat_map(|row| &row[keys..]);
        cells.any(|cell| !["", "-"].contains(&cell.as_str()))
    }

    fn width(&self, columns: &[usize], widths: &[usize], gap: usize) -> usize {
        let cells: usize = columns.iter().map(|at| widths[*at]).sum();
        let gaps = columns.iter().skip(1);
        cells + gaps.map(|at| self.gap(*at, gap)).sum::<usize>()
    }

    fn gap(&self, at: usize, gap: usize) -> usize {
        if self.columns[at].close { 1 } else { gap }
    }

    /// In lines of at most `width`, if words allow. The widest texts are broken into
    /// several lines within their cell.
    pub(crate) fn text_within(&self, width: usize) -> String {
        self.laid_out(&self.widths_within(width), 2)
    }

    /// Titles and rows in columns of these widths, texts that are wider broken.
    fn laid_out(&self, widths: &[usize], gap: usize) -> String {
        let upper = self.columns.iter().map(|c| c.title[0].as_str());
        let lower = self.columns.iter().map(|c| c.title[1].as_str());
        let mut text = String::new();
        if upper.clone().any(|title| !title.is_empty()) {
            text += &self.line(widths, gap, upper);
        }
        text += &self.line(widths, gap, lower);
        for row in &self.rows {
            let cells = row.iter().zip(widths);
            let broken: Vec<Vec<String>> = cells.map(|(cell, width)| lines(cell, *width)).collect();
            let deep = broken.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..deep {
                let cells = broken
                    .iter()
                    .map(|cell| cell.get(at).map_or("", String::as_str));
                text += &self.line(widths, gap, cells);
            }
        }
        text
    }

    /// As GitHub's Markdown has it.
    pub(crate) fn markdown(&self) -> String {
        let titles = self.columns.iter().map(|c| c.title.join(" "));
        let rules = self
            .columns
            .iter()
            .map(|c| if c.left { ":--" } else { "--:" });
        let mut text = pipes(titles.map(|title| escaped(title.trim())));
        text += &pipes(rules.map(str::to_owned));
        for row in &self.rows {
            text += &pipes(row.iter().map(|cell| escaped(cell)));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let of_column = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let texts = self.columns[at].title.iter().chain(cells);
            let wide = |text: &String| one_line(text).chars().count();
            texts.map(wide).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(of_column).collect()
    }

    /// Narrows the widest column repeatedly until all columns fit.
    fn widths_within(&self, most: usize) -> Vec<usize> {
        let mut widths = self.widths();
        let all: Vec<usize> = (0..widths.len()).collect();
        let least: Vec<usize> = all.iter().map(|at| self.least_width(*at)).collect();
        while self.width(&all, &widths, 2) > most {
            let columns = all.iter().copied();
            let shrinkable =
                columns.filter(|at| self.columns[*at].left && widths[*at] > least[*at]);
            let Some(widest) = shrinkable.max_by_key(|at| widths[*at]) else {
                break;
            };
            widths[widest] -= 1;
        }
        widths
    }

    /// The width of the longest word of a column.
    fn least_width(&self, at: usize) -> usize {
        let titles = self.columns[at].title.iter();
        let titles = titles.map(|title| title.chars().count());
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let words = cells.map(|cell| longest_word(cell));
        titles.chain(words).max().unwrap_or(0)
    }

    fn line<'a>(&self, wide: &[usize], gap: usize, cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in cells.zip(wide).enumerate() {
            if at > 0 {
                line += &" ".repeat(self.gap(at, gap));
            }
            line += &padded(&one_line(cell), *width, self.columns[at].left);
        }
        line.trim_end().to_owned() + "\n"
    }
}

fn pipes(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            columns: vec![
                Heading::left("target"),
                Heading::right("longest", "wait"),
                Heading {
                    close: true,
                    ..Heading::right("", "±")
                },
            ],
            rows: vec![
                vec!["a|b".into(), "12 ms".into(), "±1 %".into()],
                vec!["".into(), "1.1 s".into(), "±13 %".into()],
            ],
        }
    }

    #[test]
    fn a_cell_may_be_wider_than_the_formatter_pads() {
        // A target of 70,000 characters made the table panic: format! pads to 65,535.
        let mut grid = grid();
        grid.rows[0][0] = "x".repeat(70_000);
        let widest = grid.text().lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(70_000 + 15));
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let expected = "        longest
target     wait     ±
a|b       12 ms  ±1 %
          1.1 s ±13 %
";
        assert_eq!(grid().text(), expected);
    }

    #[test]
    fn texts_that_are_too_wide_go_on_below_themselves_and_figures_do_not() {
        let mut grid = grid();
        grid.columns.push(Heading::left("why"));
        grid.rows[0].push("waited for 12 ms and more".into());
        grid.rows[1].push("fine".into());
        let expected = "        longest
target     wait     ±  why
a|b       12 ms  ±1 %  waited for
                       12 ms and
                       more
          1.1 s ±13 %  fine
";
        assert_eq!(grid.text_within(33), expected);
        // No narrower than its longest word, and as it is where there is room.
        assert_eq!(
            grid.text_within(1).lines().nth(2),
            Some("a|b       12 ms  ±1 %  waited")
        );
        assert_eq!(grid.text_within(100), grid.text());
    }

    #[test]
    fn markdown_keeps_its_bars() {
        let expected = "\
| target | longest wait | ± |
| :-- | --: | --: |
| a\\|b | 12 ms | ±1 % |
|  | 1.1 s | ±13 % |
";
        assert_eq!(grid().markdown(), expected);
    }
}
