//! What chunks and updates weigh in tokens, gathered update by update.

use std::collections::BTreeMap;

use super::{Answer, ChunkId, EvaluatorTokens, State, UpdateCost};

/// Tokens of every chunk seen, and what updates weighed in all. Follows from answers and costs alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    chunks: BTreeMap<ChunkId, usize>,
    /// The sums after each update.
    sums: Vec<Sums>,
}

/// What updates weighed in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Tokens of all results, duplicates counted: what would be in an agent's context without the manager.
    pub results: usize,
    /// What scoring took.
    pub evaluator: EvaluatorTokens,
}

impl Weights {
    /// Takes in the next update: what became of it, and what it weighed.
    pub fn add(&mut self, answer: &Answer, cost: &UpdateCost) {
        let mut sums = self.sums.last().copied().unwrap_or_default();
        for (group, tokens) in answer.groups.iter().zip(&cost.results) {
            for (sighting, tokens) in group.results.iter().zip(tokens) {
                // of duplicates the first text stays
                self.chunks.entry(sighting.chunk).or_insert(*tokens);
                sums.results += tokens;
            }
        }
        sums.evaluator.add(&cost.evaluator);
        self.sums.push(sums);
    }

    /// Tokens of a chunk; 0 for one that was not seen.
    #[must_use]
    pub fn of(&self, chunk: ChunkId) -> usize {
        self.chunks.get(&chunk).copied().unwrap_or(0)
    }

    /// The sums up to and with that update, counted from 1; zeros for update 0.
    #[must_use]
    pub fn sums(&self, update: u32) -> Sums {
        let at = (update as usize).min(self.sums.len());
        at.checked_sub(1).map_or_else(Sums::default, |at| self.sums[at])
    }

    /// Tokens of the whitelist as it was after that update.
    #[must_use]
    pub fn whitelist(&self, state: &State, update: u32) -> usize {
        state.whitelist_after(update).map(|admitted| self.of(admitted.candidate.id)).sum()
    }
}

impl EvaluatorTokens {
    /// Adds those of another request.
    pub fn add(&mut self, other: &Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.computed += other.computed;
    }
}
