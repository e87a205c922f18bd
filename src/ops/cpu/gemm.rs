//! Matrix product with weights packed once at load: `Y[m][n] = Σ_k X[m][k] · W[n][k]` in f32.
//!
//! Panels of 32 output features are laid out `[k][32]`, so the kernel streams them; the sum over `k` is cut
//! in slices that stay in the L2 cache. Threads take whole panels. At one row the product reads every weight
//! once and is bound by memory bandwidth; from some dozen rows on by the multiply-add units.

use rayon::prelude::*;

use super::tile::{COLS, Isa, Lhs, ROWS, Start, tile_unchecked};

/// Terms of a sum per pass: a 12-row slice of X (24 KiB) fits L1 and a panel slice (64 KiB) fits L2.
const SLICE: usize = 512;

/// A weight matrix `[n, k]` in panels: value `(row, i)` is at `panel(row / 32)[i * 32 + row % 32]`.
pub struct PackedMatrix {
    n: usize,
    k: usize,
    data: Vec<f32>,
}

impl PackedMatrix {
    /// Packs the row-major `[n, k]` matrix `w`; the last panel is padded with zero rows.
    ///
    /// # Panics
    /// When `w` does not hold `n * k` values: that is a bug in the caller.
    #[must_use]
    pub fn pack(w: &[f32], n: usize, k: usize) -> Self {
        assert_eq!(w.len(), n * k, "matrix of {n} x {k}: this is a bug");
        let mut data = vec![0f32; n.div_ceil(COLS) * COLS * k];
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
        Self { n, k, data }
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

    /// `X [m, k] -> Y [m, n]`, both row-major. Runs on the current rayon pool.
    pub fn multiply(&self, isa: Isa, x: &[f32], y: &mut [f32]) {
        let (n, k) = (self.n, self.k);
        let m = x.len().checked_div(k).unwrap_or(0);
        assert!(x.len() == m * k && y.len() == m * n, "{m} x {k} to {n}: this is a bug");
        if m == 0 {
            return;
        }
        let (x, out) = (Input { isa, x, m, k }, Shared(y.as_mut_ptr()));
        (0..n.div_ceil(COLS)).into_par_iter().for_each(|p| {
            let panel = &self.data[p * COLS * k..][..COLS * k];
            // SAFETY: this thread alone writes columns p * 32 .. p * 32 + 32 of Y (fewer in the last panel),
            // in its m rows; the last panel reaches past the matrix, so its product goes through a buffer.
            #[allow(unsafe_code)]
            unsafe {
                let to = out.get().add(p * COLS);
                if (p + 1) * COLS <= n {
                    x.times_panel(panel, to, n);
                } else {
                    let mut buffer = vec![0f32; m * COLS];
                    x.times_panel(panel, buffer.as_mut_ptr(), COLS);
                    for (r, row) in buffer.chunks_exact(COLS).enumerate() {
                        std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(r * n), n - p * COLS);
                    }
                }
            }
        });
    }
}

/// The left operand `[m, k]`.
#[derive(Clone, Copy)]
struct Input<'a> {
    isa: Isa,
    x: &'a [f32],
    m: usize,
    k: usize,
}

impl Input<'_> {
    /// All rows against one panel `[k][32]`.
    ///
    /// # Safety
    /// `c` points at `m` rows of 32 values, `c_stride` apart, that no other thread touches.
    #[allow(unsafe_code)]
    unsafe fn times_panel(self, panel: &[f32], c: *mut f32, c_stride: usize) {
        let k = self.k;
        for from in (0..k).step_by(SLICE) {
            let len = SLICE.min(k - from);
            let start = if from == 0 { Start::Zero } else { Start::FromC };
            for row in (0..self.m).step_by(ROWS) {
                let a = Lhs { data: &self.x[row * k + from..], stride: k, rows: ROWS.min(self.m - row), len };
                // SAFETY: rows row..row + a.rows of X and C exist; the panel holds k rows of 32.
                unsafe {
                    let (b, c) = (panel.as_ptr().add(from * COLS), c.add(row * c_stride));
                    tile_unchecked(self.isa, a, b, c, c_stride, start);
                }
            }
        }
    }
}

/// A pointer that threads may share because each writes its own columns.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

impl Shared {
    fn get(self) -> *mut f32 {
        self.0
    }
}

// SAFETY: `multiply` hands every column range to exactly one thread.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::reference;

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
    fn it_equals_the_slow_product_on_awkward_shapes() {
        for (m, n, k) in [(1, 1, 1), (3, 33, 5), (12, 32, 512), (13, 31, 513), (25, 100, 1100), (2, 64, 896)]
        {
            let (x, w) = (values(m * k, 1), values(n * k, 2));
            let packed = PackedMatrix::pack(&w, n, k);
            let truth = reference::linear(&x, &w, n, k);
            for isa in Isa::available() {
                let mut y = vec![f32::NAN; m * n];
                packed.multiply(isa, &x, &mut y);
                for (got, want) in y.iter().zip(&truth) {
                    assert!((f64::from(*got) - want).abs() < 1e-4, "{isa:?} {m} {n} {k}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn a_row_is_the_same_bits_alone_and_in_company_and_on_any_number_of_threads() {
        let (m, n, k) = (29, 70, 1030);
        let (x, w) = (values(m * k, 3), values(n * k, 4));
        let packed = PackedMatrix::pack(&w, n, k);
        let run = |isa, x: &[f32]| {
            let mut y = vec![0f32; x.len() / k * n];
            packed.multiply(isa, x, &mut y);
            y
        };
        let whole = run(Isa::detect(), &x);
        for isa in Isa::available() {
            for (r, row) in x.chunks_exact(k).enumerate() {
                assert_eq!(run(isa, row), whole[r * n..][..n], "row {r} alone, {isa:?}");
            }
        }
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| run(Isa::detect(), &x)), whole, "{threads} threads");
        }
    }

    #[test]
    fn rows_can_be_read_back() {
        let w = values(70 * 9, 5);
        let packed = PackedMatrix::pack(&w, 70, 9);
        let mut row = vec![0f32; 9];
        for r in [0, 31, 32, 69] {
            packed.copy_row(r, &mut row);
            assert_eq!(row, w[r * 9..][..9]);
        }
    }
}
