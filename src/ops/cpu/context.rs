//! What a kernel runs on: an instruction set and threads.

use super::{disjoint::Disjoint, pool::Pool, tile::Isa};

/// Rows of one task of work that is done row by row.
pub(crate) const ROWS_PER_TASK: usize = 16;

/// The processor as kernels see it. Made once; the engine's thread and its helpers share it.
pub struct Cpu {
    isa: Isa,
    pool: Pool,
}

impl Cpu {
    /// The best instruction set of this processor, and `threads` threads in all, the caller's included (0 counts as 1).
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::with_isa(Isa::detect(), threads)
    }

    /// The same with a chosen instruction set: results are the same bits.
    #[must_use]
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        Self { isa, pool: Pool::new(threads) }
    }

    /// The instruction set to use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that work on a region.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls `work` with `0..tasks`, each once, in any order, spread over the threads; returns when all are done.
    /// Inside a task it does everything on the task's own thread.
    ///
    /// # Panics
    /// With the first panic of a task.
    pub fn parallel(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        self.pool.run(tasks, &work);
    }

    /// Calls `work(r, row)` for every row of `x [rows, width]`, spread over the threads.
    pub fn rows(&self, x: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
        let n = x.len().checked_div(width).unwrap_or(0);
        let rows = Disjoint::new(x);
        self.parallel(n.div_ceil(ROWS_PER_TASK), |task| {
            for r in task * ROWS_PER_TASK..n.min((task + 1) * ROWS_PER_TASK) {
                // SAFETY: each row belongs to one task.
                #[allow(unsafe_code)]
                work(r, unsafe { rows.part(r * width, width) });
            }
        });
    }
}
