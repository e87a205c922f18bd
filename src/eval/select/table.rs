//! Judged questions made ready for choosing heads: which chunks are relevant, and every head's AUROC on every
//! question. Subsets of questions are lists of indices, so a fold costs no copy and no AUROC is computed twice.

use rayon::prelude::*;

use super::{Growth, Plan, SelectError, Step};
use crate::eval::{judged::Judged, metrics::auroc_of_pairs};

/// The usable questions: those with relevant and other chunks.
pub(super) struct Table<'a> {
    n_heads: usize,
    questions: Vec<Question<'a>>,
}

struct Question<'a> {
    judged: &'a Judged,
    /// Index among the questions given.
    index: usize,
    /// Chunks, the relevant ones first.
    order: Vec<usize>,
    n_relevant: usize,
    /// AUROC of each head alone. `[heads]`
    alone: Vec<f64>,
}

impl<'a> Table<'a> {
    pub(super) fn new(questions: &'a [Judged]) -> Result<Self, SelectError> {
        let expected = questions.first().map_or(0, Judged::n_heads);
        let odd = questions.iter().position(|judged| judged.n_heads() != expected);
        if let Some(question) = odd {
            return Err(SelectError::Heads { question, n_heads: questions[question].n_heads(), expected });
        }
        let usable = questions.par_iter().enumerate().filter_map(|(i, judged)| Question::new(judged, i));
        let usable: Vec<Question<'a>> = usable.collect();
        if usable.is_empty() {
            return Err(SelectError::NothingToTell { questions: questions.len() });
        }
        Ok(Self { n_heads: expected, questions: usable })
    }

    /// Usable questions.
    pub(super) fn len(&self) -> usize {
        self.questions.len()
    }

    /// Every usable question.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    /// Index of a usable question among those given.
    pub(super) fn given(&self, question: usize) -> usize {
        self.questions[question].index
    }

    /// Steps that [`Self::grow`] takes.
    pub(super) fn steps(&self, plan: &Plan) -> usize {
        let pool = if plan.growth == Growth::Greedy { plan.pool } else { self.n_heads };
        plan.k_max.min(pool).min(self.n_heads)
    }

    /// Grows a set on a part of the questions as the plan says.
    pub(super) fn grow(&self, part: &[usize], plan: &Plan) -> Vec<Step> {
        match plan.growth {
            Growth::Greedy => self.forward(part, plan.pool, plan.k_max),
            Growth::Ranked => self.ranked(part, plan.k_max),
        }
    }

    /// Heads, the best alone first; ties go to the lower index.
    fn best_first(&self, part: &[usize]) -> Vec<usize> {
        let means = self.means(part);
        let mut best: Vec<usize> = (0..self.n_heads).collect();
        best.sort_by(|&a, &b| means[b].total_cmp(&means[a]).then(a.cmp(&b)));
        best
    }

    /// The `k_max` best heads alone, and the macro AUROC of the set with each.
    fn ranked(&self, part: &[usize], k_max: usize) -> Vec<Step> {
        let best = self.best_first(part);
        let mut steps: Vec<Step> =
            best.into_iter().take(k_max).map(|head| Step { head, auroc: 0.0 }).collect();
        for &q in part {
            let aurocs = self.growing(q, &steps);
            steps.iter_mut().zip(aurocs).for_each(|(step, auroc)| step.auroc += auroc / part.len() as f64);
        }
        steps
    }

    /// Each head's macro AUROC alone over a part of the questions, `[heads]`.
    pub(super) fn means(&self, part: &[usize]) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_heads];
        for &q in part {
            sums.iter_mut().zip(&self.questions[q].alone).for_each(|(sum, auroc)| *sum += auroc);
        }
        sums.into_iter().map(|sum| sum / part.len() as f64).collect()
    }

    /// Greedy forward selection on a part of the questions, as [`super::forward`] says. The sums of the heads
    /// already chosen are kept, so a candidate costs one addition per chunk and one comparison per pair.
    fn forward(&self, part: &[usize], pool: usize, k_max: usize) -> Vec<Step> {
        let mut best = self.best_first(part);
        best.truncate(pool);
        best.sort_unstable();
        let mut sums: Vec<Vec<f64>> =
            part.iter().map(|&q| vec![0.0; self.questions[q].order.len()]).collect();
        let mut steps = Vec::new();
        let mut scratch = Vec::new();
        while steps.len() < k_max && !best.is_empty() {
            let mut found = Step { head: 0, auroc: f64::NEG_INFINITY };
            for &head in &best {
                let aurocs = part.iter().zip(&sums).map(|(&q, sums)| {
                    scratch.clone_from(sums);
                    self.questions[q].add(head, &mut scratch)
                });
                let auroc = aurocs.sum::<f64>() / part.len() as f64;
                if auroc > found.auroc {
                    found = Step { head, auroc };
                }
            }
            best.retain(|&head| head != found.head);
            for (&q, sums) in part.iter().zip(&mut sums) {
                self.questions[q].add(found.head, sums);
            }
            steps.push(found);
        }
        steps
    }

    /// AUROC on one question of the first 1, 2, … heads of `steps`.
    pub(super) fn growing(&self, question: usize, steps: &[Step]) -> Vec<f64> {
        let question = &self.questions[question];
        let mut sums = vec![0.0; question.order.len()];
        steps.iter().map(|step| question.add(step.head, &mut sums)).collect()
    }
}

impl<'a> Question<'a> {
    fn new(judged: &'a Judged, index: usize) -> Option<Self> {
        let labels = judged.labels();
        let (mut order, others): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(|&i| labels[i] > 0);
        let n_relevant = order.len();
        if n_relevant == 0 || others.is_empty() {
            return None;
        }
        order.extend(others);
        let mut question = Self { judged, index, order, n_relevant, alone: Vec::new() };
        let mut sums = Vec::new();
        question.alone = (0..judged.n_heads())
            .map(|head| {
                sums.clear();
                sums.resize(labels.len(), 0.0);
                question.add(head, &mut sums)
            })
            .collect();
        Some(question)
    }

    /// Adds a head's scores to `sums` (in this question's order) and gives the AUROC of the result. Dividing by the
    /// number of heads would change no comparison.
    fn add(&self, head: usize, sums: &mut [f64]) -> f64 {
        let scores = self.judged.head(head);
        for (sum, &chunk) in sums.iter_mut().zip(&self.order) {
            *sum += f64::from(scores[chunk]);
        }
        let (relevant, others) = sums.split_at(self.n_relevant);
        auroc_of_pairs(relevant, others)
            .expect("a usable question has both classes; without one: this is a bug")
    }
}
