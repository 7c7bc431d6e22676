//! Tables that fit. Columns give way in a stated order: one that people come for moves below its row, wide ones are cut with `…`
//! down to a minimum, then optional ones are left out; ids are never cut or wrapped.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement};

use super::format::NOTHING;
use super::{Output, clean};

/// Longest cell where nobody looks at the width, so that a long error message does not make a line of 4 kB.
const CELL_MAX: usize = 200;
const GAP: usize = 2;
/// Most lines below a row, and how far they are indented.
const LINES_BELOW: usize = 3;
const INDENT: usize = 2;

/// A column and how it gives way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    min: Option<usize>,
    optional: u8,
    right: bool,
    below: bool,
    most: usize,
    end: bool,
}

impl Column {
    /// A column that is never cut.
    pub(crate) fn fixed(title: &'static str) -> Self {
        Self { title, min: None, optional: 0, right: false, below: false, most: CELL_MAX, end: false }
    }

    /// A column of numbers, never cut.
    pub(crate) fn number(title: &'static str) -> Self {
        Self { right: true, ..Self::fixed(title) }
    }

    /// A column that may be cut to `min` characters.
    pub(crate) fn text(title: &'static str, min: usize) -> Self {
        Self { min: Some(min), ..Self::fixed(title) }
    }

    /// The same, left out when space is short; the highest `rank` goes first.
    #[must_use]
    pub(crate) fn optional(self, rank: u8) -> Self {
        Self { optional: rank, ..self }
    }

    /// The same, on lines of its own below the row where it would have to be cut.
    #[must_use]
    pub(crate) fn below(self) -> Self {
        Self { below: true, ..self }
    }
}

impl Column {
    /// A column of paths: their ends tell them apart and are kept, and it takes no more than `most` characters from the others.
    pub(crate) fn path(title: &'static str, min: usize, most: usize) -> Self {
        Self { most, end: true, ..Self::text(title, min) }
    }
}

/// Rows of text under columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: vec![] }
    }

    /// Adds a row, one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell per column");
        self.rows.push(cells.iter().map(|c| clean(c)).collect());
    }

    /// The table as text, fitted to the output.
    pub(crate) fn render(&self, output: &Output) -> String {
        let Fit { shown, widths, below } = self.fit(output.width);
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if output.style.is_on() {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let align = |c: usize, cell: Cell| {
            let side = if self.columns[c].right { CellAlignment::Right } else { CellAlignment::Left };
            cell.set_alignment(side)
        };
        table.set_header(
            shown.iter().map(|&c| align(c, Cell::new(self.columns[c].title)).add_attribute(Attribute::Bold)),
        );
        for row in &self.rows {
            table.add_row(shown.iter().zip(&widths).map(|(&c, &width)| {
                let text = if self.columns[c].end { cut_path(&row[c], width) } else { cut(&row[c], width) };
                let cell = align(c, Cell::new(&text));
                match colour_of(&row[c]) {
                    Some(colour) if self.columns[c].title == "STATE" => cell.fg(colour),
                    _ => cell,
                }
            }));
        }
        let last = shown.len().saturating_sub(1);
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if i == last { 0 } else { GAP as u16 }));
        }
        let mut text = String::new();
        // The header, then a line for each row.
        for (n, line) in table.trim_fmt().lines().enumerate() {
            text += line;
            text.push('\n');
            let row = n.checked_sub(1).and_then(|n| self.rows.get(n));
            if let (Some(row), Some(c), Some(width)) = (row, below, output.width) {
                text += &lines_below(&row[c], width);
            }
        }
        text
    }

    /// What is shown, and how.
    fn fit(&self, width: Option<usize>) -> Fit {
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|c| {
                let (title, most) = (width_of(self.columns[c].title), self.columns[c].most);
                self.rows.iter().map(|r| width_of(&r[c])).max().unwrap_or(0).clamp(title, most.max(title))
            })
            .collect();
        let least = |c: usize| match self.columns[c].min {
            Some(min) => natural[c].min(min.max(width_of(self.columns[c].title))),
            None => natural[c],
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else {
            let widths = shown.iter().map(|&c| natural[c]).collect();
            return Fit { shown, widths, below: None };
        };
        let gaps = |shown: &[usize]| GAP * shown.len().saturating_sub(1);
        let whole = |shown: &[usize]| shown.iter().map(|&c| natural[c]).sum::<usize>() + gaps(shown);
        let below = shown.iter().copied().find(|&c| self.columns[c].below).filter(|_| whole(&shown) > width);
        shown.retain(|&c| Some(c) != below);
        while shown.iter().map(|&c| least(c)).sum::<usize>() + gaps(&shown) > width {
            let first_to_go = shown.iter().copied().filter(|&c| self.columns[c].optional > 0);
            let Some(goes) = first_to_go.max_by_key(|&c| self.columns[c].optional) else { break };
            shown.retain(|&c| c != goes);
        }
        let mut widths: Vec<usize> = shown.iter().map(|&c| natural[c]).collect();
        while widths.iter().sum::<usize>() + gaps(&shown) > width {
            // Paths give way first, then whatever is widest.
            let rank = |i: usize| (self.columns[shown[i]].end, widths[i]);
            let widest = (0..shown.len()).filter(|&i| widths[i] > least(shown[i])).max_by_key(|&i| rank(i));
            let Some(i) = widest else { break };
            widths[i] -= 1;
        }
        Fit { shown, widths, below }
    }
}

/// How a table is laid out: columns to show, the width of each, and the one whose cells are below their rows.
struct Fit {
    shown: Vec<usize>,
    widths: Vec<usize>,
    below: Option<usize>,
}

fn lines_below(cell: &str, width: usize) -> String {
    if cell == NOTHING {
        return String::new();
    }
    let room = width.saturating_sub(INDENT).max(20);
    let mut lines = wrapped(cell, room);
    if lines.len() > LINES_BELOW {
        let rest = lines.split_off(LINES_BELOW - 1).join(" ");
        lines.push(rest);
    }
    let mut text = String::new();
    for line in lines {
        text += &" ".repeat(INDENT);
        text += &cut(&line, room);
        text.push('\n');
    }
    text
}

fn colour_of(state: &str) -> Option<Color> {
    match state.split_whitespace().next()? {
        "ok" | "completed" | "✓" => Some(Color::Green),
        "dead" | "✗" => Some(Color::Red),
        "paused" | "parked" | "cancelled" | "!" => Some(Color::Yellow),
        "running" => Some(Color::Cyan),
        _ if state.contains("parked") => Some(Color::Yellow),
        _ => None,
    }
}

/// Cuts to `width` columns and shows that it was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1; // the ellipsis
    for c in text.chars() {
        used += char_width(c);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

/// Cuts a path from the left, between two names if that is possible: `…/billing/registry.toml`.
fn cut_path(path: &str, width: usize) -> String {
    if width_of(path) <= width {
        return path.to_owned();
    }
    let mut used = 1; // the ellipsis
    let from = path.char_indices().rev().take_while(|(_, c)| {
        used += char_width(*c);
        used <= width
    });
    let end = &path[from.last().map_or(path.len(), |(at, _)| at)..];
    let names = end.find('/').map_or(end, |at| &end[at..]);
    format!("…{}", if names.len() > 1 { names } else { end })
}

/// Columns that a text takes on a terminal.
pub(crate) fn width_of(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Words in lines of at most `width` columns; a longer word has a line of its own and stays whole.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                line.push_str(word);
            } else if width_of(line) + 1 + width_of(word) <= width {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
    }
    lines
}

/// Wide East Asian and emoji ranges take two columns; close enough for foreign text in a table.
fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xff00..=0xff60
        | 0x1_f300..=0x1_faff
        | 0x2_0000..=0x3_fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;

    fn rendered(width: Option<usize>) -> String {
        let mut table = Table::new(vec![
            Column::fixed("JOB"),
            Column::text("KIND", 6),
            Column::number("N").optional(2),
            Column::text("ERROR", 8).optional(1),
        ]);
        table.row(vec![
            "job_0123456789".into(),
            "invoice.send".into(),
            "1,204".into(),
            "bad\nthing happened".into(),
        ]);
        let plain = Style::plain();
        table.render(&Output { json: false, width, style: plain, err_style: plain, err_width: None })
    }

    #[test]
    fn prose_is_wrapped_at_words() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("", 9), [""]);
        assert_eq!(wrapped("job_01JD0000000000000000000000 is gone", 9)[0], "job_01JD0000000000000000000000");
    }

    #[test]
    fn a_wide_table_is_not_cut() {
        assert_eq!(
            rendered(None),
            "JOB             KIND              N  ERROR\njob_0123456789  invoice.send  1,204  bad thing happened\n"
        );
    }

    #[test]
    fn what_people_come_for_moves_below_its_row_instead_of_being_cut() {
        let mut table = Table::new(vec![
            Column::fixed("JOB"),
            Column::text("KIND", 6),
            Column::text("ERROR", 8).below(),
            Column::fixed("DIED").optional(1),
        ]);
        let error = "HTTP_503: the shop is closed for the season and opens again in spring";
        table.row(vec!["job_0123456789".into(), "invoice.send".into(), error.into(), "2 m ago".into()]);
        table.row(vec!["job_0123456780".into(), "invoice.send".into(), "short".into(), "3 m ago".into()]);
        let plain = Style::plain();
        let at = |width| {
            table.render(&Output { json: false, width, style: plain, err_style: plain, err_width: None })
        };
        assert_eq!(
            at(Some(40)),
            "JOB             KIND          DIED\njob_0123456789  invoice.send  2 m ago\n  HTTP_503: the shop is closed for the\n  \
             season and opens again in spring\njob_0123456780  invoice.send  3 m ago\n  short\n"
        );
        assert!(at(Some(120)).contains(&format!("{error}  2 m ago\n")), "{}", at(Some(120)));
        let narrow = at(Some(22));
        assert_eq!(
            narrow.lines().filter(|l| l.starts_with("  ")).count(),
            4,
            "three lines and one: {narrow}"
        );
        assert!(narrow.contains('…') && narrow.lines().all(|l| width_of(l) <= 22), "{narrow}");
    }

    #[test]
    fn the_end_of_a_path_is_kept_and_the_other_columns_stay() {
        assert_eq!(cut_path("/srv/billing/registry.toml", 26), "/srv/billing/registry.toml");
        assert_eq!(cut_path("/srv/billing/registry.toml", 25), "…/billing/registry.toml");
        assert_eq!(cut_path("/srv/billing/registry.toml", 20), "…/registry.toml");
        assert_eq!(cut_path("/srv/billing/registry.toml", 10), "…stry.toml");
        assert_eq!(cut_path("/srv/billing/", 5), "…ing/");
        let mut table = Table::new(vec![
            Column::text("NAME", 4),
            Column::text("WHEN", 6),
            Column::path("MANAGED BY", 10, 24),
        ]);
        let path = "/a/very/deep/directory/of/our/deployment/registry.toml";
        table.row(vec!["nightly-report-of-all".into(), "0 3 * * * America/Sao_Paulo".into(), path.into()]);
        let plain = Style::plain();
        let at = |width| {
            table.render(&Output { json: false, width, style: plain, err_style: plain, err_width: None })
        };
        for width in [None, Some(80)] {
            let text = at(width);
            assert!(text.contains("nightly-report-of-all  0 3 * * * America/Sao_Paulo  …"), "{text}");
            assert!(
                text.ends_with("/deployment/registry.toml\n") || text.ends_with("…/registry.toml\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn columns_are_cut_then_left_out_and_ids_stay_whole() {
        for width in [45, 40, 30, 20] {
            let text = rendered(Some(width));
            assert!(text.contains("job_0123456789"), "{text}");
            assert!(width < 30 || text.lines().all(|l| width_of(l) <= width), "{width}:\n{text}");
        }
        assert!(rendered(Some(40)).contains('…'));
        assert!(!rendered(Some(30)).contains("1,204"), "numbers have the highest rank and go first");
    }
}
