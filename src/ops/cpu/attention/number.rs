//! What K and V are in the pages: f32, or f16 that is widened, exactly, as it is read.
//!
//! Tests are beside the code: every f16 and its neighbours.

use half::{f16, slice::HalfFloatSliceExt};

use super::lanes::Lanes;
use crate::ops::cpu::{buffer::Number, tile::COLS};

/// The numbers that pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFloat {
    /// K and V as they were computed.
    F32,
    /// K and V rounded to 11 bits once, as they are written: half the memory, and half of what decoding reads.
    F16,
}

impl KvFloat {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::F16 => size_of::<f16>(),
        }
    }
}

/// A number as pages hold it. All arithmetic with it is done in f32.
pub trait KvNumber: Number {
    /// Which it is.
    const FLOAT: KvFloat;

    /// `x` as pages hold it, in `to` where that is something else: the nearest, ties to even. What is finite stays finite
    /// (beyond ±65504, an f16 becomes that), and only what is infinite or no number stays so.
    fn rounded<'a>(x: &'a [f32], to: &'a mut Vec<Self>) -> &'a [Self];

    /// Whether something in `x` is finite and too great for a page: it becomes the greatest number there.
    fn saturates(x: &[f32]) -> bool;

    /// `x` in f32, exactly; in `to` where that is something else.
    fn widened<'a>(x: &'a [Self], to: &'a mut Vec<f32>) -> &'a [f32];

    /// 16 values in f32, exactly.
    ///
    /// # Safety
    /// The processor has `V`; there are 16 values at `from`.
    #[allow(unsafe_code)]
    unsafe fn load<V: Lanes>(from: *const Self) -> V;
}

impl KvNumber for f32 {
    const FLOAT: KvFloat = KvFloat::F32;

    fn rounded<'a>(x: &'a [f32], _: &'a mut Vec<Self>) -> &'a [Self] {
        x
    }

    fn saturates(_: &[f32]) -> bool {
        false
    }

    fn widened<'a>(x: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        x
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn load<V: Lanes>(from: *const Self) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(from) }
    }
}

impl KvNumber for f16 {
    const FLOAT: KvFloat = KvFloat::F16;

    fn rounded<'a>(x: &'a [f32], to: &'a mut Vec<Self>) -> &'a [Self] {
        to.resize(x.len(), Self::ZERO);
        for (x, to) in x.chunks(COLS).zip(to.chunks_mut(COLS)) {
            let mut finite = [0f32; COLS];
            finite.iter_mut().zip(x).for_each(|(to, x)| *to = saturated(*x));
            to.convert_from_f32_slice(&finite[..x.len()]);
        }
        to
    }

    fn saturates(x: &[f32]) -> bool {
        // no early end, so that it vectorises
        x.iter().fold(false, |found, x| found | (x.abs() > MOST && x.is_finite()))
    }

    fn widened<'a>(x: &'a [Self], to: &'a mut Vec<f32>) -> &'a [f32] {
        to.resize(x.len(), 0.0);
        x.convert_to_f32_slice(to);
        to
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn load<V: Lanes>(from: *const Self) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_f16(from) }
    }
}

/// The greatest f16.
const MOST: f32 = f16::MAX.to_f32_const();

/// What is finite, between the greatest numbers of f16: an infinite key would make scores no numbers.
fn saturated(x: f32) -> f32 {
    if x.is_finite() { x.clamp(-MOST, MOST) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::cpu::{
        attention::lanes::{LANES, Plain},
        floats,
    };

    fn rounded(x: &[f32]) -> Vec<f16> {
        f16::rounded(x, &mut Vec::new()).to_vec()
    }

    #[test]
    fn every_f16_stays_what_it_is_and_what_lies_between_goes_to_the_nearest() {
        let finite: Vec<f16> = (0..0x7c00).map(f16::from_bits).collect();
        let wide = f16::widened(&finite, &mut Vec::new()).to_vec();
        assert_eq!(rounded(&wide), finite);
        for (i, pair) in wide.windows(2).enumerate() {
            let middle = pair[0].midpoint(pair[1]);
            let even = finite[i + i % 2];
            let around = [middle.next_down(), middle, middle.next_up(), -middle];
            assert_eq!(rounded(&around), [finite[i], even, finite[i + 1], -even], "{pair:?}");
        }
    }

    #[test]
    fn what_is_finite_stays_finite_and_what_is_not_does_not_hide() {
        let x = [65504.0, 65519.9, 65520.0, 1e6, f32::MAX];
        assert_eq!(rounded(&x), [f16::MAX; 5]);
        assert_eq!(rounded(&x.map(|x| -x)), [f16::MIN; 5]);
        assert_eq!(rounded(&[f32::INFINITY, f32::NEG_INFINITY]), [f16::INFINITY, f16::NEG_INFINITY]);
        assert!(rounded(&[f32::NAN; 40]).iter().all(|x| x.is_nan()));
        for (x, great) in
            [(65504.0, false), (65504.01, true), (f32::MAX, true), (f32::NAN, false), (f32::INFINITY, false)]
        {
            assert_eq!([f16::saturates(&[0.0, x]), f16::saturates(&[-x])], [great; 2], "{x}");
        }
        // pages of f32 hold what they are given
        assert!(!f32::saturates(&x));
        assert_eq!(f32::rounded(&x, &mut Vec::new()), x);
    }

    #[test]
    fn lanes_widen_as_rows_do() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let wide = f16::widened(&all, &mut Vec::new()).to_vec();
        for (from, want) in all.as_chunks::<LANES>().0.iter().zip(wide.as_chunks::<LANES>().0) {
            let mut got = [0f32; LANES];
            // SAFETY: both arrays hold 16 values, and plain loops run anywhere.
            #[allow(unsafe_code)]
            unsafe {
                f16::load::<Plain>(from.as_ptr()).store(got.as_mut_ptr());
            }
            assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{from:?}");
            let floats = from.map(|x| floats::from_f16(x.to_bits()).to_bits());
            assert_eq!(floats, want.map(f32::to_bits), "{from:?}");
        }
    }
}
