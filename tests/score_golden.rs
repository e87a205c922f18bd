//! The score against golden files of the PyTorch reference: same rows in, same scores and ranks out.
//!
//! The files hold text under CC BY-SA and stay outside the repository: `$QRAE_SHARED/golden`, by default
//! `../shared/golden`. Without them the test says so and passes. Rows of the null query are not stored,
//! so its keys are left out here.

use std::{collections::BTreeMap, fs, path::PathBuf};

use qrae::score::{Control, Method, Read, Rows, ScoreInput, Statistic, rank, score};
use serde::Deserialize;

/// Rows and scores are stored with 7 digits.
const TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    spans: Vec<(usize, usize)>,
    rows_control: Vec<Vec<f64>>,
    rows_query: Vec<Vec<f64>>,
    rows_query_mean: Vec<Vec<f64>>,
    /// `read/control/statistic` to `[chunk][head]`.
    head_scores: BTreeMap<String, Vec<Vec<f64>>>,
    /// The same keys to `[chunk]`.
    scores: BTreeMap<String, Vec<f64>>,
}

fn golden(name: &str) -> Option<Golden> {
    let shared = std::env::var_os("QRAE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("golden").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        eprintln!("SKIPPED: no {}; set QRAE_SHARED to the folder that holds golden/", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).expect("a golden file is JSON of the reference's form"))
}

fn rows(nested: &[Vec<f64>]) -> Rows {
    Rows::new(nested.len(), nested[0].len(), nested.concat()).expect("golden rows are shares")
}

fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= TOLERANCE
}

/// What the reference gives, `[chunk][head]` and `[chunk]`. It knows no scaled sum, which is its sum by the root of
/// the chunk's share of the candidates.
fn expected(case: &Case, method: Method, lens: &[usize]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let of = |method: Method| {
        let key = method.to_string();
        (case.head_scores[&key].clone(), case.scores[&key].clone())
    };
    if method.statistic != Statistic::ScaledSum {
        return of(method);
    }
    let (mut heads, mut scores) = of(Method { statistic: Statistic::Sum, ..method });
    let all: usize = lens.iter().sum();
    for ((heads, score), &len) in heads.iter_mut().zip(&mut scores).zip(lens) {
        let times = (all as f64 / len as f64).sqrt();
        heads.iter_mut().for_each(|s| *s *= times);
        *score *= times;
    }
    (heads, scores)
}

/// Compares one method on one case.
fn check(case: &Case, method: Method) {
    let Method { statistic, control, read } = method;
    let conditioned = rows(if read == Read::Last { &case.rows_query } else { &case.rows_query_mean });
    let control_rows = (control == Control::QueryFree).then(|| rows(&case.rows_control));
    let lens: Vec<usize> = case.spans.iter().map(|(a, b)| b - a).collect();
    let input = ScoreInput {
        chunk_lens: &lens,
        conditioned: &conditioned,
        control: control_rows.as_ref(),
        statistic,
    };
    let got = score(&input).expect("a golden case fits together");

    let at = format!("{} {method}", case.id);
    let (heads, want) = expected(case, method, &lens);
    assert_eq!((got.len(), got.len()), (heads.len(), want.len()), "{at}");
    for (i, chunk) in got.iter().enumerate() {
        assert!(close(chunk.value, want[i]), "{at}, chunk {i}: {} is not {}", chunk.value, want[i]);
        assert_eq!(chunk.heads.len(), heads[i].len(), "{at}");
        for (h, (head, &want)) in chunk.heads.iter().zip(&heads[i]).enumerate() {
            assert!(close(head.score, want), "{at}, chunk {i}, head {h}: {} is not {want}", head.score);
        }
    }
    let values: Vec<f64> = got.iter().map(|c| c.value).collect();
    assert_eq!(rank(&values), rank(&want), "{at}");
}

fn every_method(name: &str) {
    let Some(golden) = golden(name) else { return };
    assert!(!golden.cases.is_empty(), "{name} holds no cases");
    for case in &golden.cases {
        for &statistic in Statistic::ALL {
            for control in [Control::QueryFree, Control::None] {
                for &read in Read::ALL {
                    check(case, Method { statistic, control, read });
                }
            }
        }
    }
}

#[test]
fn scores_of_smollm2_are_the_references() {
    every_method("smollm2-135m.json");
}

#[test]
fn scores_of_qwen_coder_are_the_references() {
    every_method("qwen2.5-coder-0.5b.json");
}
