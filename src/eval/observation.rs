//! What one question shows of every head: all that localizing and evaluating need, computed once from one prefill.
//!
//! Rows of all heads are large and short-lived; an observation keeps a number per head and chunk for every
//! [`Method`], so any head set and any criterion can be judged afterwards without running the model.
//! Tests: below, against plain sums.

use std::collections::BTreeMap;

use crate::score::{Control, HeadScore, Method, Read, Rows, ScoreError, ScoreInput, Statistic, score};

/// Rows of all heads for one question; every [`Rows`] is `[heads, candidate tokens]`.
#[derive(Clone, Copy, Debug)]
pub struct Readings<'a> {
    /// Candidate tokens per chunk, in prompt order.
    pub chunk_lens: &'a [usize],
    /// Restricted rows at the end of the prefix.
    pub query_free: &'a Rows,
    /// Rows of the query's tail.
    pub query: TailRows<'a>,
    /// Rows of the null query's tail.
    pub null: TailRows<'a>,
    /// Attention of the last token to the candidates, as the model's own softmax over all tokens gives it.
    pub last_visible: &'a Rows,
}

/// Rows of one tail.
#[derive(Clone, Copy, Debug)]
pub struct TailRows<'a> {
    /// Restricted, at the last token.
    pub last: &'a Rows,
    /// Restricted, averaged over all tokens of the tail.
    pub mean: &'a Rows,
    /// Over all visible tokens, averaged over the query's own tokens.
    pub question: &'a Rows,
}

impl TailRows<'_> {
    fn of(&self, read: Read) -> &Rows {
        match read {
            Read::Last => self.last,
            Read::QueryMean => self.mean,
        }
    }
}

/// A number per head and chunk, head-major: `[heads, chunks]`.
pub type HeadTable = Vec<f32>;

/// What is kept of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Heads of the model: layers times heads per layer.
    pub n_heads: usize,
    /// Candidate tokens per chunk.
    pub chunk_lens: Vec<usize>,
    /// Attention of the last token to the tokens of the answer, per head, in `[0, 1]`; absent without usable answer.
    pub answer_mass: Option<Vec<f32>>,
    /// Score of each head for each chunk, under every method.
    pub tables: BTreeMap<String, HeadTable>,
    /// QRHead's retrieval score of each head for each chunk: attention of the query's tokens minus that of the null
    /// query's, summed over the chunk's tokens but for those below mean − 2σ. May be negative.
    pub qr: HeadTable,
    /// The same of the mean over all heads (in-context reranking), `[chunks]`.
    pub icr: Vec<f32>,
}

impl Observation {
    /// Computes everything from the readings. `answer` holds the indices (into the candidates) of the answer's tokens.
    ///
    /// # Errors
    /// When the rows do not fit together: a bug in the caller.
    pub fn new(readings: &Readings<'_>, answer: Option<&[usize]>) -> Result<Self, ScoreError> {
        let n_heads = readings.query_free.n_heads();
        let mut tables = BTreeMap::new();
        for method in methods() {
            tables.insert(method.to_string(), table(readings, method)?);
        }
        let mass = |answer: &[usize]| -> Vec<f32> {
            let of_head = |h| answer.iter().map(|&t| readings.last_visible.row(h)[t]).sum::<f64>() as f32;
            (0..n_heads).map(of_head).collect()
        };
        let (query, null) = (readings.query.question, readings.null.question);
        let signed = |h: usize| -> Vec<f64> { difference(query.row(h), null.row(h)) };
        let of_heads = (0..n_heads).flat_map(|h| without_outliers(&signed(h), readings.chunk_lens));
        let mut mean = vec![0.0; query.n_candidates()];
        for head in 0..n_heads {
            mean.iter_mut().zip(signed(head)).for_each(|(m, s)| *m += s / n_heads as f64);
        }
        Ok(Self {
            n_heads,
            chunk_lens: readings.chunk_lens.to_vec(),
            answer_mass: answer.map(mass),
            tables,
            qr: of_heads.map(|s| s as f32).collect(),
            icr: without_outliers(&mean, readings.chunk_lens).into_iter().map(|s| s as f32).collect(),
        })
    }

    /// Number of chunks.
    #[must_use]
    pub fn n_chunks(&self) -> usize {
        self.chunk_lens.len()
    }
}

/// Every read × control × statistic.
pub fn methods() -> impl Iterator<Item = Method> {
    Read::ALL.iter().flat_map(|&read| {
        Control::ALL.iter().flat_map(move |&control| {
            Statistic::ALL.iter().map(move |&statistic| Method { statistic, control, read })
        })
    })
}

fn table(readings: &Readings<'_>, method: Method) -> Result<HeadTable, ScoreError> {
    let control = match method.control {
        Control::None => None,
        Control::QueryFree => Some(readings.query_free),
        Control::NullQuery => Some(readings.null.of(method.read)),
    };
    let conditioned = readings.query.of(method.read);
    let input =
        ScoreInput { chunk_lens: readings.chunk_lens, conditioned, control, statistic: method.statistic };
    let chunks = score(&input)?;
    let of_head = |h: usize| chunks.iter().map(move |chunk| chunk.heads[h]);
    Ok((0..conditioned.n_heads()).flat_map(of_head).map(|HeadScore { score, .. }| score as f32).collect())
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Per chunk, the sum of its tokens' values but for those below the chunk's mean − 2σ (Chen et al. 2025, in-context
/// reranking: what the null query makes abnormally low).
fn without_outliers(values: &[f64], chunk_lens: &[usize]) -> Vec<f64> {
    let mut rest = values;
    let mut sum = |&len: &usize| {
        let (chunk, tail) = rest.split_at(len);
        rest = tail;
        let n = len.max(1) as f64;
        let mean = chunk.iter().sum::<f64>() / n;
        let deviation = (chunk.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        chunk.iter().filter(|v| **v >= mean - 2.0 * deviation).sum()
    };
    chunk_lens.iter().map(&mut sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of_heads: &[&[f64]]) -> Rows {
        Rows::new(of_heads.len(), of_heads[0].len(), of_heads.concat()).unwrap()
    }

    fn close(got: &[f32], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{got:?} {want:?}");
        }
    }

    /// Two heads, three chunks of 2, 0 and 1 tokens.
    #[test]
    fn every_method_gives_what_scoring_these_heads_would() {
        let free = rows(&[&[0.5, 0.25, 0.25], &[0.2, 0.2, 0.6]]);
        let last = rows(&[&[0.25, 0.25, 0.5], &[0.6, 0.2, 0.2]]);
        let mean = rows(&[&[0.1, 0.1, 0.8], &[0.3, 0.3, 0.4]]);
        let null_last = rows(&[&[0.4, 0.2, 0.4], &[0.5, 0.4, 0.1]]);
        let null_mean = rows(&[&[0.2, 0.7, 0.1], &[0.1, 0.1, 0.8]]);
        let question = rows(&[&[0.10, 0.05, 0.20], &[0.02, 0.03, 0.04]]);
        let null_question = rows(&[&[0.05, 0.05, 0.30], &[0.01, 0.01, 0.01]]);
        let last_visible = rows(&[&[0.1, 0.1, 0.2], &[0.3, 0.1, 0.1]]);
        let readings = Readings {
            chunk_lens: &[2, 0, 1],
            query_free: &free,
            query: TailRows { last: &last, mean: &mean, question: &question },
            null: TailRows { last: &null_last, mean: &null_mean, question: &null_question },
            last_visible: &last_visible,
        };
        let seen = Observation::new(&readings, Some(&[1, 2])).unwrap();
        assert_eq!((seen.n_heads, seen.n_chunks(), seen.tables.len()), (2, 3, methods().count()));
        close(seen.answer_mass.as_ref().unwrap(), &[0.3, 0.2]);
        close(&seen.tables["last/query_free/sum"], &[0.0, 0.0, 0.25, 0.4, 0.0, 0.0]);
        close(&seen.tables["last/null_query/sum"], &[0.05, 0.0, 0.1, 0.1, 0.0, 0.1]);
        close(&seen.tables["query_mean/query_free/sum"], &[0.0, 0.0, 0.55, 0.2, 0.0, 0.0]);
        close(&seen.tables["query_mean/null_query/sum"], &[0.0, 0.0, 0.7, 0.4, 0.0, 0.0]);
        close(&seen.tables["query_mean/none/sum"], &[0.2, 0.0, 0.8, 0.6, 0.0, 0.4]);
        close(&seen.qr, &[0.05, 0.0, -0.1, 0.03, 0.0, 0.03]);
        close(&seen.icr, &[0.04, 0.0, -0.035]);
        assert_eq!(Observation::new(&readings, None).unwrap().answer_mass, None);
        let wrong = Readings { chunk_lens: &[2, 2], ..readings };
        assert!(matches!(Observation::new(&wrong, None), Err(ScoreError::ChunkLengths { .. })));
    }

    #[test]
    fn abnormally_low_tokens_are_left_out() {
        // nine of 1 and one of −100: mean −9.1, σ 30.3, so only the last is below −69.7
        let mut values = vec![1.0; 9];
        values.push(-100.0);
        values.extend([-3.0, -3.0]);
        assert_eq!(without_outliers(&values, &[10, 2]), [9.0, -6.0]);
    }
}
