//! A fork-join pool for kernels: a fixed set of threads that share the tasks of one region at a time.
//!
//! A decode step runs some hundred regions of a few microseconds each, so threads that find nothing to do spin
//! for a moment ([`SPIN`]) before they sleep, and a region never waits for a thread that has not joined it: what
//! is left to do is done by those who came. Between steps everybody sleeps and the cores belong to others.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long an idle thread looks for the next region before it sleeps.
const SPIN: Duration = Duration::from_micros(60);
/// Looks between two glances at the clock.
const LOOKS: u32 = 64;

/// The low half of `Shared::gate` counts the threads inside the open region.
const INSIDE: u64 = 0x7fff_ffff;
/// Set while a region may be joined.
const OPEN: u64 = 0x8000_0000;
/// One in the high half, which numbers the regions.
const REGION: u64 = 1 << 32;

/// A region's work: called with every task number once.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// `threads - 1` threads; the caller of [`Pool::run`] is the last one.
pub(super) struct Pool {
    shared: Arc<Shared>,
    /// Taken for the length of a region.
    caller: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Region number, [`OPEN`], and how many are inside.
    gate: AtomicU64,
    /// The open region's work; written by the caller while nobody is inside.
    work: Mutex<Option<Region>>,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: AtomicUsize,
    bed: Mutex<bool>,
    bell: Condvar,
}

#[derive(Clone, Copy)]
struct Region {
    work: *const Work<'static>,
    tasks: usize,
}

// SAFETY: `work` points at something `Sync` that outlives the region (`Pool::run` waits for all inside).
#[allow(unsafe_code)]
unsafe impl Send for Region {}

impl Pool {
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            work: Mutex::new(None),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(false),
            bell: Condvar::new(),
        });
        let spawn = |i: usize| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("qrae-kernel-{i}"));
            // a machine that gives no more threads still computes, with those it gave
            thread.spawn(move || shared.serve()).ok()
        };
        let threads = (1..threads.max(1)).map_while(spawn).collect();
        Self { shared, caller: Mutex::new(()), threads }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `work(0) … work(tasks - 1)`, each once, in any order, on any of the threads; returns when all are done.
    /// A call from inside a task, or while another region runs, does its tasks alone.
    ///
    /// # Panics
    /// With the first panic of a task.
    pub(super) fn run(&self, tasks: usize, work: &Work<'_>) {
        let caller = match (tasks > 1 && !self.threads.is_empty()).then(|| self.caller.try_lock()) {
            Some(Ok(caller)) => caller,
            // somebody panicked while holding it, and has left
            Some(Err(TryLockError::Poisoned(caller))) => caller.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => return (0..tasks).for_each(work),
        };
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased; nobody is inside any more when this function returns.
        #[allow(unsafe_code)]
        let work = unsafe { std::mem::transmute::<&Work<'_>, *const Work<'static>>(work) };
        let region = Region { work, tasks };
        *lock(&shared.work) = Some(region);
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.gate.load(Ordering::Relaxed) & !(REGION - 1)).wrapping_add(REGION);
        shared.gate.store(number | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&shared.bed));
            shared.bell.notify_all();
        }
        shared.take_tasks(region);
        shared.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut waited = Backoff::default();
        while shared.gate.load(Ordering::Acquire) & INSIDE > 0 {
            waited.wait();
        }
        let panic = lock(&shared.panic).take();
        drop(caller);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.bed) = true;
        self.shared.bell.notify_all();
        for thread in self.threads.drain(..) {
            // a worker catches its tasks' panics, so it ends well
            drop(thread.join());
        }
    }
}

impl Shared {
    /// The life of a worker.
    fn serve(&self) {
        let mut last = 0;
        loop {
            let gate = self.gate.load(Ordering::Acquire);
            if gate & OPEN > 0 && gate & !(REGION - 1) != last {
                let joined =
                    self.gate.compare_exchange_weak(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if joined.is_ok() {
                    last = gate & !(REGION - 1);
                    let region = *lock(&self.work);
                    self.take_tasks(region.expect("an open region has work: this is a bug"));
                    self.gate.fetch_sub(1, Ordering::Release);
                }
            } else if !self.look_out(last) {
                return;
            }
        }
    }

    /// Waits for a region other than `last`: spins, then sleeps. False when the pool is gone.
    fn look_out(&self, last: u64) -> bool {
        let news = || {
            let gate = self.gate.load(Ordering::SeqCst);
            gate & OPEN > 0 && gate & !(REGION - 1) != last
        };
        let begin = Instant::now();
        while begin.elapsed() < SPIN {
            for _ in 0..LOOKS {
                if news() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        let mut gone = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !*gone && !news() {
            gone = self.bell.wait(gone).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        !*gone
    }

    /// Does tasks until none is left; a panic ends the region for all.
    fn take_tasks(&self, region: Region) {
        // SAFETY: the region's caller keeps the work alive until everyone inside has left.
        #[allow(unsafe_code)]
        let work = unsafe { &*region.work };
        let tasks = AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= region.tasks {
                    return;
                }
                work(task);
            }
        });
        if let Err(panic) = catch_unwind(tasks) {
            self.next.store(region.tasks, Ordering::Relaxed);
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(panic);
            } else {
                // dropping what somebody panicked with may panic, and nobody may leave here that way
                std::mem::forget(panic);
            }
        }
    }
}

/// No task runs while one of these locks is held, so a panic cannot leave anything half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spins first, then lets others run: on a busy machine the awaited thread may have no core.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn wait(&mut self) {
        self.0 += 1;
        if self.0 < 4096 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for round in 0..300 {
                let tasks = round % 7 * 5;
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} threads");
                if round % 100 == 0 {
                    std::thread::sleep(SPIN * 3); // everyone sleeps, and must wake
                }
            }
        }
    }

    #[test]
    fn the_threads_do_share_the_work() {
        let pool = Pool::new(2);
        let met = std::sync::Barrier::new(2);
        // ends only if two threads are in it at once
        pool.run(2, &|_| {
            met.wait();
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(50, &|i| assert!(i != 17, "task {i}"));
            }));
            let panic = caught.expect_err("task 17 panics");
            assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("task 17"));
        }
        // on all its threads: this ends only if three are in it at once
        let met = std::sync::Barrier::new(3);
        pool.run(3, &|_| {
            met.wait();
        });
    }

    #[test]
    fn regions_inside_tasks_and_beside_each_other_end() {
        let pool = Pool::new(2);
        let done = AtomicUsize::new(0);
        let count = |_| {
            done.fetch_add(1, Ordering::Relaxed);
        };
        pool.run(4, &|_| pool.run(5, &count));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..100).for_each(|_| pool.run(10, &count)));
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 20 + 3 * 100 * 10);
    }
}
