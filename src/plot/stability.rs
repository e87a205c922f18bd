//! How sure a choice of heads is.

use super::{
    Picture,
    axis::{self, BELOW, Linear},
    colour::{CHOSEN, MUTED, PLAIN as PALE, STRONG},
    page::{Page, nothing},
    rows::{self, ROW, Row, Rows},
    scene::{Anchor, Area, Look, NAME, Scene, TICK},
    terminal::{self, BOLD, DIM, Lines, PLAIN, front, pad, pad_left},
    words::{descending, finite, interval, number, percent, with_interval},
};
use crate::ids::HeadRef;

/// One head's value over the inputs, and over resamples of them.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpread {
    /// Which head.
    pub head: HeadRef,
    /// Mean over the inputs.
    pub mean: f64,
    /// Lower end of the mean's interval; not finite for none.
    pub low: f64,
    /// Upper end of it; not finite for none.
    pub high: f64,
    /// Share of bootstrap resamples in which the head is among the top k, 0 to 1.
    pub top_frequency: f64,
}

/// The best heads with their intervals, and how often each is among the top k of resampled inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Stability {
    /// Words above; may be empty.
    pub title: String,
    /// What is shown, more exactly; may be empty.
    pub subtitle: String,
    /// What the values are, with their unit and which interval is shown.
    pub value_name: String,
    /// In any order; the 16 highest are shown, or four beyond k, at most 40.
    pub heads: Vec<HeadSpread>,
    /// How many heads are chosen.
    pub k: usize,
    /// Mean of rank k minus mean of rank k + 1, in units of the values; not finite for none.
    pub gap: f64,
}

/// Pixels of the panel of means, of the space after it, and of the panel of frequencies.
const MEANS: f64 = 350.0;
const BETWEEN: f64 = 30.0;
const FREQUENCIES: f64 = 250.0;

impl Stability {
    /// The heads shown, from the highest mean.
    fn shown(&self) -> Vec<&HeadSpread> {
        let means: Vec<f64> = self.heads.iter().map(|h| h.mean).collect();
        let most = self.k.saturating_add(4).clamp(16, 40);
        descending(&means).into_iter().take(most).map(|i| &self.heads[i]).collect()
    }

    /// The axis of means; starts at 0 if that is near.
    fn range(shown: &[&HeadSpread]) -> Option<Linear> {
        let ends = |h: &&HeadSpread| [h.mean, h.low, h.high];
        Linear::over(shown.iter().flat_map(ends)).map(|r| r.padded(0.04).with_near_zero())
    }

    /// The gap in words.
    fn caption(&self) -> String {
        let Some(gap) = finite(self.gap) else { return String::new() };
        format!("Gap between ranks {} and {}: {}.", self.k, self.k.saturating_add(1), number(gap))
    }

    /// Says what the frequencies are of: see [`HeadSpread::top_frequency`].
    fn frequency_name(&self) -> String {
        format!("in the top {} of resampled inputs, %", self.k)
    }
}

impl Picture for Stability {
    fn scene(&self) -> Scene {
        let shown = self.shown();
        let range = Self::range(&shown);
        let name =
            |(rank, head): (usize, &&HeadSpread)| Row::named(&head.head.to_string(), "", rank < self.k);
        let rows = Rows(shown.iter().enumerate().map(name).collect());
        let caption = self.caption();
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &caption,
            keys: &[],
            body: (MEANS + BETWEEN + FREQUENCIES, rows.height()),
            margins: [rows.room(), 96.0, 0.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some(range) = range else {
            nothing(&mut scene, body);
            return scene;
        };
        let means = Area { x1: body.x0 + MEANS, ..body };
        let frequencies = Area { x0: body.x1 - FREQUENCIES, ..body };
        axis::bottom(&mut scene, means, &range, &self.value_name);
        axis::bottom(&mut scene, frequencies, &Linear { low: 0.0, high: 100.0 }, &self.frequency_name());
        rows.draw(&mut scene, body);
        for ((rank, head), y) in shown.iter().enumerate().zip(rows.middles(body)) {
            draw_head(&mut scene, head, y, rank < self.k, (means, frequencies, &range));
        }
        if self.k > 0 && self.k < shown.len() {
            let y = body.y0 + ROW * self.k as f64;
            scene.dashed((body.x0 - 40.0, y), (body.x1 + 44.0, y), 1.2, CHOSEN);
            scene.text_beside(
                &format!("top {}", self.k),
                (body.x1 + 50.0, y),
                Look { colour: CHOSEN, ..NAME },
            );
        }
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        lines.paragraph(&self.subtitle, DIM);
        let shown = self.shown();
        match Self::range(&shown) {
            Some(range) => self.write_rows(&mut lines, &shown, &range),
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.caption(), PLAIN);
        lines.finish()
    }
}

/// One head's row, at a height. `panels`: means, frequencies, the axis of means.
fn draw_head(scene: &mut Scene, head: &HeadSpread, y: f64, chosen: bool, panels: (Area, Area, &Linear)) {
    let (means, frequencies, range) = panels;
    let colour = if chosen { STRONG } else { MUTED };
    if let Some((low, high)) = interval(head.low, head.high) {
        scene.whisker((means.x(range.place(low)), means.x(range.place(high))), y, colour);
    }
    match finite(head.mean) {
        Some(mean) => scene.dot((means.x(range.place(mean)), y), 4.2, colour),
        None => scene.text_beside("no value", (means.x0 + 8.0, y), Look { colour: MUTED, ..NAME }),
    }
    let share = finite(head.top_frequency).unwrap_or(0.0).clamp(0.0, 1.0);
    rows::bar(scene, (frequencies.x0, frequencies.x(share)), y, if chosen { STRONG } else { PALE });
    scene.text_beside(&percent(head.top_frequency), (frequencies.x1 + 42.0, y), TICK.at(Anchor::End));
}

/// In the terminal.
impl Stability {
    fn write_rows(&self, lines: &mut Lines, shown: &[&HeadSpread], range: &Linear) {
        let names: Vec<String> = shown.iter().map(|h| h.head.to_string()).collect();
        let name_wide = names.iter().map(String::len).max().unwrap_or(0).max(4);
        let values: Vec<String> =
            shown.iter().map(|h| with_interval(h.mean, interval(h.low, h.high))).collect();
        let value_wide = values.iter().map(|v| terminal::columns(v)).max().unwrap_or(0);
        let rest = lines.width().saturating_sub(name_wide + value_wide + 5 + 5);
        let bars = (rest / 3).min(20);
        let strip = (rest - bars).min(44);
        let head = [pad("head", name_wide), pad(&self.value_name, value_wide + 1 + strip)].join(" ");
        lines.row(&format!("{head} {}", self.frequency_name()), DIM);
        for (rank, head) in shown.iter().enumerate() {
            let paint = if rank < self.k { front(STRONG) } else { PLAIN };
            let ends = interval(head.low, head.high).map(|(l, h)| (range.place(l), range.place(h)));
            let middle = finite(head.mean).map(|m| terminal::whisker(range.place(m), ends, strip));
            lines.put(&pad(&names[rank], name_wide), if rank < self.k { BOLD } else { PLAIN });
            lines.put(&format!(" {} ", pad(&values[rank], value_wide)), PLAIN);
            lines.put(&middle.unwrap_or_else(|| " ".repeat(strip)), paint);
            lines.put(" ", PLAIN);
            lines.put(&terminal::bar(head.top_frequency, bars), paint);
            lines.row(&pad_left(&percent(head.top_frequency), 6), PLAIN);
            if rank + 1 == self.k && self.k < shown.len() {
                let words = format!("── top {} ", self.k);
                let line = name_wide + 1 + value_wide + 1 + strip + 1 + bars + 6;
                lines
                    .row(&(words.clone() + &"─".repeat(line.saturating_sub(terminal::columns(&words)))), DIM);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stability(n: u16, k: usize) -> Stability {
        let spread = |i: u16| HeadSpread {
            head: HeadRef { layer: i, head: 3 },
            mean: f64::from(i) / 100.0,
            low: f64::from(i) / 100.0 - 0.02,
            high: f64::from(i) / 100.0 + 0.03,
            top_frequency: f64::from(i) / f64::from(n),
        };
        Stability {
            title: String::new(),
            subtitle: String::new(),
            value_name: "mass".into(),
            heads: (0..n).map(spread).collect(),
            k,
            gap: 0.01,
        }
    }

    #[test]
    fn the_highest_heads_come_first_and_the_cut_is_drawn() {
        let shown: Vec<u16> = stability(30, 2).shown().iter().map(|h| h.head.layer).collect();
        assert_eq!(shown, (14..30).rev().collect::<Vec<_>>());
        assert_eq!(stability(30, 20).shown().len(), 24);
        assert_eq!(stability(90, usize::MAX).shown().len(), 40);
        let svg = stability(30, 2).svg();
        assert!(svg.contains(">\ntop 2\n<") && svg.contains(">\nL29H3\n<") && !svg.contains(">\nL13H3\n<"));
        assert!(!stability(2, 2).svg().contains(">\ntop 2\n<"), "there is nothing below");
        let text = stability(30, 2).terminal(80, false);
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[1].starts_with("L29H3 ") && rows[3].starts_with("── top 2 ─"), "{text}");
        assert!(rows[1].contains("0.290 [0.270, 0.320]") && rows[1].ends_with("97 %"), "{text}");
    }

    #[test]
    fn the_gap_is_told_and_what_the_shares_are_of() {
        let mut stability = stability(30, 2);
        assert!(stability.svg().contains("Gap between ranks 2 and 3: 0.0100."));
        assert!(stability.svg().contains(">\nin the top 2 of resampled inputs, %\n<"), "whole");
        stability.gap = f64::NAN;
        assert_eq!(stability.caption(), "");
    }

    #[test]
    fn heads_without_a_value_come_last_in_words() {
        let mut stability = stability(4, 1);
        stability.heads[3].mean = f64::NAN;
        stability.heads[2].low = f64::INFINITY;
        assert_eq!(stability.shown()[3].head.layer, 3);
        assert!(stability.svg().contains(">\nno value\n<"));
        stability.heads.clear();
        assert!(stability.svg().contains("no data") && stability.terminal(30, true).contains("no data"));
    }
}
