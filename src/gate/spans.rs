//! The fewest tokens of whole sentences that hold a share of a chunk's response.

use super::sentences::Sentence;

/// The places of the sentences to keep, ascending: the fewest tokens whose response, with what the title holds anyway, is
/// at least `share` of the chunk's. Among equals the one with more response, then the one with earlier sentences. At least
/// one sentence is kept where any responds, none where none does.
///
/// A knapsack over tokens: `sentences × tokens` steps.
pub(super) fn smallest(sentences: &[Sentence], in_title: f64, share: f64) -> Vec<usize> {
    let responding: Vec<usize> = (0..sentences.len()).filter(|&i| sentences[i].mass > 0.0).collect();
    let all: f64 = responding.iter().map(|&i| sentences[i].mass).sum();
    let room: usize = responding.iter().map(|&i| sentences[i].tokens).sum();
    let need = (share * (in_title + all) - in_title).min(all);

    // the most response in at most so many tokens, and which sentences took part in it
    let mut most = vec![0.0; room + 1];
    let mut takes = vec![false; responding.len() * (room + 1)];
    for (row, &i) in responding.iter().enumerate() {
        let Sentence { tokens, mass, .. } = sentences[i];
        for budget in (tokens..=room).rev() {
            let with = most[budget - tokens] + mass;
            if with > most[budget] {
                most[budget] = with;
                takes[row * (room + 1) + budget] = true;
            }
        }
    }
    let Some(mut budget) = most.iter().position(|&mass| mass > 0.0 && mass >= need) else {
        return Vec::new();
    };
    let mut kept = Vec::new();
    for (row, &i) in responding.iter().enumerate().rev() {
        if takes[row * (room + 1) + budget] {
            kept.push(i);
            budget -= sentences[i].tokens;
        }
    }
    kept.reverse();
    kept
}
