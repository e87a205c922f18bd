//! Sixteen f32 lanes, written once per instruction set: the only operations attention is made of.
//!
//! Each rounds as IEEE 754 says, lane by lane, so every instruction set gives the same bits.

use half::f16;

use crate::ops::cpu::floats;

/// Lanes of a vector.
pub(super) const LANES: usize = 16;

/// Sixteen f32 lanes.
///
/// # Safety
/// Everything here needs the processor to have the instruction set; what takes a pointer reads or writes 16 values
/// there.
#[allow(unsafe_code)]
pub trait Lanes: Copy {
    /// Rows of a tile whose sums fit the registers.
    const ROWS: usize;
    /// Vectors of a tile's row, 1 or 2.
    const VECS: usize;

    unsafe fn load(from: *const f32) -> Self;
    /// Widened, exactly.
    unsafe fn load_f16(from: *const f16) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn splat(x: f32) -> Self;
    unsafe fn add(self, x: Self) -> Self;
    unsafe fn sub(self, x: Self) -> Self;
    unsafe fn mul(self, x: Self) -> Self;
    /// `self * x + y`, rounded once.
    unsafe fn fma(self, x: Self, y: Self) -> Self;
    /// `self` where it is greater, else `x`; so `x` where either is no number.
    unsafe fn max(self, x: Self) -> Self;
    /// Adds the low bits of `n` to the exponents: `self * 2^n` where `n` holds `n + 1.5 * 2^23`.
    unsafe fn times_power(self, n: Self) -> Self;

    /// `2^x` for `x <= 0`: [`crate::ops::cpu::exp::exp2`], lane by lane, with what it says of NaNs.
    #[inline(always)]
    unsafe fn exp2(self) -> Self {
        use crate::ops::cpu::exp::{EXP2, LEAST, ROUND};
        // SAFETY: the caller's promise.
        unsafe {
            let x = Self::splat(LEAST).max(self);
            let shifted = x.add(Self::splat(ROUND));
            let r = x.sub(shifted.sub(Self::splat(ROUND)));
            let mut p = Self::splat(EXP2[0]);
            for c in &EXP2[1..] {
                p = p.fma(r, Self::splat(*c));
            }
            p.times_power(shifted)
        }
    }

    /// Asks for the cache line at `at` to come to the L2 cache; it need not exist.
    #[inline(always)]
    unsafe fn prefetch<T>(_at: *const T) {}

    /// The greatest lane.
    #[inline(always)]
    unsafe fn greatest(self) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.tree(|a, b| if a > b { a } else { b }) }
    }

    /// The sum of the lanes.
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.tree(|a, b| a + b) }
    }

    /// All lanes in one by a fixed tree: 16 → 8 → 4 → 2 → 1.
    #[inline(always)]
    unsafe fn tree(self, f: impl Fn(f32, f32) -> f32) -> f32 {
        let mut x = [0f32; LANES];
        // SAFETY: the array holds 16 values.
        unsafe { self.store(x.as_mut_ptr()) };
        let x: [f32; 8] = std::array::from_fn(|i| f(x[i], x[i + 8]));
        let x: [f32; 4] = std::array::from_fn(|i| f(x[i], x[i + 4]));
        let x: [f32; 2] = std::array::from_fn(|i| f(x[i], x[i + 2]));
        f(x[0], x[1])
    }
}

/// Whatever the compiler makes of plain loops.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; LANES]);

impl Plain {
    #[inline(always)]
    fn zip(self, x: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], x.0[i])))
    }
}

#[allow(unsafe_code)]
impl Lanes for Plain {
    const ROWS: usize = 6;
    const VECS: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array needs no more alignment than its values.
        Self(unsafe { from.cast::<[f32; LANES]>().read() })
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: as in `load`.
        Self(unsafe { from.cast::<[u16; LANES]>().read() }.map(floats::from_f16))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[f32; LANES]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    unsafe fn add(self, x: Self) -> Self {
        self.zip(x, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, x: Self) -> Self {
        self.zip(x, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, x: Self) -> Self {
        self.zip(x, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn fma(self, x: Self, y: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(x.0[i], y.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, x: Self) -> Self {
        self.zip(x, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn times_power(self, n: Self) -> Self {
        self.zip(n, |p, n| f32::from_bits(p.to_bits().wrapping_add(n.to_bits() << 23)))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, f16};

    /// One 512-bit vector: of 32 registers, 14 × 2 hold sums.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(__m512);

    impl Lanes for Avx512 {
        const ROWS: usize = 14;
        const VECS: usize = 2;

        // SAFETY (every body below): the caller's promise about the instruction set and the pointer.
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm512_loadu_ps(from) })
        }
        #[inline(always)]
        unsafe fn load_f16(from: *const f16) -> Self {
            Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(x) })
        }
        #[inline(always)]
        unsafe fn prefetch<T>(at: *const T) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
        }
        #[inline(always)]
        unsafe fn add(self, x: Self) -> Self {
            Self(unsafe { _mm512_add_ps(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn sub(self, x: Self) -> Self {
            Self(unsafe { _mm512_sub_ps(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn mul(self, x: Self) -> Self {
            Self(unsafe { _mm512_mul_ps(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn fma(self, x: Self, y: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(self.0, x.0, y.0) })
        }
        #[inline(always)]
        unsafe fn max(self, x: Self) -> Self {
            Self(unsafe { _mm512_max_ps(self.0, x.0) })
        }
        #[inline(always)]
        unsafe fn times_power(self, n: Self) -> Self {
            unsafe {
                let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(n.0));
                Self(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), n)))
            }
        }
    }

    /// Two 256-bit vectors: of 16 registers, 6 × 2 hold sums.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2([__m256; 2]);

    impl Lanes for Avx2 {
        const ROWS: usize = 6;
        const VECS: usize = 1;

        // SAFETY (every body below): the caller's promise about the instruction set and the pointer.
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] })
        }
        #[inline(always)]
        unsafe fn load_f16(from: *const f16) -> Self {
            let half = |at: usize| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast())) };
            Self([half(0), half(8)])
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                _mm256_storeu_ps(to, self.0[0]);
                _mm256_storeu_ps(to.add(8), self.0[1]);
            }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            Self(unsafe { [_mm256_set1_ps(x); 2] })
        }
        #[inline(always)]
        unsafe fn prefetch<T>(at: *const T) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
        }
        #[inline(always)]
        unsafe fn add(self, x: Self) -> Self {
            Self(unsafe { [_mm256_add_ps(self.0[0], x.0[0]), _mm256_add_ps(self.0[1], x.0[1])] })
        }
        #[inline(always)]
        unsafe fn sub(self, x: Self) -> Self {
            Self(unsafe { [_mm256_sub_ps(self.0[0], x.0[0]), _mm256_sub_ps(self.0[1], x.0[1])] })
        }
        #[inline(always)]
        unsafe fn mul(self, x: Self) -> Self {
            Self(unsafe { [_mm256_mul_ps(self.0[0], x.0[0]), _mm256_mul_ps(self.0[1], x.0[1])] })
        }
        #[inline(always)]
        unsafe fn fma(self, x: Self, y: Self) -> Self {
            Self(unsafe {
                [_mm256_fmadd_ps(self.0[0], x.0[0], y.0[0]), _mm256_fmadd_ps(self.0[1], x.0[1], y.0[1])]
            })
        }
        #[inline(always)]
        unsafe fn max(self, x: Self) -> Self {
            Self(unsafe { [_mm256_max_ps(self.0[0], x.0[0]), _mm256_max_ps(self.0[1], x.0[1])] })
        }
        #[inline(always)]
        unsafe fn times_power(self, n: Self) -> Self {
            let one = |p: __m256, n: __m256| unsafe {
                let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n))
            };
            Self([one(self.0[0], n.0[0]), one(self.0[1], n.0[1])])
        }
    }
}
