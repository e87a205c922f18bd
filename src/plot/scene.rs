//! A picture as a list of shapes, in pixels of the SVG (96 to the inch) from its upper left corner. Later shapes lie on top.

use super::{
    colour::{AXIS, Colour, GRID, INK, MUTED, WHITE},
    words::clean,
};

/// A rectangle with `x0 <= x1` and `y0 <= y1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) x0: f64,
    pub(super) y0: f64,
    pub(super) x1: f64,
    pub(super) y1: f64,
}

impl Area {
    pub(super) fn width(&self) -> f64 {
        self.x1 - self.x0
    }

    pub(super) fn height(&self) -> f64 {
        self.y1 - self.y0
    }

    /// The point a share of the way to the right.
    pub(super) fn x(&self, share: f64) -> f64 {
        self.x0 + self.width() * share
    }

    /// The point a share of the way up.
    pub(super) fn y(&self, share: f64) -> f64 {
        self.y1 - self.height() * share
    }
}

/// Which point of a text its position is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    /// Font size in pixels.
    pub(super) em: f64,
    pub(super) colour: Colour,
    pub(super) anchor: Anchor,
    /// Written from bottom to top.
    pub(super) upward: bool,
}

impl Look {
    const fn of(em: f64, colour: Colour) -> Self {
        Self { em, colour, anchor: Anchor::Start, upward: false }
    }

    pub(super) const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(super) const fn upward(self) -> Self {
        Self { upward: true, anchor: Anchor::Middle, ..self }
    }
}

/// Titles.
pub(super) const TITLE: Look = Look::of(15.0, INK);
/// Names of rows, axes and groups.
pub(super) const NAME: Look = Look::of(12.0, INK);
/// Numbers at axes.
pub(super) const TICK: Look = Look::of(11.0, MUTED);
/// Sentences below.
pub(super) const CAPTION: Look = Look::of(11.5, MUTED);

/// Half the height of digits and capitals, in em: from the middle of a text to its baseline.
pub(super) const HALF_CAPITAL: f64 = 0.35;

/// One shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Rect { area: Area, fill: Colour },
    Line { from: (f64, f64), to: (f64, f64), width: f64, colour: Colour },
    Polygon { corners: Vec<(f64, f64)>, fill: Colour },
    Dot { centre: (f64, f64), radius: f64, fill: Colour },
    Text { text: String, at: (f64, f64), look: Look },
}

/// A picture as shapes, ready to be written as SVG or PNG. It is made by [`super::Picture::scene`].
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    /// A white page of at least this size.
    pub(super) fn new(width: f64, height: f64) -> Self {
        let (width, height) = (width.ceil(), height.ceil());
        let page = Area { x0: 0.0, y0: 0.0, x1: width, y1: height };
        Self {
            width: width as u32,
            height: height as u32,
            shapes: vec![Shape::Rect { area: page, fill: WHITE }],
        }
    }

    /// Width and height in pixels of the SVG.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    pub(super) fn rect(&mut self, area: Area, fill: Colour) {
        self.shapes.push(Shape::Rect { area, fill });
    }

    pub(super) fn polygon(&mut self, corners: Vec<(f64, f64)>, fill: Colour) {
        self.shapes.push(Shape::Polygon { corners, fill });
    }

    pub(super) fn dot(&mut self, centre: (f64, f64), radius: f64, fill: Colour) {
        self.shapes.push(Shape::Dot { centre, radius, fill });
    }

    /// A straight line. Level and upright ones become rectangles, square at their ends, which all backends draw sharply.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: Colour) {
        if from.0 != to.0 && from.1 != to.1 {
            self.shapes.push(Shape::Line { from, to, width, colour });
            return;
        }
        let half = width / 2.0;
        let area = Area {
            x0: from.0.min(to.0) - half,
            y0: from.1.min(to.1) - half,
            x1: from.0.max(to.0) + half,
            y1: from.1.max(to.1) + half,
        };
        self.rect(area, colour);
    }

    /// A dashed level or upright line.
    pub(super) fn dashed(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: Colour) {
        const DASH: f64 = 4.0;
        const GAP: f64 = 4.0;
        let length = (to.0 - from.0).hypot(to.1 - from.1).max(f64::MIN_POSITIVE);
        let point = |at: f64| {
            let share = (at / length).min(1.0);
            (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
        };
        let dashes = (length / (DASH + GAP)).ceil() as usize;
        for dash in 0..dashes {
            let start = dash as f64 * (DASH + GAP);
            self.line(point(start), point(start + DASH), width, colour);
        }
    }

    /// The border of an area.
    pub(super) fn frame(&mut self, area: Area, width: f64, colour: Colour) {
        let corners = [(area.x0, area.y0), (area.x1, area.y0), (area.x1, area.y1), (area.x0, area.y1)];
        for i in 0..4 {
            self.line(corners[i], corners[(i + 1) % 4], width, colour);
        }
    }

    /// A line behind data.
    pub(super) fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.line(from, to, 1.0, GRID);
    }

    /// A line of an axis.
    pub(super) fn rule(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.line(from, to, 1.0, AXIS);
    }

    /// A text whose baseline (its right side when written upward) goes through `at`.
    pub(super) fn text(&mut self, text: &str, at: (f64, f64), look: Look) {
        self.shapes.push(Shape::Text { text: clean(text), at, look });
    }

    /// A level text whose middle is at a height.
    pub(super) fn text_beside(&mut self, text: &str, at: (f64, f64), look: Look) {
        self.text(text, (at.0, at.1 + look.em * HALF_CAPITAL), look);
    }

    /// An interval as a level line with ends, seen on any colour: it has a white edge.
    pub(super) fn whisker(&mut self, ends: (f64, f64), y: f64, colour: Colour) {
        const END: f64 = 3.5;
        for (wider, colour) in [(1.8, WHITE), (0.0, colour)] {
            self.line((ends.0, y), (ends.1, y), 1.4 + wider, colour);
            for x in [ends.0, ends.1] {
                self.line((x, y - END - wider / 2.0), (x, y + END + wider / 2.0), 1.4 + wider, colour);
            }
        }
    }

    /// An interval of another kind, as a level dashed line with ends.
    pub(super) fn dashed_whisker(&mut self, ends: (f64, f64), y: f64, colour: Colour) {
        const END: f64 = 3.5;
        self.dashed((ends.0, y), (ends.1, y), 1.4, colour);
        for x in [ends.0, ends.1] {
            self.line((x, y - END), (x, y + END), 1.4, colour);
        }
    }
}
