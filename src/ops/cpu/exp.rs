//! `exp` for SiLU and `exp2` for softmax, in f32: polynomials the compiler can vectorise, the same bits on every path.

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
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, clamped));
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = r.mul_add(p, c);
    }
    // n is in the low bits; converting it to an integer would be done number by number
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x < -87.3 { 0.0 } else { p * scale }
}

/// Adding and taking away `1.5 * 2^23` rounds to the nearest integer, ties to even, which until then lies in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// Where [`exp2`] ends: the exponent bits of `2^-127` are all 0, so the result is 0 there.
pub(super) const LEAST: f32 = -127.0;

/// `2^r` on `[-1/2, 1/2]`, highest power first: exactly 1 at 0, relative error at most 9.7e-8. Fitted by Lawson's
/// iteration, the linear term first rounded to f32.
pub(super) const EXP2: [f32; 6] =
    [0.001_327_951_9, 0.009_670_754, 0.055_506_61, 0.240_222_59, 0.693_147_06, 1.0];

/// `2^x` for `x <= 0`, to 2 ulp down to `x = -126`; exactly 1 at 0, and exactly 0 from -127 on, -∞ included.
/// A NaN stays one where the nine lowest bits of its payload are 0, as those of every NaN are that arithmetic makes.
///
/// `x = n + r` with `|r| <= 1/2`; the polynomial, whose exponent bits `n` is then added to.
#[inline(always)]
#[must_use]
pub fn exp2(x: f32) -> f32 {
    let x = if LEAST > x { LEAST } else { x };
    let shifted = x + ROUND;
    let r = x - (shifted - ROUND);
    let mut p = EXP2[0];
    for c in &EXP2[1..] {
        p = p.mul_add(r, *c);
    }
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest of some differences; NaN when one is, which `max` would drop.
    fn worst(all: impl Iterator<Item = f64>) -> f64 {
        all.fold(0.0, |worst, next| if worst.is_nan() || worst >= next { worst } else { next })
    }

    #[test]
    fn it_is_exp_to_two_ulp() {
        let worst = worst((-87_000..88_000).map(|i| {
            let x = i as f32 * 0.001 + 0.000_123;
            let truth = f64::from(x).exp();
            (f64::from(exp(x)) - truth).abs() / truth
        }));
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "relative error {worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e30), 0.0);
        assert!(exp(1e30).is_finite());
    }

    #[test]
    fn it_is_exp2_to_two_ulp_and_ends_at_nothing() {
        let worst = worst((0..1_260_000).map(|i| {
            let x = i as f32 * -0.0001;
            let truth = f64::from(x).exp2();
            (f64::from(exp2(x)) - truth).abs() / truth
        }));
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "relative error {worst:e}");
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(-1.0), 0.5);
        for x in [-127.0, -200.0, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp2(x).to_bits(), 0, "{x}");
        }
        assert!((0.0..1e-37).contains(&exp2(-126.7)));
        assert!(exp2(f32::NAN).is_nan());
    }
}
