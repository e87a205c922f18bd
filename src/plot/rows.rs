//! Named rows below each other: what pictures of bars and of heads share.

use super::{
    colour::{Colour, INK, MUTED, WHITE},
    font::{drawn_width, fit, widest},
    scene::{Anchor, Area, Look, NAME, Scene, TICK},
};

/// Height of a row, of one with small words below its name, and of a heading.
pub(super) const ROW: f64 = 22.0;
const TALL: f64 = 33.0;
const HEADING: f64 = 28.0;
/// Widest name, in pixels; longer ones are cut.
const WIDEST: f64 = 300.0;
/// From names to what they name.
const GAP: f64 = 10.0;

/// One row.
#[derive(Clone, Debug)]
pub(super) enum Row {
    /// Something with a name, words below it (may be empty), and the colour of the name.
    Named { name: String, below: String, colour: Colour },
    /// Words above the rows that follow.
    Heading(String),
}

impl Row {
    pub(super) fn named(name: &str, below: &str, strong: bool) -> Self {
        let colour = if strong { INK } else { MUTED };
        Self::Named { name: fit(name, WIDEST / NAME.em), below: fit(below, WIDEST / TICK.em), colour }
    }

    fn height(&self) -> f64 {
        match self {
            Self::Heading(_) => HEADING,
            Self::Named { below, .. } if below.is_empty() => ROW,
            Self::Named { .. } => TALL,
        }
    }
}

/// Rows, laid out.
pub(super) struct Rows(pub(super) Vec<Row>);

impl Rows {
    /// Room left of an area for the names.
    pub(super) fn room(&self) -> f64 {
        let of = |row: &Row| match row {
            Row::Named { name, below, .. } => widest([name], NAME.em).max(widest([below], TICK.em)),
            Row::Heading(_) => 0.0,
        };
        self.0.iter().map(of).fold(30.0, f64::max) + GAP
    }

    /// Height of all, at least of two.
    pub(super) fn height(&self) -> f64 {
        self.0.iter().map(Row::height).sum::<f64>().max(2.0 * ROW)
    }

    /// The height at which each row's middle lies.
    pub(super) fn middles(&self, area: Area) -> Vec<f64> {
        let mut top = area.y0;
        let mut middle = |row: &Row| {
            top += row.height();
            top - row.height() / 2.0
        };
        self.0.iter().map(&mut middle).collect()
    }

    /// Writes the names left of an area, and headings over whatever is there.
    pub(super) fn draw(&self, scene: &mut Scene, area: Area) {
        for (row, y) in self.0.iter().zip(self.middles(area)) {
            match row {
                Row::Heading(words) => {
                    let from = area.x0 - self.room();
                    draw_heading(scene, words, (from, y + 3.0), area.x1 - from);
                }
                Row::Named { name, below, colour } => {
                    let x = area.x0 - GAP;
                    let apart = if below.is_empty() { 0.0 } else { 7.0 };
                    let look = Look { colour: *colour, ..NAME.at(Anchor::End) };
                    scene.text_beside(name, (x, y - apart), look);
                    scene.text_beside(below, (x, y + apart), TICK.at(Anchor::End));
                }
            }
        }
    }
}

/// A heading of at most so many pixels; no line goes through it.
fn draw_heading(scene: &mut Scene, words: &str, (x, y): (f64, f64), most: f64) {
    let words = fit(words, most / NAME.em);
    let under = Area {
        x0: x,
        y0: y - NAME.em * 0.7,
        x1: x + drawn_width(&words) * NAME.em + 6.0,
        y1: y + NAME.em * 0.7,
    };
    scene.rect(under, WHITE);
    scene.text_beside(&words, (x, y), NAME);
}

/// A level bar in a row, its middle at a height.
pub(super) fn bar(scene: &mut Scene, (from, to): (f64, f64), y: f64, colour: Colour) {
    const HALF: f64 = ROW * 0.33;
    scene.rect(Area { x0: from.min(to), y0: y - HALF, x1: from.max(to), y1: y + HALF }, colour);
}
