//! Activations in eight bits: each row in groups of 32 values that share a scale.

use crate::ops::cpu::{
    buffer::{Number, Scratch},
    disjoint::Disjoint,
    exp::ROUND,
    tile::{Isa, Vectorised},
};

/// Values that share a scale.
pub const GROUP: usize = 32;
/// Values whose codes are summed: the finest group of any weight format.
pub const SUM: usize = 16;
/// A group of smaller values is a group of zeros.
const LEAST: f32 = 1e-30;

/// Rows of signed codes: `x ≈ scale · code`, with `scale = max |x| / 127` over each group of [`GROUP`].
///
/// A group that holds an infinity or a NaN has the scale NaN, so that what is computed from it is NaN as well.
#[derive(Default)]
pub struct QuantRows {
    k: usize,
    codes: Scratch<i8>,
    groups: Scratch<Group>,
}

/// What a group has beside its codes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Group {
    /// What codes are multiplied with.
    pub scale: f32,
    /// Minus the sum of all codes: what a weight format with a zero point is corrected with.
    pub minus_sum: i32,
    /// Minus the sum of each [`SUM`] codes, for weights in groups of so many.
    pub minus_sums: [i32; GROUP / SUM],
    /// `minus_sum · scale`, for formats with minima.
    pub minus: f32,
}

impl QuantRows {
    /// Makes room for `rows` rows of `k` values (a multiple of [`GROUP`]); keeps the memory it has.
    pub fn resize(&mut self, rows: usize, k: usize) {
        assert!(k.is_multiple_of(GROUP), "{k} values in groups of {GROUP}: this is a bug");
        // no row of any width, should one of these find no memory
        self.k = 0;
        self.codes.resize(rows * k);
        self.groups.resize(rows * k / GROUP);
        self.k = k;
    }

    /// Values of a row.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.codes.len().checked_div(self.k).unwrap_or(0)
    }

    /// Row `r`: codes `[k]`, groups `[k / 32]`.
    #[must_use]
    pub fn row(&self, r: usize) -> (&[i8], &[Group]) {
        self.some_rows(r, 1)
    }

    /// `n` rows from `first` on: codes `[n, k]`, groups `[n, k / 32]`.
    #[must_use]
    pub fn some_rows(&self, first: usize, n: usize) -> (&[i8], &[Group]) {
        let (k, groups) = (self.k, self.k / GROUP);
        (&self.codes[first * k..][..n * k], &self.groups[first * groups..][..n * groups])
    }

    /// The rows, to be filled by tasks side by side.
    pub(crate) fn slots(&mut self) -> Slots<'_> {
        Slots { k: self.k, codes: Disjoint::new(&mut self.codes), groups: Disjoint::new(&mut self.groups) }
    }
}

/// Rows to be filled by several tasks.
pub(crate) struct Slots<'a> {
    k: usize,
    codes: Disjoint<'a, i8>,
    groups: Disjoint<'a, Group>,
}

impl Slots<'_> {
    /// Quantises `x [k]` into row `r`.
    ///
    /// # Safety
    /// Nobody else fills row `r` at the same time.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn fill(&self, isa: Isa, r: usize, x: &[f32]) {
        let groups = self.k / GROUP;
        // SAFETY: the groups of row `r`, which is this task's by the caller's promise.
        unsafe { self.fill_groups(isa, r * groups, &x.as_chunks().0[..groups]) };
    }

    /// Quantises group `g` of row `r`.
    ///
    /// # Safety
    /// Nobody else fills this group at the same time.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn fill_group(&self, isa: Isa, r: usize, g: usize, x: &[f32; GROUP]) {
        // SAFETY: the caller's promise.
        unsafe { self.fill_groups(isa, r * (self.k / GROUP) + g, std::slice::from_ref(x)) };
    }

    /// Groups from `at` on, counted over all rows.
    #[allow(unsafe_code)]
    unsafe fn fill_groups(&self, isa: Isa, at: usize, x: &[[f32; GROUP]]) {
        // SAFETY: nobody else fills these groups, by the caller's promise.
        let (codes, groups) =
            unsafe { (self.codes.part(at * GROUP, x.len() * GROUP), self.groups.part(at, x.len())) };
        fill(isa, x, codes.as_chunks_mut().0, groups);
    }
}

/// Quantises groups.
fn fill(isa: Isa, x: &[[f32; GROUP]], codes: &mut [[i8; GROUP]], groups: &mut [Group]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx512() {
        for ((x, codes), group) in x.iter().zip(codes).zip(groups) {
            // SAFETY: the processor has the features.
            #[allow(unsafe_code)]
            unsafe {
                *group = group_avx512(x, codes);
            }
        }
        return;
    }
    isa.run(Fill { x, codes, groups });
}

// SAFETY: five numbers of four bytes.
#[allow(unsafe_code)]
unsafe impl Number for Group {}

impl Group {
    #[inline(always)]
    fn new(scale: f32, minus_sums: [i32; GROUP / SUM]) -> Self {
        let minus_sum = minus_sums[0] + minus_sums[1];
        Self { scale, minus_sum, minus_sums, minus: minus_sum as f32 * scale }
    }
}

struct Fill<'a> {
    x: &'a [[f32; GROUP]],
    codes: &'a mut [[i8; GROUP]],
    groups: &'a mut [Group],
}

impl Vectorised for Fill<'_> {
    #[inline(always)]
    fn run(self) {
        for ((x, codes), to) in self.x.iter().zip(self.codes).zip(self.groups) {
            let scale = group(x, codes);
            let mut minus_sums = [0; GROUP / SUM];
            for (sum, part) in minus_sums.iter_mut().zip(codes.as_chunks::<SUM>().0) {
                *sum = -part.iter().map(|&c| i32::from(c)).sum::<i32>();
            }
            *to = Group::new(scale, minus_sums);
        }
    }
}

/// Quantises one group; its scale.
#[inline(always)]
fn group(x: &[f32; GROUP], codes: &mut [i8; GROUP]) -> f32 {
    // the magnitude bits of floats order like integers, with infinities and NaNs at the end
    let mut top = 0u32;
    for v in x {
        top = top.max(v.to_bits() & 0x7fff_ffff);
    }
    let max = f32::from_bits(top);
    if !(LEAST..=f32::MAX).contains(&max) {
        codes.fill(0);
        return if max < LEAST { 0.0 } else { f32::NAN };
    }
    let inverse = 127.0 / max;
    for (code, v) in codes.iter_mut().zip(x) {
        *code = ((v * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32) as i8;
    }
    max / 127.0
}

/// As [`Fill`], one group: what the compiler makes of the plain loops is three times slower.
///
/// # Safety
/// Needs AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn group_avx512(x: &[f32; GROUP], codes: &mut [i8; GROUP]) -> Group {
    use std::arch::x86_64::{
        _mm_storeu_si128, _mm512_abs_ps, _mm512_castps_si512, _mm512_cvtepi32_epi8, _mm512_cvtps_epi32,
        _mm512_loadu_ps, _mm512_max_epu32, _mm512_mul_ps, _mm512_reduce_add_epi32, _mm512_reduce_max_epu32,
        _mm512_set1_ps,
    };
    // SAFETY: two vectors of 16 values, two of 16 codes.
    let x = unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(SUM))] };
    let bits = x.map(|x| _mm512_castps_si512(_mm512_abs_ps(x)));
    let max = f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(bits[0], bits[1])));
    if !(LEAST..=f32::MAX).contains(&max) {
        codes.fill(0);
        return Group::new(if max < LEAST { 0.0 } else { f32::NAN }, [0; GROUP / SUM]);
    }
    let mut minus_sums = [0; GROUP / SUM];
    let inverse = _mm512_set1_ps(127.0 / max);
    for (half, x) in x.into_iter().enumerate() {
        // to the nearest integer, ties to even
        let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
        minus_sums[half] = -_mm512_reduce_add_epi32(rounded);
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(codes.as_mut_ptr().add(half * SUM).cast(), _mm512_cvtepi32_epi8(rounded)) };
    }
    Group::new(max / 127.0, minus_sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(isa: Isa, x: &[f32], k: usize) -> QuantRows {
        let mut rows = QuantRows::default();
        rows.resize(x.len() / k, k);
        let slots = rows.slots();
        for (r, x) in x.chunks_exact(k).enumerate() {
            // SAFETY: one row after the other.
            #[allow(unsafe_code)]
            unsafe {
                slots.fill(isa, r, x);
            }
        }
        rows
    }

    #[test]
    fn a_code_is_the_nearest_and_every_isa_agrees() {
        let x: Vec<f32> =
            (0..192).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013 * (1 + i / 40) as f32).collect();
        for isa in Isa::available() {
            let rows = filled(isa, &x, 96);
            for (r, x) in x.chunks_exact(96).enumerate() {
                let (codes, groups) = rows.row(r);
                for (i, v) in x.iter().enumerate() {
                    let (code, scale) = (f32::from(codes[i]), groups[i / GROUP].scale);
                    assert!((code * scale - v).abs() <= scale * 0.5001, "{v}: {code} x {scale}");
                }
                for ((group, codes), x) in
                    groups.iter().zip(codes.chunks_exact(GROUP)).zip(x.chunks_exact(GROUP))
                {
                    let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
                    assert_eq!(group.minus_sums, [-sum(&codes[..SUM]), -sum(&codes[SUM..])]);
                    assert_eq!(
                        (group.minus_sum, group.minus),
                        (-sum(codes), -sum(codes) as f32 * group.scale)
                    );
                    let max = x.iter().fold(0f32, |m, v| m.max(v.abs()));
                    assert_eq!(group.scale, max / 127.0);
                    assert!(codes.iter().any(|c| c.unsigned_abs() == 127));
                }
            }
        }
    }

    /// Groups that rounding, limits or signs may tell apart, in one row.
    fn hard() -> Vec<f32> {
        let group = |of: &dyn Fn(usize) -> f32| (0..GROUP).map(of).collect::<Vec<_>>();
        let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        // the scale is 1, so that k + 0.5 is a tie
        let ties = |from: f32| group(&|i| if i == 0 { 127.0 } else { sign(i / 3) * (from + i as f32 + 0.5) });
        let mut all = vec![ties(-2.0), ties(31.0), ties(94.0)];
        // the same by a power of two, and -127 for the largest
        all.push(ties(-1.0).iter().map(|v| v * 2f32.powi(-20)).collect());
        all.push(ties(-1.0).iter().map(|v| v * -2f32.powi(40)).collect());
        for top in [1e-30, 0.999e-30, 1.001e-30, 1e-38, f32::MIN_POSITIVE, 1e-45, 3.4e38, f32::MAX, 1.0, 0.0]
        {
            all.push(group(&|i| sign(i) * top * (1.0 - i as f32 / 40.0)));
            all.push(group(&|i| if i == 17 { -top } else { 0.0 }));
        }
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            all.push(group(&|i| if i == 31 { bad } else { i as f32 }));
        }
        all.extend((1..40).map(|g| group(&|i| ((i * 7919 + g * 104_729) % 65_537) as f32 / 997.0 - 30.0)));
        all.concat()
    }

    #[test]
    fn every_isa_gives_the_same_codes_scales_and_sums() {
        let x = hard();
        // all fields; a NaN is a NaN
        let bits = |v: f32| if v.is_nan() { None } else { Some(v.to_bits()) };
        let all = |rows: &QuantRows| {
            let (codes, groups) = rows.row(0);
            let group = |g: &Group| (bits(g.scale), g.minus_sum, g.minus_sums, bits(g.minus));
            (codes.to_vec(), groups.iter().map(group).collect::<Vec<_>>())
        };
        let want = all(&filled(Isa::PORTABLE, &x, x.len()));
        for isa in Isa::available() {
            let got = all(&filled(isa, &x, x.len()));
            for (g, of_group) in want.0.chunks_exact(GROUP).enumerate() {
                let x = &x[g * GROUP..][..GROUP];
                assert_eq!(&got.0[g * GROUP..][..GROUP], of_group, "{isa:?}: codes of {x:?}");
                assert_eq!(got.1[g], want.1[g], "{isa:?}: {x:?}");
            }
        }
        // and plain code rounds ties to even
        for (x, code) in x.iter().zip(&want.0).take(3 * GROUP) {
            assert_eq!(f32::from(*code), x.round_ties_even(), "{x}");
        }
    }

    #[test]
    fn what_is_no_number_makes_its_group_nan_and_nothing_is_nothing() {
        for isa in Isa::available() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
                let mut x = vec![1.0; 96];
                x[40] = bad;
                x[64..].fill(1e-38);
                let rows = filled(isa, &x, 96);
                let (codes, groups) = rows.row(0);
                assert_eq!((codes[0], groups[0].scale), (127, 1.0 / 127.0));
                assert!(groups[1].scale.is_nan());
                assert_eq!((codes[70], groups[2].scale), (0, 0.0));
            }
        }
    }
}
