//! Rotary position embedding on the heads of one row, halves split (the GPT-NeoX order).

use super::cpu::tile::{Isa, Vectorised};

/// Rotates every head of `x [heads, 2 · cos.len()]`: with `a` and `b` the halves of a head,
/// `a' = a·cos - b·sin`, `b' = b·cos + a·sin`.
pub fn rotate(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && x.len().is_multiple_of(2 * cos.len()), "rope sizes: this is a bug");
    isa.run(Rotate { x, cos, sin });
}

struct Rotate<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Vectorised for Rotate<'_> {
    #[inline(always)]
    fn run(self) {
        let half = self.cos.len();
        for head in self.x.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(self.cos).zip(self.sin) {
                let (x, y) = (*a, *b);
                *a = x * cos - y * sin;
                *b = y * cos + x * sin;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_turns_pairs_and_keeps_their_length() {
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..12).map(|i| ((i as f32).cos(), (i as f32).sin())).unzip();
        let x: Vec<f32> = (0..48).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
        for isa in Isa::available() {
            let mut y = x.clone();
            rotate(isa, &mut y, &cos, &sin);
            for head in 0..2 {
                for i in 0..12 {
                    let at = |v: &[f32], half: usize| f64::from(v[head * 24 + half * 12 + i]);
                    let (s, c) = (i as f64).sin_cos();
                    assert!((at(&y, 0) - (at(&x, 0) * c - at(&x, 1) * s)).abs() < 1e-5);
                    assert!((at(&y, 1) - (at(&x, 1) * c + at(&x, 0) * s)).abs() < 1e-5);
                }
            }
        }
    }
}
