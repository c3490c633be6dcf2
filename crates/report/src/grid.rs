//! A small table of texts: what the formats for people lay out, each in its
//! own way.

/// Columns and rows; every row has a cell for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// From left to right.
    pub columns: Vec<Heading>,
    /// From top to bottom.
    pub rows: Vec<Vec<String>>,
}

/// The top of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Two lines, the first often empty.
    pub title: [String; 2],
    /// Texts stand left, figures right.
    pub left: bool,
    /// Whether it belongs to the column before it, and so close to it.
    pub close: bool,
}

impl Heading {
    /// Of figures.
    pub fn right(upper: &str, lower: &str) -> Heading {
        Heading {
            title: [upper.to_owned(), lower.to_owned()],
            left: false,
            close: false,
        }
    }

    /// Of texts.
    pub fn left(lower: &str) -> Heading {
        Heading {
            left: true,
            ..Heading::right("", lower)
        }
    }
}

impl Grid {
    /// In columns as wide as their content, for a terminal.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let upper = self.columns.iter().map(|c| c.title[0].as_str());
        let lower = self.columns.iter().map(|c| c.title[1].as_str());
        let mut text = String::new();
        if upper.clone().any(|title| !title.is_empty()) {
            text += &self.line(&widths, upper);
        }
        text += &self.line(&widths, lower);
        for row in &self.rows {
            text += &self.line(&widths, row.iter().map(String::as_str));
        }
        text
    }

    /// As GitHub's Markdown has it.
    pub fn markdown(&self) -> String {
        let titles = self.columns.iter().map(|c| c.title.join(" "));
        let rules = self
            .columns
            .iter()
            .map(|c| if c.left { ":--" } else { "--:" });
        let mut text = pipes(titles.map(|title| escape(title.trim())));
        text += &pipes(rules.map(str::to_owned));
        for row in &self.rows {
            text += &pipes(row.iter().map(|cell| escape(cell)));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let of_column = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let texts = self.columns[at].title.iter().chain(cells);
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(of_column).collect()
    }

    fn line<'a>(&self, widths: &[usize], cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for ((heading, width), cell) in self.columns.iter().zip(widths).zip(cells) {
            if !line.is_empty() {
                line += if heading.close { " " } else { "  " };
            }
            line += &match heading.left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            };
        }
        line.trim_end().to_owned() + "\n"
    }
}

/// A bar would end the cell.
fn escape(cell: &str) -> String {
    cell.replace('|', "\\|")
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
    fn columns_are_as_wide_as_their_content() {
        let expected = "        longest
target     wait     ±
a|b       12 ms  ±1 %
          1.1 s ±13 %
";
        assert_eq!(grid().text(), expected);
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
