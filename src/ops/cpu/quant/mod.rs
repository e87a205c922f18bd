//! Matrix products with quantised weights: 8-bit activations, integer dot products, weights about as small as in the file (`matrix.rs`).

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod blocks;
mod dot;
#[cfg(target_arch = "x86_64")]
mod few;
pub mod matrix;
mod quantise;
pub mod rows;
mod slice;
mod stored;

pub use blocks::BlockFormat;
pub use matrix::QuantMatrix;
pub use rows::QuantRows;

use std::cell::RefCell;

use dot::{Left, Out, ROWS, Shape, dot};
use slice::{SLICE, Slice};
#[cfg(target_arch = "x86_64")]
use stored::Layout;
use stored::TILE;

use super::tile::{COLS, Isa};

// a tile has one scale of the activations, and codes of 8 bits at least one of the weights
const _: () = assert!(rows::GROUP == TILE);

thread_local! {
    /// The slice a thread works on.
    static SCRATCH: RefCell<Box<Slice>> = RefCell::new(Slice::boxed());
}

impl QuantMatrix {
    /// Adds rows `first .. first + rows` of `x` times panel `p` to rows of 32 values.
    ///
    /// # Safety
    /// `c` points at `rows` rows of 32 values that no other thread touches.
    #[allow(unsafe_code)]
    pub(super) unsafe fn add_panel(
        &self,
        isa: Isa,
        x: &QuantRows,
        (first, rows): (usize, usize),
        p: usize,
        c: *mut f32,
    ) {
        assert!(x.k() == self.k() && first + rows <= x.rows(), "rows {first} + {rows}: this is a bug");
        #[cfg(target_arch = "x86_64")]
        if rows <= few::FEW && isa.has_vnni() {
            // SAFETY: the processor has the features; the rows exist by the assertion; their values by the caller's promise.
            unsafe { few::add_rows(self, x, (first, rows), p, c) };
            return;
        }
        let format = self.format();
        let shape = Shape {
            group16: format.group() == 16,
            mins: format.has_min(),
            zero: format.zero(),
            bits: format.bits(),
        };
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        let amx = amx::Tiles::configure(isa, rows, shape);
        SCRATCH.with_borrow_mut(|slice| {
            for tile in (0..self.k() / TILE).step_by(SLICE) {
                let tiles = SLICE.min(self.k() / TILE - tile);
                #[cfg(target_arch = "x86_64")]
                if rows <= avx2::FEW && isa.has_avx2() && !isa.has_vnni() {
                    let a = Left { x, row: first, rows, tile, tiles };
                    let (numbers, blocks) = slice.numbers(isa, self, p, tile, tiles);
                    let stored = stored::Tiles::stored(&Layout::of(format), blocks);
                    // SAFETY: as below, and the processor has the features; the blocks have as many tiles.
                    unsafe { avx2::dot_stored(isa, a, stored, numbers, shape, Out { to: c, stride: COLS }) };
                    continue;
                }
                let expanded = slice.expand(isa, self, p, tile, tiles);
                #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
                if let Some(amx) = &amx {
                    let a = Left { x, row: first, rows, tile, tiles };
                    // SAFETY: as below.
                    unsafe { amx.dot(a, expanded, Out { to: c, stride: COLS }) };
                    continue;
                }
                for row in (0..rows).step_by(ROWS) {
                    let a = Left { x, row: first + row, rows: ROWS.min(rows - row), tile, tiles };
                    // SAFETY: the rows of X exist by the assertion, those of C by the caller's promise.
                    unsafe {
                        let out = Out { to: c.add(row * COLS), stride: COLS };
                        dot(isa, a, expanded, shape, out);
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
