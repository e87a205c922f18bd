//! Cross-validation: how many heads are worth having, measured on questions they were not chosen on.

use rayon::prelude::*;

use super::{Plan, SelectError, table::Table};
use crate::eval::{draw::Draw, judged::Judged};

/// Held-out AUROC as the head set grows. All are `[k]`, the first for one head.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Mean over questions of the AUROC that sets chosen without the question reach on it.
    pub auroc: Vec<f64>,
    /// Standard error of `auroc`: deviation over questions by the root of their number. 0 for one question.
    pub standard_error: Vec<f64>,
    /// Standard error of how far each k falls short of the best one, on the same questions.
    pub shortfall_error: Vec<f64>,
}

impl Curve {
    /// The number of heads by the one-standard-error rule (Breiman et al. 1984; Hastie et al. 2009, §7.10): the
    /// smallest k that falls short of the best by at most one standard error. More heads than that have not shown
    /// that they help, and each costs depth or time. The error is that of the *shortfall*, question by question,
    /// not of the best AUROC as in the sources: all k are measured on the same questions, and how these differ in
    /// difficulty says nothing about k. (In simulations with planted heads the sources' rule stops too early, and
    /// fresh questions rank worse for it.)
    #[must_use]
    pub fn k(&self) -> usize {
        let best = best(&self.auroc);
        let close = |i: &usize| self.auroc[best] - self.auroc[*i] <= self.shortfall_error[*i];
        1 + (0..best).find(close).unwrap_or(best)
    }
}

/// Index of the highest value, the first among equals.
fn best(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Cross-validates the growing of sets for k = 1 to `k_max` (fewer when there are fewer heads): the questions are cut
/// into `folds` parts at random, heads are chosen without each part in turn and measured on it; `repeats` times,
/// each question's AUROCs averaged. Questions without both relevant and other chunks take no part. Those that ask the same
/// ([`Judged::asking`]) are held out together and count as one; all others are held to be independent.
pub fn cross_validate(questions: &[Judged], plan: &Plan) -> Result<Curve, SelectError> {
    plan.check()?;
    let table = Table::new(questions)?;
    need(table.len(), plan.folds, plan.folds)?;
    Ok(curve(&table, &table.all(), plan))
}

pub(super) fn need(usable: usize, needed: usize, folds: usize) -> Result<(), SelectError> {
    if usable < needed { Err(SelectError::TooFew { usable, needed, folds }) } else { Ok(()) }
}

/// The same within a part of the questions, of which there are at least as many as folds.
pub(super) fn curve(table: &Table<'_>, part: &[usize], plan: &Plan) -> Curve {
    let held_out: Vec<(usize, Vec<f64>)> =
        splits(part, plan.folds, plan.repeats, Draw::new(plan.seed, INNER))
            .into_par_iter()
            .flat_map_iter(|split| {
                let steps = table.grow(&split.training, plan);
                split.held_out.into_iter().map(move |q| (q, table.growing(q, &steps)))
            })
            .collect();
    let k_max = table.steps(plan);
    let mut sums = vec![vec![0.0; k_max]; table.len()];
    for (q, aurocs) in held_out {
        sums[q].iter_mut().zip(aurocs).for_each(|(sum, auroc)| *sum += auroc);
    }
    let of = |k: usize| part.iter().map(|&q| sums[q][k] / plan.repeats as f64).collect::<Vec<f64>>();
    let (auroc, standard_error): (Vec<f64>, Vec<f64>) = (0..k_max).map(|k| mean_and_error(&of(k))).unzip();
    let reference = of(best(&auroc));
    let shortfall = |k: usize| of(k).iter().zip(&reference).map(|(a, b)| b - a).collect::<Vec<f64>>();
    let shortfall_error = (0..k_max).map(|k| mean_and_error(&shortfall(k)).1).collect();
    Curve { auroc, standard_error, shortfall_error }
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 })
}

/// Streams of a plan's seed: the outer cut must not repeat the inner one.
const INNER: u64 = 0;
pub(super) const OUTER: u64 = 1;

/// A cut: what heads are chosen on, and what they are measured on.
pub(super) struct Split {
    pub(super) training: Vec<usize>,
    pub(super) held_out: Vec<usize>,
}

/// `repeats` random cuts of `part` into `folds` parts whose sizes differ by at most one, each part held out once.
/// Indices ascend within a split, so sums over questions have one order.
pub(super) fn splits(part: &[usize], folds: usize, repeats: usize, mut draw: Draw) -> Vec<Split> {
    let mut all = Vec::with_capacity(folds * repeats);
    for _ in 0..repeats {
        let mut fold = vec![0; part.len()];
        for (at, i) in draw.permutation(part.len()).into_iter().enumerate() {
            fold[i] = at % folds;
        }
        all.extend((0..folds).map(|f| {
            let pick = |inside: bool| {
                part.iter().zip(&fold).filter(|&(_, &g)| (g == f) == inside).map(|(&q, _)| q).collect()
            };
            Split { training: pick(false), held_out: pick(true) }
        }));
    }
    all
}
