//! Rows between layers, in the forms that the next matrices want them: f32, 8-bit codes, or both.

use std::cell::RefCell;

use super::{
    Linear,
    cpu::{
        Cpu, Inputs, QuantRows,
        buffer::Scratch,
        context::ROWS_PER_TASK,
        disjoint::Disjoint,
        product::gated,
        quant::rows::{GROUP, Slots},
    },
};

/// `[rows, width]`. Keeps its memory from pass to pass.
pub struct Activations {
    width: usize,
    n: usize,
    keep: Keep,
    rows: Scratch<f32>,
    codes: QuantRows,
}

/// What is kept of some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// f32, for matrices that multiply in f32.
    Rows,
    /// Codes, for quantised matrices.
    Codes,
    /// Both.
    Both,
}

impl Keep {
    /// What these maps read.
    #[must_use]
    pub fn for_maps<'a>(maps: impl IntoIterator<Item = &'a Linear>) -> Self {
        let (quantised, plain): (Vec<_>, Vec<_>) = maps.into_iter().partition(|l| l.is_quantised());
        match (quantised.is_empty(), plain.is_empty()) {
            (true, _) => Self::Rows,
            (false, true) => Self::Codes,
            (false, false) => Self::Both,
        }
    }

    /// f32 in any case, because they are read or written as a whole.
    #[must_use]
    pub fn and_rows(self) -> Self {
        if self == Self::Codes { Self::Both } else { self }
    }
}

impl Activations {
    /// No rows of `width` values yet (a multiple of 32 where codes are kept).
    #[must_use]
    pub fn new(width: usize, keep: Keep) -> Self {
        Self { width, n: 0, keep, rows: Scratch::default(), codes: QuantRows::default() }
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n
    }

    /// The rows in f32; none where only codes are kept.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// What the product kernels take.
    #[must_use]
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs { rows: &self.rows, quant: (self.keep != Keep::Rows).then_some(&self.codes) }
    }

    /// Keeps the first `n` rows.
    pub fn truncate(&mut self, n: usize) {
        self.resize(n.min(self.n));
    }

    fn resize(&mut self, n: usize) {
        self.n = n;
        if self.keep != Keep::Codes {
            self.rows.resize(n * self.width);
        }
        if self.keep != Keep::Rows {
            self.codes.resize(n, self.width);
        }
    }

    /// Makes `n` rows: `write(r, row)` for each, spread over the threads.
    pub fn fill(&mut self, cpu: &Cpu, n: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
        thread_local! {
            /// The row of a thread where only codes are kept.
            static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        self.resize(n);
        let Self { width, keep, .. } = *self;
        let (rows, codes) = self.parts();
        let one = |r: usize, row: &mut [f32]| {
            write(r, row);
            if keep != Keep::Rows {
                // SAFETY: each row belongs to one task.
                #[allow(unsafe_code)]
                unsafe {
                    codes.fill(cpu.isa(), r, row);
                }
            }
        };
        cpu.parallel(n.div_ceil(ROWS_PER_TASK), |task| {
            for r in task * ROWS_PER_TASK..n.min((task + 1) * ROWS_PER_TASK) {
                if keep == Keep::Codes {
                    ROW.with_borrow_mut(|row| {
                        row.resize(width, 0.0);
                        one(r, row);
                    });
                } else {
                    // SAFETY: each row belongs to one task.
                    #[allow(unsafe_code)]
                    one(r, unsafe { rows.part(r * width, width) });
                }
            }
        });
    }

    /// Makes `n` rows that `write` writes all at once; f32 are kept.
    ///
    /// # Errors
    /// What `write` says.
    pub fn fill_whole<E>(
        &mut self,
        cpu: &Cpu,
        n: usize,
        write: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(self.keep != Keep::Codes, "no room for rows: this is a bug");
        self.resize(n);
        write(&mut self.rows)?;
        self.fill(cpu, n, |_, _| ());
        Ok(())
    }

    /// Makes rows of `silu(gate(x)) · up(x)`, the inside of a gated MLP; neither map has a bias.
    ///
    /// # Panics
    /// When sizes do not fit: a bug in the caller.
    pub fn fill_gated(&mut self, cpu: &Cpu, x: &Activations, gate: &Linear, up: &Linear) {
        assert!(gate.n() == self.width, "an MLP of another width: this is a bug");
        self.resize(x.n);
        let Self { width, keep, .. } = *self;
        let (rows, codes) = self.parts();
        gated(cpu, x.n, x.inputs(), (gate.weight(), up.weight()), |r, p, values| {
            // SAFETY: each panel of a row is written once.
            #[allow(unsafe_code)]
            unsafe {
                if keep != Keep::Codes {
                    let len = (width - p * GROUP).min(GROUP);
                    rows.part(r * width + p * GROUP, len).copy_from_slice(&values[..len]);
                }
                if keep != Keep::Rows {
                    codes.fill_group(cpu.isa(), r, p, values);
                }
            }
        });
    }

    fn parts(&mut self) -> (Disjoint<'_, f32>, Slots<'_>) {
        (Disjoint::new(&mut self.rows), self.codes.slots())
    }
}
