//! The slow twins: what every kernel should compute, written as plainly as the formulas, in f64.
//!
//! Only tests call these. No paging, no tiles, no vector instructions.

/// `Y[m][n] = Σ_k X[m][k] · W[n][k]`, row-major.
#[must_use]
pub fn linear(x: &[f32], w: &[f32], n: usize, k: usize) -> Vec<f64> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    x.chunks_exact(k).flat_map(|x| (0..n).map(move |j| dot(x, &w[j * k..][..k]))).collect()
}

/// Softmax of `logits`.
#[must_use]
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = logits.iter().map(|l| (l - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

/// Causal attention of one sequence: `q [t, n_heads, d]`, `k` and `v` `[t, n_kv_heads, d]`, output like `q`.
/// Query head `h` reads KV head `h / (n_heads / n_kv_heads)`.
#[must_use]
pub fn attention(q: &[f32], k: &[f32], v: &[f32], n_heads: usize, n_kv_heads: usize, d: usize) -> Vec<f64> {
    let tokens = q.len() / (n_heads * d);
    let mut out = Vec::with_capacity(q.len());
    for p in 0..tokens {
        for h in 0..n_heads {
            let g = h / (n_heads / n_kv_heads);
            let at = |x: &[f32], t: usize, i: usize| f64::from(x[(t * n_kv_heads + g) * d + i]);
            let query = |i: usize| f64::from(q[(p * n_heads + h) * d + i]);
            let logit = |t| (0..d).map(|i| query(i) * at(k, t, i)).sum::<f64>() / (d as f64).sqrt();
            let weights = softmax(&(0..=p).map(logit).collect::<Vec<_>>());
            out.extend((0..d).map(|i| weights.iter().enumerate().map(|(t, w)| w * at(v, t, i)).sum::<f64>()));
        }
    }
    out
}

/// One attention row restricted to the positions `candidates`: `softmax(q · k_t / sqrt(d))` over them
/// (design: tokens outside cancel). `q [d]`, `k [t, n_kv_heads, d]`.
#[must_use]
pub fn attention_row(
    q: &[f32],
    k: &[f32],
    kv_head: usize,
    n_kv_heads: usize,
    candidates: &[usize],
) -> Vec<f64> {
    let d = q.len();
    let logit = |&t: &usize| {
        let key = &k[(t * n_kv_heads + kv_head) * d..][..d];
        q.iter().zip(key).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() / (d as f64).sqrt()
    };
    softmax(&candidates.iter().map(logit).collect::<Vec<_>>())
}
