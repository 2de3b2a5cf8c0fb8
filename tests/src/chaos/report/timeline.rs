//! The page's drawing: what was done to whom and when, and how the records went meanwhile, on one axis of time.

use std::fmt::Write;
use std::time::Duration;

use super::super::action::Forget;
use super::super::agent::{Event, Life};
use super::page::escaped;
use super::{Point, Report};

/// Where the axis of time begins and ends.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 1_180.0;
const WIDTH: f64 = 1_200.0;
/// A row of a lane; two processes of a post may live at the same time.
const ROW: f64 = 15.0;
/// A curve's height.
const CURVE: f64 = 64.0;
const GAP: f64 = 14.0;
/// A mark for a moment, and the least width of what has a beginning and an end.
const MARK: f64 = 2.5;
/// A text of so many letters needs so much room for each.
const LETTER: f64 = 6.0;

/// Draws one thing after another from the top down.
struct Drawing {
    svg: String,
    /// The whole axis of time, in seconds.
    seconds: f64,
    y: f64,
}

/// How an event shows in its lane.
fn colour(what: &str) -> &'static str {
    match what {
        "kill" | Forget::NAME => "var(--bad)",
        "freeze" => "var(--frozen)",
        "cut-off" => "var(--cut)",
        "disk-full" => "var(--full)",
        "clock-wrong" => "var(--clock)",
        "lease-answers-lost" | "put-answers-lost" => "var(--lost)",
        "roll" | "surge" | "reload" | "reload-bad" | "split" | "merge" => "var(--ink)",
        _ => "var(--services)",
    }
}

/// An event and its times, as a tip says them.
fn tip(event: &Event) -> String {
    let Event { what, note, from, until, .. } = event;
    let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
    format!("{what} {}, {from:.2} s to {until:.2} s {note}", event.subject())
}

/// The drawing of a report.
pub(super) fn timeline(report: &Report) -> String {
    let ends = report.lives.iter().map(|life| life.until).chain(report.events.iter().map(|event| event.until));
    let end = ends.chain([report.took]).max().unwrap_or_default();
    let mut drawing = Drawing { svg: String::new(), seconds: end.as_secs_f64().max(1.0), y: 18.0 };
    let posts = report.lives.iter().map(|life| life.post).max().unwrap_or(0);
    for post in 1..=posts {
        drawing.post(post, &report.lives, &report.events);
    }
    drawing.lane("services", report.events.iter().filter(|event| event.whom.is_none() && event.shard.is_none()));
    drawing.lane("shards", report.events.iter().filter(|event| event.shard.is_some()));
    drawing.y += GAP;
    let every = report.curves.every;
    let points = &report.curves.points;
    let per_second = |count: u64| count as f64 / every.as_secs_f64().max(1.0);
    drawing.curve("records behind", points, every, "var(--behind)", |point| point.behind as f64);
    drawing.curve("longest delay, s", points, every, "var(--frozen)", |point| point.delay as f64 / 1_000.0);
    drawing.curve("out a second", points, every, "var(--up)", |point| per_second(point.out));
    drawing.curve("repeated a second", points, every, "var(--repeats)", |point| per_second(point.repeated));
    drawing.finish()
}

// === impl Drawing ===

impl Drawing {
    fn post(&mut self, post: usize, lives: &[Life], events: &[Event]) {
        self.label(&format!("worker {post}"), self.y + ROW);
        for (nth, life) in lives.iter().filter(|life| life.post == post).enumerate() {
            let y = self.y + if nth % 2 == 0 { 0.0 } else { ROW };
            let fill = if nth % 2 == 0 { "var(--up)" } else { "var(--up2)" };
            let (from, until) = (life.from.as_secs_f64(), life.until.as_secs_f64());
            let tip = format!("{}, build {}, {from:.2} s to {until:.2} s", life.name, life.build);
            self.bar([y + 1.0, ROW - 2.0], [life.from, life.until], fill, &tip);
            for event in events.iter().filter(|event| event.whom.as_ref() == Some(&life.name)) {
                // A killed worker is dead while the kill lasts.
                let end = if event.what == "kill" { event.from } else { event.until };
                self.bar([y + 3.0, ROW - 6.0], [event.from, end], colour(event.what), &self::tip(event));
            }
            self.inside(&format!("{} build {}", life.name, life.build), y + ROW - 4.0, [life.from, life.until]);
        }
        self.y += 2.0 * ROW + 8.0;
    }

    fn lane<'a>(&mut self, name: &str, events: impl Iterator<Item = &'a Event>) {
        self.label(name, self.y + ROW - 4.0);
        for event in events {
            self.bar([self.y + 1.0, ROW - 2.0], [event.from, event.until], colour(event.what), &tip(event));
            self.inside(event.what, self.y + ROW - 4.0, [event.from, event.until]);
        }
        self.y += ROW + 8.0;
    }

    fn curve(&mut self, name: &str, points: &[Point], every: Duration, fill: &str, value: impl Fn(&Point) -> f64) {
        let most = points.iter().map(&value).fold(0.0, f64::max);
        self.label(name, self.y + 12.0);
        let shown = if most < 10.0 { format!("most {most:.1}") } else { format!("most {most:.0}") };
        self.text(&shown, 4.0, self.y + 26.0, " class=\"pale\"");
        let base = self.y + CURVE;
        let mut path = format!("M{LEFT:.1} {base:.1}");
        for (nth, point) in points.iter().enumerate() {
            let height = if most > 0.0 { value(point) / most * CURVE } else { 0.0 };
            let y = base - height;
            for edge in [nth, nth + 1] {
                let x = self.x(every * u32::try_from(edge).unwrap_or(u32::MAX));
                write!(path, "L{x:.1} {y:.1}").expect("a text takes more text");
            }
        }
        let last = self.x(every * u32::try_from(points.len()).unwrap_or(u32::MAX));
        write!(path, "L{last:.1} {base:.1}Z").expect("a text takes more text");
        let mut put = |text: std::fmt::Arguments<'_>| self.svg.write_fmt(text).expect("a text takes more text");
        put(format_args!(
            "<path d=\"{path}\" fill=\"{fill}\" fill-opacity=\"0.75\"><title>{}</title></path>\n",
            escaped(name)
        ));
        put(format_args!("<path d=\"M{LEFT:.1} {base:.1}H{RIGHT:.1}\" stroke=\"var(--line)\"/>\n"));
        self.y += CURVE + GAP;
    }

    fn finish(mut self) -> String {
        let height = self.y + 20.0;
        // Ten marks or so, of a round number of seconds each.
        let step = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0]
            .into_iter()
            .find(|step| self.seconds / step <= 12.0)
            .unwrap_or(7_200.0);
        let mut axis = String::new();
        let mut at = 0.0;
        while at <= self.seconds {
            let x = self.x(Duration::from_secs_f64(at));
            write!(
                axis,
                "<path d=\"M{x:.1} 12V{:.1}\" stroke=\"var(--line)\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" class=\"pale\" \
                 text-anchor=\"middle\">{at:.0} s</text>\n",
                self.y,
                self.y + 14.0,
            )
            .expect("a text takes more text");
            at += step;
        }
        self.svg.insert_str(0, &axis);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" \
             aria-label=\"What was done and how the records went, over time\">\n{}</svg>\n",
            self.svg
        )
    }

    fn x(&self, at: Duration) -> f64 {
        let share = (at.as_secs_f64() / self.seconds).min(1.0);
        LEFT + share * (RIGHT - LEFT)
    }

    /// From one moment to another.
    fn bar(&mut self, [y, height]: [f64; 2], [from, until]: [Duration; 2], fill: &str, tip: &str) {
        let x = self.x(from);
        let width = (self.x(until) - x).max(MARK);
        writeln!(
            self.svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1\" fill=\"{fill}\">\
             <title>{}</title></rect>",
            escaped(tip)
        )
        .expect("a text takes more text");
    }

    /// A text in a bar, if there is room.
    fn inside(&mut self, text: &str, y: f64, [from, until]: [Duration; 2]) {
        let (x, end) = (self.x(from), self.x(until));
        if end - x > text.len() as f64 * LETTER + 6.0 {
            self.text(text, x + 4.0, y, " pointer-events=\"none\"");
        }
    }

    fn label(&mut self, text: &str, y: f64) {
        self.text(text, 4.0, y, "");
    }

    fn text(&mut self, text: &str, x: f64, y: f64, more: &str) {
        writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{}</text>", escaped(text))
            .expect("a text takes more text");
    }
}
