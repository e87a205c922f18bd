//! Products of one set of rows with several weight matrices, as one region of the thread pool.
//!
//! Threads take panels of 32 output features (and, when there are few panels and many rows, parts of the rows).
//! At one row a product reads every weight once and is bound by memory bandwidth; from some dozen rows on by the
//! multiply-add units. The bits of an output row depend on that row of the input alone.

use std::{cell::RefCell, ops::Range};

use super::{
    Cpu, Isa, PackedMatrix, QuantMatrix, QuantRows,
    disjoint::Disjoint,
    exp::exp,
    tile::{COLS, Vectorised},
};

/// Tasks per thread that make up for threads of unequal speed.
const TASKS_PER_THREAD: usize = 8;
/// Most rows of a task: their sums, two lines each, and their codes stay in the L2 cache.
const MAX_ROWS: usize = 256;
/// Rows up to which a product is bound by reading weights.
const FEW_ROWS: usize = 8;
/// Fewest rows of a task: fewer would not pay for expanding a quantised panel.
const MIN_ROWS: usize = 96;

/// A weight matrix `[n, k]` in the form its kernel wants.
pub enum Weight {
    /// Weights in f32 or 16 bits, f32 arithmetic.
    Plain(PackedMatrix),
    /// Quantised weights, 8-bit activations.
    Quant(QuantMatrix),
}

impl Weight {
    /// Output features.
    #[must_use]
    pub fn n(&self) -> usize {
        match self {
            Self::Plain(w) => w.n(),
            Self::Quant(w) => w.n(),
        }
    }

    /// Input features.
    #[must_use]
    pub fn k(&self) -> usize {
        match self {
            Self::Plain(w) => w.k(),
            Self::Quant(w) => w.k(),
        }
    }

    /// Writes row `row` of the matrix to `out` (`k` values): how an embedding is read.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Plain(w) => w.copy_row(row, out),
            Self::Quant(w) => w.copy_row(row, out),
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(w) => w.bytes(),
            Self::Quant(w) => w.bytes(),
        }
    }

    /// The kernel wants quantised rows.
    #[must_use]
    pub fn is_quant(&self) -> bool {
        matches!(self, Self::Quant(_))
    }

    /// Adds some rows of `x` times panel `p` to as many lines.
    fn add_to(&self, isa: Isa, x: Inputs<'_>, rows: Rows, p: usize, lines: &mut [Line]) {
        assert!(lines.len() == rows.len, "{} lines for {} rows: this is a bug", lines.len(), rows.len);
        let c = lines.as_mut_ptr().cast();
        // SAFETY: `c` points at `rows.len` rows of 32 values.
        #[allow(unsafe_code)]
        unsafe {
            match self {
                Self::Plain(w) => {
                    let x = &x.rows[rows.first * w.k()..][..rows.len * w.k()];
                    w.add_panel(isa, x, p, c);
                }
                Self::Quant(w) => {
                    let x = x.quant.expect("rows quantised for a quantised matrix: this is a bug");
                    w.add_panel(isa, x, (rows.first, rows.len), p, c);
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

impl Inputs<'_> {
    fn check(&self, m: usize, weight: &Weight) {
        let k = weight.k();
        let quant = |q: &QuantRows| q.rows() == m && q.k() == k;
        let fits = if weight.is_quant() { self.quant.is_some_and(quant) } else { self.rows.len() == m * k };
        assert!(fits, "{m} rows of {k}: this is a bug");
    }
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
        let n = p.weight.n();
        assert!(p.y.len() == m * n && p.bias.is_none_or(|b| b.len() == n), "{m} rows to {n}: this is a bug");
        x.check(m, p.weight);
    }
    // the outputs leave the products, so that these can be shared
    let outs: Vec<Disjoint<'_, f32>> =
        products.iter_mut().map(|p| Disjoint::new(std::mem::take(&mut p.y))).collect();
    let products = &*products;
    let panels = |p: &Product<'_>| p.weight.n().div_ceil(COLS);
    over_panels(cpu, m, products.iter().map(panels).sum(), |all, rows| {
        for panel in all {
            let (mut i, mut p) = (0, panel);
            while p >= panels(&products[i]) {
                p -= panels(&products[i]);
                i += 1;
            }
            run_panel(cpu.isa(), x, &products[i], rows, p, &outs[i]);
        }
    });
}

/// The first half of a gated MLP: `silu(x · Gᵀ) · (x · Uᵀ)`, panel by panel, so that neither product is ever in memory whole.
/// `write(r, p, values)` gets 32 outputs `32 p ..` of row `r` (fewer count where `n` ends).
///
/// # Panics
/// When sizes do not fit each other: a bug in the caller.
pub fn gated(
    cpu: &Cpu,
    m: usize,
    x: Inputs<'_>,
    (gate, up): (&Weight, &Weight),
    write: impl Fn(usize, usize, &[f32; COLS]) + Sync,
) {
    assert!(gate.n() == up.n(), "gate and up differ: this is a bug");
    x.check(m, gate);
    x.check(m, up);
    let isa = cpu.isa();
    over_panels(cpu, m, gate.n().div_ceil(COLS), |panels, rows| {
        // with few rows, several panels of one matrix before the other's: memory likes to be read in order
        let batch = (FEW_ROWS / rows.len).max(1);
        for from in panels.clone().step_by(batch) {
            let panels = from..panels.end.min(from + batch);
            with_lines(2 * panels.len() * rows.len, |lines| {
                lines.fill(Line([0.0; COLS]));
                let (gates, ups) = lines.split_at_mut(panels.len() * rows.len);
                for (weight, lines) in [(gate, &mut *gates), (up, &mut *ups)] {
                    for (p, lines) in panels.clone().zip(lines.chunks_exact_mut(rows.len)) {
                        weight.add_to(isa, x, rows, p, lines);
                    }
                }
                for (i, (gate, up)) in gates.iter_mut().zip(ups).enumerate() {
                    isa.run(SwiGlu { gate: &mut gate.0, up: &up.0 });
                    write(rows.first + i % rows.len, from + i / rows.len, &gate.0);
                }
            });
        }
    });
}

/// Cuts `panels` panels and `m` rows into tasks, spread over the threads.
fn over_panels(cpu: &Cpu, m: usize, panels: usize, work: impl Fn(Range<usize>, Rows) + Sync) {
    let wanted = if cpu.threads() == 1 { 1 } else { cpu.threads() * TASKS_PER_THREAD };
    let parts = wanted.div_ceil(panels.max(1)).min(m.div_ceil(MIN_ROWS)).max(m.div_ceil(MAX_ROWS)).max(1);
    let rows_per_part = m.div_ceil(parts);
    let panels_per_task = (panels / wanted).max(1);
    let groups = panels.div_ceil(panels_per_task);
    cpu.parallel(groups * parts, |task| {
        let first = task / groups * rows_per_part;
        let rows = Rows { first, len: rows_per_part.min(m.saturating_sub(first)) };
        let from = task % groups * panels_per_task;
        if rows.len > 0 {
            work(from..(from + panels_per_task).min(panels), rows);
        }
    });
}

/// Rows `rows` of one panel of one product. Sums are collected in lines next to each other: rows of Y are far apart.
fn run_panel(isa: Isa, x: Inputs<'_>, product: &Product<'_>, rows: Rows, p: usize, out: &Disjoint<'_, f32>) {
    let n = product.weight.n();
    let width = (n - p * COLS).min(COLS);
    // SAFETY: this task alone has columns p * 32 .. p * 32 + width of these rows of Y.
    #[allow(unsafe_code)]
    let y = |r: usize| unsafe { out.part((rows.first + r) * n + p * COLS, width) };
    with_lines(rows.len, |lines| {
        for (r, line) in lines.iter_mut().enumerate() {
            *line = Line([0.0; COLS]);
            if product.onto {
                line.0[..width].copy_from_slice(y(r));
            }
            if let Some(bias) = product.bias {
                line.0.iter_mut().zip(&bias[p * COLS..][..width]).for_each(|(v, b)| *v += b);
            }
        }
        product.weight.add_to(isa, x, rows, p, lines);
        for (r, line) in lines.iter().enumerate() {
            y(r).copy_from_slice(&line.0[..width]);
        }
    });
}

/// 32 values of a row, in two cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; COLS]);

/// Calls `work` with `n` lines that the thread keeps for the next call.
fn with_lines(n: usize, work: impl FnOnce(&mut [Line])) {
    thread_local! {
        static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    }
    LINES.with_borrow_mut(|lines| {
        if lines.len() < n {
            lines.resize(n, Line([0.0; COLS]));
        }
        work(&mut lines[..n]);
    });
}

/// `gate = silu(gate) · up`.
struct SwiGlu<'a> {
    gate: &'a mut [f32; COLS],
    up: &'a [f32; COLS],
}

impl Vectorised for SwiGlu<'_> {
    #[inline(always)]
    fn run(self) {
        for (g, u) in self.gate.iter_mut().zip(self.up) {
            *g = *g / (1.0 + exp(-*g)) * u;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FloatType;
    use super::*;

    #[test]
    fn gates_are_the_formula_at_every_size() {
        // a matrix of one column, so that a product is what the row holds times the weight
        let weights: Vec<f32> = (-40..41).map(|i| i as f32 * 0.7).collect();
        let ups: Vec<f32> = (0..81).map(|i| i as f32 * 0.05 - 2.0).collect();
        let matrix = |w: &[f32]| Weight::Plain(PackedMatrix::of(FloatType::F32, w, 81, 1));
        let (gate, up) = (matrix(&weights), matrix(&ups));
        let x = [1.0, -3.0, 4.0];
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; 3 * 96];
            let parts = Disjoint::new(&mut out);
            let inputs = Inputs { rows: &x, quant: None };
            gated(&Cpu::with_isa(isa, 2), 3, inputs, (&gate, &up), |r, p, values| {
                // SAFETY: every row and panel comes once.
                #[allow(unsafe_code)]
                unsafe { parts.part(r * 96 + p * 32, 32) }.copy_from_slice(values);
            });
            for (r, x) in x.into_iter().enumerate() {
                for i in 0..81 {
                    let (g, u) = (f64::from(weights[i]) * f64::from(x), f64::from(ups[i]) * f64::from(x));
                    let (got, want) = (f64::from(out[r * 96 + i]), g / (1.0 + (-g).exp()) * u);
                    assert!((got - want).abs() <= 1e-6 * want.abs().max(1e-6), "{g} {u}: {got} {want}");
                }
            }
        }
    }
}
