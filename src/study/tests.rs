//! Observations made by hand for the tests of this module.

use super::folder::Record;
use crate::{
    eval::observation::{Observation, methods},
    score::Method,
};

/// A record with all numbers 0: `n_heads` of the whole model, chunks of ten tokens.
pub(super) fn blank(id: &str, n_heads: usize, n_chunks: usize, labels: Option<&[u32]>) -> Record {
    let table = vec![0.0; n_heads * n_chunks];
    Record {
        id: id.to_owned(),
        query: id.to_owned(),
        labels: labels.map(<[u32]>::to_vec),
        observation: Observation {
            n_heads,
            chunk_lens: vec![10; n_chunks],
            answer_mass: None,
            tables: methods().map(|m| (m.to_string(), table.clone())).collect(),
            qr: table.clone(),
            icr: vec![0.0; n_chunks],
        },
    }
}

/// Gives one head's score of each chunk under a method.
pub(super) fn set(record: &mut Record, method: Method, head: usize, scores: &[f32]) {
    let table = record.observation.tables.get_mut(&method.to_string()).unwrap();
    table[head * scores.len()..][..scores.len()].copy_from_slice(scores);
}

/// The same under every method.
pub(super) fn set_all(record: &mut Record, head: usize, scores: &[f32]) {
    methods().for_each(|method| set(record, method, head, scores));
}

/// Numbers in `[0, 1)` that look random.
pub(super) fn noise(seed: u32) -> impl FnMut() -> f32 {
    let mut x = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / 16_777_216.0
    }
}
