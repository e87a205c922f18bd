//! What an update weighed in tokens. Kept beside the log of events: it decides nothing, and replays do without it.

use serde::{Deserialize, Serialize};

/// The tokens of one update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateCost {
    /// Which update of the context, from 1.
    pub update: u32,
    /// Tokens of each result's title and text as it came: one list for each group, in retrieval order, duplicates
    /// counted.
    pub results: Vec<Vec<usize>>,
    /// What scoring took: the sum over the batches of the update, all 0 where none was scored.
    pub evaluator: EvaluatorTokens,
}

/// Tokens that went through the model for scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluatorTokens {
    /// The inputs as the paper counts them, controls included.
    pub prompt: usize,
    /// Of these, those found in the prefix cache, or shared by inputs of one request.
    pub cached: usize,
    /// Of these, those that were computed: `prompt = cached + computed`.
    pub computed: usize,
}
