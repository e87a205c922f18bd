//! Rows between layers, in the forms that the next matrices want them: f32, and 8-bit codes beside it.

use super::cpu::{Cpu, Inputs, QuantRows, context::ROWS_PER_TASK, disjoint::Disjoint};

/// `[rows, width]`. Keeps its memory from pass to pass.
pub struct Activations {
    width: usize,
    rows: Vec<f32>,
    /// Only where a matrix that reads these rows is quantised.
    quant: Option<QuantRows>,
}

impl Activations {
    /// No rows of `width` values yet; with codes beside them when `quantised` (`width` is then a multiple of 32).
    #[must_use]
    pub fn new(width: usize, quantised: bool) -> Self {
        Self { width, rows: Vec::new(), quant: quantised.then(QuantRows::default) }
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.rows.len() / self.width
    }

    /// The rows in f32.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// What the product kernels take.
    #[must_use]
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs { rows: &self.rows, quant: self.quant.as_ref() }
    }

    /// Keeps the first `n` rows.
    pub fn truncate(&mut self, n: usize) {
        self.rows.truncate(n * self.width);
        if let Some(quant) = &mut self.quant {
            quant.resize(n, self.width);
        }
    }

    /// Makes `n` rows that `write` writes all at once.
    ///
    /// # Errors
    /// What `write` says.
    pub fn fill_whole<E>(
        &mut self,
        cpu: &Cpu,
        n: usize,
        write: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rows.resize(n * self.width, 0.0);
        write(&mut self.rows)?;
        self.fill(cpu, n, |_, _| ());
        Ok(())
    }

    /// Makes `n` rows: `write(r, row)` for each, spread over the threads.
    pub fn fill(&mut self, cpu: &Cpu, n: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
        let width = self.width;
        self.rows.resize(n * width, 0.0);
        let rows = Disjoint::new(&mut self.rows);
        let slots = self.quant.as_mut().map(|quant| {
            quant.resize(n, width);
            quant.slots()
        });
        cpu.parallel(n.div_ceil(ROWS_PER_TASK), |task| {
            for r in task * ROWS_PER_TASK..n.min((task + 1) * ROWS_PER_TASK) {
                // SAFETY: each row belongs to one task.
                #[allow(unsafe_code)]
                unsafe {
                    let row = rows.part(r * width, width);
                    write(r, row);
                    if let Some(slots) = &slots {
                        slots.fill(cpu.isa(), r, row);
                    }
                }
            }
        });
    }
}
