//! `--format markdown`: the table and its sentences for a page or an issue.

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::page::{Page, pages};
use crate::requests::ACCOUNTS;

/// One page after the other, a rule between them.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let pages: Vec<String> = pages(sets).iter().map(page).collect();
    pages.join("\n---\n\n")
}

fn page(page: &Page) -> String {
    let mut blocks = vec![page.intro.clone() + "\n"];
    if let Some(headline) = &page.headline {
        blocks.push(headline.grid.markdown());
        let notes = headline.notes.iter().enumerate();
        let notes = notes.map(|(at, note)| format!("[{}] {note}", at + 1));
        let below = headline
            .plus_minus
            .map(str::to_owned)
            .into_iter()
            .chain(notes);
        blocks.push(items(below));
    }
    if !page.failures.is_empty() {
        blocks.push(format!("{FAILURES}\n"));
        blocks.push(items(page.failures.iter().cloned()));
    }
    for table in &page.tables {
        blocks.push(format!("{}\n", table.title));
        blocks.push(table.grid.markdown());
        let notes = table.notes.iter();
        blocks.push(items(notes.map(|(mark, note)| format!("{mark} {note}"))));
    }
    if let Some(accounts) = &page.accounts {
        blocks.push(format!("{ACCOUNTS}\n"));
        blocks.push(accounts.markdown());
    }
    if let Some(over) = &page.over {
        blocks.push("Share of the acquisitions that waited longer:\n".to_owned());
        blocks.push(over.markdown());
    }
    let sentences = page.sentences.iter().chain(&page.growth);
    let sentences = sentences.map(|(target, sentence)| match target.is_empty() {
        true => sentence.clone(),
        false => format!("**{target}** {sentence}"),
    });
    blocks.push(items(sentences.chain(page.comparisons.iter().cloned())));
    blocks.extend(
        page.ended
            .iter()
            .chain(&page.checked)
            .map(|text| format!("{text}\n")),
    );
    blocks.push(format!("Next: `{}`\n", page.next));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn items(texts: impl Iterator<Item = String>) -> String {
    texts.map(|text| format!("- {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::made;

    #[test]
    fn a_comparison_of_two_locks() {
        insta::assert_snapshot!(render(&[made::set()]));
    }

    #[test]
    fn several_experiments() {
        let text = render(&[made::counts_only(), made::broken()]);
        assert_eq!(text.matches("\n\n---\n\n").count(), 1);
        assert_eq!(text.matches("| target |").count(), 2);
    }
}
