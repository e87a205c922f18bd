//! How well scores rank, row by row: every method, head sets by every criterion, and what they must be compared with.
//!
//! Heads are chosen on calibration records only; every row is measured on the same test records. Knows no file and no
//! model. Tests: `judge/tests.rs`.

#[cfg(test)]
mod tests;

use crate::{
    eval::{
        bootstrap::{Bootstrap, BootstrapError, Interval},
        judged::JudgedError,
        metrics::{Metrics, MetricsError, ranking},
        observation::methods,
        sample::permutation,
        select::Growth,
        stability::spearman,
    },
    ids::HeadRef,
    score::Method,
};

use super::{
    find::{Criterion, FindError, FindOptions, find},
    folder::Record,
};

/// A question that rows are measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct TestQuestion {
    /// What the model showed; with labels.
    pub record: Record,
    /// BM25 of each chunk.
    pub bm25: Vec<f64>,
}

/// What is judged and how.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeOptions {
    /// The head set at hand, with its method.
    pub set: Option<(String, Vec<HeadRef>, Method)>,
    /// Query heads per layer of the model.
    pub n_heads: usize,
    /// Cut-off of recall and nDCG.
    pub k: usize,
    /// Of everything drawn.
    pub seed: u64,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What ranks.
    pub name: String,
    /// With which heads; empty where they are not a few that could be named.
    pub heads: Vec<HeadRef>,
    /// What else there is to say of the heads, such as "all 336"; may be empty.
    pub note: String,
    /// Which rows it belongs with.
    pub group: Group,
    /// Over test questions.
    pub metrics: Measured,
}

/// Where heads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The head set at hand.
    Set,
    /// Chosen on the calibration records, by a criterion.
    Criterion,
    /// Chosen on the calibration records by AUROC, a row per method.
    Method,
    /// Random sets: their intervals are the middle 90 % of the sets' means, not over questions.
    Random,
    /// What any head set has to beat.
    Baseline,
}

/// Means over questions with their intervals; of a random row the mean of sets and the 5th and 95th percentile of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Area under the ROC curve.
    pub auroc: Interval,
    /// Share of relevant chunks among the first k.
    pub recall: Interval,
    /// Discounted gain of the first k by that of the best order.
    pub ndcg: Interval,
    /// One by the rank of the first relevant chunk.
    pub mrr: Interval,
}

/// The whole table.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Test questions.
    pub questions: usize,
    /// Records heads were chosen on.
    pub calibration: usize,
    /// Cut-off of recall and nDCG.
    pub k: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows there are not, and why: the calibration records do not have what their heads are chosen by.
    pub left_out: Vec<(String, String)>,
    /// AUROC of the head set less BM25's on the same questions.
    pub over_bm25: Option<Interval>,
    /// Length and score of every test chunk by the head set at hand, whether it is relevant.
    pub lengths: Vec<(usize, f64, bool)>,
    /// Mean over questions of Spearman's correlation of score and length among chunks that are not relevant.
    pub length_bias: Option<f64>,
}

/// Random head sets that are averaged.
const RANDOM_SETS: usize = 20;

/// Heads of the QRHead row (Zhang et al. 2025).
const QR_HEADS: usize = 16;

/// Why nothing can be judged.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum JudgeError {
    /// Not one test question.
    #[error("no question is left to measure on; give labelled questions that were not used to choose heads")]
    NoQuestions,
    /// Choosing heads failed.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Records that do not belong together.
    #[error(transparent)]
    Judged(#[from] JudgedError),
    /// Scores and labels that do not belong together.
    #[error(transparent)]
    Lengths(#[from] MetricsError),
    /// No interval can be given.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

/// Judges everything on `tests`; heads other than the set's are chosen on `calibration`, and their rows are left out where
/// that is empty.
///
/// # Errors
/// When there is no test question, or records do not fit together.
pub fn judge(
    tests: &[TestQuestion],
    calibration: &[Record],
    options: &JudgeOptions,
) -> Result<Judgement, JudgeError> {
    if tests.is_empty() {
        return Err(JudgeError::NoQuestions);
    }
    let bench =
        Bench { tests, bootstrap: Bootstrap { seed: options.seed, ..Bootstrap::default() }, k: options.k };
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    if let Some((name, heads, method)) = &options.set {
        let row = bench.heads_row(name, heads, *method, options.n_heads)?;
        rows.push(Row { group: Group::Set, ..row });
    }
    if !calibration.is_empty() {
        rows.extend(chosen_rows(&bench, calibration, options, &mut left_out)?);
    }
    rows.extend(baselines(&bench, calibration, options)?);
    let mut judgement = Judgement {
        questions: tests.len(),
        calibration: calibration.len(),
        k: options.k,
        rows,
        left_out,
        over_bm25: None,
        lengths: Vec::new(),
        length_bias: None,
    };
    if let Some((_, heads, method)) = &options.set {
        let scores = bench.scores(|t| Ok(t.record.scores(heads, *method, options.n_heads)?))?;
        let auroc = |metrics: Vec<Metrics>| metrics.iter().filter_map(|m| m.auroc).collect::<Vec<f64>>();
        let ours = auroc(bench.metrics(&scores)?);
        let theirs = auroc(bench.metrics(&bench.scores(|t| Ok(t.bm25.clone()))?)?);
        judgement.over_bm25 = Some(bench.bootstrap.paired_difference(&ours, &theirs)?);
        judgement.lengths = lengths(tests, &scores);
        judgement.length_bias = length_bias(tests, &scores);
    }
    Ok(judgement)
}

/// Rows of head sets that are chosen on the calibration records: by every criterion, and for every method. What the
/// records lack, such as answers, is told in `left_out`.
fn chosen_rows(
    bench: &Bench<'_>,
    calibration: &[Record],
    options: &JudgeOptions,
    left_out: &mut Vec<(String, String)>,
) -> Result<Vec<Row>, JudgeError> {
    let paper = Method::default();
    let base = FindOptions {
        criterion: Criterion::Auroc,
        k: None,
        method: paper,
        growth: Growth::Ranked,
        search: false,
        seed: options.seed,
    };
    let mut wanted: Vec<(&str, Group, FindOptions)> = vec![
        ("paper: by answer mass", Group::Criterion, FindOptions { criterion: Criterion::AnswerMass, ..base }),
        ("by QRHead's score", Group::Criterion, FindOptions { criterion: Criterion::QrHead, ..base }),
        ("search", Group::Criterion, FindOptions { search: true, ..base }),
    ];
    wanted.extend(methods().map(|method| ("by AUROC", Group::Method, FindOptions { method, ..base })));
    let mut rows = Vec::new();
    for (name, group, find_options) in wanted {
        let found = match find(calibration, options.n_heads, &find_options) {
            Err(e @ (FindError::Nothing { .. } | FindError::TooFew { .. })) => {
                let row = (name.to_owned(), e.to_string());
                if !left_out.contains(&row) {
                    left_out.push(row); // once, not for every method
                }
                continue;
            }
            found => found?,
        };
        let row = bench.heads_row(name, &found.heads, found.method, options.n_heads)?;
        rows.push(Row { group, ..row });
    }
    Ok(rows)
}

/// What any head set has to beat.
fn baselines(
    bench: &Bench<'_>,
    calibration: &[Record],
    options: &JudgeOptions,
) -> Result<Vec<Row>, JudgeError> {
    let all = format!("all {}", bench.tests[0].record.observation.n_heads);
    let mut rows = Vec::new();
    if let Some((_, heads, method)) = &options.set {
        rows.push(bench.random_row(heads.len(), *method, options.seed)?);
    }
    let qr = FindOptions {
        criterion: Criterion::QrHead,
        k: Some(QR_HEADS.min(bench.tests[0].record.observation.n_heads)),
        method: Method::default(),
        growth: Growth::Ranked,
        search: false,
        seed: options.seed,
    };
    let found = match find(calibration, options.n_heads, &qr) {
        Err(FindError::Nothing { .. }) => None,
        found => Some(found?),
    };
    if let Some(found) = found {
        let heads: Vec<usize> = found
            .heads
            .iter()
            .map(|h| usize::from(h.layer) * options.n_heads + usize::from(h.head))
            .collect();
        let scores =
            |t: &TestQuestion| Ok(t.record.judged_by(&t.record.observation.qr)?.set_score(&heads)?);
        let row = bench.row("QRHead".into(), format!("top {}", heads.len()), scores)?;
        rows.push(Row { heads: found.heads, ..row });
    }
    let icr = |t: &TestQuestion| Ok(t.record.observation.icr.iter().map(|&s| f64::from(s)).collect());
    rows.push(bench.row("in-context reranking (ICR)".into(), all, icr)?);
    rows.push(bench.row("BM25".into(), String::new(), |t| Ok(t.bm25.clone()))?);
    let order = |t: &TestQuestion| Ok((0..t.bm25.len()).map(|i| -(i as f64)).collect());
    rows.push(bench.row("retrieval order".into(), String::new(), order)?);
    let labels = |t: &TestQuestion| Ok(t.record.labels.iter().flatten().map(|&l| f64::from(l)).collect());
    rows.push(bench.row("oracle: the labels".into(), String::new(), labels)?);
    Ok(rows)
}

/// The test questions, and how a row is made on them.
struct Bench<'a> {
    tests: &'a [TestQuestion],
    bootstrap: Bootstrap,
    k: usize,
}

type Scores = Vec<Vec<f64>>;

impl Bench<'_> {
    fn scores(
        &self,
        of: impl Fn(&TestQuestion) -> Result<Vec<f64>, JudgeError>,
    ) -> Result<Scores, JudgeError> {
        self.tests.iter().map(of).collect()
    }

    fn metrics(&self, scores: &Scores) -> Result<Vec<Metrics>, JudgeError> {
        let labels = self.tests.iter().map(|t| t.record.labels.as_deref().unwrap_or_default());
        let each = scores.iter().zip(labels).map(|(s, l)| Metrics::new(s, l, self.k));
        Ok(each.collect::<Result<_, _>>()?)
    }

    fn measured(&self, metrics: &[Metrics]) -> Result<Measured, JudgeError> {
        let of = |value: fn(&Metrics) -> Option<f64>| {
            self.bootstrap.mean_interval(&metrics.iter().filter_map(value).collect::<Vec<_>>())
        };
        Ok(Measured {
            auroc: of(|m| m.auroc)?,
            recall: of(|m| m.recall)?,
            ndcg: of(|m| m.ndcg)?,
            mrr: of(|m| m.reciprocal_rank)?,
        })
    }

    fn row(
        &self,
        name: String,
        note: String,
        of: impl Fn(&TestQuestion) -> Result<Vec<f64>, JudgeError>,
    ) -> Result<Row, JudgeError> {
        let metrics = self.measured(&self.metrics(&self.scores(of)?)?)?;
        Ok(Row { name, heads: Vec::new(), note, group: Group::Baseline, metrics })
    }

    fn heads_row(
        &self,
        name: &str,
        heads: &[HeadRef],
        method: Method,
        n_heads: usize,
    ) -> Result<Row, JudgeError> {
        let scores = |t: &TestQuestion| Ok(t.record.scores(heads, method, n_heads)?);
        let row = self.row(format!("{name}, {method}"), String::new(), scores)?;
        Ok(Row { heads: heads.to_vec(), ..row })
    }

    /// The mean of many random sets; the interval is from the 5th to the 95th percentile of their means, not over questions.
    fn random_row(&self, k: usize, method: Method, seed: u64) -> Result<Row, JudgeError> {
        let total = self.tests[0].record.observation.n_heads;
        let mut sets = Vec::new();
        for draw in 0..RANDOM_SETS as u64 {
            let heads: Vec<usize> = permutation(total, seed, draw).into_iter().take(k).collect();
            let scores = self.scores(|t| Ok(t.record.judged(method)?.set_score(&heads)?))?;
            sets.push(self.measured(&self.metrics(&scores)?)?);
        }
        let spread = |of: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = sets.iter().map(of).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.sort_by(f64::total_cmp);
            Interval { mean, low: quantile(&values, 0.05), high: quantile(&values, 0.95) }
        };
        let metrics = Measured {
            auroc: spread(|m| m.auroc.mean),
            recall: spread(|m| m.recall.mean),
            ndcg: spread(|m| m.ndcg.mean),
            mrr: spread(|m| m.mrr.mean),
        };
        let name = format!("random heads, {method}");
        let note = format!("{RANDOM_SETS} sets of {k}");
        Ok(Row { name, heads: Vec::new(), note, group: Group::Random, metrics })
    }
}

/// The value a share of the way along sorted ones, between neighbours in proportion (Hyndman and Fan 1996, type 7).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

fn lengths(tests: &[TestQuestion], scores: &Scores) -> Vec<(usize, f64, bool)> {
    let of = |(test, scores): (&TestQuestion, &Vec<f64>)| {
        let labels = test.record.labels.clone().unwrap_or_default();
        let chunks = test.record.observation.chunk_lens.iter().zip(scores).zip(labels);
        chunks.map(|((&len, &score), label)| (len, score, label > 0)).collect::<Vec<_>>()
    };
    tests.iter().zip(scores).flat_map(of).collect()
}

fn length_bias(tests: &[TestQuestion], scores: &Scores) -> Option<f64> {
    let of = |(test, scores): (&TestQuestion, &Vec<f64>)| {
        let one = std::slice::from_ref(test);
        let others: Vec<_> =
            lengths(one, &vec![scores.clone()]).into_iter().filter(|(_, _, relevant)| !relevant).collect();
        let (lens, scores): (Vec<f64>, Vec<f64>) = others.iter().map(|&(n, s, _)| (n as f64, s)).unzip();
        spearman(&lens, &scores)
    };
    let all: Vec<f64> = tests.iter().zip(scores).filter_map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// How much a change of the chunks' order changes the ranking: the same questions, several orders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderSensitivity {
    /// Orders compared.
    pub orders: usize,
    /// Mean over orders of the mean AUROC.
    pub auroc: f64,
    /// Standard deviation over orders of the mean AUROC.
    pub deviation: f64,
    /// Mean AUROC of each chunk's mean score over the orders.
    pub averaged: f64,
    /// Mean over questions and pairs of orders: share of the first k that is the same.
    pub overlap: f64,
}

/// Compares `orders[order][question]`: scores of each chunk, put back into one order, with the labels of that order.
///
/// # Errors
/// When scores and labels do not fit together.
pub fn order_sensitivity(
    orders: &[Vec<Vec<f64>>],
    labels: &[Vec<u32>],
    k: usize,
) -> Result<OrderSensitivity, JudgeError> {
    let mean_auroc = |scores: &Vec<Vec<f64>>| -> Result<f64, JudgeError> {
        let metrics: Vec<Metrics> =
            scores.iter().zip(labels).map(|(s, l)| Metrics::new(s, l, k)).collect::<Result<_, _>>()?;
        let aurocs: Vec<f64> = metrics.iter().filter_map(|m| m.auroc).collect();
        Ok(aurocs.iter().sum::<f64>() / aurocs.len().max(1) as f64)
    };
    let means = orders.iter().map(mean_auroc).collect::<Result<Vec<f64>, _>>()?;
    let mut sums = orders.first().cloned().unwrap_or_default();
    for scores in orders.iter().skip(1) {
        sums.iter_mut().flatten().zip(scores.iter().flatten()).for_each(|(sum, score)| *sum += score);
    }
    let n = means.len() as f64;
    let auroc = means.iter().sum::<f64>() / n;
    let variance = means.iter().map(|m| (m - auroc).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let first = |scores: &[f64]| -> Vec<usize> { ranking(scores).into_iter().take(k).collect() };
    let (mut same, mut pairs) = (0.0, 0.0);
    for (a, b) in (0..orders.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        for (one, other) in orders[a].iter().zip(&orders[b]) {
            let (one, other) = (first(one), first(other));
            same += one.iter().filter(|i| other.contains(i)).count() as f64 / one.len().max(1) as f64;
            pairs += 1.0;
        }
    }
    let overlap = if pairs > 0.0 { same / pairs } else { 1.0 };
    Ok(OrderSensitivity {
        orders: orders.len(),
        auroc,
        deviation: variance.sqrt(),
        overlap,
        averaged: mean_auroc(&sums)?,
    })
}
