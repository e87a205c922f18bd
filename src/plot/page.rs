//! What all pictures have around their data: a title, words below it, keys to colours, a caption; and what they show without data.

use super::{
    colour::{Colour, MUTED},
    font::{fit, width, wrap},
    scene::{Anchor, Area, CAPTION, NAME, Scene, TITLE},
};

/// White around everything, in pixels.
pub(super) const PAD: f64 = 16.0;
/// Narrowest page: titles have room.
const NARROWEST: f64 = 400.0;
const TITLE_LINE: f64 = 20.0;
const KEY_LINE: f64 = 19.0;
const CAPTION_LINE: f64 = 16.0;
/// Most lines of a title, and of the words below it and of a caption.
const MOST_LINES: (usize, usize) = (2, 6);
/// Most keys; more groups than these are not told apart by eye.
const MOST_KEYS: usize = 24;

/// The form of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Square,
    Dot,
    Triangle,
    Diamond,
}

impl Mark {
    /// Draws it around a point, `radius` pixels to each side.
    pub(super) fn draw(self, scene: &mut Scene, at: (f64, f64), radius: f64, colour: Colour) {
        let corner = |x: f64, y: f64| (at.0 + x * radius, at.1 + y * radius);
        match self {
            Self::Dot => scene.dot(at, radius, colour),
            Self::Square => {
                let ((x0, y0), (x1, y1)) = (corner(-0.9, -0.9), corner(0.9, 0.9));
                scene.rect(Area { x0, y0, x1, y1 }, colour);
            }
            Self::Triangle => {
                scene.polygon(vec![corner(0.0, -1.1), corner(1.1, 0.85), corner(-1.1, 0.85)], colour);
            }
            Self::Diamond => {
                let corners =
                    vec![corner(0.0, -1.25), corner(1.25, 0.0), corner(0.0, 1.25), corner(-1.25, 0.0)];
                scene.polygon(corners, colour);
            }
        }
    }
}

/// What a colour and mark stand for.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) colour: Colour,
}

/// A page to lay out around an area of data.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    /// What is shown, more exactly; empty for none.
    pub(super) subtitle: &'a str,
    /// Sentences below; empty for none.
    pub(super) caption: &'a str,
    pub(super) keys: &'a [Key],
    /// Width and height of the data, in pixels.
    pub(super) body: (f64, f64),
    /// Room around the data for axes and names: left, right, above and below.
    pub(super) margins: [f64; 4],
}

impl Page<'_> {
    /// The page with everything but its data, and the area for them.
    pub(super) fn lay(&self) -> (Scene, Area) {
        let [left, right, above, below] = self.margins.map(f64::ceil);
        let body = (self.body.0.ceil(), self.body.1.ceil());
        let inner = (left + body.0 + right).max(NARROWEST - 2.0 * PAD);
        let spare = ((inner - left - body.0 - right) / 2.0).floor();
        let title = wrap(self.title, inner / TITLE.em, MOST_LINES.0);
        let subtitle = wrap(self.subtitle, inner / CAPTION.em, MOST_LINES.1);
        let caption = wrap(self.caption, inner / CAPTION.em, MOST_LINES.1);
        let keys = key_places(self.keys, inner);
        let key_lines = keys.last().map_or(0, |k| k.line + 1);
        let headed = title.len() as f64 * TITLE_LINE + subtitle.len() as f64 * CAPTION_LINE;
        let keys_gap = if key_lines > 0 && !subtitle.is_empty() { 4.0 } else { 0.0 };
        let over = headed + keys_gap + key_lines as f64 * KEY_LINE;
        let gap = if over > 0.0 { 10.0 } else { 0.0 };
        let top = PAD + over + gap + above;
        let under = top + body.1 + below;
        let caption_gap = if caption.is_empty() { 0.0 } else { 10.0 };
        let height = under + caption_gap + caption.len() as f64 * CAPTION_LINE + PAD;
        let mut scene = Scene::new(inner + 2.0 * PAD, height);
        for (line, text) in title.iter().enumerate() {
            scene.text(text, (PAD, PAD + 13.0 + line as f64 * TITLE_LINE), TITLE);
        }
        for (line, text) in subtitle.iter().enumerate() {
            let y = PAD + title.len() as f64 * TITLE_LINE + 11.0 + line as f64 * CAPTION_LINE;
            scene.text(text, (PAD, y), CAPTION);
        }
        let keys_top = PAD + headed + keys_gap + 11.0;
        for (key, place) in self.keys.iter().zip(&keys) {
            let y = keys_top + place.line as f64 * KEY_LINE;
            key.mark.draw(&mut scene, (PAD + place.x + 5.0, y), 5.0, key.colour);
            scene.text_beside(&place.text, (PAD + place.x + 16.0, y), NAME);
        }
        for (line, text) in caption.iter().enumerate() {
            scene.text(text, (PAD, under + caption_gap + 12.0 + line as f64 * CAPTION_LINE), CAPTION);
        }
        let (x0, y0) = (PAD + left + spare, top);
        (scene, Area { x0, y0, x1: x0 + body.0, y1: y0 + body.1 })
    }
}

struct KeyPlace {
    line: usize,
    x: f64,
    text: String,
}

/// Places for keys in lines of so many pixels.
fn key_places(keys: &[Key], pixels: f64) -> Vec<KeyPlace> {
    let (mut line, mut x) = (0, 0.0);
    let mut place = |key: &Key| {
        let text = fit(&key.name, (pixels - 20.0) / NAME.em);
        let wide = 16.0 + width(&text) * NAME.em;
        if x > 0.0 && x + wide > pixels {
            (line, x) = (line + 1, 0.0);
        }
        let at = x;
        x += wide + 22.0;
        KeyPlace { line, x: at, text }
    };
    keys.iter().take(MOST_KEYS).map(&mut place).collect()
}

/// Says in the middle of an area that there is nothing to draw.
pub(super) fn nothing(scene: &mut Scene, area: Area) {
    scene.frame(area, 1.0, MUTED.faded(0.5));
    let look = crate::plot::scene::Look { colour: MUTED, ..NAME.at(Anchor::Middle) };
    scene.text_beside("no data", (area.x(0.5), area.y(0.5)), look);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::colour::STRONG;

    #[test]
    fn a_page_holds_its_data_between_title_and_caption() {
        let key = |name: &str| Key { name: name.into(), mark: Mark::Dot, colour: STRONG };
        let keys: Vec<Key> = (0..9).map(|_| key("a group with quite a long name")).collect();
        let page = Page {
            title: &"long ".repeat(40),
            subtitle: &"exact ".repeat(40),
            caption: &"words ".repeat(50),
            keys: &keys,
            body: (100.0, 80.0),
            margins: [30.0, 20.0, 5.0, 40.0],
        };
        let (scene, body) = page.lay();
        assert_eq!((body.width(), body.height()), (100.0, 80.0));
        assert!(body.x0 >= PAD + 30.0 && body.x1 + 20.0 + PAD <= f64::from(scene.width));
        assert!(
            body.y0 > 2.0 * TITLE_LINE + CAPTION_LINE + 9.0 * KEY_LINE,
            "nine keys take nine lines: {body:?}"
        );
        assert!(
            body.y1 + 40.0 + 3.0 * CAPTION_LINE <= f64::from(scene.height),
            "{body:?} in {:?}",
            scene.size()
        );
    }
}
