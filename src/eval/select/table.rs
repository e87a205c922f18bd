//! Judged questions made ready for choosing heads: which chunks are relevant, and every head's AUROC on every
//! question. Those that ask the same are one *unit*: held out together, and of one weight with the others. Parts are
//! lists of units' indices, so a fold costs no copy and no AUROC is computed twice.

use std::collections::HashMap;

use rayon::prelude::*;

use super::{Growth, Plan, SelectError, Step};
use crate::eval::{judged::Judged, metrics::auroc_of_pairs};

/// The usable questions: those with relevant and other chunks.
pub(super) struct Table<'a> {
    n_heads: usize,
    units: Vec<Unit<'a>>,
}

/// Questions that ask the same; at least one.
struct Unit<'a> {
    questions: Vec<Question<'a>>,
    /// AUROC of each head alone, averaged over the questions. `[heads]`
    alone: Vec<f64>,
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
        Ok(Self { n_heads: expected, units: units(usable) })
    }

    /// Units of usable questions.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Every unit.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    /// Index of a unit's first question among those given.
    pub(super) fn given(&self, unit: usize) -> usize {
        self.units[unit].questions[0].index
    }

    /// Steps that [`Self::grow`] takes.
    pub(super) fn steps(&self, plan: &Plan) -> usize {
        let pool = if plan.growth == Growth::Greedy { plan.pool } else { self.n_heads };
        plan.k_max.min(pool).min(self.n_heads)
    }

    /// Grows a set on a part of the units as the plan says.
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

    /// Each head's macro AUROC alone over a part of the units, `[heads]`.
    pub(super) fn means(&self, part: &[usize]) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_heads];
        for &q in part {
            sums.iter_mut().zip(&self.units[q].alone).for_each(|(sum, auroc)| *sum += auroc);
        }
        sums.into_iter().map(|sum| sum / part.len() as f64).collect()
    }

    /// Greedy forward selection on a part of the units, as [`super::forward`] says. The sums of the heads
    /// already chosen are kept, so a candidate costs one addition per chunk and one comparison per pair.
    fn forward(&self, part: &[usize], pool: usize, k_max: usize) -> Vec<Step> {
        let mut best = self.best_first(part);
        best.truncate(pool);
        best.sort_unstable();
        let mut growing: Vec<Vec<Growing<'_>>> =
            part.iter().map(|&unit| self.units[unit].growing()).collect();
        let mut steps = Vec::new();
        let mut scratch = Vec::new();
        while steps.len() < k_max && !best.is_empty() {
            let mut found = Step { head: 0, auroc: f64::NEG_INFINITY };
            for &head in &best {
                let mut with = |(question, sums): &Growing<'_>| {
                    scratch.clone_from(sums);
                    question.add(head, &mut scratch)
                };
                let of_unit = |unit: &Vec<Growing<'_>>| mean(unit.iter().map(&mut with));
                let auroc = mean(growing.iter().map(of_unit));
                if auroc > found.auroc {
                    found = Step { head, auroc };
                }
            }
            best.retain(|&head| head != found.head);
            for (question, sums) in growing.iter_mut().flatten() {
                question.add(found.head, sums);
            }
            steps.push(found);
        }
        steps
    }

    /// AUROC on one unit of the first 1, 2, … heads of `steps`.
    pub(super) fn growing(&self, unit: usize, steps: &[Step]) -> Vec<f64> {
        let mut growing = self.units[unit].growing();
        let with =
            |step: &Step| mean(growing.iter_mut().map(|(question, sums)| question.add(step.head, sums)));
        steps.iter().map(with).collect()
    }
}

/// A question, and the sums of the heads chosen so far for each chunk in its order.
type Growing<'a> = (&'a Question<'a>, Vec<f64>);

/// Of at least one value.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Puts together what asks the same, in the order of the first that asks it.
fn units(questions: Vec<Question<'_>>) -> Vec<Unit<'_>> {
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut units: Vec<Vec<Question<'_>>> = Vec::new();
    for question in questions {
        let next = units.len();
        let unit = question.judged.query().map_or(next, |query| *at.entry(query).or_insert(next));
        if unit == next {
            units.push(Vec::new());
        }
        units[unit].push(question);
    }
    let of_heads = |questions: &[Question<'_>]| {
        let heads = 0..questions[0].alone.len();
        heads.map(|head| mean(questions.iter().map(|q| q.alone[head]))).collect()
    };
    units.into_iter().map(|questions| Unit { alone: of_heads(&questions), questions }).collect()
}

impl<'a> Unit<'a> {
    fn growing(&'a self) -> Vec<Growing<'a>> {
        self.questions.iter().map(|q| (q, vec![0.0; q.order.len()])).collect()
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
