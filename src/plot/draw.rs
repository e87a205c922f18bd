//! From shapes to SVG and PNG, by one function over plotters' backends.

use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontFamily,
    FontTransform, text_anchor,
};
use plotters_bitmap::BitMapBackend;
use plotters_svg::SVGBackend;

use super::{
    PNG_SCALE, PlotError,
    colour::{Colour, DARK},
    font,
    scene::{Anchor, Look, Scene, Shape},
};

/// Units of an SVG's coordinates in a pixel: backends draw at whole units only.
const SVG_UNITS: u32 = 10;
/// Each pixel of a PNG is the mean of this many squared: plotters does not smooth all edges itself.
const SMOOTHING: u32 = 2;
/// Font sizes of plotters are line heights: this many em.
const LINE_EM: f64 = 1.24;
/// Where plotters' SVG backend draws the baseline of text that hangs from its anchor, in em below.
const HANGING_EM: f64 = 0.76;

impl From<Colour> for BackendColor {
    fn from(colour: Colour) -> Self {
        let [r, g, b] = colour.rgb;
        Self { alpha: colour.alpha, rgb: (r, g, b) }
    }
}

struct Stroke {
    colour: BackendColor,
    width: u32,
}

impl BackendStyle for Stroke {
    fn color(&self) -> BackendColor {
        self.colour
    }

    fn stroke_width(&self) -> u32 {
        self.width
    }
}

/// A text's look for plotters, hanging from its anchor. It draws its pixels itself: plotters' own rasteriser leaves out the
/// space before each letter.
struct Hanging {
    look: Look,
    /// Font size in the backend's units.
    em: f64,
}

impl BackendTextStyle for Hanging {
    type FontError = font::Never;

    fn color(&self) -> BackendColor {
        self.look.colour.into()
    }

    fn size(&self) -> f64 {
        self.em * LINE_EM
    }

    fn transform(&self) -> FontTransform {
        if self.look.upward { FontTransform::Rotate270 } else { FontTransform::None }
    }

    fn anchor(&self) -> text_anchor::Pos {
        let side = match self.look.anchor {
            Anchor::Start => text_anchor::HPos::Left,
            Anchor::Middle => text_anchor::HPos::Center,
            Anchor::End => text_anchor::HPos::Right,
        };
        text_anchor::Pos::new(side, text_anchor::VPos::Top)
    }

    fn family(&self) -> FontFamily<'_> {
        FontFamily::Name(font::FAMILIES)
    }

    fn layout_box(&self, text: &str) -> Result<(BackendCoord, BackendCoord), Self::FontError> {
        Ok(((0, 0), ((font::drawn_width(text) * self.em) as i32, self.size() as i32)))
    }

    fn draw<E, F: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (x0, y0): BackendCoord,
        mut draw: F,
    ) -> Result<Result<(), E>, Self::FontError> {
        let baseline = y0 + (HANGING_EM * self.em).round() as i32;
        Ok(font::pixels(text, self.em, |x, y, coverage| {
            let colour = self.color();
            draw(x0 + x, baseline + y, colour.mix(f64::from(coverage)))
        }))
    }
}

/// Draws a scene with `unit` of the backend's units to a pixel.
fn replay<B: DrawingBackend>(
    scene: &Scene,
    backend: &mut B,
    unit: u32,
) -> Result<(), DrawingErrorKind<B::ErrorType>> {
    let unit = f64::from(unit);
    let point = |(x, y): (f64, f64)| ((x * unit).round() as i32, (y * unit).round() as i32);
    backend.ensure_prepared()?;
    for shape in &scene.shapes {
        match shape {
            Shape::Rect { area, fill } => {
                let corners = (point((area.x0, area.y0)), point((area.x1, area.y1)));
                backend.draw_rect(corners.0, corners.1, &BackendColor::from(*fill), true)?;
            }
            Shape::Line { from, to, width, colour } => {
                let style =
                    Stroke { colour: (*colour).into(), width: (width * unit).round().max(1.0) as u32 };
                backend.draw_path([point(*from), point(*to)], &style)?;
            }
            Shape::Polygon { corners, fill } => {
                backend.fill_polygon(corners.iter().map(|c| point(*c)), &BackendColor::from(*fill))?;
            }
            Shape::Dot { centre, radius, fill } => {
                let radius = (radius * unit).round() as u32;
                backend.draw_circle(point(*centre), radius, &BackendColor::from(*fill), true)?;
            }
            Shape::Text { text, at, look } => {
                let hang = look.em * HANGING_EM;
                let anchor = if look.upward { (at.0 - hang, at.1) } else { (at.0, at.1 - hang) };
                backend.draw_text(text, &Hanging { look: *look, em: look.em * unit }, point(anchor))?;
            }
        }
    }
    backend.present()
}

/// The scene as an SVG document.
pub(super) fn svg(scene: &Scene) -> String {
    let (width, height) = scene.size();
    let (wide, high) = (width * SVG_UNITS, height * SVG_UNITS);
    let mut text = String::new();
    let mut backend = SVGBackend::with_string(&mut text, (wide, high));
    replay(scene, &mut backend, SVG_UNITS).expect("text in memory takes everything: this is a bug");
    drop(backend);
    // shown at its size in pixels; the view box keeps the finer units
    let finer = format!("width=\"{wide}\" height=\"{high}\"");
    let text = text.replacen(&finer, &format!("width=\"{width}\" height=\"{height}\""), 1);
    text.replacen('>', &format!(">\n{}", dark_style()), 1)
}

/// For dark screens: the colours of paper, ink and lines become their dark counterparts.
fn dark_style() -> String {
    let hex = |c: Colour| format!("#{:02X}{:02X}{:02X}", c.rgb[0], c.rgb[1], c.rgb[2]);
    let rule = |(light, dark): &(Colour, Colour)| {
        let (light, dark) = (hex(*light), hex(*dark));
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    };
    let rules: String = DARK.iter().map(rule).collect();
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>")
}

/// The scene as the bytes of a PNG file, 192 pixels to the inch.
pub(super) fn png(scene: &Scene) -> Result<Vec<u8>, PlotError> {
    const PER_METRE: u32 = 7559; // 192 to the inch
    let (width, height) = (scene.width * PNG_SCALE, scene.height * PNG_SCALE);
    let (wide, high) = (width * SMOOTHING, height * SMOOTHING);
    let mut fine = vec![255; wide as usize * high as usize * 3];
    let mut backend = BitMapBackend::with_buffer(&mut fine, (wide, high));
    replay(scene, &mut backend, PNG_SCALE * SMOOTHING).map_err(|e| PlotError::Draw {
        width,
        height,
        cause: e.to_string(),
    })?;
    drop(backend);
    let pixels = smooth(&fine, width as usize, SMOOTHING as usize);
    let encode = || {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_pixel_dims(Some(png::PixelDimensions {
            xppu: PER_METRE,
            yppu: PER_METRE,
            unit: png::Unit::Meter,
        }));
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(bytes)
    };
    encode().map_err(|source| PlotError::Encode { width, height, source })
}

/// Means of squares of `by` x `by` pixels. `fine` is [rows * by, width * by, 3]; returns [rows, width, 3].
fn smooth(fine: &[u8], width: usize, by: usize) -> Vec<u8> {
    let line = width * by * 3;
    let mut coarse = Vec::with_capacity(fine.len() / (by * by));
    for rows in fine.chunks_exact(line * by) {
        for x in 0..width {
            for channel in 0..3 {
                let inside = |i: usize| usize::from(rows[i / by * line + (x * by + i % by) * 3 + channel]);
                let sum: usize = (0..by * by).map(inside).sum();
                coarse.push(((sum + by * by / 2) / (by * by)) as u8);
            }
        }
    }
    coarse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{
        colour::{CHOSEN, INK},
        scene::{Area, NAME},
    };

    fn decoded(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    #[test]
    fn shapes_lie_at_the_same_place_in_both_formats() {
        let mut scene = Scene::new(40.0, 20.0);
        scene.rect(Area { x0: 10.0, y0: 5.0, x1: 20.0, y1: 15.0 }, CHOSEN);
        let svg = svg(&scene);
        assert!(
            svg.contains("[fill=\"#FFFFFF\"]{fill:#15181C}") && svg.contains(" fill=\"#FFFFFF\""),
            "{svg}"
        );
        assert!(svg.starts_with("<svg width=\"40\" height=\"20\" viewBox=\"0 0 400 200\""), "{svg}");
        assert!(
            svg.contains("x=\"100\" y=\"50\" width=\"100\" height=\"100\" opacity=\"1\" fill=\"#E6283C\""),
            "{svg}"
        );
        let (width, height, pixels) = decoded(&png(&scene).unwrap());
        assert_eq!((width, height), (80, 40));
        for y in 0..40 {
            for x in 0..80 {
                let red = (20..40).contains(&x) && (10..30).contains(&y);
                let at = (y * 80 + x) * 3;
                assert_eq!(
                    pixels[at..at + 3] == CHOSEN.rgb,
                    red,
                    "pixel {x}, {y}: {:?}",
                    &pixels[at..at + 3]
                );
            }
        }
    }

    /// The box around what is not white: left, top, right, bottom, in pixels of the SVG.
    fn inked(scene: &Scene) -> [f64; 4] {
        let (width, _, pixels) = decoded(&png(scene).unwrap());
        let dark = pixels.chunks(3).enumerate().filter(|(_, p)| p[0] < 200);
        let places = dark.map(|(i, _)| [(i as u32 % width) as f64 / 2.0, (i as u32 / width) as f64 / 2.0]);
        places.fold([f64::MAX, f64::MAX, 0.0, 0.0], |b, [x, y]| {
            [b[0].min(x), b[1].min(y), b[2].max(x), b[3].max(y)]
        })
    }

    #[test]
    fn text_stands_on_its_baseline_and_ends_at_its_anchor() {
        let mut level = Scene::new(100.0, 60.0);
        level.text("HEX", (80.0, 40.0), NAME.at(Anchor::End));
        let [left, top, right, bottom] = inked(&level);
        assert!((right - 79.5).abs() < 2.0 && (bottom - 39.5).abs() < 1.0, "{right} {bottom}");
        assert!((bottom - top - 8.0).abs() < 2.0 && (right - left - 22.0).abs() < 6.0, "{left} {top}");
        let mut upright = Scene::new(100.0, 60.0);
        upright.text("HEX", (50.0, 30.0), NAME.upward());
        let [left, top, right, bottom] = inked(&upright);
        assert!(
            (right - 49.5).abs() < 1.0 && ((top + bottom) / 2.0 - 29.5).abs() < 2.0,
            "{right} {top} {bottom}"
        );
        assert!((right - left - 8.0).abs() < 2.0, "{left}");
        assert!(svg(&level).contains("text-anchor=\"end\"") && svg(&upright).contains("rotate(270,"));
    }

    #[test]
    fn smoothing_takes_means() {
        let fine = [0, 0, 0, 255, 0, 0, 0, 0, 8, 255, 255, 0];
        assert_eq!(smooth(&fine, 1, 2), [128, 64, 2]);
        assert_eq!(INK.alpha, 1.0);
    }
}
