//! From observations to a head set: three criteria, how stable the choice is, and what it is worth.
//!
//! Knows no file and no model. Tests: `find/tests.rs`.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    eval::{
        bootstrap::{Bootstrap, BootstrapError, Interval},
        judged::{Judged, JudgedError},
        metrics::auroc,
        observation::methods,
        select::{self, Curve, Growth, Plan, SelectError, cross_validate, search},
        stability::{HeadValues, HeadValuesError, hoeffding, hoeffding_inputs},
    },
    ids::HeadRef,
    score::{Method, words},
};

use super::folder::Record;

words! {
    /// What heads are chosen by.
    Criterion, "criterion":
    /// Attention of the last token to the tokens of the answer, averaged over inputs. The paper's choice; needs answers.
    AnswerMass = "answer_mass",
    /// Attention of the query's tokens to relevant chunks less that of the null query's (QRHead); needs labels.
    QrHead = "qrhead",
    /// The AUROC that heads reach under a method, as many heads as held-out inputs ask for; needs labels.
    Auroc = "auroc",
}

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindOptions {
    /// By what.
    pub criterion: Criterion,
    /// Number of heads; by default 2, or under [`Criterion::Auroc`] what cross-validation says. With `search` the most.
    pub k: Option<usize>,
    /// The method the heads are chosen for, and whose AUROC is told.
    pub method: Method,
    /// Under [`Criterion::Auroc`]: how the set grows.
    pub growth: Growth,
    /// Under [`Criterion::Auroc`]: choose the method too.
    pub search: bool,
    /// Of everything drawn.
    pub seed: u64,
}

/// Why no heads can be chosen.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum FindError {
    /// No input has what the criterion looks at.
    #[error("no input (of {inputs}) has {lacks}, which criterion {criterion} needs; {}", criterion.advice())]
    Nothing {
        /// Inputs there are.
        inputs: usize,
        /// What they lack.
        lacks: &'static str,
        /// The criterion.
        criterion: Criterion,
    },
    /// More heads than there are, or none.
    #[error("--k {k} heads cannot be chosen of {n_heads}, which the model has; choose 1 to {n_heads}")]
    TooMany {
        /// Heads asked for.
        k: usize,
        /// Heads there are.
        n_heads: usize,
    },
    /// Too few questions to hold some out.
    #[error(
        "{usable} different question{} both relevant and other chunks, {needed} are needed to choose by AUROC with some held \
         out in turn; add {}, or choose by --criterion qrhead, which takes any number",
        if *usable == 1 { " has" } else { "s have" },
        needed - usable
    )]
    TooFew {
        /// Different questions there are.
        usable: usize,
        /// The fewest that will do: 7, or 5 where the number of heads is given.
        needed: usize,
    },
    /// Choosing by AUROC failed in another way.
    #[error(transparent)]
    Select(SelectError),
    /// Observations that do not belong together.
    #[error(transparent)]
    Judged(#[from] JudgedError),
    /// Values that no statement can be made about.
    #[error(transparent)]
    Values(#[from] HeadValuesError),
    /// No interval can be given.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

impl From<SelectError> for FindError {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::TooFew { usable, needed, .. } => Self::TooFew { usable, needed },
            other => Self::Select(other),
        }
    }
}

impl Criterion {
    /// What to do when no input has what the criterion needs.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::AnswerMass => {
                "give questions whose answer stands in a chunk, or, where chunks have labels, choose by --criterion qrhead, or \
                 with 7 questions and more by --criterion auroc"
            }
            Self::QrHead | Self::Auroc => {
                "give questions with relevant and other chunks, or choose by --criterion answer_mass"
            }
        }
    }
}

/// One head's value under the criterion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSpread {
    /// The head.
    pub head: HeadRef,
    /// Mean over inputs, and its interval over resampled inputs.
    pub value: Interval,
    /// How often it is among the k best of resampled inputs, in `[0, 1]`.
    pub top_frequency: f64,
}

/// What a method is worth that the search looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodWorth {
    /// The method.
    pub method: Method,
    /// Its number of heads.
    pub k: usize,
    /// AUROC with that many heads, on questions they were not chosen on (cross-validation), in `[0, 1]`. The first of
    /// many is flattered by being the first.
    pub auroc: f64,
    /// Standard error of `auroc` over questions.
    pub standard_error: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// By what.
    pub criterion: Criterion,
    /// Under [`Criterion::Auroc`], how the set grew.
    pub growth: Option<Growth>,
    /// The method the heads are for.
    pub method: Method,
    /// The heads in the order they were chosen.
    pub heads: Vec<HeadRef>,
    /// Inputs that counted. Those with the same query count as one in every mean, interval and cut.
    pub inputs: usize,
    /// Mean value of each head, `[layers * heads]`: attention mass, retrieval score, or AUROC.
    pub heat: Vec<f64>,
    /// The best heads by that value, best first, at most [`TOLD`].
    pub best: Vec<HeadSpread>,
    /// Mean Spearman correlation of the heads' means over random halves of the inputs.
    pub split_half: Option<f64>,
    /// Largest error of any head's mean at 95 % confidence (Hoeffding). Only under [`Criterion::AnswerMass`], whose values
    /// lie in `[0, 1]`, and which takes the highest means.
    pub bound: Option<f64>,
    /// How many inputs would prove a choice with this gap by that bound; none where no number would.
    pub bound_inputs: Option<usize>,
    /// Mean of the k-th head less that of the next.
    pub gap: Option<f64>,
    /// AUROC of the chosen set on the inputs it was chosen on, where they have labels.
    pub auroc: Option<Interval>,
    /// The same on inputs left out of the choice (nested cross-validation).
    pub held_out: Option<Interval>,
    /// Whether these heads (and this method) were also chosen without each of the inputs held out.
    pub unanimous: bool,
    /// Every method a search looked at, the best first; empty without a search.
    pub methods: Vec<MethodWorth>,
    /// How the held-out AUROC grows with the number of heads, where it was looked at.
    pub curve: Option<Curve>,
    /// Scores of relevant chunks and of others by the chosen set.
    pub scores: (Vec<f64>, Vec<f64>),
}

/// How many heads are told about.
pub const TOLD: usize = 16;

/// Heads chosen by default where nothing else decides, as in the paper.
const DEFAULT_K: usize = 2;

/// Confidence of the Hoeffding bound is one minus this.
const DELTA: f64 = 0.05;

/// Random halves of the inputs that are compared.
const HALVINGS: usize = 100;

/// Checks that `k` of `n_heads` heads can be chosen, `n_heads` being those of the whole model.
///
/// # Errors
/// When they cannot.
pub fn check_k(k: Option<usize>, n_heads: usize) -> Result<(), FindError> {
    match k {
        Some(k) if k == 0 || k > n_heads => Err(FindError::TooMany { k, n_heads }),
        _ => Ok(()),
    }
}

/// Chooses heads of a model with `n_heads` heads per layer.
///
/// # Errors
/// When the inputs lack what the criterion needs, or `k` is more than there are heads.
pub fn find(records: &[Record], n_heads: usize, options: &FindOptions) -> Result<Findings, FindError> {
    let criterion = options.criterion;
    let usable = usable(records, criterion)?;
    let total = usable[0].observation.n_heads;
    check_k(options.k, total)?;
    let (chosen, values) = match criterion {
        Criterion::Auroc => {
            let chosen = by_auroc(&usable, options)?;
            let values = values(&usable, criterion, chosen.method)?;
            (chosen, values)
        }
        Criterion::AnswerMass | Criterion::QrHead => {
            let values = values(&usable, criterion, options.method)?;
            (by_mean(&usable, &values, options)?, values)
        }
    };
    let values = of_queries(&usable, values);
    let means = HeadValues::new(values.clone())?;
    let bootstrap = Bootstrap { seed: options.seed, ..Bootstrap::default() };
    let labelled: Vec<&Record> = records.iter().filter(|r| tells(r)).collect();
    let (aurocs, scores) = judge(&labelled, chosen.method, &chosen.heads)?;
    let named = |head: usize| HeadRef { layer: (head / n_heads) as u16, head: (head % n_heads) as u16 };
    let (k, heat, gap) = (chosen.heads.len(), means.means(), means.boundary_gap(chosen.heads.len()));
    let bounded = criterion == Criterion::AnswerMass;
    let frequency = means.top_frequency(k, bootstrap.resamples, options.seed);
    let spread = |&head: &usize| -> Result<HeadSpread, FindError> {
        let of_head: Vec<f64> = values.iter().map(|v| v[head]).collect();
        let value = bootstrap.mean_interval(&of_head)?;
        Ok(HeadSpread { head: named(head), value, top_frequency: frequency[head] })
    };
    Ok(Findings {
        criterion,
        growth: (criterion == Criterion::Auroc).then_some(options.growth),
        heads: chosen.heads.iter().map(|&h| named(h)).collect(),
        method: chosen.method,
        inputs: usable.len(),
        best: best_first(&heat).iter().take(TOLD).map(spread).collect::<Result<_, _>>()?,
        split_half: means.split_half(HALVINGS, options.seed),
        bound: bounded.then(|| hoeffding(total, DELTA, values.len())),
        bound_inputs: gap.filter(|_| bounded).and_then(|gap| hoeffding_inputs(total, DELTA, gap)),
        gap,
        auroc: if aurocs.is_empty() { None } else { Some(bootstrap.mean_interval(&aurocs)?) },
        held_out: match chosen.held_out {
            HeldOut::Questions(q) if !q.is_empty() => Some(bootstrap.mean_interval(&q)?),
            HeldOut::Questions(_) => None,
            HeldOut::Known(interval) => Some(interval),
        },
        unanimous: chosen.unanimous,
        methods: chosen.methods,
        curve: chosen.curve,
        heat,
        scores,
    })
}

/// Whether the labels tell chunks apart.
fn tells(record: &Record) -> bool {
    let relevant = |label: &u32| *label > 0;
    record.labels.as_ref().is_some_and(|l| l.iter().any(relevant) && !l.iter().all(relevant))
}

/// The records that have what the criterion looks at; at least one.
fn usable(records: &[Record], criterion: Criterion) -> Result<Vec<&Record>, FindError> {
    let (has, lacks): (fn(&Record) -> bool, _) = match criterion {
        Criterion::AnswerMass => (|r| r.observation.answer_mass.is_some(), "its answer in a chunk"),
        Criterion::QrHead | Criterion::Auroc => (tells, "both relevant and other chunks"),
    };
    let usable: Vec<&Record> = records.iter().filter(|r| has(r)).collect();
    if usable.is_empty() {
        return Err(FindError::Nothing { inputs: records.len(), lacks, criterion });
    }
    Ok(usable)
}

/// Each head's value under the criterion, `[usable records][heads]`.
fn values(usable: &[&Record], criterion: Criterion, method: Method) -> Result<Vec<Vec<f64>>, FindError> {
    let of = |record: &&Record| -> Result<Vec<f64>, FindError> {
        let seen = &record.observation;
        Ok(match criterion {
            Criterion::AnswerMass => seen.answer_mass.iter().flatten().map(|&m| f64::from(m)).collect(),
            Criterion::QrHead => {
                let relevant: Vec<bool> = record.labels.iter().flatten().map(|&l| l > 0).collect();
                let gold = |scores: &[f32]| {
                    let gold = scores.iter().zip(&relevant).filter(|(_, relevant)| **relevant);
                    gold.map(|(&s, _)| f64::from(s)).sum()
                };
                seen.qr.chunks_exact(seen.n_chunks()).map(gold).collect()
            }
            Criterion::Auroc => {
                let judged = record.judged(method)?;
                let of_head = |head: usize| {
                    let scores: Vec<f64> = judged.head(head).iter().map(|&s| f64::from(s)).collect();
                    auroc(&scores, judged.labels()).expect("the labels tell chunks apart: this is a bug")
                };
                (0..judged.n_heads()).map(of_head).collect()
            }
        })
    };
    usable.iter().map(of).collect()
}

/// Values of inputs, put together by query, in the order of the first input with it.
fn by_query<T>(records: &[&Record], values: Vec<T>) -> Vec<Vec<T>> {
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut of_queries: Vec<Vec<T>> = Vec::new();
    for (record, value) in records.iter().zip(values) {
        let next = of_queries.len();
        match at.entry(&record.query) {
            Entry::Occupied(there) => of_queries[*there.get()].push(value),
            Entry::Vacant(new) => {
                new.insert(next);
                of_queries.push(vec![value]);
            }
        }
    }
    of_queries
}

/// The mean of each query's inputs, `[queries][heads]`, of values `[inputs][heads]`.
fn of_queries(records: &[&Record], values: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let mean = |inputs: Vec<Vec<f64>>| {
        let of_head = |head: usize| inputs.iter().map(|of| of[head]).sum::<f64>() / inputs.len() as f64;
        (0..inputs[0].len()).map(of_head).collect()
    };
    by_query(records, values).into_iter().map(mean).collect()
}

fn best_first(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order
}

/// Heads, and what is known of their worth.
struct Chosen {
    heads: Vec<usize>,
    method: Method,
    held_out: HeldOut,
    /// Whether every choice without some of the inputs was this one.
    unanimous: bool,
    methods: Vec<MethodWorth>,
    curve: Option<Curve>,
}

enum HeldOut {
    /// AUROC per question that had no part in the choice it is measured with.
    Questions(Vec<f64>),
    Known(Interval),
}

/// The k heads with the highest mean. Held out is each query with labelled inputs in turn: the others choose, it measures.
fn by_mean(usable: &[&Record], values: &[Vec<f64>], options: &FindOptions) -> Result<Chosen, FindError> {
    let own = of_queries(usable, values.to_vec());
    let heat = HeadValues::new(own.clone())?.means();
    let k = options.k.unwrap_or(DEFAULT_K).min(heat.len());
    let top = |heat: &[f64]| -> Vec<usize> { best_first(heat).into_iter().take(k).collect() };
    let n = own.len() as f64;
    let heads = top(&heat);
    let (mut aurocs, mut unanimous) = (Vec::new(), n > 1.0);
    for (records, own) in by_query(usable, usable.to_vec()).iter().zip(&own).filter(|_| n > 1.0) {
        // (n − 1) / n times the mean of the others, which orders the heads as that mean does
        let without: Vec<f64> = heat.iter().zip(own).map(|(mean, own)| mean - own / n).collect();
        let labelled: Vec<&Record> = records.iter().copied().filter(|r| tells(r)).collect();
        let others = top(&without);
        unanimous &= same(&others, &heads);
        aurocs.extend(judge(&labelled, options.method, &others)?.0);
    }
    let held_out = HeldOut::Questions(aurocs);
    Ok(Chosen { heads, method: options.method, held_out, unanimous, methods: Vec::new(), curve: None })
}

/// Whether both are the same heads, in whatever order.
fn same(one: &[usize], other: &[usize]) -> bool {
    one.len() == other.len() && one.iter().all(|head| other.contains(head))
}

/// Heads that rank best together: of one method, or of the best method of all.
fn by_auroc(labelled: &[&Record], options: &FindOptions) -> Result<Chosen, FindError> {
    let of = |method: Method| -> Result<(Method, Vec<Judged>), JudgedError> {
        Ok((method, labelled.iter().map(|r| r.judged(method)).collect::<Result<_, _>>()?))
    };
    let plan = Plan { growth: options.growth, seed: options.seed, ..Plan::default() };
    let k_max = options.k.unwrap_or(plan.k_max);
    let plan = Plan { k_max, pool: plan.pool.max(k_max), ..plan };
    if options.k.is_some() && !options.search {
        let (method, questions) = of(options.method)?;
        let curve = cross_validate(&questions, &plan)?;
        let heads = select::grow(&questions, &plan)?.iter().map(|s| s.head).collect();
        let held_out = HeldOut::Known(at_last(&curve));
        let curve = Some(curve);
        return Ok(Chosen { heads, method, held_out, unanimous: false, methods: Vec::new(), curve });
    }
    let searched = if options.search { methods().collect() } else { vec![options.method] };
    let judged = searched.into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let found = search(&judged, &plan)?;
    let at = judged.iter().position(|(m, _)| *m == found.choice.method);
    let (heads, method) = (found.choice.heads(), found.choice.method);
    let worth = judged.iter().map(|(method, _)| *method).zip(&found.curves);
    Ok(Chosen {
        unanimous: found.nested.choices.iter().all(|c| c.method == method && same(&c.heads(), &heads)),
        methods: if options.search { best_methods(worth) } else { Vec::new() },
        heads,
        method,
        held_out: HeldOut::Questions(found.nested.per_question.iter().copied().flatten().collect()),
        curve: at.map(|at| found.curves[at].clone()),
    })
}

/// What the last, largest set of a curve is worth.
fn at_last(curve: &Curve) -> Interval {
    let last = curve.auroc.len() - 1;
    let (mean, error) = (curve.auroc[last], curve.standard_error[last]);
    let [low, high] = [-TWO_SIDED, TWO_SIDED].map(|errors| (mean + errors * error).clamp(0.0, 1.0));
    Interval { mean, low, high }
}

/// Methods with the number of heads their curves ask for, the best first.
fn best_methods<'a>(curves: impl Iterator<Item = (Method, &'a Curve)>) -> Vec<MethodWorth> {
    let worth = |(method, curve): (Method, &Curve)| {
        let k = curve.k();
        MethodWorth { method, k, auroc: curve.auroc[k - 1], standard_error: curve.standard_error[k - 1] }
    };
    let mut methods: Vec<MethodWorth> = curves.map(worth).collect();
    methods.sort_by(|a, b| b.auroc.total_cmp(&a.auroc));
    methods
}

/// Half the width of a 95 % interval in standard errors.
const TWO_SIDED: f64 = 1.96;

/// AUROC of a set per query, and the scores it gives to relevant and to other chunks.
type Judgement = (Vec<f64>, (Vec<f64>, Vec<f64>));

/// `labelled` are records whose labels tell chunks apart.
fn judge(labelled: &[&Record], method: Method, heads: &[usize]) -> Result<Judgement, FindError> {
    let (mut aurocs, mut relevant, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for record in labelled {
        let judged = record.judged(method)?;
        let scores = judged.set_score(heads)?;
        aurocs.push(auroc(&scores, judged.labels()).expect("the labels tell chunks apart: this is a bug"));
        for (score, &label) in scores.into_iter().zip(judged.labels()) {
            if label > 0 { relevant.push(score) } else { others.push(score) }
        }
    }
    let aurocs = by_query(labelled, aurocs).into_iter().map(|of| of.iter().sum::<f64>() / of.len() as f64);
    Ok((aurocs.collect(), (relevant, others)))
}
