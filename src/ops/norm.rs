//! RMSNorm on rows.

use super::cpu::tile::{Isa, Vectorised};

/// Partial sums of a row, added up as a tree at the end: the same order on every instruction set.
const LANES: usize = 16;

/// `out = x · weight / sqrt(mean(x²) + eps)`, all of one length.
pub fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "norm of unequal lengths: this is a bug");
    out.copy_from_slice(x);
    rms_norm_in_place(isa, out, weight, eps);
}

/// [`rms_norm`] of `x` onto itself.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    assert!(x.len() == weight.len(), "norm of unequal lengths: this is a bug");
    isa.run(Norm { x, weight, eps });
}

struct Norm<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Vectorised for Norm<'_> {
    #[inline(always)]
    fn run(self) {
        let factor = inverse_rms(self.x, self.eps);
        for (x, w) in self.x.iter_mut().zip(self.weight) {
            *x = *x * factor * w;
        }
    }
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut sums = [0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for part in whole {
        for (sum, v) in sums.iter_mut().zip(part) {
            *sum = v.mul_add(*v, *sum);
        }
    }
    for (sum, v) in sums.iter_mut().zip(rest) {
        *sum = v.mul_add(*v, *sum);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    (sums[0] / x.len() as f32 + eps).sqrt().recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_formula_and_the_same_bits_everywhere() {
        for n in [1, 16, 33, 896] {
            let x: Vec<f32> =
                (0..n).map(|i| ((i * 31 % 17) as f32 - 8.0) * 0.3 + (i == 5) as u8 as f32 * 90.0).collect();
            let w: Vec<f32> = (0..n).map(|i| 0.5 + (i % 7) as f32 * 0.25).collect();
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let mut out = vec![0f32; n];
                rms_norm(isa, &x, &w, 1e-6, &mut out);
                for ((x, w), got) in x.iter().zip(&w).zip(&out) {
                    let want = f64::from(*x) / (mean + 1e-6).sqrt() * f64::from(*w);
                    assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs(), "{got} {want}");
                }
                let mut again = x.clone();
                rms_norm_in_place(isa, &mut again, &w, 1e-6);
                assert_eq!(again, out);
                assert_eq!(first.get_or_insert(out.clone()), &out, "{isa:?}");
            }
        }
    }
}
