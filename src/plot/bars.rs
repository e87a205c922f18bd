//! Values with intervals as level bars: tables of an evaluation.

use super::{
    Picture,
    axis::{self, BELOW, Linear},
    colour::{AXIS, INK, MUTED, PLAIN as PALE, STRONG},
    font,
    page::{Page, nothing},
    scene::{Anchor, Area, Look, NAME, Scene, TICK},
    terminal::{self, BOLD, DIM, Lines, PLAIN, front, pad, pad_left},
    words::{clean, finite, interval, number, with_interval},
};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its length, in [`Bars::unit`]; "no value" unless finite.
    pub value: f64,
    /// Lower end of its interval; not finite for none.
    pub low: f64,
    /// Upper end of it; not finite for none.
    pub high: f64,
    /// Drawn strongly.
    pub highlight: bool,
}

/// Level bars from 0, one below the other, such as methods and their AUROC.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Words above; may be empty.
    pub title: String,
    /// In the order shown, from the top; the first 40 are drawn.
    pub rows: Vec<Bar>,
    /// What the values are, with their unit.
    pub unit: String,
}

const ROW: f64 = 22.0;
/// Pixels of the bars.
const WIDTH: f64 = 360.0;
/// Widest label, in pixels; longer ones are cut.
const WIDEST_LABEL: f64 = 240.0;
const MOST_ROWS: usize = 40;

impl Bars {
    fn shown(&self) -> &[Bar] {
        &self.rows[..self.rows.len().min(MOST_ROWS)]
    }

    /// The axis: all values and intervals, and 0, from which bars grow.
    fn range(&self) -> Option<Linear> {
        let ends = |b: &Bar| [b.value, b.low, b.high];
        Some(Linear::over(self.shown().iter().flat_map(ends))?.with_zero().rounded())
    }

    fn caption(&self) -> String {
        match self.rows.len().saturating_sub(MOST_ROWS) {
            0 => String::new(),
            n => format!("{n} more rows are not shown."),
        }
    }
}

impl Bar {
    fn words(&self) -> String {
        with_interval(self.value, interval(self.low, self.high))
    }
}

impl Picture for Bars {
    fn scene(&self) -> Scene {
        let labels: Vec<String> =
            self.shown().iter().map(|b| font::fit(&clean(&b.label), WIDEST_LABEL / NAME.em)).collect();
        let widest = labels.iter().map(|l| font::width(l) * NAME.em).fold(30.0, f64::max);
        let numbers = self.shown().iter().map(|b| font::width(&b.words()) * TICK.em).fold(30.0, f64::max);
        let page = Page {
            title: &self.title,
            caption: &self.caption(),
            keys: &[],
            body: (WIDTH, ROW * labels.len().max(2) as f64),
            margins: [widest + 10.0, numbers + 14.0, 0.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some(range) = self.range() else {
            nothing(&mut scene, body);
            return scene;
        };
        axis::bottom(&mut scene, body, &range, &self.unit);
        for (i, (bar, label)) in self.shown().iter().zip(&labels).enumerate() {
            let y = body.y0 + ROW * (i as f64 + 0.5);
            let name = Look { colour: if bar.highlight { INK } else { MUTED }, ..NAME };
            scene.text_beside(label, (body.x0 - 10.0, y), name.at(Anchor::End));
            scene.text_beside(&bar.words(), (body.x1 + 14.0, y), Look { colour: name.colour, ..TICK });
            draw_bar(&mut scene, bar, y, body, &range);
        }
        let zero = body.x(range.place(0.0));
        scene.line((zero, body.y0), (zero, body.y1), 1.2, AXIS);
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        match self.range() {
            Some(range) => self.write_rows(&mut lines, &range),
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.caption(), DIM);
        lines.finish()
    }
}

/// One bar with its interval, its middle at a height.
fn draw_bar(scene: &mut Scene, bar: &Bar, y: f64, body: Area, range: &Linear) {
    let x = |value: f64| body.x(range.place(value));
    if let Some(value) = finite(bar.value) {
        let (from, to) = (x(value.min(0.0)), x(value.max(0.0)));
        let area = Area { x0: from, y0: y - ROW * 0.33, x1: to, y1: y + ROW * 0.33 };
        scene.rect(area, if bar.highlight { STRONG } else { PALE });
    }
    if let Some((low, high)) = interval(bar.low, bar.high) {
        scene.whisker((x(low), x(high)), y, INK);
    }
}

/// In the terminal.
impl Bars {
    /// Bars begin at the left end of the range, which is 0 unless values are negative.
    fn write_rows(&self, lines: &mut Lines, range: &Linear) {
        let values: Vec<String> = self.shown().iter().map(Bar::words).collect();
        let value_wide = values.iter().map(|v| terminal::columns(v)).max().unwrap_or(0);
        let labels = self.shown().iter().map(|b| terminal::columns(&clean(&b.label)));
        let label_wide = labels.max().unwrap_or(0).min(lines.width() / 3);
        let bar_wide = lines.width().saturating_sub(label_wide + value_wide + 4).min(50);
        for (bar, value) in self.shown().iter().zip(&values) {
            let strong = if bar.highlight { BOLD } else { PLAIN };
            lines.put(if bar.highlight { "▶ " } else { "  " }, strong);
            lines.put(&pad(&bar.label, label_wide), strong);
            lines.put(" ", PLAIN);
            let share = finite(bar.value).map_or(0.0, |v| range.place(v));
            lines.put(&terminal::bar(share, bar_wide), front(if bar.highlight { STRONG } else { AXIS }));
            lines.row(&format!(" {value}"), strong);
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
        Bar { label: label.into(), value, low: value - 0.05, high: value + 0.05, highlight: value > 0.8 }
    }

    fn bars(rows: Vec<Bar>) -> Bars {
        Bars { title: "T".into(), rows, unit: "AUROC".into() }
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
}
