//! Plain numbers as files hold them, f32, f16 or bf16 in little-endian bytes, widened to f32 exactly.
//!
//! Tests are beside the code: every value of 16 bits against the `half` crate.

use super::tile::{Isa, Vectorised};

/// How plain numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
}

impl FloatType {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The numbers in `bytes`, infinities and NaNs included (signalling ones become quiet).
    #[must_use]
    pub fn values(self, bytes: &[u8]) -> Vec<f32> {
        let mut values = vec![0.0; bytes.len() / self.bytes()];
        self.widen(Isa::detect(), &bytes[..values.len() * self.bytes()], &mut values);
        values
    }

    /// Whether every number in `bytes` is finite.
    #[must_use]
    pub fn all_finite(self, bytes: &[u8]) -> bool {
        // an exponent of all ones is an infinity or no number; no early end, so that it vectorises
        let halves = |ones: u16| {
            let special = |b: &[u8; 2]| u16::from_le_bytes(*b) & ones == ones;
            bytes.as_chunks().0.iter().fold(false, |found, b| found | special(b))
        };
        !match self {
            Self::F16 => halves(0x7c00),
            Self::BF16 => halves(0x7f80),
            Self::F32 => {
                let special = |b: &[u8; 4]| u32::from_le_bytes(*b) & 0x7f80_0000 == 0x7f80_0000;
                bytes.as_chunks().0.iter().fold(false, |found, b| found | special(b))
            }
        }
    }

    /// As [`Self::values`], into `to`: as many numbers as `from` holds.
    pub(crate) fn widen(self, isa: Isa, from: &[u8], to: &mut [f32]) {
        assert!(from.len() == to.len() * self.bytes(), "{} bytes of {self:?}: this is a bug", from.len());
        #[cfg(target_arch = "x86_64")]
        if self == Self::F16 && isa.has_avx512() {
            // SAFETY: the processor has AVX-512.
            #[allow(unsafe_code)]
            unsafe {
                f16_avx512(from, to);
            }
            return;
        }
        isa.run(Widen { float: self, from, to });
    }
}

struct Widen<'a> {
    float: FloatType,
    from: &'a [u8],
    to: &'a mut [f32],
}

impl Vectorised for Widen<'_> {
    #[inline(always)]
    fn run(self) {
        let halves = || self.from.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
        match self.float {
            FloatType::F32 => {
                let from = self.from.as_chunks::<4>().0;
                self.to.iter_mut().zip(from).for_each(|(to, b)| *to = f32::from_le_bytes(*b));
            }
            FloatType::F16 => self.to.iter_mut().zip(halves()).for_each(|(to, h)| *to = from_f16(h)),
            FloatType::BF16 => self.to.iter_mut().zip(halves()).for_each(|(to, h)| *to = bf16(h)),
        }
    }
}

/// A bf16 as f32, in operations that vectorise.
#[inline(always)]
fn bf16(bits: u16) -> f32 {
    let nan = u32::from(bits & 0x7fff > 0x7f80);
    f32::from_bits(u32::from(bits) << 16 | nan << 22)
}

/// An f16 as f32, in operations that vectorise and meet no f32 subnormals, which some processors are slow with.
#[inline(always)]
pub(super) fn from_f16(bits: u16) -> f32 {
    let (magnitude, mantissa) = (u32::from(bits & 0x7fff) << 13, bits & 0x03ff);
    // the exponents' biases are 15 and 127
    let normal = magnitude + (112 << 23);
    let special = (magnitude + (224 << 23)) | (u32::from(mantissa != 0) << 22);
    // 2^-14 times (1 + mantissa), less 2^-14
    let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let magnitude = match bits & 0x7c00 {
        0 => subnormal,
        0x7c00 => special,
        _ => normal,
    };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

/// # Safety
/// Needs AVX-512F; `from` holds two bytes for each value of `to`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn f16_avx512(from: &[u8], to: &mut [f32]) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm512_cvtph_ps, _mm512_storeu_ps};
    let (from, last_from) = from.as_chunks::<32>();
    let (to, last_to) = to.as_chunks_mut::<16>();
    for (from, to) in from.iter().zip(to) {
        // SAFETY: 32 bytes and 16 values.
        unsafe {
            _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
        };
    }
    Widen { float: FloatType::F16, from: last_from, to: last_to }.run();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_what_the_half_crate_says() {
        // an odd number of them as well, so that there is a rest
        for n in [1usize << 16, (1 << 16) - 3] {
            let bytes: Vec<u8> = (0..n).flat_map(|i| (i as u16).to_le_bytes()).collect();
            for (float, want) in [
                (FloatType::F16, (|b| half::f16::from_bits(b).to_f32()) as fn(u16) -> f32),
                (FloatType::BF16, |b| half::bf16::from_bits(b).to_f32()),
            ] {
                for isa in Isa::available() {
                    let mut got = vec![0f32; n];
                    float.widen(isa, &bytes, &mut got);
                    for (i, got) in got.iter().enumerate() {
                        let want = want(i as u16);
                        assert_eq!(got.to_bits(), want.to_bits(), "{isa:?} {float:?} {i:#x}: {got} {want}");
                    }
                }
                assert_eq!(float.values(&bytes[..2]), [want(0)]);
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_found() {
        for i in 0..=u16::MAX {
            let bytes = [[0, 0], i.to_le_bytes(), [1, 0]];
            let finite = |float: FloatType| float.all_finite(bytes.as_flattened());
            assert_eq!(finite(FloatType::F16), half::f16::from_bits(i).is_finite());
            assert_eq!(finite(FloatType::BF16), half::bf16::from_bits(i).is_finite());
        }
        for (value, finite) in [(f32::MAX, true), (f32::NAN, false), (f32::NEG_INFINITY, false), (-0.0, true)]
        {
            assert_eq!(FloatType::F32.all_finite(&value.to_le_bytes()), finite);
        }
    }

    #[test]
    fn f32_stay_what_they_are() {
        let values = [0.0, -0.0, 1.5, f32::MIN_POSITIVE / 8.0, f32::INFINITY, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&FloatType::F32.values(&bytes)), bits(&values));
    }
}
