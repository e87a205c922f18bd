//! The search over methods, with the estimate of what its result is worth.

use rayon::prelude::*;

use super::{
    Plan, SelectError, Step,
    table::Table,
    validate::{Curve, OUTER, curve, need, splits},
};
use crate::eval::{draw::Draw, judged::Judged};

/// A method, the number of heads, and the heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<M> {
    /// The method.
    pub method: M,
    /// The heads in the order they were added, `[k]`; their AUROCs are those on the questions they were chosen on.
    pub steps: Vec<Step>,
}

impl<M> Choice<M> {
    /// Indices of the heads, in the order they were added.
    #[must_use]
    pub fn heads(&self) -> Vec<usize> {
        self.steps.iter().map(|step| step.head).collect()
    }
}

/// What a search found. The three estimates of the choice's AUROC, from the most flattering to the honest:
/// the last of `choice.steps`, `cross_validated` and `nested.auroc`. Publish the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<M> {
    /// Chosen on all questions.
    pub choice: Choice<M>,
    /// Held-out AUROC of the chosen method with that many heads. Flattered by being the best of all methods.
    pub cross_validated: f64,
    /// Cross-validation of each method, in the order given.
    pub curves: Vec<Curve>,
    /// What the whole search is worth on questions it has not seen.
    pub nested: Nested<M>,
}

/// The outer cross-validation: method, number and heads chosen without the questions they are measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct Nested<M> {
    /// Mean over questions of the held-out AUROC: of a search like this one, on a little fewer questions.
    pub auroc: f64,
    /// Per question given, averaged over repeats; `None` for questions without both relevant and other chunks. What
    /// asks the same has one number together, at the first of them. `[questions]` An interval of their mean covers the choice of questions, not that of the seed.
    pub per_question: Vec<Option<f64>>,
    /// What was chosen without each held-out part, `[outer_repeats · folds]`: where they disagree, the choice is a
    /// matter of luck.
    pub choices: Vec<Choice<M>>,
}

/// Searches the methods for the one whose heads rank best. `methods` are names with the same questions in the same
/// order.
///
/// Each method is cross-validated; its number of heads k is set by [`Curve::k`]; the method with the highest
/// held-out AUROC at its k wins (ties: the earlier one), and its k heads are chosen by [`super::grow`] on all
/// questions. Then all of this is done again inside each outer training part, and measured on the part left out.
pub fn search<M: Clone>(methods: &[(M, Vec<Judged>)], plan: &Plan) -> Result<Found<M>, SelectError> {
    plan.check()?;
    let tables = tables(methods)?;
    let usable = tables[0].len();
    need(usable, fewest(plan.folds), plan.folds)?;
    let all = tables[0].all();
    let named = |pick: Pick| Choice { method: methods[pick.method].0.clone(), steps: pick.steps };

    let outer = splits(&all, plan.folds, plan.outer_repeats, Draw::new(plan.seed, OUTER));
    let picks: Vec<Pick> = outer.par_iter().map(|split| pick(&tables, &split.training, plan)).collect();
    let mut sums = vec![0.0; usable];
    for (split, pick) in outer.iter().zip(&picks) {
        for &q in &split.held_out {
            let aurocs = tables[pick.method].growing(q, &pick.steps);
            sums[q] += aurocs.last().expect("a choice has at least one head; without: this is a bug");
        }
    }
    let mut per_question = vec![None; methods[0].1.len()];
    for (q, sum) in sums.iter().enumerate() {
        per_question[tables[0].given(q)] = Some(sum / plan.outer_repeats as f64);
    }
    let auroc = sums.iter().sum::<f64>() / (usable * plan.outer_repeats) as f64;
    let choices = picks.into_iter().map(named).collect();

    let best = pick(&tables, &all, plan);
    Ok(Found {
        cross_validated: best.curves[best.method].auroc[best.steps.len() - 1],
        curves: best.curves.clone(),
        choice: named(best),
        nested: Nested { auroc, per_question, choices },
    })
}

/// A choice while methods are still numbers.
struct Pick {
    method: usize,
    steps: Vec<Step>,
    curves: Vec<Curve>,
}

fn pick(tables: &[Table<'_>], part: &[usize], plan: &Plan) -> Pick {
    let curves: Vec<Curve> = tables.par_iter().map(|table| curve(table, part, plan)).collect();
    let value = |m: usize| curves[m].auroc[curves[m].k() - 1];
    let method = (0..curves.len()).fold(0, |best, m| if value(m) > value(best) { m } else { best });
    let steps = tables[method].grow(part, &Plan { k_max: curves[method].k(), ..*plan });
    Pick { method, steps, curves }
}

/// Methods have the same questions, so also the same usable ones.
fn tables<M>(methods: &[(M, Vec<Judged>)]) -> Result<Vec<Table<'_>>, SelectError> {
    let (_, first) = methods.first().ok_or(SelectError::NoMethods)?;
    for (method, (_, questions)) in methods.iter().enumerate() {
        if questions.len() != first.len() {
            let (found, expected) = (questions.len(), first.len());
            return Err(SelectError::Questions { method, found, expected });
        }
        let differ = |i: &usize| questions[*i].labels() != first[*i].labels();
        if let Some(question) = (0..first.len()).find(differ) {
            return Err(SelectError::Labels { method, question });
        }
    }
    methods.iter().map(|(_, questions)| Table::new(questions)).collect()
}

/// Fewest questions such that every outer training part still has one question per fold.
fn fewest(folds: usize) -> usize {
    (folds + 1..)
        .find(|&n| n - n.div_ceil(folds) >= folds)
        .expect("some number is large enough: this is a bug")
}
