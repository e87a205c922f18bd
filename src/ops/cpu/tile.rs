//! Instruction sets, and the f32 micro-kernel of plain matrices and attention rows: a tile of up to 12 rows by 32 columns.
//! (Attention's own tiles: `attention/product.rs`.)
//!
//! `C[r][j] (+)= Σ_i A[r][i] · B[i][j]` with `i` ascending, one fused multiply-add per term, starting from
//! zero or from the value already in `C`. Splitting the sum over `i` into several accumulating calls
//! therefore changes nothing, and neither does the number of rows in a call.

use std::{fmt, sync::OnceLock};

/// Columns of a tile: two 512-bit or four 256-bit vectors, and the number of keys in a KV block.
pub const COLS: usize = 32;
/// Most rows of a tile: 12 × 2 accumulators leave 8 of the 32 vector registers for operands.
pub const ROWS: usize = 12;

/// Which instruction set a kernel may use. Only what this processor has can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    kind: Kind,
    /// Intel's tile registers as well, beside [`Kind::Avx512Vnni`]: only the quantised products know them.
    amx: bool,
    /// 8-bit dot products of 256-bit vectors as well, beside [`Kind::Avx2`]: only the quantised products know them.
    avx_vnni: bool,
}

/// The instruction sets by name, for kernels that are written once per set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// [`Kind::Avx512`] with 8-bit dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256-bit vectors with fused multiply-add, and conversions of f16.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Whatever the compiler makes of plain loops (NEON on aarch64).
    Portable,
}

/// The name people know it by.
impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni if self.amx => "AMX and AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 if self.avx_vnni => "AVX2 and AVX-VNNI",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            Kind::Portable => "plain code",
        })
    }
}

/// Plain code that is worth compiling for wide vectors. `run` is to be `#[inline(always)]`.
pub(crate) trait Vectorised {
    /// Does the work.
    fn run(self);
}

impl Isa {
    /// The best this processor has; looked up once.
    #[must_use]
    pub fn detect() -> Self {
        static ISA: OnceLock<Isa> = OnceLock::new();
        *ISA.get_or_init(|| Self::available()[0])
    }

    const fn of(kind: Kind) -> Self {
        Self { kind, amx: false, avx_vnni: false }
    }

    /// What every processor has: the slow twin of the others.
    pub const PORTABLE: Self = Self::of(Kind::Portable);

    /// All that this processor has, best first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            #[cfg(target_os = "linux")]
            all.extend(super::quant::amx::detect());
            if processor_has_vnni() {
                all.push(Self::of(Kind::Avx512Vnni));
            }
            if processor_has_avx512() {
                all.push(Self::of(Kind::Avx512));
            }
            if processor_has_avx2() {
                if is_x86_feature_detected!("avxvnni") {
                    all.push(Self { avx_vnni: true, ..Self::of(Kind::Avx2) });
                }
                all.push(Self::of(Kind::Avx2));
            }
        }
        all.push(Self::PORTABLE);
        all
    }

    /// AMX with AVX-512 VNNI, on the caller's word instead of CPUID's: for systems that emulate AMX. None when the
    /// processor has no AVX-512 VNNI, or when AMX fails the test that it has to pass in [`Self::available`] too.
    ///
    /// # Safety
    /// AMX-TILE and AMX-INT8 instructions can be executed in every thread of this process.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn assume_amx() -> Option<Self> {
        let isa = Self { amx: true, ..Self::of(Kind::Avx512Vnni) };
        (processor_has_vnni() && super::quant::amx::agrees(isa)).then_some(isa)
    }

    /// Which vectors; only what the processor has is ever named.
    pub(crate) fn kind(self) -> Kind {
        self.kind
    }

    /// AVX-512 F and BW.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx512(self) -> bool {
        matches!(self.kind, Kind::Avx512 | Kind::Avx512Vnni)
    }

    /// AVX-512 F, BW and VNNI.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_vnni(self) -> bool {
        self.kind == Kind::Avx512Vnni
    }

    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx2(self) -> bool {
        self.kind != Kind::Portable
    }

    /// AVX-VNNI, and all of [`Self::has_avx2`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx_vnni(self) -> bool {
        self.avx_vnni
    }

    /// AMX-TILE and AMX-INT8, and all of [`Self::has_vnni`].
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn has_amx(self) -> bool {
        self.amx
    }

    /// Runs `work` compiled for this instruction set. The operations are the same on each, and so are the bits.
    pub(crate) fn run(self, work: impl Vectorised) {
        // SAFETY: an `Isa` is only made for what the processor has.
        #[allow(unsafe_code)]
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_unsafe))]
        // plain code asks for no promise
        unsafe {
            match self.kind {
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512Vnni | Kind::Avx512 => run_avx512(work),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => run_avx2(work),
                Kind::Portable => work.run(),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn processor_has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn processor_has_avx512() -> bool {
    processor_has_avx2() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

#[cfg(target_arch = "x86_64")]
fn processor_has_vnni() -> bool {
    processor_has_avx512() && is_x86_feature_detected!("avx512vnni")
}

/// # Safety
/// Needs AVX-512 F and BW, and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,fma")]
#[allow(unsafe_code)]
unsafe fn run_avx512(work: impl Vectorised) {
    work.run();
}

/// # Safety
/// Needs AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn run_avx2(work: impl Vectorised) {
    work.run();
}

/// What a tile's sums start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Zero.
    Zero,
    /// The values already in `C`.
    FromC,
}

/// The left operand: `rows` rows of `len` values, `stride` apart.
#[derive(Clone, Copy)]
pub struct Lhs<'a> {
    /// Row `r` is `data[r * stride..][..len]`.
    pub data: &'a [f32],
    /// Distance between rows.
    pub stride: usize,
    /// Number of rows, 1 to [`ROWS`].
    pub rows: usize,
    /// Values per row: the length of the sums.
    pub len: usize,
}

/// One tile. `b` is `[a.len][32]`; row `r` of C is `c[r * c_stride..][..32]`.
///
/// # Panics
/// When a slice is too short for its shape: that is a bug in the caller.
pub fn tile(isa: Isa, a: Lhs<'_>, b: &[f32], c: &mut [f32], c_stride: usize, start: Start) {
    assert!((1..=ROWS).contains(&a.rows), "tile of {} rows: this is a bug", a.rows);
    let reaches = |stride: usize, len: usize| (a.rows - 1).checked_mul(stride)?.checked_add(len);
    assert!(
        a.len == 0 || reaches(a.stride, a.len).is_some_and(|n| n <= a.data.len()),
        "short A: this is a bug"
    );
    assert!(a.len.checked_mul(COLS).is_some_and(|n| n <= b.len()), "short B: this is a bug");
    assert!(reaches(c_stride, COLS).is_some_and(|n| n <= c.len()), "short C: this is a bug");
    // SAFETY: the asserts above are `tile_unchecked`'s preconditions.
    #[allow(unsafe_code)]
    unsafe {
        tile_unchecked(isa, a, b.as_ptr(), c.as_mut_ptr(), c_stride, start);
    }
}

/// [`tile`] on raw memory, for callers whose threads write disjoint columns of one matrix.
///
/// # Safety
/// `a` must hold its rows; `b` must be readable for `a.len * 32` values; row `r < a.rows` of `c` must be
/// readable and writable for 32 values at `c + r * c_stride`, and no other thread may touch them.
#[allow(unsafe_code)]
pub(crate) unsafe fn tile_unchecked(
    isa: Isa,
    a: Lhs<'_>,
    b: *const f32,
    c: *mut f32,
    c_stride: usize,
    start: Start,
) {
    macro_rules! rows {
        ($kernel:ident) => {
            match a.rows {
                1 => $kernel::<1>(a, b, c, c_stride, start),
                2 => $kernel::<2>(a, b, c, c_stride, start),
                3 => $kernel::<3>(a, b, c, c_stride, start),
                4 => $kernel::<4>(a, b, c, c_stride, start),
                5 => $kernel::<5>(a, b, c, c_stride, start),
                6 => $kernel::<6>(a, b, c, c_stride, start),
                7 => $kernel::<7>(a, b, c, c_stride, start),
                8 => $kernel::<8>(a, b, c, c_stride, start),
                9 => $kernel::<9>(a, b, c, c_stride, start),
                10 => $kernel::<10>(a, b, c, c_stride, start),
                11 => $kernel::<11>(a, b, c, c_stride, start),
                _ => $kernel::<12>(a, b, c, c_stride, start),
            }
        };
    }
    // SAFETY: the caller's promise; an `Isa` is only made for what the processor has.
    unsafe {
        match isa.kind {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni | Kind::Avx512 => rows!(avx512),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => rows!(avx2),
            Kind::Portable => rows!(portable),
        }
    }
}

/// # Safety
/// As [`tile_unchecked`], with AVX-512F and `a.rows == R`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn avx512<const R: usize>(a: Lhs<'_>, b: *const f32, c: *mut f32, c_stride: usize, start: Start) {
    use std::arch::x86_64::{
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    // SAFETY: all addresses are inside the ranges the caller promises.
    unsafe {
        let mut sum = [[_mm512_setzero_ps(); 2]; R];
        if start == Start::FromC {
            for (r, s) in sum.iter_mut().enumerate() {
                let row = c.add(r * c_stride);
                *s = [_mm512_loadu_ps(row), _mm512_loadu_ps(row.add(16))];
            }
        }
        let x = a.data.as_ptr();
        for i in 0..a.len {
            let b0 = _mm512_loadu_ps(b.add(i * COLS));
            let b1 = _mm512_loadu_ps(b.add(i * COLS + 16));
            for (r, s) in sum.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(r * a.stride + i));
                s[0] = _mm512_fmadd_ps(x, b0, s[0]);
                s[1] = _mm512_fmadd_ps(x, b1, s[1]);
            }
        }
        for (r, s) in sum.iter().enumerate() {
            let row = c.add(r * c_stride);
            _mm512_storeu_ps(row, s[0]);
            _mm512_storeu_ps(row.add(16), s[1]);
        }
    }
}

/// Sixteen 256-bit registers hold 6 × 2 accumulators: the tile is done in quarters (6 rows × 16 columns).
///
/// # Safety
/// As [`tile_unchecked`], with AVX2 and FMA and `a.rows == R`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn avx2<const R: usize>(a: Lhs<'_>, b: *const f32, c: *mut f32, c_stride: usize, start: Start) {
    use std::arch::x86_64::{
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    // SAFETY: all addresses are inside the ranges the caller promises; `n <= 6` rows from `first`.
    unsafe {
        for half in 0..2 {
            let (b, c) = (b.add(half * 16), c.add(half * 16));
            let mut first = 0;
            while first < R {
                let n = (R - first).min(6);
                let mut sum = [[_mm256_setzero_ps(); 2]; 6];
                if start == Start::FromC {
                    for (r, s) in sum.iter_mut().enumerate().take(n) {
                        let row = c.add((first + r) * c_stride);
                        *s = [_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8))];
                    }
                }
                let x = a.data.as_ptr().add(first * a.stride);
                for i in 0..a.len {
                    let b0 = _mm256_loadu_ps(b.add(i * COLS));
                    let b1 = _mm256_loadu_ps(b.add(i * COLS + 8));
                    for (r, s) in sum.iter_mut().enumerate().take(n) {
                        let x = _mm256_set1_ps(*x.add(r * a.stride + i));
                        s[0] = _mm256_fmadd_ps(x, b0, s[0]);
                        s[1] = _mm256_fmadd_ps(x, b1, s[1]);
                    }
                }
                for (r, s) in sum.iter().enumerate().take(n) {
                    let row = c.add((first + r) * c_stride);
                    _mm256_storeu_ps(row, s[0]);
                    _mm256_storeu_ps(row.add(8), s[1]);
                }
                first += n;
            }
        }
    }
}

/// # Safety
/// As [`tile_unchecked`], with `a.rows == R`.
#[allow(unsafe_code)]
unsafe fn portable<const R: usize>(a: Lhs<'_>, b: *const f32, c: *mut f32, c_stride: usize, start: Start) {
    // SAFETY: the caller's promise.
    unsafe {
        let b = std::slice::from_raw_parts(b, a.len * COLS);
        for r in 0..R {
            let out = std::slice::from_raw_parts_mut(c.add(r * c_stride), COLS);
            let mut sum = [0f32; COLS];
            if start == Start::FromC {
                sum.copy_from_slice(out);
            }
            for (&x, b) in a.data[r * a.stride..][..a.len].iter().zip(b.chunks_exact(COLS)) {
                for (s, &b) in sum.iter_mut().zip(b) {
                    *s = x.mul_add(b, *s);
                }
            }
            out.copy_from_slice(&sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic values with a few outliers, in `[-1, 1]` mostly.
    fn values(n: usize, seed: u32) -> Vec<f32> {
        let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        (0..n)
            .map(|i| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let v = (x >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
                if i % 37 == 5 { v * 40.0 } else { v }
            })
            .collect()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits_for_any_number_of_rows() {
        for len in [0, 1, 7, 64, 131] {
            let (a, b) = (values(ROWS * (len + 3), 1), values(len * COLS, 2));
            let before = values(ROWS * 40, 3);
            for start in [Start::Zero, Start::FromC] {
                // the truth: one row at a time, one chain of multiply-adds per element
                let mut truth = before.clone();
                for r in 0..ROWS {
                    for j in 0..COLS {
                        let out = &mut truth[r * 40 + j];
                        let mut s = if start == Start::FromC { *out } else { 0.0 };
                        for i in 0..len {
                            s = a[r * (len + 3) + i].mul_add(b[i * COLS + j], s);
                        }
                        *out = s;
                    }
                }
                for isa in Isa::available() {
                    for rows in 1..=ROWS {
                        let mut c = before.clone();
                        tile(isa, Lhs { data: &a, stride: len + 3, rows, len }, &b, &mut c, 40, start);
                        assert_eq!(c[..rows * 40], truth[..rows * 40], "{isa:?} rows {rows} len {len}");
                        assert_eq!(c[rows * 40..], before[rows * 40..], "wrote past its rows");
                    }
                }
            }
        }
    }
}
