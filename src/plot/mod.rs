//! Pictures of what localization and evaluation found: a [`Heatmap`] of heads, how stable a choice of heads is
//! ([`Stability`]), [`Distributions`] of scores, [`Bars`] with intervals, a [`Scatter`] of points. Each takes plain numbers
//! and becomes SVG text, PNG bytes or lines for a terminal ([`Picture`]).
//!
//! A picture first becomes a [`Scene`], a list of shapes, which one function replays for SVG and PNG (`draw.rs`); what is
//! drawn can so be checked without pixels. It must not know: models, files, requests. Tests: beside each picture, and
//! `tests.rs` for what holds for all (labels never overlap or leave the picture, nothing panics, lines fit the terminal).

mod axis;
mod bars;
mod colour;
mod distributions;
mod draw;
mod font;
mod heatmap;
mod page;
mod rows;
mod scatter;
mod scene;
mod stability;
mod terminal;
mod words;

#[cfg(test)]
mod tests;

pub use bars::{Bar, BarGroup, BarKind, Bars};
pub use distributions::Distributions;
pub use heatmap::{Chance, Heatmap};
pub use scatter::Scatter;
pub use scene::Scene;
pub use stability::{HeadSpread, Stability};

/// Why a picture could not be written as PNG.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The shapes could not be drawn into memory.
    #[error("the picture of {width} x {height} pixels could not be drawn: {cause}. Write it as SVG instead")]
    Draw {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
        /// What the drawing library said.
        cause: String,
    },
    /// The pixels could not be packed.
    #[error("the picture of {width} x {height} pixels could not be written as PNG. Write it as SVG instead")]
    Encode {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
        /// What the encoder said.
        source: png::EncodingError,
    },
}

/// Something that can be drawn. Numbers that are not finite are left out or shown as "no data", never an error.
pub trait Picture {
    /// The shapes of the picture.
    fn scene(&self) -> Scene;

    /// Lines of at most `width` columns, each ending in a newline, for a terminal of 256 colours, or without colour
    /// for files, pipes and `NO_COLOR`. Characters of titles and names that would command a terminal are replaced.
    fn terminal(&self, width: usize, colour: bool) -> String;

    /// The picture as a whole SVG document, with text as text: on white, or on black where the reader's screen is dark.
    fn svg(&self) -> String {
        draw::svg(&self.scene())
    }

    /// The picture as PNG bytes, RGB on white, [`PNG_SCALE`] pixels for each pixel of the SVG.
    ///
    /// # Errors
    /// When drawing or encoding fails, which the memory at hand decides, not the data.
    fn png(&self) -> Result<Vec<u8>, PlotError> {
        draw::png(&self.scene())
    }
}

/// Pixels of a PNG for each pixel of the SVG (which has 96 to the inch): enough for print.
pub const PNG_SCALE: u32 = 2;
