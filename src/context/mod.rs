//! The context manager: which retrieved chunks enter an agent's reasoning context, and which wait outside. Pure logic.
//!
//! A context has a *candidate cache* (chunks outside, each with the history of its scores) and a *whitelist* (chunks
//! admitted; none ever leaves). An *update* brings the results of one search call in *groups*, one for each query. For each
//! group in turn, with B results for a query and retention rate ϱ:
//!
//! 1. Each result is told apart by its [`Key`] from those before it in the group, the cache and the whitelist; new ones
//!    join the cache in retrieval order.
//! 2. If the cache holds fewer than B chunks, nothing is scored: scoring waits.
//! 3. Else one batch is scored: the B chunks of the cache with the fewest scores, among equals the first seen.
//! 4. Of all chunks of the cache that have a score, the ⌈ϱB⌉ with the highest mean, among equals the first seen, enter the
//!    whitelist. The rest is *deferred*: it stays.
//!
//! Under [`Mode::CurrentSearch`] (an ablation) a group's new results are the batch, whatever their number, the top ⌈ϱB⌉
//! enter the whitelist, and the rest is *forgotten*.
//!
//! ```text
//!   Context::begin(update) ──▶ Step::Score(batch) ──▶ commit(batch, scores) ──▶ … ──▶ Step::Done(answer)
//!      inside:  State::begin, plan, commit  decide an Event   (look, change nothing)
//!               State::apply                lets it happen    (the only change there is)
//! ```
//!
//! Every decision is an [`Event`]; the same `apply` runs when it is taken and when a log is replayed, so a replayed state
//! is equal. Knows no clock, lock, model, file or task, draws nothing, and never sees who calls.
//!
//! # Decisions where the text leaves room
//!
//! - **Same page**: see [`Key`] and the table in `page.rs`. A chunk with an address and one without are never the same.
//!   Of duplicates the first text stays; a later one changes neither it nor its place.
//! - **More or fewer than B results**, or none: all are taken. A group that brings nothing new still has its batch when
//!   the cache holds B chunks.
//! - **Order of a batch**: as it is chosen (fewest scores, then first seen). Scores depend on it, so it is said.
//! - **One mean**: scores given for other queries (an update may bring its own) and in other batches count alike.
//! - **Fewer scored than ⌈ϱB⌉**: all of them are admitted. With the manager this cannot happen, as B were just scored.
//! - **Deferred** in an update: what it brought or scored and did not admit, not the whole cache.
//! - **Current search**: the search is one group. Duplicates are looked for in the group and in the whitelist; what was
//!   forgotten is new again, with a new number. ⌈ϱB⌉ counts B as configured, not the results that came.
//! - **Retries**: the same id with the same content, to the letter, gets the recorded answer; while the update is in
//!   progress it goes on where it stands. With other content it is refused. One update at a time.
//! - **An update that cannot be scored** leaves no trace if the caller works on a clone and keeps that, and stores its
//!   events, once the update is done. A caller that stores them earlier goes on after a restart by sending it again.
//!
//! Tests: `tests/` (examples that read as documentation) and `tests/context_props.rs` (against a naive model).

mod answer;
mod apply;
mod cache;
mod candidate;
mod config;
mod cost;
mod error;
mod event;
mod fits;
mod key;
mod machine;
mod page;
mod plan;
mod state;
#[cfg(test)]
mod tests;
mod update;
mod weigh;

pub use answer::{Answer, Batch, BatchScore, GroupAnswer, Sighting};
pub use candidate::{Admitted, Candidate, ChunkId, Place, Score, Turn};
pub use config::{Config, Mode, Retention, RetentionError};
pub use cost::{EvaluatorTokens, UpdateCost};
pub use error::{ApplyError, BeginError, CommitError, ReplayError, ScoreProblem};
pub use event::{ChunkScore, Event, Format, OtherFormat, Record};
pub use key::Key;
pub use machine::{Context, Step};
pub use plan::{Begun, MAX_SCORE, Plan};
pub use state::State;
pub use update::{Group, Update};
pub use weigh::{Sums, Weights};
