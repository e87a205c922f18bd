//! A weight matrix in f32 or 16 bits, packed once at load, for f32 arithmetic: `Y[m][n] += Σ_k X[m][k] · W[n][k]`.
//!
//! Panels of 32 output features are laid out `[k][32]`, so the kernel streams them; the sum over `k` is cut
//! in slices that stay in a cache. Weights of 16 bits are widened exactly, a slice at a time, so bits are those of
//! the same weights in f32. At one row the product reads every weight once and is bound by memory
//! bandwidth; from some dozen rows on by the multiply-add units.

use std::{cell::RefCell, io, ops::Range};

use rayon::prelude::*;

use super::buffer::{Buffer, Number};
use super::floats::FloatType;
use super::tile::{COLS, Isa, Lhs, ROWS, Start, tile_unchecked};

/// Terms of a sum per pass: a 12-row slice of X (24 KiB) fits L1 and a panel slice (64 KiB) fits L2.
const SLICE: usize = 512;
/// The same for weights of 16 bits: the widened slice (16 KiB) stays in L1 beside the rows of X (6 KiB).
const WIDE_SLICE: usize = 128;

thread_local! {
    /// The widened slice a thread works on.
    static WIDE: RefCell<Box<Wide>> = RefCell::new(Box::new(Wide([0.0; WIDE_SLICE * COLS])));
}

#[repr(align(64))]
struct Wide([f32; WIDE_SLICE * COLS]);

/// A weight matrix `[n, k]` in panels: value `(row, i)` is at `panel(row / 32)[i * 32 + row % 32]`.
pub struct PackedMatrix {
    n: usize,
    k: usize,
    panels: Panels,
}

enum Panels {
    F32(Buffer<f32>),
    /// f16 or bf16, as in the file.
    Half(FloatType, Buffer<[u8; 2]>),
}

impl PackedMatrix {
    /// Packs an `[n, k]` matrix panel by panel; `read` writes the bytes of some rows, in order. Takes as many bytes a
    /// weight as the file; the last panel is padded with zero rows.
    ///
    /// # Errors
    /// When reading fails, or the system refuses the memory.
    pub fn pack(
        float: FloatType,
        (n, k): (usize, usize),
        read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    ) -> io::Result<Self> {
        let len = n.div_ceil(COLS) * COLS * k;
        let panels = if float == FloatType::F32 {
            let mut panels = Buffer::try_zeros(len)?;
            turn(&mut panels, (n, k), read, f32::from_le_bytes)?;
            Panels::F32(panels)
        } else {
            let mut panels = Buffer::try_zeros(len)?;
            turn(&mut panels, (n, k), read, |half: [u8; 2]| half)?;
            Panels::Half(float, panels)
        };
        Ok(Self { n, k, panels })
    }

    /// Output features.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Input features.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(all) => size_of_val(&all[..]),
            Panels::Half(_, all) => size_of_val(&all[..]),
        }
    }

    /// Writes row `row` of the matrix to `out` (`k` values): how an embedding reads a tied output matrix.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n && out.len() == self.k, "row {row} of {}: this is a bug", self.n);
        let (p, c) = (row / COLS, row % COLS);
        match &self.panels {
            Panels::F32(all) => {
                let columns = self.panel(all, p).chunks_exact(COLS);
                out.iter_mut().zip(columns).for_each(|(o, column)| *o = column[c]);
            }
            Panels::Half(float, all) => {
                let mut halves = [[0; 2]; 64];
                let panel = self.panel(all, p).chunks(halves.len() * COLS);
                for (out, columns) in out.chunks_mut(halves.len()).zip(panel) {
                    halves.iter_mut().zip(columns.chunks_exact(COLS)).for_each(|(h, column)| *h = column[c]);
                    float.widen(Isa::detect(), halves[..out.len()].as_flattened(), out);
                }
            }
        }
    }

    /// Adds `X [m, k]` times panel `p` to `m` rows of 32 values.
    ///
    /// # Safety
    /// `c` points at `m` rows of 32 values that no other thread touches.
    #[allow(unsafe_code)]
    pub(super) unsafe fn add_panel(&self, isa: Isa, x: &[f32], p: usize, c: *mut f32) {
        match &self.panels {
            Panels::F32(all) => {
                for (i, slice) in self.panel(all, p).chunks(SLICE * COLS).enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { self.add_slice(isa, x, i * SLICE, slice, c) };
                }
            }
            Panels::Half(float, all) => WIDE.with_borrow_mut(|wide| {
                for (i, slice) in self.panel(all, p).chunks(WIDE_SLICE * COLS).enumerate() {
                    let wide = &mut wide.0[..slice.len()];
                    float.widen(isa, slice.as_flattened(), wide);
                    // SAFETY: the caller's promise.
                    unsafe { self.add_slice(isa, x, i * WIDE_SLICE, wide, c) };
                }
            }),
        }
    }

    fn panel<'a, T>(&self, all: &'a [T], p: usize) -> &'a [T] {
        &all[p * COLS * self.k..][..COLS * self.k]
    }

    /// Adds the products with `weights [len][32]`, inputs `from .. from + len`.
    ///
    /// # Safety
    /// As [`Self::add_panel`].
    #[allow(unsafe_code)]
    unsafe fn add_slice(&self, isa: Isa, x: &[f32], from: usize, weights: &[f32], c: *mut f32) {
        let (k, len) = (self.k, weights.len() / COLS);
        let m = x.len().checked_div(k).unwrap_or(0);
        for row in (0..m).step_by(ROWS) {
            let a = Lhs { data: &x[row * k + from..], stride: k, rows: ROWS.min(m - row), len };
            // SAFETY: rows row..row + a.rows of X and C exist, with inputs up to `from + len <= k`.
            unsafe { tile_unchecked(isa, a, weights.as_ptr(), c.add(row * COLS), COLS, Start::FromC) };
        }
    }
}

/// Reads the rows of each panel and turns them: `[32][k]` numbers of `B` bytes become `[k][32]`.
fn turn<const B: usize, T: Number>(
    panels: &mut [T],
    (n, k): (usize, usize),
    read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    number: impl Fn([u8; B]) -> T + Sync,
) -> io::Result<()> {
    let panels = panels.par_chunks_mut((COLS * k).max(1)).enumerate();
    panels.try_for_each_init(Vec::new, |bytes, (p, panel)| {
        let rows = p * COLS..n.min((p + 1) * COLS);
        bytes.resize(rows.len() * k * B, 0);
        read(rows, bytes)?;
        let rows: Vec<&[[u8; B]]> = bytes.as_chunks().0.chunks_exact(k).collect();
        for (i, column) in panel.chunks_exact_mut(COLS).enumerate() {
            for (to, row) in column.iter_mut().zip(&rows) {
                *to = number(row[i]);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
impl PackedMatrix {
    /// Packs the row-major `[n, k]` matrix `w` of numbers that `float` holds exactly, or else rounds.
    pub(super) fn of(float: FloatType, w: &[f32], n: usize, k: usize) -> Self {
        let number = |v: &f32| match float {
            FloatType::F32 => v.to_le_bytes().to_vec(),
            FloatType::F16 => half::f16::from_f32(*v).to_le_bytes().to_vec(),
            FloatType::BF16 => half::bf16::from_f32(*v).to_le_bytes().to_vec(),
        };
        let read = |rows: Range<usize>, to: &mut [u8]| {
            to.copy_from_slice(&w[rows.start * k..rows.end * k].iter().flat_map(number).collect::<Vec<_>>());
            Ok(())
        };
        Self::pack(float, (n, k), read).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect()
    }

    const FLOATS: [FloatType; 3] = [FloatType::F32, FloatType::F16, FloatType::BF16];

    /// Values that 16 bits of either kind hold exactly: seven bits and a small exponent.
    fn short_values(n: usize, seed: u64) -> Vec<f32> {
        values(n, seed)
            .iter()
            .map(|v| (v * 128.0).round() / 128.0 * if v.abs() < 0.1 { 0.125 } else { 4.0 })
            .collect()
    }

    #[test]
    fn rows_can_be_read_back() {
        for k in [9, 64, 150] {
            let w = short_values(70 * k, 5);
            for float in FLOATS {
                let packed = PackedMatrix::of(float, &w, 70, k);
                let mut row = vec![0f32; k];
                for r in [0, 31, 32, 69] {
                    packed.copy_row(r, &mut row);
                    assert_eq!(row, w[r * k..][..k], "{float:?}");
                }
            }
        }
    }

    #[test]
    fn sixteen_bits_give_the_bits_of_f32() {
        // one slice, a part of one, several with a part; sums that start anywhere
        for k in [1, 96, WIDE_SLICE, WIDE_SLICE + 1, 3 * SLICE + 77] {
            let w = short_values(COLS * k, 3);
            let truth = PackedMatrix::of(FloatType::F32, &w, COLS, k);
            for m in [1, 2, ROWS, ROWS + 1, 40] {
                let (x, start) = (values(m * k, 4), values(m * COLS, 6));
                let product = |matrix: &PackedMatrix, isa| {
                    let mut c = start.clone();
                    // SAFETY: `m` rows of 32 values.
                    #[allow(unsafe_code)]
                    unsafe {
                        matrix.add_panel(isa, &x, 0, c.as_mut_ptr());
                    }
                    c.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
                };
                let want = product(&truth, Isa::PORTABLE);
                for float in FLOATS {
                    let packed = PackedMatrix::of(float, &w, COLS, k);
                    for isa in Isa::available() {
                        assert_eq!(product(&packed, isa), want, "{isa:?} {float:?} {m} rows of {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn weights_take_the_bytes_they_have_in_the_file() {
        let w = short_values(70 * 40, 5);
        for float in FLOATS {
            assert_eq!(PackedMatrix::of(float, &w, 70, 40).bytes(), 96 * 40 * float.bytes());
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let fails = |_: Range<usize>, _: &mut [u8]| Err(io::Error::other("gone"));
        for float in FLOATS {
            assert_eq!(PackedMatrix::pack(float, (40, 3), fails).err().unwrap().to_string(), "gone");
        }
        assert_eq!(PackedMatrix::of(FloatType::F16, &[], 5, 0).bytes(), 0);
    }
}
