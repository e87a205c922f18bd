//! Values with intervals as level bars: tables of an evaluation.

use super::{
    Picture,
    axis::{self, BELOW, Linear},
    colour::{AXIS, INK, MUTED, ODD, PLAIN as PALE, STRONG},
    font::widest,
    page::{Key, Mark, Page, nothing},
    rows::{self, Row, Rows},
    scene::{Anchor, Area, Look, Scene, TICK},
    terminal::{self, BOLD, DIM, Lines, PLAIN, front, pad, pad_left},
    words::{clean, finite, interval, number, with_interval},
};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// More words, written small below the label; may be empty.
    pub detail: String,
    /// Its length, in [`Bars::unit`]; "no value" unless finite.
    pub value: f64,
    /// Lower end of its interval; not finite for none.
    pub low: f64,
    /// Upper end of it; not finite for none.
    pub high: f64,
    /// How it is drawn.
    pub kind: BarKind,
}

/// How a bar is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// As most.
    Plain,
    /// Strongly: what the picture is about.
    Main,
    /// Faintly and with a dashed interval: the interval is of another kind than the others.
    Odd,
}

/// Bars under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// Words above its bars; none where empty.
    pub name: String,
    /// In the order shown, from the top.
    pub bars: Vec<Bar>,
}

/// Level bars from 0, one below the other, such as methods and their AUROC.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Words above; may be empty.
    pub title: String,
    /// What is shown, more exactly; may be empty.
    pub subtitle: String,
    /// In the order shown; the first 40 bars of all are drawn.
    pub groups: Vec<BarGroup>,
    /// What the values are, with their unit and interval.
    pub unit: String,
    /// A value all bars are compared with, and its name: a dashed line.
    pub mark: Option<(f64, String)>,
    /// What the intervals of [`BarKind::Odd`] are; told where there is one.
    pub odd: String,
}

/// Pixels of the bars.
const WIDTH: f64 = 360.0;
const MOST_ROWS: usize = 40;

/// What a row of the picture shows.
enum Shown<'a> {
    Heading(&'a str),
    Bar(&'a Bar),
}

impl Bars {
    /// Headings and bars in their order.
    fn shown(&self) -> Vec<Shown<'_>> {
        let mut room = MOST_ROWS;
        let mut shown = Vec::new();
        for group in &self.groups {
            let bars = &group.bars[..group.bars.len().min(room)];
            room -= bars.len();
            if !bars.is_empty() && !group.name.is_empty() {
                shown.push(Shown::Heading(&group.name));
            }
            shown.extend(bars.iter().map(Shown::Bar));
        }
        shown
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    /// The axis: all values and intervals, the mark, and 0, from which bars grow.
    fn range(&self) -> Option<Linear> {
        let ends = |b: &Bar| [b.value, b.low, b.high];
        let all = || self.bars().take(MOST_ROWS).flat_map(ends);
        Linear::over(all())?;
        Some(Linear::over(all().chain(self.mark().map(|(value, _)| value)))?.with_zero().rounded())
    }

    fn mark(&self) -> Option<(f64, &str)> {
        let (value, name) = self.mark.as_ref()?;
        Some((finite(*value)?, name))
    }

    fn caption(&self) -> String {
        match self.bars().count().saturating_sub(MOST_ROWS) {
            0 => String::new(),
            1 => "One more row is not shown.".to_owned(),
            n => format!("{n} more rows are not shown."),
        }
    }

    fn keys(&self) -> Vec<Key> {
        let odd = self.bars().any(|bar| bar.kind == BarKind::Odd) && !self.odd.is_empty();
        let key = |name: &String| Key { name: name.clone(), mark: Mark::Square, colour: ODD };
        odd.then(|| key(&self.odd)).into_iter().collect()
    }
}

impl Bar {
    fn words(&self) -> String {
        with_interval(self.value, interval(self.low, self.high))
    }

    fn is_main(&self) -> bool {
        self.kind == BarKind::Main
    }
}

impl Picture for Bars {
    fn scene(&self) -> Scene {
        let shown = self.shown();
        let row = |row: &Shown<'_>| match row {
            Shown::Heading(name) => Row::Heading(clean(name)),
            Shown::Bar(bar) => Row::named(&clean(&bar.label), &clean(&bar.detail), bar.is_main()),
        };
        let rows = Rows(shown.iter().map(row).collect());
        let numbers = widest(self.bars().take(MOST_ROWS).map(Bar::words), TICK.em).max(30.0);
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &self.caption(),
            keys: &self.keys(),
            body: (WIDTH, rows.height()),
            margins: [rows.room(), numbers + 14.0, if self.mark().is_some() { 16.0 } else { 0.0 }, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some(range) = self.range() else {
            nothing(&mut scene, body);
            return scene;
        };
        axis::bottom(&mut scene, body, &range, &self.unit);
        for (row, y) in shown.iter().zip(rows.middles(body)) {
            if let Shown::Bar(bar) = row {
                let colour = if bar.is_main() { INK } else { MUTED };
                scene.text_beside(&bar.words(), (body.x1 + 14.0, y), Look { colour, ..TICK });
                draw_bar(&mut scene, bar, y, body, &range);
            }
        }
        let zero = body.x(range.place(0.0));
        scene.line((zero, body.y0), (zero, body.y1), 1.2, AXIS);
        if let Some((value, name)) = self.mark() {
            draw_mark(&mut scene, body, body.x(range.place(value)), name);
        }
        rows.draw(&mut scene, body);
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        lines.paragraph(&self.subtitle, DIM);
        match self.range() {
            Some(range) => self.write_rows(&mut lines, &range),
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.caption(), DIM);
        lines.finish()
    }
}

/// A dashed line through all rows, its name above it.
fn draw_mark(scene: &mut Scene, body: Area, x: f64, name: &str) {
    scene.dashed((x, body.y0), (x, body.y1), 1.2, INK);
    let name = super::font::fit(name, body.width() / 2.0 / TICK.em);
    // near an end of the axis it is written to the inside
    let share = (x - body.x0) / body.width();
    let anchor = match share {
        s if s < 0.3 => Anchor::Start,
        s if s > 0.7 => Anchor::End,
        _ => Anchor::Middle,
    };
    scene.text(&name, (x, body.y0 - 5.0), TICK.at(anchor));
}

/// One bar with its interval, its middle at a height.
fn draw_bar(scene: &mut Scene, bar: &Bar, y: f64, body: Area, range: &Linear) {
    let x = |value: f64| body.x(range.place(value));
    if let Some(value) = finite(bar.value) {
        let colour = match bar.kind {
            BarKind::Main => STRONG,
            BarKind::Plain => PALE,
            BarKind::Odd => ODD,
        };
        rows::bar(scene, (x(0.0), x(value)), y, colour);
    }
    if let Some((low, high)) = interval(bar.low, bar.high) {
        match bar.kind {
            BarKind::Odd => scene.dashed_whisker((x(low), x(high)), y, INK),
            BarKind::Main | BarKind::Plain => scene.whisker((x(low), x(high)), y, INK),
        }
    }
}

/// In the terminal.
impl Bars {
    /// Bars begin at the left end of the range, which is 0 unless values are negative.
    fn write_rows(&self, lines: &mut Lines, range: &Linear) {
        let shown = self.shown();
        let bars = || {
            shown.iter().filter_map(|row| match row {
                Shown::Bar(bar) => Some(*bar),
                Shown::Heading(_) => None,
            })
        };
        let value_wide = bars().map(|b| terminal::columns(&b.words())).max().unwrap_or(0);
        let label = |bar: &Bar| format!("{} {}", bar.label, bar.detail).trim_end().to_owned();
        let label_wide = bars().map(|b| terminal::columns(&clean(&label(b)))).max().unwrap_or(0);
        let label_wide = label_wide.min(lines.width() / 3);
        let bar_wide = lines.width().saturating_sub(label_wide + value_wide + 4).min(50);
        for row in &shown {
            let bar = match row {
                Shown::Heading(name) => {
                    lines.row(name, DIM);
                    continue;
                }
                Shown::Bar(bar) => bar,
            };
            let strong = if bar.is_main() { BOLD } else { PLAIN };
            lines.put(if bar.is_main() { "▶ " } else { "  " }, strong);
            lines.put(&pad(&label(bar), label_wide), strong);
            lines.put(" ", PLAIN);
            let share = finite(bar.value).map_or(0.0, |v| range.place(v));
            lines.put(&terminal::bar(share, bar_wide), front(if bar.is_main() { STRONG } else { AXIS }));
            lines.row(&format!(" {}", pad_left(&bar.words(), 0)), strong);
        }
        let ends =
            format!("{}{}", number(range.low), pad_left(&number(range.high), bar_wide.saturating_sub(1)));
        lines.row(&format!("{}{ends}", " ".repeat(label_wide + 3)), DIM);
        lines.row(&self.unit, DIM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::scene::Shape;

    fn bar(label: &str, value: f64) -> Bar {
        let kind = if value > 0.8 { BarKind::Main } else { BarKind::Plain };
        let (label, detail) = (label.into(), String::new());
        Bar { label, detail, value, low: value - 0.05, high: value + 0.05, kind }
    }

    fn bars(bars: Vec<Bar>) -> Bars {
        let groups = vec![BarGroup { name: String::new(), bars }];
        let [title, unit] = ["T", "AUROC"].map(Into::into);
        Bars { title, subtitle: String::new(), groups, unit, mark: None, odd: "of sets".into() }
    }

    /// The bars drawn in a colour, as left and right ends.
    fn drawn(picture: &Bars, colour: crate::plot::colour::Colour) -> Vec<(f64, f64)> {
        let shapes = picture.scene().shapes.into_iter();
        let ends = |s| match s {
            Shape::Rect { area, fill } if fill == colour => Some((area.x0, area.x1)),
            _ => None,
        };
        shapes.filter_map(ends).collect()
    }

    #[test]
    fn bars_grow_from_zero_in_proportion() {
        let picture = bars(vec![bar("a", 0.4), bar("b", 0.2), bar("c", -0.2), bar("d", 0.9)]);
        let plain = drawn(&picture, PALE);
        let lengths: Vec<f64> = plain.iter().map(|(from, to)| to - from).collect();
        assert!((lengths[0] / lengths[1] - 2.0).abs() < 1e-9 && (lengths[1] - lengths[2]).abs() < 1e-9);
        assert_eq!(plain[0].0, plain[1].0);
        assert!((plain[2].1 - plain[0].0).abs() < 1e-9, "the negative bar ends where the others begin");
        assert_eq!(drawn(&picture, STRONG).len(), 1);
        assert!(drawn(&bars(vec![bar("a", f64::NAN)]), PALE).is_empty());
    }

    #[test]
    fn rows_say_their_numbers() {
        let picture = bars(vec![bar("QRAE", 0.9), bar("no interval", f64::NAN)]);
        let svg = picture.svg();
        assert!(svg.contains(">\n0.900 [0.850, 0.950]\n<") && svg.contains(">\nno value\n<"));
        let text = picture.terminal(60, false);
        let first = text.lines().nth(1).unwrap();
        assert!(first.starts_with("▶ QRAE ") && first.ends_with("0.900 [0.850, 0.950]"), "{text}");
        assert!(bars(vec![]).svg().contains("no data"));
    }

    #[test]
    fn many_rows_are_cut_in_words() {
        let picture = bars((0..50).map(|i| bar(&format!("method {i}"), 0.5)).collect());
        let svg = picture.svg();
        assert!(svg.contains("10 more rows are not shown."));
        assert!(svg.contains(">\nmethod 39\n<") && !svg.contains(">\nmethod 40\n<"));
        assert!(picture.scene().size().1 < 1100);
    }

    #[test]
    fn groups_have_headings_and_long_names_are_whole() {
        let method = "query_mean/null_query/scaled_sum";
        let mut named = bar("qwen2.5-coder-0.5b-instruct@0123456789ab", 0.9);
        named.detail = method.into();
        let other = BarGroup { name: "by AUROC, a row per method".into(), bars: vec![bar(method, 0.7)] };
        let picture =
            Bars { groups: vec![BarGroup { name: String::new(), bars: vec![named] }, other], ..bars(vec![]) };
        let svg = picture.svg();
        assert_eq!(svg.matches(&format!(">\n{method}\n<")).count(), 2, "below a name, and as one: {svg}");
        assert!(svg.contains(">\nqwen2.5-coder-0.5b-instruct@0123456789ab\n<"), "{svg}");
        assert!(svg.contains(">\nby AUROC, a row per method\n<"));
        let below = svg.split("by AUROC, a row per method").nth(1).unwrap();
        assert!(!below.contains("<rect"), "nothing is drawn over a heading: {below}");
    }

    #[test]
    fn what_all_are_compared_with_is_a_line_and_odd_intervals_are_told() {
        let mut odd = bar("random", 0.5);
        odd.kind = BarKind::Odd;
        let plain = bars(vec![bar("a", 0.4)]);
        let picture = Bars { mark: Some((0.5, "chance".into())), ..bars(vec![bar("a", 0.4), odd]) };
        let svg = picture.svg();
        assert!(svg.contains(">\nchance\n<") && svg.contains(">\nof sets\n<"));
        assert!(!plain.svg().contains("chance") && !plain.svg().contains("of sets"));
        assert!(drawn(&picture, ODD).len() > 1, "its key and its bar");
    }

    #[test]
    fn intervals_are_seen_on_strong_bars() {
        let picture = bars(vec![bar("main", 0.9)]);
        let whites = drawn(&picture, crate::plot::colour::WHITE);
        let strong = drawn(&picture, STRONG)[0];
        assert!(whites.iter().any(|w| w.0 < strong.1 && w.1 > strong.1), "a white edge over the bar's end");
    }
}
