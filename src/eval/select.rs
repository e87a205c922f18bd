//! Choosing heads, and the method they are read with, by the AUROC they reach on judged questions.
//!
//! Owns single heads' AUROCs, the growing of sets, cross-validation and the nested search. Must not know
//! which model a head belongs to or what a method is. Tests: `select/tests.rs`.
//!
//! Why three estimates. The best of hundreds of heads looks good on the questions it was chosen on, even when
//! labels are coin flips. Cross-validation chooses on some questions and measures on others, so it is fair to *one*
//! choosing procedure; but whoever then takes the best of many methods by it is fooled again, by less. [`search()`]
//! therefore repeats the whole search, methods and all, inside an outer cross-validation (Cawley and Talbot 2010),
//! and only what the outer held-out questions say is an estimate of what the choice is worth on new questions.

mod search;
mod table;
#[cfg(test)]
mod tests;
mod validate;

pub use search::{Choice, Found, Nested, search};
use table::Table;
pub use validate::{Curve, cross_validate};

use super::judged::Judged;
use crate::score::words;

words! {
    /// How a set of heads grows.
    Growth, "growth":
    /// The heads that are best alone. On the small models we measured, six to sixteen of them rank held-out questions
    /// better than any greedy set (heads/TRIED.md).
    Ranked = "ranked",
    /// Each step adds the head that makes the set's AUROC highest: finds heads that complete each other, and with few
    /// questions also those that do so by luck.
    Greedy = "greedy",
}

/// How heads are chosen and how the choice is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How sets grow.
    pub growth: Growth,
    /// Most heads in a set, at least 1.
    pub k_max: usize,
    /// Only so many heads, the best alone, take part in greedy growth, at least 1.
    pub pool: usize,
    /// Parts the questions are cut into; each is held out once. At least 2.
    pub folds: usize,
    /// Random ways of cutting that are averaged, at least 1.
    pub repeats: usize,
    /// Ways of cutting for the outer, nested estimate, at least 1; its cost grows with `repeats` times this.
    pub outer_repeats: usize,
    /// Equal seeds give equal results.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { growth: Growth::Ranked, k_max: 16, pool: 64, folds: 5, repeats: 3, outer_repeats: 3, seed: 42 }
    }
}

/// One head of a growing set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the head that was added.
    pub head: usize,
    /// Macro AUROC of the set with it, on the questions it was chosen on.
    pub auroc: f64,
}

/// Judged questions that heads cannot be chosen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Questions scored by different numbers of heads.
    #[error(
        "question {question} has {n_heads} heads, the first has {expected}; score all questions with the same model"
    )]
    Heads {
        /// Index of the question.
        question: usize,
        /// Its heads.
        n_heads: usize,
        /// Heads of the first question.
        expected: usize,
    },
    /// Methods with different questions.
    #[error(
        "method {method} (counted from 0) has {found} questions, the first has {expected}; score the same questions with every method"
    )]
    Questions {
        /// Index of the method.
        method: usize,
        /// Its questions.
        found: usize,
        /// Questions of the first method.
        expected: usize,
    },
    /// Methods with different labels.
    #[error(
        "question {question} has other labels under method {method} (counted from 0); score the same questions in the same order with every method"
    )]
    Labels {
        /// Index of the method.
        method: usize,
        /// Index of the question.
        question: usize,
    },
    /// Nothing to choose from.
    #[error("no method given; give at least one")]
    NoMethods,
    /// No question tells good heads from bad ones.
    #[error(
        "none of the {questions} questions has both relevant and other chunks; heads cannot be told apart"
    )]
    NothingToTell {
        /// Questions given.
        questions: usize,
    },
    /// Too few questions to hold some out.
    #[error(
        "{usable} different questions have both relevant and other chunks, {needed} are needed to hold out {folds} parts in turn; add {}",
        needed - usable
    )]
    TooFew {
        /// Questions with both classes.
        usable: usize,
        /// Fewest that will do.
        needed: usize,
        /// Folds asked for.
        folds: usize,
    },
    /// A setting that makes no sense.
    #[error("{field} is {value}, at least {least} is needed")]
    Setting {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The smallest that makes sense.
        least: usize,
    },
}

/// Each head's macro AUROC alone, `[heads]`: the mean over the questions with both relevant and other chunks.
pub fn head_aurocs(questions: &[Judged]) -> Result<Vec<f64>, SelectError> {
    let table = Table::new(questions)?;
    Ok(table.means(&table.all()))
}

/// Grows a set on all `questions`, as `plan.growth` says. Greedy: starting from the best head, each step adds the head
/// that makes the macro AUROC of the set's mean score highest, also when that is lower than before (how many to keep is
/// another question, see [`cross_validate`]); only the best `plan.pool` heads alone take part. Ties go to the lower
/// head index. Gives `plan.k_max` steps, or as many as there are heads.
pub fn grow(questions: &[Judged], plan: &Plan) -> Result<Vec<Step>, SelectError> {
    plan.check()?;
    let table = Table::new(questions)?;
    Ok(table.grow(&table.all(), plan))
}

impl Plan {
    fn check(&self) -> Result<(), SelectError> {
        let settings = [
            ("k_max", self.k_max, 1),
            ("pool", self.pool, 1),
            ("folds", self.folds, 2),
            ("repeats", self.repeats, 1),
            ("outer_repeats", self.outer_repeats, 1),
        ];
        match settings.into_iter().find(|&(_, value, least)| value < least) {
            Some((field, value, least)) => Err(SelectError::Setting { field, value, least }),
            None => Ok(()),
        }
    }
}
