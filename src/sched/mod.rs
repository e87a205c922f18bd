//! Who runs next: continuous batching with chunked prefill, preemption and forks, over the paged KV pool.
//!
//! Owns the order of sequences and their block tables. Must not know tensors, devices, clocks, text or what a
//! token means: it sees token ids, counts and block numbers. The engine repeats
//!
//! ```text
//!   plan  = scheduler.plan()             what to compute, and where to put it
//!   next  = run(plan.copies, plan.items) one forward pass
//!   scheduler.settle(&plan, &next)       what came out
//! ```
//!
//! Rules, in this order:
//! 1. Every running decode gets its one token in every step; bursts of prefill never starve it.
//! 2. Running prefills go on in order of arrival, a chunk at a time, within the step's token budget. While both kinds
//!    are there, those that generate and those that score, each gets half of it, and what the other leaves: no burst
//!    of scores holds up a chat's first token, nor the other way round.
//! 3. Waiting sequences start in order of arrival, when the pool holds all their tokens besides what the
//!    running ones still need. Nobody overtakes, but a sequence that waits for its fork parent is passed over, and one
//!    whose kind has had its half or its places. A kind of which nothing runs has one place more than there are: no
//!    number of long answers keeps a score from starting, nor the other way round.
//! 4. A running sequence that finds no block takes them from finished fork parents, then from the youngest
//!    running sequence, which is preempted. So the oldest always advances, and everything finishes.
//!
//! Tests: in `tests.rs` (examples that read as documentation) and `tests/sched_props.rs` (a shadow memory in
//! which every position a sequence reads must hold that sequence's own token).

mod plan;
mod planner;
mod scheduler;
mod sequence;
#[cfg(test)]
mod tests;

pub use plan::{Next, StepItem, StepPlan};
pub use scheduler::{AddError, Counts, SchedConfig, Scheduler};
pub use sequence::{Fork, NewSequence, Want};
