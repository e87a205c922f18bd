//! `exp` in f32 for softmax and SiLU: a polynomial the compiler can vectorise, the same bits on every path.

/// `e^x` for finite `x`, to about 1 ulp; 0 below -87.3 and capped at `e^88`.
///
/// `x = n ln 2 + r`, `|r| <= ln 2 / 2`; `e^r` by its Taylor polynomial of degree 7 (remainder below
/// 2^-27), then scaled by `2^n` through the exponent bits.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_145_75; // ln 2 in two parts: n * LN2_HI is exact for |n| < 2^9
    const LN2_LO: f32 = 1.428_606_8e-6;
    let clamped = x.clamp(-87.3, 88.0);
    // adding and taking away 1.5 * 2^23 rounds to the nearest integer
    const MAGIC: f32 = 12_582_912.0;
    let n = (clamped.mul_add(std::f32::consts::LOG2_E, MAGIC)) - MAGIC;
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, clamped));
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = r.mul_add(p, c);
    }
    let scale = f32::from_bits(((n as i32 + 127) << 23) as u32);
    if x < -87.3 { 0.0 } else { p * scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exp_to_two_ulp() {
        let mut worst = 0f64;
        for i in -87_000..88_000 {
            let x = i as f32 * 0.001 + 0.000_123;
            let truth = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - truth).abs() / truth);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "relative error {worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e30), 0.0);
        assert!(exp(1e30).is_finite());
    }
}
