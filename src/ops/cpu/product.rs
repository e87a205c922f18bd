//! Products of one set of rows with several weight matrices, as one region of the thread pool.
//!
//! Threads take panels of 32 output features (and, when there are few panels and many rows, parts of the rows).
//! At one row a product reads every weight once and is bound by memory bandwidth; from some dozen rows on by the
//! multiply-add units. The bits of an output row depend on that row of the input alone.

use super::{Cpu, Isa, PackedMatrix, QuantMatrix, QuantRows, disjoint::Disjoint, tile::COLS};

/// Tasks per thread that make up for threads of unequal speed.
const TASKS_PER_THREAD: usize = 8;
/// Fewest rows of a task: fewer would not pay for expanding a quantised panel.
const MIN_ROWS: usize = 96;

/// A weight matrix `[n, k]` in the form its kernel wants.
pub enum Weight {
    /// f32 weights, f32 arithmetic.
    F32(PackedMatrix),
    /// Quantised weights, 8-bit activations.
    Quant(QuantMatrix),
}

impl Weight {
    /// Output features.
    #[must_use]
    pub fn n(&self) -> usize {
        match self {
            Self::F32(w) => w.n(),
            Self::Quant(w) => w.n(),
        }
    }

    /// Input features.
    #[must_use]
    pub fn k(&self) -> usize {
        match self {
            Self::F32(w) => w.k(),
            Self::Quant(w) => w.k(),
        }
    }

    /// Writes row `row` of the matrix to `out` (`k` values): how an embedding is read.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::F32(w) => w.copy_row(row, out),
            Self::Quant(w) => w.copy_row(row, out),
        }
    }

    /// The kernel wants quantised rows.
    #[must_use]
    pub fn is_quant(&self) -> bool {
        matches!(self, Self::Quant(_))
    }

    /// # Safety
    /// `c` points at `rows.len()` rows of 32 values, `c_stride` apart, that no other thread touches.
    #[allow(unsafe_code)]
    unsafe fn add_panel(&self, isa: Isa, x: Inputs<'_>, rows: Rows, p: usize, c: *mut f32, c_stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32(w) => {
                    let x = &x.rows[rows.first * w.k()..][..rows.len * w.k()];
                    w.add_panel(isa, x, p, c, c_stride);
                }
                Self::Quant(w) => {
                    let x = x.quant.expect("rows quantised for a quantised matrix: this is a bug");
                    w.add_panel(isa, x, (rows.first, rows.len), p, c, c_stride);
                }
            }
        }
    }
}

/// The rows that are multiplied, as each kind of kernel wants them.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[m, k]`.
    pub rows: &'a [f32],
    /// The same rows in 8 bits; needed where a weight [is quantised](Weight::is_quant).
    pub quant: Option<&'a QuantRows>,
}

/// One product of a region.
pub struct Product<'a> {
    /// The matrix.
    pub weight: &'a Weight,
    /// Added to every row, `[n]`.
    pub bias: Option<&'a [f32]>,
    /// Added to what `y` holds (the residual stream).
    pub onto: bool,
    /// `[m, n]`, row-major.
    pub y: &'a mut [f32],
}

#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    len: usize,
}

/// `y = x · Wᵀ` (plus bias, plus `y`) for each product; the sums start from what is added.
///
/// # Panics
/// When sizes do not fit each other: a bug in the caller.
pub fn multiply(cpu: &Cpu, m: usize, x: Inputs<'_>, products: &mut [Product<'_>]) {
    for p in &*products {
        let (n, k) = (p.weight.n(), p.weight.k());
        assert!(p.y.len() == m * n && p.bias.is_none_or(|b| b.len() == n), "{m} rows to {n}: this is a bug");
        let quant = |q: &QuantRows| q.rows() == m && q.k() == k;
        let fits = if p.weight.is_quant() { x.quant.is_some_and(quant) } else { x.rows.len() == m * k };
        assert!(fits, "{m} rows of {k}: this is a bug");
    }
    if m == 0 {
        return;
    }
    let panels = products.iter().map(|p| p.weight.n().div_ceil(COLS)).sum::<usize>();
    let wanted = if cpu.threads() == 1 { 1 } else { cpu.threads() * TASKS_PER_THREAD };
    let parts = wanted.div_ceil(panels.max(1)).min(m.div_ceil(MIN_ROWS)).max(1);
    let rows_per_part = m.div_ceil(parts);
    let panels_per_task = (panels / wanted).max(1);
    // the outputs leave the products, so that these can be shared
    let outs: Vec<Disjoint<'_, f32>> =
        products.iter_mut().map(|p| Disjoint::new(std::mem::take(&mut p.y))).collect();
    let products = &*products;
    let groups = panels.div_ceil(panels_per_task);
    cpu.parallel(groups * parts, |task| {
        let first = task / groups * rows_per_part;
        let rows = Rows { first, len: rows_per_part.min(m.saturating_sub(first)) };
        if rows.len == 0 {
            return;
        }
        let from = task % groups * panels_per_task;
        for panel in from..(from + panels_per_task).min(panels) {
            let (mut i, mut p) = (0, panel);
            while p >= products[i].weight.n().div_ceil(COLS) {
                p -= products[i].weight.n().div_ceil(COLS);
                i += 1;
            }
            run_panel(cpu.isa(), x, &products[i], rows, p, &outs[i]);
        }
    });
}

/// Rows `rows` of one panel of one product.
fn run_panel(isa: Isa, x: Inputs<'_>, product: &Product<'_>, rows: Rows, p: usize, out: &Disjoint<'_, f32>) {
    let n = product.weight.n();
    let width = (n - p * COLS).min(COLS);
    // SAFETY: this thread alone writes columns p * 32 .. p * 32 + width of these rows of Y. The last panel may reach
    // past the matrix, so its product goes through a buffer.
    #[allow(unsafe_code)]
    unsafe {
        let to = out.at(rows.first * n + p * COLS, (rows.len - 1) * n + width);
        for r in 0..rows.len {
            let row = std::slice::from_raw_parts_mut(to.add(r * n), width);
            match (product.bias.map(|b| &b[p * COLS..][..width]), product.onto) {
                (Some(bias), false) => row.copy_from_slice(bias),
                (None, false) => row.fill(0.0),
                (Some(bias), true) => row.iter_mut().zip(bias).for_each(|(y, b)| *y += b),
                (None, true) => {}
            }
        }
        if width == COLS {
            product.weight.add_panel(isa, x, rows, p, to, n);
        } else {
            let mut buffer = vec![0f32; rows.len * COLS];
            for (r, row) in buffer.chunks_exact_mut(COLS).enumerate() {
                std::ptr::copy_nonoverlapping(to.add(r * n), row.as_mut_ptr(), width);
            }
            product.weight.add_panel(isa, x, rows, p, buffer.as_mut_ptr(), COLS);
            for (r, row) in buffer.chunks_exact(COLS).enumerate() {
                std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(r * n), width);
            }
        }
    }
}
