//! The candidate cache: chunks outside the reasoning context, findable by how often and how well they were scored.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Candidate, ChunkId, Score};

/// Chunks by number, and the two orders decisions are taken in. Every change costs a logarithm of the chunks held, and
/// candidates are shared between clones until they change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cache {
    by_id: BTreeMap<ChunkId, Arc<Candidate>>,
    by_count: BTreeSet<(usize, ChunkId)>,
    by_mean: BTreeSet<(Mean, ChunkId)>,
}

/// A mean, the highest first. Means are finite and not -0.
#[derive(Clone, Copy, Debug)]
struct Mean(f64);

impl Ord for Mean {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0)
    }
}

impl PartialOrd for Mean {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Mean {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Mean {}

impl Cache {
    /// Number of chunks.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The chunk of this number, if it is here.
    pub(super) fn get(&self, id: ChunkId) -> Option<&Arc<Candidate>> {
        self.by_id.get(&id)
    }

    /// All chunks, first seen first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Candidate> {
        self.by_id.values().map(|candidate| &**candidate)
    }

    /// All chunks, those with the fewest scores first, among equals the first seen.
    pub(super) fn fewest_scores(&self) -> impl Iterator<Item = ChunkId> {
        self.by_count.iter().map(|(_, id)| *id)
    }

    /// The chunks that have scores, the highest mean first, among equals the first seen.
    pub(super) fn best(&self) -> impl Iterator<Item = ChunkId> {
        self.by_mean.iter().map(|(_, id)| *id)
    }

    /// Takes a chunk in.
    pub(super) fn insert(&mut self, candidate: Arc<Candidate>) {
        self.index(&candidate);
        self.by_id.insert(candidate.id, candidate);
    }

    /// Adds a score to the history of a chunk that is here.
    pub(super) fn score(&mut self, id: ChunkId, score: Score) {
        if let Some(mut candidate) = self.remove(id) {
            Arc::make_mut(&mut candidate).scores.push(score);
            self.insert(candidate);
        }
    }

    /// Gives a chunk away.
    pub(super) fn remove(&mut self, id: ChunkId) -> Option<Arc<Candidate>> {
        let candidate = self.by_id.remove(&id)?;
        self.by_count.remove(&(candidate.scores.len(), id));
        if let Some(mean) = candidate.mean() {
            self.by_mean.remove(&(Mean(mean), id));
        }
        Some(candidate)
    }

    fn index(&mut self, candidate: &Candidate) {
        self.by_count.insert((candidate.scores.len(), candidate.id));
        if let Some(mean) = candidate.mean() {
            self.by_mean.insert((Mean(mean), candidate.id));
        }
    }
}
