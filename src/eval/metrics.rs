//! How well scores rank the relevant chunks of a question, and the average over questions.
//!
//! Definitions: AUROC is the Mann–Whitney statistic (Hanley and McNeil 1982); recall@k, reciprocal rank and NDCG
//! with exponential gain (Burges et al. 2005) as information retrieval uses them. A chunk is relevant when its
//! label is above 0. Must not know heads, methods or questions' texts. Tests: below, against slow twins.

use std::cmp::Ordering;

use super::judged::Judged;
use crate::ids::counted;

/// The four numbers of one question. `None` where the question cannot tell good scores from bad ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// See [`auroc`]; in [0, 1], one half for chance.
    pub auroc: Option<f64>,
    /// See [`recall_at`]; in [0, 1].
    pub recall: Option<f64>,
    /// See [`ndcg_at`]; in [0, 1].
    pub ndcg: Option<f64>,
    /// See [`reciprocal_rank`]; in (0, 1]. Its mean over questions is the MRR.
    pub reciprocal_rank: Option<f64>,
}

/// Labels that scores cannot be measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// Not one label per score.
    #[error("{} but {}; give one label per scored chunk", counted(*n_scores, "score"), counted(*n_labels, "label"))]
    LengthsDiffer {
        /// Scores given.
        n_scores: usize,
        /// Labels given.
        n_labels: usize,
    },
    /// A label whose gain is out of proportion.
    #[error("chunk {chunk} has relevance {label}; labels go from 0 (not relevant) to {}", Judged::MOST_LABEL)]
    Label {
        /// Index of the chunk.
        chunk: usize,
        /// The label.
        label: u32,
    },
}

impl Metrics {
    /// All of one question, `scores` and `labels` `[chunks]` in retrieval order, labels at most [`Judged::MOST_LABEL`];
    /// recall and NDCG over the first `k`.
    pub fn new(scores: &[f64], labels: &[u32], k: usize) -> Result<Self, MetricsError> {
        if scores.len() != labels.len() {
            return Err(MetricsError::LengthsDiffer { n_scores: scores.len(), n_labels: labels.len() });
        }
        if let Some(chunk) = labels.iter().position(|&label| label > Judged::MOST_LABEL) {
            return Err(MetricsError::Label { chunk, label: labels[chunk] });
        }
        let order = ranking(scores);
        Ok(Self {
            auroc: auroc(scores, labels),
            recall: recall_at(&order, labels, k),
            ndcg: ndcg_at(&order, labels, k),
            reciprocal_rank: reciprocal_rank(&order, labels),
        })
    }
}

/// Macro averages: every question counts the same, however many chunks it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Averages {
    /// Over questions with relevant and other chunks.
    pub auroc: Average,
    /// Over questions with relevant chunks.
    pub recall: Average,
    /// Over questions with relevant chunks.
    pub ndcg: Average,
    /// Over questions with relevant chunks: the mean reciprocal rank.
    pub mrr: Average,
}

/// A mean over the questions that say something, and how many don't.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    /// `None` when every question was left out.
    pub mean: Option<f64>,
    /// Questions in the mean.
    pub questions: usize,
    /// Questions without the classes that the metric compares.
    pub left_out: usize,
}

impl Average {
    /// The mean of what is there, in order.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let (mut sum, mut questions, mut left_out) = (0.0, 0, 0);
        for value in values {
            match value {
                Some(value) => {
                    sum += value;
                    questions += 1;
                }
                None => left_out += 1,
            }
        }
        Self { mean: (questions > 0).then(|| sum / questions as f64), questions, left_out }
    }
}

impl Averages {
    /// Averages each metric over the questions that have it.
    #[must_use]
    pub fn of(questions: &[Metrics]) -> Self {
        let over = |metric: fn(&Metrics) -> Option<f64>| Average::of(questions.iter().map(metric));
        Self {
            auroc: over(|m| m.auroc),
            recall: over(|m| m.recall),
            ndcg: over(|m| m.ndcg),
            mrr: over(|m| m.reciprocal_rank),
        }
    }
}

/// Area under the ROC curve: the share of (relevant, other) pairs of chunks in which the relevant one scores
/// higher, ties counting half: `(#{s_r > s_o} + #{s_r = s_o} / 2) / (n_r · n_o)`. `None` when one class is missing.
///
/// # Panics
/// When there is not one label per score.
#[must_use]
pub fn auroc(scores: &[f64], labels: &[u32]) -> Option<f64> {
    assert_eq!(scores.len(), labels.len(), "one label per score: this is a bug");
    let order = ranking(scores);
    let n_relevant = labels.iter().filter(|&&l| l > 0).count() as u64;
    let mut others_below = labels.len() as u64 - n_relevant;
    let pairs = n_relevant * others_below;
    let mut twice = 0;
    for ties in order.chunk_by(|&a, &b| best_first(scores[a], scores[b]).is_eq()) {
        let relevant = ties.iter().filter(|&&i| labels[i] > 0).count() as u64;
        let others = ties.len() as u64 - relevant;
        others_below -= others;
        twice += relevant * (2 * others_below + others);
    }
    share(twice, pairs)
}

/// The same from scores already split into both classes: one comparison per pair, which beats sorting for the few
/// chunks of a question. Bit for bit what [`auroc`] gives for finite scores.
pub(super) fn auroc_of_pairs(relevant: &[f64], others: &[f64]) -> Option<f64> {
    let wins = |r: f64| others.iter().map(|&o| u64::from(r > o) + u64::from(r >= o)).sum::<u64>();
    share(relevant.iter().map(|&r| wins(r)).sum(), (relevant.len() * others.len()) as u64)
}

/// Whole numbers until here, so no order of counting changes a bit.
fn share(twice: u64, pairs: u64) -> Option<f64> {
    (pairs > 0).then(|| twice as f64 / (2 * pairs) as f64)
}

/// Chunk indices, the highest score first; equal scores keep their input order, which is the order of retrieval.
/// Scores are finite; a NaN would come last.
#[must_use]
pub fn ranking(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| best_first(scores[a], scores[b]));
    order
}

/// A total order, the higher score first: -0 and 0 are equal, NaN is below everything.
fn best_first(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The share of the relevant chunks that are among the first `k` of `order`. `None` when none is relevant.
#[must_use]
pub fn recall_at(order: &[usize], labels: &[u32], k: usize) -> Option<f64> {
    let n_relevant = labels.iter().filter(|&&l| l > 0).count();
    let found = order.iter().take(k).filter(|&&i| labels[i] > 0).count();
    (n_relevant > 0).then(|| found as f64 / n_relevant as f64)
}

/// Normalised discounted cumulative gain: `DCG@k = Σ_{i=1..k} (2^label_i − 1) / log2(i + 1)` of `order`, divided by
/// that of the best possible order; labels at most [`Judged::MOST_LABEL`]. `None` when none is relevant or `k` is 0: then
/// every order is as good.
#[must_use]
pub fn ndcg_at(order: &[usize], labels: &[u32], k: usize) -> Option<f64> {
    let mut best = labels.to_vec();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let ideal = dcg(best.into_iter().take(k));
    (ideal > 0.0).then(|| dcg(order.iter().take(k).map(|&i| labels[i])) / ideal)
}

fn dcg(labels: impl Iterator<Item = u32>) -> f64 {
    (2_u32..).zip(labels).map(|(i, label)| (f64::from(label).exp2() - 1.0) / f64::from(i).log2()).sum()
}

/// One over the 1-based rank of the first relevant chunk in `order`. `None` when none is relevant.
#[must_use]
pub fn reciprocal_rank(order: &[usize], labels: &[u32]) -> Option<f64> {
    order.iter().position(|&i| labels[i] > 0).map(|i| 1.0 / (i + 1) as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All pairs, one by one.
    fn auroc_twin(scores: &[f64], labels: &[u32]) -> Option<f64> {
        let (mut won, mut pairs) = (0.0, 0.0);
        for (i, &relevant) in scores.iter().enumerate().filter(|&(i, _)| labels[i] > 0) {
            for (j, &other) in scores.iter().enumerate().filter(|&(j, _)| labels[j] == 0) {
                assert_ne!(i, j);
                pairs += 1.0;
                won += if relevant > other { 1.0 } else { f64::from(u8::from(relevant == other)) / 2.0 };
            }
        }
        (pairs > 0.0).then_some(won / pairs)
    }

    /// The best DCG by trying every order.
    fn best_dcg(labels: &[u32], k: usize) -> f64 {
        fn orders(rest: &[usize], taken: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
            if rest.is_empty() {
                visit(taken);
            }
            for (at, &i) in rest.iter().enumerate() {
                let left: Vec<usize> = [&rest[..at], &rest[at + 1..]].concat();
                taken.push(i);
                orders(&left, taken, visit);
                taken.pop();
            }
        }
        let mut best = 0.0_f64;
        let all: Vec<usize> = (0..labels.len()).collect();
        orders(&all, &mut Vec::new(), &mut |order| {
            best = best.max(dcg_twin(order, labels, k));
        });
        best
    }

    fn dcg_twin(order: &[usize], labels: &[u32], k: usize) -> f64 {
        let mut sum = 0.0;
        for (at, &i) in order.iter().enumerate() {
            if at < k {
                sum += (2_f64.powi(labels[i] as i32) - 1.0) / ((at + 2) as f64).ln() * 2_f64.ln();
            }
        }
        sum
    }

    /// A rank is one more than the number of chunks in front: higher scores, and equal ones seen earlier.
    fn rank_twin(scores: &[f64], i: usize) -> usize {
        let ahead = |&j: &usize| scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
        1 + (0..scores.len()).filter(ahead).count()
    }

    fn question(most: usize) -> impl Strategy<Value = (Vec<f64>, Vec<u32>)> {
        // few distinct scores, so that ties are common
        let chunk = ((-3_i32..4).prop_map(|s| f64::from(s) / 2.0), 0_u32..4);
        prop::collection::vec(chunk, 0..most).prop_map(|chunks| chunks.into_iter().unzip())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn auroc_is_that_of_all_pairs((scores, labels) in question(30)) {
            let fast = auroc(&scores, &labels);
            prop_assert_eq!(fast, auroc_twin(&scores, &labels));
            let side = |relevant| (0..scores.len()).filter(|&i| (labels[i] > 0) == relevant).map(|i| scores[i]).collect::<Vec<_>>();
            prop_assert_eq!(fast, auroc_of_pairs(&side(true), &side(false)));
        }

        #[test]
        fn auroc_turns_over_with_the_scores_and_ignores_the_order((scores, labels) in question(30), turn in 0_usize..30) {
            let negated: Vec<f64> = scores.iter().map(|s| -s).collect();
            let (up, down) = (auroc(&scores, &labels), auroc(&negated, &labels));
            prop_assert_eq!(up.is_some(), down.is_some());
            prop_assert!((up.unwrap_or(0.5) + down.unwrap_or(0.5) - 1.0).abs() < 1e-12);
            let (mut s, mut l) = (scores.clone(), labels.clone());
            if !s.is_empty() {
                s.rotate_left(turn % scores.len());
                l.rotate_left(turn % scores.len());
            }
            prop_assert_eq!(auroc(&s, &l), up);
        }

        #[test]
        fn ranked_metrics_are_those_of_their_definitions((scores, labels) in question(7), k in 1_usize..9) {
            let found = Metrics::new(&scores, &labels, k).unwrap();
            let relevant: Vec<usize> = (0..labels.len()).filter(|&i| labels[i] > 0).collect();
            let ranks: Vec<usize> = relevant.iter().map(|&i| rank_twin(&scores, i)).collect();
            if relevant.is_empty() {
                prop_assert_eq!((found.recall, found.ndcg, found.reciprocal_rank), (None, None, None));
            } else {
                let within = ranks.iter().filter(|&&r| r <= k).count() as f64;
                prop_assert_eq!(found.recall, Some(within / relevant.len() as f64));
                prop_assert_eq!(found.reciprocal_rank, ranks.iter().min().map(|&r| 1.0 / r as f64));
                let mut order: Vec<usize> = (0..scores.len()).collect();
                order.sort_by_key(|&i| rank_twin(&scores, i));
                let ndcg = dcg_twin(&order, &labels, k) / best_dcg(&labels, k);
                prop_assert!((found.ndcg.unwrap() - ndcg).abs() < 1e-12, "{:?} is not {ndcg}", found.ndcg);
            }
        }
    }

    #[test]
    fn values_worked_by_hand() {
        let (scores, labels) = ([0.9, 0.8, 0.8, 0.1, 0.5], [0, 2, 0, 1, 0]);
        // pairs won by 0.8: one tie and 0.5; by 0.1: none; of six
        assert_eq!(auroc(&scores, &labels), Some(1.5 / 6.0));
        assert_eq!(ranking(&scores), [0, 1, 2, 4, 3]);
        let found = Metrics::new(&scores, &labels, 3).unwrap();
        assert_eq!((found.recall, found.reciprocal_rank), (Some(0.5), Some(0.5)));
        let ndcg = 3.0 / 3_f64.log2() / (3.0 + 1.0 / 3_f64.log2());
        assert!((found.ndcg.unwrap() - ndcg).abs() < 1e-15);
    }

    #[test]
    fn edges_are_defined() {
        assert_eq!(auroc(&[0.1, 0.2], &[1, 1]), None);
        assert_eq!(auroc(&[0.1, 0.2], &[0, 0]), None);
        assert_eq!(auroc(&[], &[]), None);
        assert_eq!(auroc(&[0.3; 4], &[0, 1, 0, 0]), Some(0.5));
        assert_eq!(ranking(&[f64::NAN, 0.0, f64::NEG_INFINITY, -0.0]), [1, 3, 2, 0]);
        let (order, labels) = ([1, 0], [1, 0]);
        assert_eq!((recall_at(&order, &labels, 0), ndcg_at(&order, &labels, 0)), (Some(0.0), None));
        assert_eq!(ndcg_at(&[0, 1], &labels, 99), Some(1.0));
        let differ = MetricsError::LengthsDiffer { n_scores: 1, n_labels: 2 };
        assert_eq!(Metrics::new(&[0.1], &[0, 1], 3), Err(differ));
        assert_eq!(differ.to_string(), "1 score but 2 labels; give one label per scored chunk");
        let highest = Metrics::new(&[0.1, 0.2], &[31, 30], 3).unwrap().ndcg.unwrap();
        assert!(highest > 0.0 && highest < 1.0);
        let label = Metrics::new(&[0.1, 0.2], &[31, 32], 3);
        assert_eq!(label, Err(MetricsError::Label { chunk: 1, label: 32 }));
    }

    #[test]
    fn averages_leave_out_what_says_nothing_and_count_it() {
        let of = |scores: &[f64], labels: &[u32]| Metrics::new(scores, labels, 1).unwrap();
        let questions =
            [of(&[0.1, 0.2], &[1, 0]), of(&[0.2, 0.1], &[1, 0]), of(&[0.1], &[1]), of(&[0.1, 0.3], &[0, 0])];
        let averages = Averages::of(&questions);
        assert_eq!(averages.auroc, Average { mean: Some(0.5), questions: 2, left_out: 2 });
        assert_eq!(averages.recall, Average { mean: Some(2.0 / 3.0), questions: 3, left_out: 1 });
        assert_eq!(averages.mrr.mean, Some(2.5 / 3.0));
        assert_eq!(Averages::of(&questions[3..]).auroc, Average { mean: None, questions: 0, left_out: 1 });
    }
}
