//! A second, deliberately plain implementation of the score, written from the formulas alone, and random
//! comparisons of the real one with it.

use proptest::prelude::*;

use super::*;

/// One case: chunk lengths, conditioned rows, control rows (as nested lists).
#[derive(Clone, Debug)]
struct Case {
    lens: Vec<usize>,
    conditioned: Vec<Vec<f64>>,
    control: Option<Vec<Vec<f64>>>,
}

/// `[head][chunk]` scores of the formulas, one line per formula.
fn twin(case: &Case, statistic: Statistic) -> Vec<Vec<f64>> {
    let n_all: usize = case.lens.iter().sum();
    let mut result = Vec::new();
    for h in 0..case.conditioned.len() {
        let mut of_head = Vec::new();
        let mut first = 0;
        for &n in &case.lens {
            let mut r = Vec::new();
            for t in first..first + n {
                let b = case.control.as_ref().map(|c| c[h][t]);
                r.push(match b {
                    Some(b) if case.conditioned[h][t] < b => 0.0,
                    Some(b) => case.conditioned[h][t] - b,
                    None => case.conditioned[h][t],
                });
            }
            first += n;
            let m: f64 = r.iter().sum();
            of_head.push(match statistic {
                Statistic::Sum => m,
                Statistic::Breadth => {
                    let above = r.iter().filter(|&&x| x > 2.0 / n_all as f64).count();
                    if n == 0 { 0.0 } else { above as f64 / n as f64 }
                }
                Statistic::ScaledSum => {
                    let root = (n_all as f64).sqrt() / (n as f64).sqrt();
                    if n == 0 { 0.0 } else { r.iter().map(|x| x * root).sum() }
                }
                Statistic::Entropy => {
                    if n < 2 || m <= 0.0 {
                        0.0
                    } else {
                        let rho: Vec<f64> = r.iter().map(|x| x / m).filter(|&p| p > 0.0).collect();
                        rho.iter().map(|p| p * (1.0 / p).ln()).sum::<f64>() / (n as f64).ln()
                    }
                }
            });
        }
        result.push(of_head);
    }
    result
}

fn rows(nested: &[Vec<f64>]) -> Rows {
    Rows::new(nested.len(), nested[0].len(), nested.concat()).expect("generated rows are shares")
}

fn run(case: &Case, statistic: Statistic) -> Vec<ChunkScore> {
    let conditioned = rows(&case.conditioned);
    let control = case.control.as_deref().map(rows);
    score(&ScoreInput {
        chunk_lens: &case.lens,
        conditioned: &conditioned,
        control: control.as_ref(),
        statistic,
    })
    .expect("a case fits together")
}

/// A row over `n` candidates: often with zeros, sometimes all zero, otherwise summing to 1.
fn row(n: usize) -> impl Strategy<Value = Vec<f64>> {
    let entry = prop_oneof![2 => Just(0.0), 1 => Just(1.0), 5 => 0.0..1.0, 1 => 0.0..1e-12];
    proptest::collection::vec(entry, n).prop_map(|raw: Vec<f64>| {
        let sum: f64 = raw.iter().sum();
        raw.iter().map(|x| if sum > 0.0 { x / sum } else { 0.0 }).collect()
    })
}

fn case() -> impl Strategy<Value = Case> {
    let lens = proptest::collection::vec(prop_oneof![Just(0_usize), Just(1), 2_usize..12], 0..7);
    (lens, 1_usize..5).prop_flat_map(|(lens, n_heads)| {
        let n = lens.iter().sum();
        let matrix = || proptest::collection::vec(row(n), n_heads);
        (Just(lens), matrix(), matrix(), 0..4).prop_map(|(lens, conditioned, other, kind)| {
            let control = match kind {
                0 => None,
                1 => Some(conditioned.clone()),
                _ => Some(other),
            };
            Case { lens, conditioned, control }
        })
    })
}

/// The most a head can give chunk `i`.
fn most(case: &Case, i: usize, statistic: Statistic) -> f64 {
    let (n, all) = (case.lens[i], case.lens.iter().sum::<usize>());
    match statistic {
        Statistic::ScaledSum if n > 0 => (all as f64 / n as f64).sqrt(),
        _ => 1.0,
    }
}

proptest! {
    #[test]
    fn the_score_is_what_the_formulas_say(case in case()) {
        for &statistic in Statistic::ALL {
            let (got, want) = (run(&case, statistic), twin(&case, statistic));
            prop_assert_eq!(got.len(), case.lens.len());
            for (i, chunk) in got.iter().enumerate() {
                let mean = want.iter().map(|head| head[i]).sum::<f64>() / want.len() as f64;
                prop_assert!((chunk.value - mean).abs() < 1e-12, "{} {} is not {}", statistic, chunk.value, mean);
                for (h, head) in chunk.heads.iter().enumerate() {
                    prop_assert!((head.score - want[h][i]).abs() < 1e-12);
                    prop_assert!((0.0..=most(&case, i, statistic) + 1e-12).contains(&head.score), "{}", head.score);
                }
            }
        }
    }

    #[test]
    fn flags_name_exactly_their_edges(case in case()) {
        let masses = twin(&case, Statistic::Sum);
        for (i, chunk) in run(&case, Statistic::Entropy).iter().enumerate() {
            let n = case.lens[i];
            let silent = n > 0 && masses.iter().all(|head| head[i] == 0.0);
            prop_assert_eq!(chunk.flags, Flags { empty: n == 0, single_token: n == 1, no_response: silent });
            prop_assert_eq!(chunk.n_tokens, n);
        }
    }

    #[test]
    fn equal_rows_and_zero_rows_give_zero(case in case()) {
        let equal = Case { control: Some(case.conditioned.clone()), ..case.clone() };
        let zero = Case { conditioned: case.conditioned.iter().map(|r| vec![0.0; r.len()]).collect(), ..case };
        for case in [equal, zero] {
            for &statistic in Statistic::ALL {
                prop_assert!(run(&case, statistic).iter().all(|c| c.value == 0.0 && (c.flags.empty || c.flags.no_response)));
            }
        }
    }

    #[test]
    fn responses_add_up_to_the_masses(case in case()) {
        let conditioned = rows(&case.conditioned);
        let control = case.control.as_deref().map(rows);
        let input = ScoreInput { chunk_lens: &case.lens, conditioned: &conditioned, control: control.as_ref(), statistic: Statistic::Sum };
        let (mean, scores) = (responses(&input).unwrap(), score(&input).unwrap());
        let mut first = 0;
        for (chunk, n) in scores.iter().zip(&case.lens) {
            prop_assert!((mean[first..first + n].iter().sum::<f64>() - chunk.value).abs() < 1e-12);
            for (h, head) in chunk.heads.iter().enumerate() {
                let of_head = head_responses(&input, h).unwrap();
                prop_assert!((of_head[first..first + n].iter().sum::<f64>() - head.mass).abs() < 1e-12);
            }
            first += n;
        }
    }
}
