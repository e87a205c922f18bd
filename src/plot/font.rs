//! The font of pictures, carried in the program so that they look the same everywhere: how wide a text is, how it wraps,
//! and its pixels.

use std::{convert::Infallible, sync::LazyLock};

use ab_glyph::{Font, FontRef, GlyphId, PxScale, point};

/// Ubuntu Light.
static FONT: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT)
        .expect("the font carried is a font: this is a bug")
});

/// Font families an SVG asks for: the one measured here, else ones of about its width.
pub(super) const FAMILIES: &str = "Ubuntu, Helvetica, Arial, sans-serif";

/// The widest font that usual systems show for [`FAMILIES`] (DejaVu Sans), relative to the one measured here.
const WIDER: f64 = 1.2;

/// Columns of pixels by which a letter is drawn twice, in em: the light font is too thin for print.
const THICKER: f32 = 0.03;

/// Font units to em.
fn em_share() -> f32 {
    1.0 / FONT.units_per_em().unwrap_or(1000.0)
}

/// How far the next letter is, in em; letters the font does not have are drawn by other fonts, about an em wide.
fn advance(glyph: GlyphId) -> f32 {
    if glyph.0 == 0 { 1.0 } else { FONT.h_advance_unscaled(glyph) * em_share() }
}

/// The letters of a text with where each begins, in em from its start, and where the text ends.
fn layout(text: &str) -> (Vec<(GlyphId, f32)>, f32) {
    let mut at = 0.0;
    let mut before = None;
    let mut place = |c: char| {
        let glyph = FONT.glyph_id(c);
        at += before.map_or(0.0, |b| FONT.kern_unscaled(b, glyph) * em_share());
        let start = at;
        at += advance(glyph);
        before = Some(glyph);
        (glyph, start)
    };
    let letters = text.chars().map(&mut place).collect();
    (letters, at)
}

/// Width of a text as drawn here, in em.
pub(super) fn drawn_width(text: &str) -> f64 {
    f64::from(layout(text).1)
}

/// Room to leave for a text, in em: whichever of the usual fonts an SVG is shown with.
pub(super) fn width(text: &str) -> f64 {
    drawn_width(text) * WIDER
}

/// Room for the widest of some texts, at so many pixels to the em.
pub(super) fn widest(texts: impl IntoIterator<Item = impl AsRef<str>>, em: f64) -> f64 {
    texts.into_iter().map(|text| width(text.as_ref()) * em).fold(0.0, f64::max)
}

/// Calls `draw` with each pixel of the text and its coverage (0 to 1). Pixels are counted from the start of the text and
/// from its baseline, downward; `em` is in pixels.
pub(super) fn pixels<E>(
    text: &str,
    em: f64,
    mut draw: impl FnMut(i32, i32, f32) -> Result<(), E>,
) -> Result<(), E> {
    let em = em as f32;
    let scale = PxScale::from(em * em_share() * FONT.height_unscaled());
    for (glyph, start) in layout(text).0 {
        for shift in [0.0, THICKER] {
            let placed = glyph.with_scale_and_position(scale, point((start + shift) * em, 0.0));
            let Some(outline) = FONT.outline_glyph(placed) else { continue };
            let corner = outline.px_bounds().min;
            let mut result = Ok(());
            outline.draw(|x, y, coverage| {
                if result.is_ok() && coverage > 0.0 {
                    result = draw(corner.x as i32 + x as i32, corner.y as i32 + y as i32, coverage.min(1.0));
                }
            });
            result?;
        }
    }
    Ok(())
}

/// The error of text that is always drawn.
pub(super) type Never = Infallible;

/// `text` if it is at most `most` em wide, else as much of its start as fits before "…".
pub(super) fn fit(text: &str, most: f64) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = width("…");
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > most {
            break;
        }
        kept.push(c);
    }
    kept.truncate(kept.trim_end().len());
    kept + "…"
}

/// `text` in at most `lines` lines of at most `most` em; what is left over ends in "…".
pub(super) fn wrap(text: &str, most: f64, lines: usize) -> Vec<String> {
    let mut done: Vec<String> = Vec::new();
    let mut words = text.split(' ').filter(|w| !w.is_empty()).peekable();
    while let Some(first) = words.next() {
        let mut line = first.to_owned();
        let last = done.len() + 1 == lines;
        while let Some(word) = words.peek() {
            let longer = format!("{line} {word}");
            // the last line takes what comes until it is cut
            if width(&longer) > most && (!last || width(&line) > most) {
                break;
            }
            line = longer;
            words.next();
        }
        done.push(fit(&line, most));
        if last {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_wide_as_their_letters() {
        assert!(drawn_width("LLLL") > drawn_width("llll"));
        assert!((drawn_width("ab0") - drawn_width("a") - drawn_width("b") - drawn_width("0")).abs() < 0.1);
        assert!(drawn_width("0") > 0.4 && drawn_width("0") < 0.7, "{}", drawn_width("0"));
        assert!(drawn_width("語") >= 1.0);
    }

    #[test]
    fn pixels_lie_where_the_text_is() {
        let (mut left, mut right, mut top, mut bottom) = (i32::MAX, 0, 0, i32::MIN);
        pixels("HxH", 40.0, |x, y, _| {
            (left, right) = (left.min(x), right.max(x));
            (top, bottom) = (top.min(y), bottom.max(y));
            Ok::<(), Never>(())
        })
        .unwrap();
        let wide = (drawn_width("HxH") * 40.0) as i32;
        assert!((0..8).contains(&left) && (wide - 10..=wide).contains(&right), "{left} {right} of {wide}");
        assert!((-32..-24).contains(&top) && (-1..=1).contains(&bottom), "{top} {bottom}");
    }

    #[test]
    fn what_does_not_fit_is_cut_visibly() {
        assert_eq!(fit("short", 10.0), "short");
        let cut = fit("a rather long label", 5.0);
        assert!(cut.ends_with('…') && width(&cut) <= 5.0 && cut.starts_with("a r"), "{cut}");
        let lines = wrap("one two three four five six seven eight nine ten", 6.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…') && lines.iter().all(|l| width(l) <= 6.0), "{lines:?}");
        assert_eq!(wrap("one two", 60.0, 2), ["one two"]);
        assert_eq!(wrap("", 60.0, 2), [""; 0]);
        let parts = wrap("one two three four", 6.0, 9);
        assert_eq!(parts.join(" "), "one two three four");
        assert!(wrap(&"w".repeat(90), 6.0, 3).iter().all(|l| width(l) <= 6.0));
    }
}
