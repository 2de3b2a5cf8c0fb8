//! A report as one page that needs nothing else: no script, no picture, no network.

use std::fmt::{Display, Write};

use super::Report;
use super::timeline::timeline;

/// Light or dark, as whoever looks at it has it.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --pale: #5b6675; --line: #d5dbe3; --ground: #ffffff;
  --up: #2f9e6e; --up2: #7cc7a4; --frozen: #3b82c4; --cut: #e08a1e; --full: #9a6ad6; --clock: #b0578d; --bad: #d03b3b;
  --services: #8a94a3; --lost: #c2553a; --behind: #3b82c4; --repeats: #e08a1e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --pale: #98a3b3; --line: #333c49; --ground: #14181e;
  --up: #38b27e; --up2: #276d50; --services: #667183; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 1240px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.1em; } h2 { font-size: 1.15em; margin-top: 1.8em; } p.of { color: var(--pale); margin-top: 0; }
table { border-collapse: collapse; } td, th { padding: 0.2em 0.9em 0.2em 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; } .good { color: var(--up); } .bad { color: var(--bad); }
.tables { display: flex; flex-wrap: wrap; gap: 2.5em; align-items: flex-start; }
.legend span { margin-right: 1.4em; white-space: nowrap; } .legend i { display: inline-block; width: 0.8em; height: 0.8em;
  margin-right: 0.4em; border-radius: 2px; }
.drawing { overflow-x: auto; } svg { min-width: 900px; width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg text.pale { fill: var(--pale); } code { font-size: 0.95em; }
";

/// A text in HTML, whatever is in it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // What a page may not hold, such as the colours of a terminal.
            control if control.is_control() && control != '\n' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A table of rows whose cells are texts; those of the columns from `numbers` on are numbers.
fn table(head: &[&str], numbers: std::ops::Range<usize>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let row = |cells: &[String], tag: &str| {
        let cell = |(at, text): (usize, &String)| {
            let class = if numbers.contains(&at) { " class=\"n\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escaped(text))
        };
        format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
    };
    let head: Vec<String> = head.iter().map(|text| (*text).to_owned()).collect();
    let rows: String = rows.map(|cells| row(&cells, "td")).collect();
    format!("<table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n", row(&head, "th").trim_end())
}

/// What the colours of the drawing mean.
fn legend() -> String {
    let meanings = [
        ("up", "a worker lives"),
        ("bad", "kill, lease-deleted"),
        ("frozen", "freeze"),
        ("cut", "cut-off"),
        ("full", "disk-full"),
        ("clock", "clock-wrong"),
        ("ink", "roll, surge, reload, split, merge"),
        ("services", "services throttle, fail or are slow"),
        ("lost", "answers are lost"),
    ];
    let meaning = |(colour, meaning): (&str, &str)| {
        format!("<span><i style=\"background: var(--{colour})\"></i>{}</span>\n", escaped(meaning))
    };
    format!("<p class=\"legend\">\n{}</p>\n", meanings.map(meaning).concat())
}

// === impl Report ===

impl Report {
    /// The whole page.
    pub fn page(&self) -> String {
        let title = format!("Chaos: seed {}, {}, {} s", self.seed, self.temper.name(), self.length.as_secs());
        let mut page = String::new();
        let mut put = |text: &dyn Display| write!(page, "{text}").expect("a text takes more text");
        put(&"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
        put(&"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
        put(&format_args!("<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n", escaped(&title)));
        put(&format_args!("<h1>{}</h1>\n", escaped(&title)));
        let command = Report::command(self.seed, self.length);
        let took = self.took.as_secs_f64();
        put(&format_args!(
            "<p class=\"of\">Three workers, one pipeline of two processors; worked off after {took:.1} s. \
             <code>{}</code> does the same things again.</p>\n",
            escaped(&command)
        ));
        put(&self.verdict());
        put(&format_args!("<div class=\"tables\">\n{}{}</div>\n", self.account(), self.reasons()));
        put(&format_args!("<h2>Timeline</h2>\n{}<div class=\"drawing\">\n{}</div>\n", legend(), timeline(self)));
        put(&format_args!("<h2>Everything that was done</h2>\n{}", self.all_events()));
        put(&"</body>\n</html>\n");
        page
    }

    fn verdict(&self) -> String {
        if self.violations.is_empty() {
            return "<p class=\"verdict good\">No promise was broken.</p>\n".to_owned();
        }
        let list: String =
            self.violations.iter().map(|violation| format!("<li>{}</li>\n", escaped(&violation.to_string()))).collect();
        let count = self.violations.len();
        format!("<p class=\"verdict bad\">{count} promises were broken:</p>\n<ul>\n{list}</ul>\n")
    }

    fn account(&self) -> String {
        let rows = [
            ("acknowledged to the writer", self.written),
            ("in the output", self.records),
            ("in dead letters", self.letters),
            ("lost", self.lost()),
            ("came out once more", self.repeated()),
            ("of these, sent again by the same worker", self.sent_again),
            ("letters written once more", self.causes.letters()),
            ("once more, and perhaps twice in the input", self.repeated_input),
        ];
        let rows = rows.into_iter().map(|(what, count)| vec![what.to_owned(), count.to_string()]);
        table(&["records", ""], 1..2, rows)
    }

    fn reasons(&self) -> String {
        let causes = &self.causes;
        let of_causes = causes.causes.iter().map(|cause| {
            let numbers = [cause.times as u64, cause.records, cause.at_risk, cause.letters];
            std::iter::once(cause.what.to_owned()).chain(numbers.map(|number| number.to_string())).collect()
        });
        let unexplained = (causes.unexplained > 0 || causes.unexplained_letters > 0).then(|| {
            let [records, letters] = [causes.unexplained, causes.unexplained_letters].map(|count| count.to_string());
            vec!["no reason".to_owned(), String::new(), records, String::new(), letters]
        });
        table(&["reason", "times", "repeated", "of, at risk", "letters"], 1..5, of_causes.chain(unexplained))
    }

    fn all_events(&self) -> String {
        let rows = self.events.iter().map(|event| {
            let seconds = |time: std::time::Duration| format!("{:.2}", time.as_secs_f64());
            let subject = event.subject().to_owned();
            vec![seconds(event.from), seconds(event.until), event.what.to_owned(), subject, event.note.clone()]
        });
        table(&["from, s", "until, s", "what", "to", ""], 0..2, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::violation::Violation;
    use super::super::samples;
    use super::*;

    /// The elements of a page in the order of their beginnings; fails where one does not end as it began.
    fn elements(page: &str) -> Vec<String> {
        let mut open: Vec<&str> = Vec::new();
        let mut found = Vec::new();
        // Its braces and brackets are no elements.
        let (head, rest) = page.split_once("<style>").unwrap();
        let page = [head, rest.split_once("</style>").unwrap().1].concat();
        for part in page.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("no end: {part}"));
            assert!(!text.contains('>'), "a stray end: {part}");
            assert_eq!(tag.matches('"').count() % 2, 0, "a value without an end: {tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{part}");
            } else if !tag.starts_with('!') {
                let name = tag.split([' ', '/', '\n']).next().unwrap();
                found.push(name.to_owned());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
            let unescaped = text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "");
            assert!(!unescaped.replace("&quot;", "").replace("&#39;", "").contains('&'), "{text}");
        }
        assert_eq!(open, Vec::<&str>::new());
        found
    }

    #[test]
    fn the_page_is_well_formed_and_has_every_event_worker_and_figure() {
        let report = samples::report();
        let page = report.page();
        let found = elements(&page);
        let count = |name: &str| found.iter().filter(|element| *element == name).count();
        assert_eq!((count("svg"), count("table"), count("script"), count("img"), count("link")), (1, 3, 0, 0, 0));
        for event in &report.events {
            let row = format!("<td>{}</td><td>{}</td><td>{}</td>", event.what, event.subject(), escaped(&event.note));
            assert!(page.contains(&row), "{row}");
            // And once in the drawing.
            assert!(page.contains(&format!("<title>{}", event.what)), "{event:?}");
        }
        for life in &report.lives {
            assert!(page.contains(&format!("<title>{}", life.name)), "{life:?}");
        }
        for said in [
            "<td>in the output</td><td class=\"n\">990</td>",
            "<td>lost</td><td class=\"n\">0</td>",
            "<td>kill</td><td class=\"n\">1</td><td class=\"n\">7</td><td class=\"n\">12</td><td class=\"n\">1</td>",
            "No promise was broken",
            "make chaos SEED=7 SECONDS=20",
        ] {
            assert!(page.contains(said), "{said}");
        }
        // The name of SVG is no address.
        assert_eq!(page.replace("http://www.w3.org/2000/svg", "").matches("://").count(), 0);
    }

    #[test]
    fn what_was_broken_is_told_and_what_texts_hold_is_no_part_of_the_page() {
        let seen = "a <b>bold</b> \"text\" & more\u{1b}[31m".to_owned();
        let broken = Violation::Other { promise: "<script>".to_owned(), seen };
        let report = super::super::Report { violations: vec![broken], ..samples::report() };
        let page = report.page();
        let found = elements(&page);
        assert!(!found.iter().any(|element| element == "script" || element == "b"), "{found:?}");
        assert!(
            page.contains("1 promises were broken")
                && page.contains("a &lt;b&gt;bold&lt;/b&gt; &quot;text&quot; &amp; more")
        );
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn a_run_in_which_nothing_happened_has_a_page_too() {
        let samples = samples::report();
        let took = std::time::Duration::ZERO;
        let curves = super::super::Curves::default();
        let report = super::super::Report { events: Vec::new(), lives: Vec::new(), curves, took, ..samples };
        let page = report.page();
        elements(&page);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
