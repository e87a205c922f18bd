//! Axes: which numbers they run through, where their ticks are, and how they are drawn.

use super::{
    font::{fit, widest, width},
    scene::{Anchor, Area, NAME, Scene, TICK},
    words::finite,
};

/// Room below an area for a bottom axis with its name, in pixels.
pub(super) const BELOW: f64 = 42.0;
/// Room left of a left axis for its name.
const NAME_ROOM: f64 = 24.0;
/// From an axis to its numbers.
const TICK_GAP: f64 = 7.0;

/// The numbers from `low` to `high`, evenly spread. `low < high`, both finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A number at an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Share of the way along the axis.
    pub(super) place: f64,
    pub(super) label: String,
}

impl Linear {
    /// From the lowest to the highest finite number, wider where these are the same; `None` without any.
    pub(super) fn over(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut finite = values.into_iter().filter_map(finite);
        let first = finite.next()?;
        let (low, high) = finite.fold((first, first), |(l, h), v| (l.min(v), h.max(v)));
        let size = low.abs().max(high.abs());
        Some(if high - low > size * 1e-9 {
            Self { low, high }
        } else if size == 0.0 {
            Self { low: 0.0, high: 1.0 }
        } else {
            Self { low: low - size * 0.1, high: high + size * 0.1 }
        })
    }

    /// Begins (or ends) at 0 if all numbers lie on one side of it.
    #[must_use]
    pub(super) fn with_zero(self) -> Self {
        Self { low: self.low.min(0.0), high: self.high.max(0.0) }
    }

    /// The same with 0 where that is near.
    #[must_use]
    pub(super) fn with_near_zero(self) -> Self {
        if self.low > 0.0 && self.low < 0.25 * self.high { self.with_zero() } else { self }
    }

    /// Wider on both sides by a share of its length, but not across 0.
    #[must_use]
    pub(super) fn padded(self, share: f64) -> Self {
        let by = (self.high - self.low) * share;
        let low = if self.low >= 0.0 { (self.low - by).max(0.0) } else { self.low - by };
        let high = if self.high <= 0.0 { (self.high + by).min(0.0) } else { self.high + by };
        Self { low, high }
    }

    /// Where a number is, as a share of the way from `low` to `high`; numbers outside are at the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Ends at round numbers, at most a tenth of its length further on each side.
    #[must_use]
    pub(super) fn rounded(self) -> Self {
        let step = self.step(10);
        let (low, high) = ((self.low / step + 1e-9).floor() * step, (self.high / step - 1e-9).ceil() * step);
        Self { low: low.min(self.low), high: high.max(self.high) }
    }

    /// The least multiple of 1, 2 or 5 times a power of ten that needs no more than `most` steps.
    fn step(&self, most: usize) -> f64 {
        let raw = (self.high - self.low) / most.max(1) as f64;
        let base = 10_f64.powi(raw.log10().floor() as i32);
        let nice = [1.0, 2.0, 5.0, 10.0].map(|m| m * base);
        nice.into_iter().find(|s| *s >= raw * (1.0 - 1e-9)).unwrap_or(nice[3])
    }

    /// At most about `most` ticks at multiples of 1, 2 or 5 times a power of ten.
    pub(super) fn ticks(&self, most: usize) -> Vec<Tick> {
        let step = self.step(most);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let tick = |i: i64| {
            let value = i as f64 * step;
            Tick { place: self.place(value), label: self.label(value, step) }
        };
        (first..=last).take(64).map(tick).collect()
    }

    /// A tick's number with as many digits as its step needs.
    fn label(&self, value: f64, step: f64) -> String {
        let of_step = (step.log10() + 1e-9).floor() as i32;
        if value == 0.0 {
            "0".to_owned()
        } else if self.low.abs().max(self.high.abs()) < 1e6 && of_step > -6 {
            let decimals = (-of_step).max(0) as usize;
            format!("{value:.decimals$}")
        } else {
            let digits = (value.abs().log10().floor() as i32 - of_step).clamp(0, 9) as usize;
            format!("{value:.digits$e}")
        }
    }
}

/// Ticks of a level axis of so many pixels: as many as their labels have room for.
fn level_ticks(linear: &Linear, pixels: f64) -> Vec<Tick> {
    let most = (pixels / 45.0).clamp(1.0, 10.0) as usize;
    let apart = |ticks: &[Tick]| {
        ticks.windows(2).all(|pair| {
            let labels = (width(&pair[0].label) + width(&pair[1].label)) / 2.0 * TICK.em;
            (pair[1].place - pair[0].place) * pixels > labels + 8.0
        })
    };
    let fewer = (1..=most).rev().map(|n| linear.ticks(n));
    fewer.into_iter().find(|ticks| apart(ticks)).unwrap_or_default()
}

/// Draws a level axis below an area, with lines through it, and its name.
pub(super) fn bottom(scene: &mut Scene, area: Area, linear: &Linear, name: &str) {
    for tick in level_ticks(linear, area.width()) {
        let x = area.x(tick.place);
        scene.grid((x, area.y0), (x, area.y1));
        tick_below(scene, (x, area.y1), &tick.label);
    }
    scene.rule((area.x0, area.y1), (area.x1, area.y1));
    bottom_name(scene, area, name);
}

/// A number below a level axis, with its tick.
pub(super) fn tick_below(scene: &mut Scene, (x, y): (f64, f64), label: &str) {
    scene.rule((x, y), (x, y + 4.0));
    scene.text(label, (x, y + 16.0), TICK.at(Anchor::Middle));
}

/// A number left of an upright axis, with its tick.
pub(super) fn tick_left(scene: &mut Scene, (x, y): (f64, f64), label: &str) {
    scene.rule((x - 4.0, y), (x, y));
    scene.text_beside(label, (x - TICK_GAP, y), TICK.at(Anchor::End));
}

/// Writes the name of a level axis.
pub(super) fn bottom_name(scene: &mut Scene, area: Area, name: &str) {
    let name = fit(name, area.width() / NAME.em);
    scene.text(&name, (area.x(0.5), area.y1 + 34.0), NAME.at(Anchor::Middle));
}

fn upright_ticks(linear: &Linear, pixels: f64) -> Vec<Tick> {
    linear.ticks((pixels / 45.0).clamp(2.0, 10.0) as usize)
}

/// Room left of an area of so many pixels for an upright axis with its name.
pub(super) fn left_room(linear: &Linear, pixels: f64) -> f64 {
    widest(upright_ticks(linear, pixels).iter().map(|t| &t.label), TICK.em) + TICK_GAP + NAME_ROOM
}

/// Draws an upright axis left of an area, with lines through it, and its name.
pub(super) fn left(scene: &mut Scene, area: Area, linear: &Linear, name: &str) {
    for tick in upright_ticks(linear, area.height()) {
        let y = area.y(tick.place);
        scene.grid((area.x0, y), (area.x1, y));
        tick_left(scene, (area.x0, y), &tick.label);
    }
    scene.rule((area.x0, area.y0), (area.x0, area.y1));
    let room = left_room(linear, area.height());
    left_name(scene, area, room, name);
}

/// Writes the name of an upright axis so far left of an area that `room` pixels hold it and the numbers.
pub(super) fn left_name(scene: &mut Scene, area: Area, room: f64, name: &str) {
    let name = fit(name, area.height() / NAME.em);
    scene.text(&name, (area.x0 - room + NAME.em, area.y(0.5)), NAME.upward());
}

/// Draws an upright axis right of an area (a colour bar) without a line, and its name; returns nothing but ink.
pub(super) fn right(scene: &mut Scene, area: Area, linear: &Linear, name: &str) {
    for tick in upright_ticks(linear, area.height()) {
        let y = area.y(tick.place);
        scene.rule((area.x1, y), (area.x1 + 4.0, y));
        scene.text_beside(&tick.label, (area.x1 + TICK_GAP, y), TICK);
    }
    let name = fit(name, area.height() / NAME.em);
    let x = area.x1 + left_room(linear, area.height()) - 4.0;
    scene.text(&name, (x, area.y(0.5)), NAME.upward());
}

/// Which of `count` rows or columns of so many pixels are numbered: every one, or every 2nd, 4th, 8th, … so that numbers are
/// `apart` pixels apart.
pub(super) fn thinned(count: usize, pixels: f64, apart: f64) -> impl Iterator<Item = usize> {
    let mut step = 1_usize;
    while step < count && pixels * (step as f64) < apart {
        step *= 2;
    }
    (0..count).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        Linear { low, high }.ticks(5).into_iter().map(|t| t.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.03, 0.41), ["0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(-12.0, 13.0), ["-10", "-5", "0", "5", "10"]);
        assert_eq!(labels(0.0, 3e7), ["0", "1e7", "2e7", "3e7"]);
        assert_eq!(labels(1e-9, 4e-9), ["1e-9", "2e-9", "3e-9", "4e-9"]);
        let ends = Linear { low: 0.0, high: 0.5 }.ticks(5);
        assert!((ends[1].place - 0.2).abs() < 1e-12 && (ends[5].place - 1.0).abs() < 1e-12);
    }

    #[test]
    fn axes_run_through_what_is_finite() {
        assert_eq!(Linear::over([f64::NAN, 3.0, f64::INFINITY, 1.0]), Some(Linear { low: 1.0, high: 3.0 }));
        assert_eq!(Linear::over([f64::NAN]), None);
        assert_eq!(Linear::over([0.0, -0.0]), Some(Linear { low: 0.0, high: 1.0 }));
        let same = Linear::over([5.0, 5.0]).unwrap();
        assert!(same.low < 5.0 && same.high > 5.0 && (same.place(5.0) - 0.5).abs() < 1e-12);
        for values in
            [[f64::MAX, f64::MIN], [5e-324, 0.0], [1e300, 1e300], [1.0, 1.0 + 1e-15], [1e-299, 2e-299]]
        {
            let linear = Linear::over(values).unwrap();
            let ticks = linear.ticks(6);
            assert!(!ticks.is_empty() && ticks.len() < 20, "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|t| (0.0..=1.0).contains(&t.place)), "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn zero_is_shown_where_it_is_near() {
        let zero = |low, high| Linear { low, high }.with_near_zero().low;
        assert_eq!([zero(0.01, 1.0), zero(0.9, 1.0), zero(-0.1, 1.0)], [0.0, 0.9, -0.1]);
        assert_eq!(Linear { low: 0.0, high: 0.97 }.rounded(), Linear { low: 0.0, high: 1.0 });
        assert_eq!(Linear { low: -3.1, high: 2.0 }.rounded(), Linear { low: -4.0, high: 2.0 });
        assert_eq!(Linear { low: 0.1, high: 1.1 }.padded(0.5), Linear { low: 0.0, high: 1.6 });
    }

    #[test]
    fn numbers_of_rows_are_thinned() {
        assert_eq!(thinned(6, 20.0, 18.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(thinned(10, 7.0, 20.0).collect::<Vec<_>>(), [0, 4, 8]);
        assert_eq!(thinned(3, 0.0, 20.0).collect::<Vec<_>>(), [0]);
        assert_eq!(thinned(0, 7.0, 20.0).count(), 0);
    }
}
