//! The colours of pictures, on paper and in terminals of 256 colours.

/// A colour of the sRGB space with its opacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Colour {
    pub(super) rgb: [u8; 3],
    /// 0 (cannot be seen) to 1.
    pub(super) alpha: f64,
}

impl Colour {
    pub(super) const fn new(r: u8, g: u8, b: u8) -> Self {
        Self { rgb: [r, g, b], alpha: 1.0 }
    }

    /// The same colour, letting what is below shine through.
    pub(super) const fn faded(self, alpha: f64) -> Self {
        Self { alpha, ..self }
    }

    /// The nearest of the 216 colours and 24 greys that terminals of 256 colours have in common (16 to 255).
    pub(super) fn terminal(self) -> u8 {
        let distance = |index: &u8| {
            let there = palette(*index);
            (0..3).map(|i| (i32::from(there[i]) - i32::from(self.rgb[i])).pow(2)).sum::<i32>()
        };
        (16..=255).min_by_key(distance).unwrap_or(16)
    }

    /// For letters and bars of a terminal, whose background may be black or white: not too dark for black.
    pub(super) fn brighter(self) -> Self {
        const WHITE_PART: f64 = 0.25;
        let mix = |c: u8| (f64::from(c) + (255.0 - f64::from(c)) * WHITE_PART) as u8;
        if luma(self.rgb) < 110.0 { Self { rgb: self.rgb.map(mix), ..self } } else { self }
    }
}

/// How bright a colour is, 0 to 255 (weights of Rec. 601).
fn luma(rgb: [u8; 3]) -> f64 {
    let [r, g, b] = rgb.map(f64::from);
    0.299 * r + 0.587 * g + 0.114 * b
}

/// Whether black is easier to read than white on a terminal's colour.
pub(super) fn is_light(index: u8) -> bool {
    luma(palette(index)) > 120.0
}

/// What a terminal shows for a colour number from 16: a cube of 6 x 6 x 6, then greys.
fn palette(index: u8) -> [u8; 3] {
    let step = |i: u8| if i == 0 { 0 } else { 55 + 40 * i };
    match index.saturating_sub(16) {
        cube @ 0..=215 => [step(cube / 36), step(cube / 6 % 6), step(cube % 6)],
        grey => [8 + 10 * (grey - 216); 3],
    }
}

pub(super) const WHITE: Colour = Colour::new(255, 255, 255);
/// Text.
pub(super) const INK: Colour = Colour::new(30, 30, 30);
/// Text of less weight.
pub(super) const MUTED: Colour = Colour::new(95, 95, 95);
/// Frames and the ticks of axes.
pub(super) const AXIS: Colour = Colour::new(130, 130, 130);
/// Lines behind data.
pub(super) const GRID: Colour = Colour::new(228, 228, 228);
/// Cells without a value.
pub(super) const NO_DATA: Colour = Colour::new(196, 196, 196);
/// What is chosen, on the heatmap: absent from its scale, told apart from both of its ends.
pub(super) const CHOSEN: Colour = Colour::new(230, 40, 60);
/// Bars that are not in the centre of attention.
pub(super) const PLAIN: Colour = Colour::new(158, 176, 196);
/// Bars that are.
pub(super) const STRONG: Colour = Colour::new(0, 96, 160);

/// Bars and intervals of another kind than the others.
pub(super) const ODD: Colour = Colour::new(222, 222, 222);

/// On dark screens: what paper, text, lines and strong bars turn into.
pub(super) const DARK: [(Colour, Colour); 7] = [
    (WHITE, Colour::new(21, 24, 28)),
    (INK, Colour::new(232, 232, 232)),
    (MUTED, Colour::new(168, 173, 179)),
    (AXIS, Colour::new(138, 144, 151)),
    (GRID, Colour::new(46, 51, 56)),
    (STRONG, Colour::new(77, 163, 224)),
    (ODD, Colour::new(62, 66, 72)),
];

/// Colours of groups, apart for the colour-blind too (the set of Okabe and Ito, 2008, yellow left out: faint on white).
pub(super) const GROUPS: [Colour; 6] = [
    Colour::new(0, 114, 178),
    Colour::new(213, 94, 0),
    Colour::new(0, 158, 115),
    Colour::new(204, 121, 167),
    Colour::new(86, 180, 233),
    Colour::new(230, 159, 0),
];

/// The colour of the `index`-th group; they repeat after six.
pub(super) fn group(index: usize) -> Colour {
    GROUPS[index % GROUPS.len()]
}

/// Points of the heat scale from low to high: dark violet over teal to yellow. In the Oklab space their lightness rises by
/// equal steps and neighbours are equally far apart, so equal differences of values look equal, in grey print too.
const HEAT: [[u8; 3]; 11] = [
    [49, 0, 100],
    [42, 39, 120],
    [30, 69, 129],
    [17, 96, 138],
    [0, 122, 147],
    [26, 147, 151],
    [59, 172, 150],
    [92, 195, 141],
    [141, 213, 124],
    [196, 226, 108],
    [251, 236, 104],
];

/// The colour of a share of the way from the lowest value (0) to the highest (1).
pub(super) fn heat(share: f64) -> Colour {
    let place = share.clamp(0.0, 1.0) * (HEAT.len() - 1) as f64;
    let below = (place as usize).min(HEAT.len() - 2);
    let part = place - below as f64;
    let mix = |i: usize| {
        let [from, to] = [HEAT[below][i], HEAT[below + 1][i]].map(f64::from);
        (from + (to - from) * part).round() as u8
    };
    Colour::new(mix(0), mix(1), mix(2))
}

/// The colours of the heat scale in terminals, of equal shares of it. The nearest ones of 256 would not do: among the dark
/// ones lightness would fall where values rise.
const HEAT_TERMINAL: [u8; 9] = [17, 18, 19, 24, 30, 36, 78, 185, 227];

/// The terminal's colour of a share of the way from the lowest value (0) to the highest (1).
pub(super) fn heat_terminal(share: f64) -> u8 {
    let n = HEAT_TERMINAL.len();
    HEAT_TERMINAL[((share.clamp(0.0, 1.0) * n as f64) as usize).min(n - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oklab (Ottosson, 2020) of an sRGB colour.
    fn oklab(colour: Colour) -> [f64; 3] {
        let linear = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        let [r, g, b] = colour.rgb.map(linear);
        let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).cbrt();
        let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).cbrt();
        let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).cbrt();
        [
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
        ]
    }

    #[test]
    fn equal_steps_of_the_heat_scale_look_equal() {
        let points: Vec<[f64; 3]> = (0..=20).map(|i| oklab(heat(f64::from(i) / 20.0))).collect();
        let step = |pair: &[[f64; 3]]| (0..3).map(|i| (pair[1][i] - pair[0][i]).powi(2)).sum::<f64>().sqrt();
        let steps: Vec<f64> = points.windows(2).map(step).collect();
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        assert!(steps.iter().all(|s| (s / mean - 1.0).abs() < 0.2), "{steps:?}");
        assert!(points.windows(2).all(|p| p[1][0] - p[0][0] > 0.02), "lightness must rise: {points:?}");
        assert_eq!(heat(-1.0), heat(0.0));
        assert_eq!(heat(2.0), Colour::new(251, 236, 104));
    }

    #[test]
    fn the_terminals_heat_scale_rises_in_lightness() {
        let lightness = HEAT_TERMINAL.map(|index| {
            let [r, g, b] = palette(index);
            oklab(Colour::new(r, g, b))[0]
        });
        assert!(lightness.windows(2).all(|pair| pair[1] - pair[0] > 0.05), "{lightness:?}");
        assert_eq!(
            [heat_terminal(0.0), heat_terminal(0.5), heat_terminal(1.0), heat_terminal(9.0)],
            [17, 30, 227, 227]
        );
    }

    #[test]
    fn terminals_get_their_nearest_colour() {
        assert_eq!(Colour::new(0, 0, 0).terminal(), 16);
        assert_eq!(WHITE.terminal(), 231);
        assert_eq!(Colour::new(250, 5, 0).terminal(), 196);
        assert_eq!(Colour::new(128, 128, 128).terminal(), 244);
        assert!(is_light(231) && !is_light(heat_terminal(0.0)) && is_light(heat_terminal(1.0)));
        assert_eq!([WHITE.brighter(), Colour::new(0, 0, 0).brighter()], [WHITE, Colour::new(63, 63, 63)]);
    }
}
