//! What a kernel runs on: an instruction set and threads.

use rayon::prelude::*;

use super::tile::Isa;

/// The processor as kernels see it.
pub struct Cpu {
    isa: Isa,
    /// None: whatever pool the caller is in.
    pool: Option<rayon::ThreadPool>,
}

impl Cpu {
    /// The best instruction set of this processor, and `threads` threads (0 counts as 1).
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::with_isa(Isa::detect(), threads)
    }

    /// The same with a chosen instruction set: results are the same bits.
    ///
    /// # Panics
    /// When the system gives no threads.
    #[must_use]
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        Self { isa, pool: Some(pool.expect("the system gives a thread")) }
    }

    /// The best instruction set and the rayon pool of the caller.
    #[must_use]
    pub fn current() -> Self {
        Self { isa: Isa::detect(), pool: None }
    }

    /// The instruction set to use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that work on a region.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads)
    }

    /// Calls `work` with `0..tasks`, each once, in any order, spread over the threads; returns when all are done.
    ///
    /// # Panics
    /// With the first panic of a task.
    pub fn parallel(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let run = || {
            (0..self.threads()).into_par_iter().with_max_len(1).for_each(|_| {
                loop {
                    let task = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if task >= tasks {
                        break;
                    }
                    work(task);
                }
            });
        };
        match &self.pool {
            Some(pool) => pool.install(run),
            None => run(),
        }
    }
}
