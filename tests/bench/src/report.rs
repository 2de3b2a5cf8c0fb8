//! Figures, and the three forms in which they are printed.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use crate::machine::Machine;

/// What was measured once for each run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample(Vec<f64>);

/// One kind of figure.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// What it is called in a table.
    pub(crate) title: &'static str,
    /// What it is called in JSON, with its unit.
    pub(crate) key: &'static str,
    /// Digits after the point.
    pub(crate) digits: usize,
}

/// What one thing has been measured to be.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The thing.
    pub(crate) label: String,
    /// A figure for each column, where it has been measured.
    pub(crate) figures: Vec<Option<Sample>>,
}

/// One table.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// The subcommand that measures it.
    pub(crate) name: &'static str,
    /// What the figures are of.
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// How it was measured, a sentence for each.
    pub(crate) notes: Vec<String>,
}

/// Everything of one run of the program.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The command line.
    pub(crate) command: String,
    pub(crate) sections: Vec<Section>,
}

// === impl Sample ===

impl Sample {
    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// What runs measured that were made in pairs, one divided by the other.
    pub(crate) fn over(&self, other: &Sample) -> Sample {
        self.0.iter().zip(&other.0).map(|(left, right)| left / right).collect()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The middle figure, or the mean of the two in the middle; NaN of nothing.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[length / 2],
            length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
        }
    }

    fn bounds(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN))
    }

    /// The median, and the least and the most in brackets where there were several runs.
    fn text(&self, digits: usize) -> String {
        let median = thousands(self.median(), digits);
        if self.0.len() < 2 {
            return median;
        }
        let (least, most) = self.bounds();
        format!("{median} ({}–{})", thousands(least, digits), thousands(most, digits))
    }

    fn json(&self) -> Value {
        let (least, most) = self.bounds();
        json!({ "median": self.median(), "least": least, "most": most, "runs": self.0 })
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        Self(figures.into_iter().collect())
    }
}

fn thousands(figure: f64, digits: usize) -> String {
    let text = format!("{figure:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 && digit.is_ascii_digit() && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

// === impl Section ===

impl Section {
    fn cells(&self, row: &Row) -> Vec<String> {
        let figure = |(column, figure): (&Column, &Option<Sample>)| {
            figure.as_ref().map_or_else(|| "–".to_owned(), |sample| sample.text(column.digits))
        };
        let mut cells = vec![row.label.clone()];
        cells.extend(self.columns.iter().zip(&row.figures).map(figure));
        cells
    }

    fn header(&self) -> Vec<String> {
        let mut header = vec![String::new()];
        header.extend(self.columns.iter().map(|column| column.title.to_owned()));
        header
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(self.header());
        for column in 1..=self.columns.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for row in &self.rows {
            table.add_row(self.cells(row));
        }
        table
    }

    fn markdown(&self, text: &mut String) {
        let line = |text: &mut String, cells: &[String]| writeln!(text, "| {} |", cells.join(" | "));
        let _infallible = writeln!(text, "### {}\n", self.title);
        let _infallible = line(text, &self.header());
        let rule: Vec<String> =
            (0..=self.columns.len()).map(|at| if at == 0 { "---" } else { "---:" }.to_owned()).collect();
        let _infallible = line(text, &rule);
        for row in &self.rows {
            let _infallible = line(text, &self.cells(row));
        }
        text.push('\n');
        for note in &self.notes {
            let _infallible = writeln!(text, "{note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures = self.columns.iter().zip(&row.figures);
            let figures: serde_json::Map<_, _> =
                figures.filter_map(|(column, figure)| Some((column.key.to_owned(), figure.as_ref()?.json()))).collect();
            json!({ "what": row.label, "figures": figures })
        };
        json!({
            "name": self.name,
            "title": self.title,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

// === impl Report ===

impl Report {
    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine.sentence());
        for section in &self.sections {
            let _infallible = writeln!(text, "\n{}\n{}", section.title, section.table());
            for note in &section.notes {
                let _infallible = writeln!(text, "{note}");
            }
        }
        text
    }

    /// For `docs/benchmarks.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("`{}`, medians with the least and the most in brackets.\n\n", self.command);
        let _infallible = writeln!(text, "{}\n", self.machine.sentence());
        for section in &self.sections {
            section.markdown(&mut text);
        }
        text
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "machine": self.machine,
            "command": self.command,
            "sections": self.sections.iter().map(Section::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(figures: &[f64]) -> Sample {
        figures.iter().copied().collect()
    }

    #[test]
    fn medians_are_the_middle_and_the_spread_is_all_of_it() {
        assert_eq!(sample(&[3.0, 1.0, 2.0]).text(1), "2.0 (1.0–3.0)");
        assert_eq!(sample(&[4.0, 1.0]).median(), 2.5);
        assert_eq!(sample(&[1_234_567.0]).text(0), "1,234,567");
        assert_eq!(sample(&[-1_234.56]).text(1), "-1,234.6");
        assert_eq!(sample(&[999.0]).text(0), "999");
        // Pairs, not the quotient of medians.
        let ratio = sample(&[2.0, 9.0, 4.0]).over(&sample(&[1.0, 3.0, 8.0]));
        assert_eq!((ratio.median(), ratio.bounds()), (2.0, (0.5, 3.0)));
    }

    #[test]
    fn all_forms_show_the_same_figures_and_what_was_not_measured() {
        let section = Section {
            name: "host",
            title: "The host".to_owned(),
            columns: vec![
                Column { title: "CPU s", key: "cpu_seconds", digits: 2 },
                Column { title: "ratio", key: "ratio", digits: 2 },
            ],
            rows: vec![Row { label: "bare".to_owned(), figures: vec![Some(sample(&[1.25])), None] }],
            notes: vec!["So it was measured.".to_owned()],
        };
        let report =
            Report { machine: Machine::default(), command: "shardmill-bench".to_owned(), sections: vec![section] };
        let markdown = report.markdown();
        assert!(markdown.contains("|  | CPU s | ratio |\n| --- | ---: | ---: |\n| bare | 1.25 | – |\n"), "{markdown}");
        let text = report.text();
        assert!(text.contains("bare") && text.contains("1.25") && text.contains("So it was measured."), "{text}");
        let row = &report.json()["sections"][0]["rows"][0];
        assert_eq!((&row["figures"]["cpu_seconds"]["median"], &row["figures"]["ratio"]), (&json!(1.25), &Value::Null));
    }
}
