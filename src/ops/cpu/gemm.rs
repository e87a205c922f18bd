//! A weight matrix in f32, packed once at load: `Y[m][n] += Σ_k X[m][k] · W[n][k]`.
//!
//! Panels of 32 output features are laid out `[k][32]`, so the kernel streams them; the sum over `k` is cut
//! in slices that stay in the L2 cache. At one row the product reads every weight once and is bound by memory
//! bandwidth; from some dozen rows on by the multiply-add units.

use std::io;

use rayon::prelude::*;

use super::buffer::Buffer;
use super::tile::{COLS, Isa, Lhs, ROWS, Start, tile_unchecked};

/// Terms of a sum per pass: a 12-row slice of X (24 KiB) fits L1 and a panel slice (64 KiB) fits L2.
const SLICE: usize = 512;

/// A weight matrix `[n, k]` in panels: value `(row, i)` is at `panel(row / 32)[i * 32 + row % 32]`.
pub struct PackedMatrix {
    n: usize,
    k: usize,
    data: Buffer<f32>,
}

impl PackedMatrix {
    /// Packs the row-major `[n, k]` matrix `w`; the last panel is padded with zero rows.
    ///
    /// # Panics
    /// When `w` does not hold `n * k` values: that is a bug in the caller.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn pack(w: &[f32], n: usize, k: usize) -> io::Result<Self> {
        assert_eq!(w.len(), n * k, "matrix of {n} x {k}: this is a bug");
        let mut data = Buffer::try_zeros(n.div_ceil(COLS) * COLS * k)?;
        if k > 0 {
            data.par_chunks_mut(COLS * k).enumerate().for_each(|(p, panel)| {
                let rows: Vec<&[f32]> = w[p * COLS * k..].chunks_exact(k).take(COLS).collect();
                for (i, column) in panel.chunks_exact_mut(COLS).enumerate() {
                    for (to, row) in column.iter_mut().zip(&rows) {
                        *to = row[i];
                    }
                }
            });
        }
        Ok(Self { n, k, data })
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

    /// Writes row `row` of the matrix to `out` (`k` values): how an embedding reads a tied output matrix.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n && out.len() == self.k, "row {row} of {}: this is a bug", self.n);
        let panel = &self.data[row / COLS * COLS * self.k..][..COLS * self.k];
        for (o, v) in out.iter_mut().zip(panel[row % COLS..].iter().step_by(COLS)) {
            *o = *v;
        }
    }

    /// Adds `X [m, k]` times panel `p` to `m` rows of 32 values.
    ///
    /// # Safety
    /// `c` points at `m` rows of 32 values that no other thread touches.
    #[allow(unsafe_code)]
    pub(super) unsafe fn add_panel(&self, isa: Isa, x: &[f32], p: usize, c: *mut f32) {
        let k = self.k;
        let panel = &self.data[p * COLS * k..][..COLS * k];
        let m = x.len().checked_div(k).unwrap_or(0);
        for from in (0..k).step_by(SLICE) {
            let len = SLICE.min(k - from);
            for row in (0..m).step_by(ROWS) {
                let a = Lhs { data: &x[row * k + from..], stride: k, rows: ROWS.min(m - row), len };
                // SAFETY: rows row..row + a.rows of X and C exist; the panel holds k rows of 32.
                unsafe {
                    let (b, c) = (panel.as_ptr().add(from * COLS), c.add(row * COLS));
                    tile_unchecked(isa, a, b, c, COLS, Start::FromC);
                }
            }
        }
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

    #[test]
    fn rows_can_be_read_back() {
        let w = values(70 * 9, 5);
        let packed = PackedMatrix::pack(&w, 70, 9).unwrap();
        let mut row = vec![0f32; 9];
        for r in [0, 31, 32, 69] {
            packed.copy_row(r, &mut row);
            assert_eq!(row, w[r * 9..][..9]);
        }
    }
}
