//! The dot kernel on Intel's tile registers (AMX-INT8), for many rows: the bits of `dot.rs`, by its formula.
//!
//! A *strip* of up to 32 rows passes over a slice ([`Expanded`]) group by group. Tiles multiply a group exactly, in integers
//! (`TDPBSUD`: signed activations, unsigned codes as they lie in the slice), and put the sums into a [`Buffer`];
//! AVX-512 corrects, scales and adds them in the order that `dot.rs` fixes, one batch of groups later, so that a
//! processor that looks ahead multiplies one batch while it adds the one before.
//!
//! ```text
//! tmm0 tmm1   rows 0 ..16 of the strip, outputs 0..16 and 16..32   =   tmm4   ·   tmm6 tmm7
//! tmm2 tmm3   its last 16 rows (they may overlap the first)            tmm5       (codes)
//! ```
//!
//! All strips of a call have tiles of one shape, so tiles are configured once and released at the end; released
//! tiles cost the system nothing when it switches threads. A few rows are `few.rs`'s.
//!
//! **Not measured: no processor with AMX has run this.** What published numbers allow: the tile unit multiplies a row
//! of activations per cycle, 16 cycles for a tile, by codes of up to 64 inputs; loading a tile's row takes half a cycle,
//! storing it one; a core does two vector operations, two loads and a store of 64 bytes per cycle. Then a group of 32
//! inputs with 32 rows and 32 outputs takes 64 cycles of the tile unit, which it fills by half; 96 of the stores (64 for
//! the sums, 32 for `y`); 128 of the vector units (convert, multiply, add, correct for zero or minimum: 4 · 64);
//! 136 of the loads. At best that is 240 multiply-adds per cycle, a quarter of the peak of 1024; with groups of 16
//! inputs an eighth. By the same count `dot.rs` gets 85 (of 128), and 68 with groups of 16. It is the scales that
//! cost: integers over longer groups would come nearer to the peak.
//!
//! Knows slices and rows, no matrices. Tests: `tests/amx/`, on any processor with AVX-512 VNNI, through an emulator of
//! the tile instructions; and [`agrees`], which runs before AMX is ever used.

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _xgetbv},
    },
    cell::RefCell,
    marker::PhantomData,
    ops::Range,
    sync::OnceLock,
};

use super::{
    dot::{Left, Out, Shape, dot},
    rows::QuantRows,
    slice::{Expanded, SLICE, Slice},
    stored::TILE,
};
use crate::ops::cpu::tile::{COLS, Isa};

/// Most rows of a tile.
const TILE_ROWS: usize = 16;
/// Most rows of a strip: two tiles.
const STRIP: usize = 2 * TILE_ROWS;
/// Groups that are multiplied before the batch before is added: halves the traffic of `y`.
const BATCH: usize = 2;
/// Most groups of a slice.
const GROUPS: usize = 2 * SLICE;
/// Bytes from row to row of the sums and of the codes: 32 outputs of 4 bytes.
const STRIDE: usize = 4 * COLS;

/// Tiles configured for a number of rows and a shape, on this thread, until dropped.
///
/// Nothing else in this program touches tiles, and the compiler does not use them, so they stay configured.
pub(super) struct Tiles {
    rows: usize,
    shape: Shape,
    /// Tiles belong to a thread.
    this_thread: PhantomData<*const ()>,
}

/// What `LDTILECFG` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Tiles 0 to 3 hold sums, 4 and 5 activations, 6 and 7 codes of a group; `rows` is at most [`TILE_ROWS`].
    fn new(rows: usize, group: usize) -> Self {
        let (rows, inputs, steps) = (rows as u8, group as u16, (group / 4) as u8);
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].copy_from_slice(&[64, 64, 64, 64, inputs, inputs, 64, 64]);
        config.rows[..8].copy_from_slice(&[rows, rows, rows, rows, rows, rows, steps, steps]);
        config
    }
}

impl Tiles {
    /// None where there are no tiles.
    pub(super) fn configure(isa: Isa, rows: usize, shape: Shape) -> Option<Self> {
        if !isa.has_amx() {
            return None;
        }
        let config = Config::new(rows.min(TILE_ROWS), TILE / shape.per_tile());
        // SAFETY: the processor has AMX and the system gave it to us, or `isa` would not say so. The configuration is
        // valid: palette 1, at most 16 rows of at most 64 bytes. It zeroes all tiles.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "ldtilecfg [{config}]", config = in(reg) &raw const config,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
        Some(Self { rows, shape, this_thread: PhantomData })
    }

    /// As [`dot`], for all the rows that the tiles were configured for.
    ///
    /// # Safety
    /// `out` is as it says for `a.rows` rows.
    #[allow(unsafe_code)]
    pub(super) unsafe fn dot(&self, a: Left<'_>, b: Expanded<'_>, out: Out) {
        let tiles_exist = a.tiles <= SLICE && (a.tile + a.tiles) * TILE <= a.x.k();
        let rows_exist = a.rows == self.rows && a.row + a.rows <= a.x.rows();
        assert!(tiles_exist && rows_exist, "rows {} + {}: this is a bug", a.row, a.rows);
        let strip = match (self.shape.zero > 0, self.shape.mins) {
            (false, false) => strip::<false, false>,
            (false, true) => strip::<false, true>,
            (true, false) => strip::<true, false>,
            (true, true) => strip::<true, true>,
        };
        // every strip fills a tile: one alone by configuration, and of several each has 16 rows at least
        let strips = a.rows.div_ceil(STRIP);
        BUFFER.with_borrow_mut(|buffer| {
            for s in 0..strips {
                let (from, to) = (s * a.rows / strips, (s + 1) * a.rows / strips);
                let a = Left { row: a.row + from, rows: to - from, ..a };
                // SAFETY: these rows of `out` are the caller's; the rows and tiles of `a` exist by the assertion; the
                // tiles are configured, and the processor has AVX-512 where it has AMX.
                unsafe {
                    let out = Out { to: out.to.add(from * out.stride), ..out };
                    strip(buffer, a, b, self.shape, out);
                }
            }
        });
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: whoever made this had AMX.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

thread_local! {
    static BUFFER: RefCell<Box<Buffer>> = RefCell::new(Buffer::boxed());
}

/// A strip on its way over a slice.
#[repr(C, align(64))]
struct Buffer {
    /// `Σ code · activation` of two batches of groups: one is filled while the other is added.
    sums: [[Sums; BATCH]; 2],
    /// The output rows.
    y: [[f32; COLS]; STRIP],
    terms: [Terms; STRIP],
}

type Sums = [[i32; COLS]; STRIP];

/// What a row brings to its groups, apart from the codes.
#[derive(Clone, Copy)]
struct Terms {
    scales: [f32; GROUPS],
    /// `-zero · Σ activations`.
    zeros: [i32; GROUPS],
    /// `-scale · Σ activations`.
    minus: [f32; GROUPS],
}

impl Buffer {
    fn boxed() -> Box<Self> {
        let terms = Terms { scales: [0.0; GROUPS], zeros: [0; GROUPS], minus: [0.0; GROUPS] };
        Box::new(Self {
            sums: [[[[0; COLS]; STRIP]; BATCH]; 2],
            y: [[0.0; COLS]; STRIP],
            terms: [terms; STRIP],
        })
    }

    /// Gathers the terms of the rows of `a`.
    fn gather(&mut self, a: Left<'_>, shape: Shape) {
        let per_tile = shape.per_tile();
        let zero = i32::from(shape.zero);
        for (r, terms) in self.terms.iter_mut().enumerate().take(a.rows) {
            let groups = &a.x.row(a.row + r).1[a.tile..][..a.tiles];
            for (tile, group) in groups.iter().enumerate() {
                for part in 0..per_tile {
                    let g = tile * per_tile + part;
                    let minus_sum = if shape.group16 { group.minus_sums[part] } else { group.minus_sum };
                    terms.scales[g] = group.scale;
                    terms.zeros[g] = minus_sum * zero;
                    terms.minus[g] = minus_sum as f32 * group.scale;
                }
            }
        }
    }

    /// Adds the groups of `batch` to the first `rows` rows of `y`: `batch` holds what `sums[half]` holds.
    #[target_feature(enable = "avx512f")]
    fn add<const ZERO: bool, const MINS: bool>(
        &mut self,
        rows: usize,
        batch: Range<usize>,
        half: usize,
        b: Expanded<'_>,
    ) {
        use std::arch::x86_64::{
            _mm512_add_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_load_ps,
            _mm512_load_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_store_ps,
        };
        assert!(rows <= STRIP && batch.end <= GROUPS, "{rows} rows, groups {batch:?}: this is a bug");
        for (r, (y, terms)) in self.y.iter_mut().zip(&self.terms).enumerate().take(rows) {
            // SAFETY: always 16 of 32 numbers, from 0 or 16 on, in rows that are aligned to 64.
            #[allow(unsafe_code)]
            unsafe {
                let mut sum = [_mm512_load_ps(y.as_ptr()), _mm512_load_ps(y.as_ptr().add(16))];
                for (sums, g) in self.sums[half].iter().zip(batch.clone()) {
                    let scale = _mm512_set1_ps(terms.scales[g]);
                    let (zero, minus) = (_mm512_set1_epi32(terms.zeros[g]), _mm512_set1_ps(terms.minus[g]));
                    for (sum, at) in sum.iter_mut().zip([0, 16]) {
                        let mut t = _mm512_load_si512(sums[r].as_ptr().add(at).cast());
                        if ZERO {
                            t = _mm512_add_epi32(t, zero);
                        }
                        let scale = _mm512_mul_ps(_mm512_load_ps(b.scales[g].as_ptr().add(at)), scale);
                        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), scale, *sum);
                        if MINS {
                            let min = _mm512_load_ps(b.mins[g].as_ptr().add(at));
                            *sum = _mm512_fnmadd_ps(min, minus, *sum);
                        }
                    }
                }
                _mm512_store_ps(y.as_mut_ptr(), sum[0]);
                _mm512_store_ps(y.as_mut_ptr().add(16), sum[1]);
            }
        }
    }
}

/// One strip: `a.rows` is the rows of a tile, or more and at most [`STRIP`].
///
/// # Safety
/// As [`dot`], with AVX-512F and tiles configured for the shape.
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn strip<const ZERO: bool, const MINS: bool>(
    buffer: &mut Buffer,
    a: Left<'_>,
    b: Expanded<'_>,
    shape: Shape,
    out: Out,
) {
    buffer.gather(a, shape);
    for (r, y) in buffer.y.iter_mut().enumerate().take(a.rows) {
        // SAFETY: row `r` of the caller's.
        unsafe { out.to.add(r * out.stride).copy_to_nonoverlapping(y.as_mut_ptr(), COLS) };
    }
    let group = TILE / shape.per_tile();
    let x = a.x.some_rows(a.row, a.rows).0[a.tile * TILE..].as_ptr();
    let codes = b.codes.as_ptr().cast::<u8>();
    let groups = a.tiles * shape.per_tile();
    let (mut waiting, mut half) = (0..0, 0);
    for from in (0..groups).step_by(BATCH) {
        let batch = from..groups.min(from + BATCH);
        for (sums, g) in buffer.sums[half].iter_mut().zip(batch.clone()) {
            // SAFETY: activations and codes of group `g` of the slice, in all rows of the strip.
            unsafe { multiply(x.add(g * group), a.x.k(), a.rows, codes.add(g * group * COLS), sums) };
        }
        half = 1 - half;
        buffer.add::<ZERO, MINS>(a.rows, waiting, half, b);
        waiting = batch;
    }
    buffer.add::<ZERO, MINS>(a.rows, waiting, 1 - half, b);
    for (r, y) in buffer.y.iter().enumerate().take(a.rows) {
        // SAFETY: as above.
        unsafe { out.to.add(r * out.stride).copy_from_nonoverlapping(y.as_ptr(), COLS) };
    }
}

/// `sums[r][j] = Σ x[r][i] · code[i][j]` over a group, for `rows` rows of activations that are `k` bytes apart.
///
/// # Safety
/// Tiles are configured for the group, with [`TILE_ROWS`] rows, or `rows` if that is less; `rows` is at most
/// [`STRIP`]. `x` and `codes` point at a group of that many rows and of 32 outputs.
#[allow(unsafe_code)]
unsafe fn multiply(x: *const i8, k: usize, rows: usize, codes: *const u8, sums: &mut Sums) {
    let sums = sums.as_mut_ptr().cast::<i32>();
    if rows <= TILE_ROWS {
        // SAFETY: reads the rows of `x` and `codes`, writes `rows` rows of `sums`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm6, [{codes} + {stride}]",
                "tileloadd tmm7, [{codes} + {stride} + 64]",
                "tileloadd tmm4, [{x} + {k}]",
                "tdpbsud tmm0, tmm4, tmm6",
                "tdpbsud tmm1, tmm4, tmm7",
                "tilestored [{sums} + {stride}], tmm0",
                "tilestored [{sums} + {stride} + 64], tmm1",
                x = in(reg) x, k = in(reg) k, codes = in(reg) codes, sums = in(reg) sums,
                stride = in(reg) STRIDE,
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // the second tile ends with the strip; rows that both have get the same sums twice
    let second = rows - TILE_ROWS;
    // SAFETY: as above, rows 0 .. 16 and rows - 16 .. rows.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tileloadd tmm6, [{codes} + {stride}]",
            "tileloadd tmm7, [{codes} + {stride} + 64]",
            "tileloadd tmm4, [{x} + {k}]",
            "tileloadd tmm5, [{x2} + {k}]",
            "tdpbsud tmm0, tmm4, tmm6",
            "tdpbsud tmm1, tmm4, tmm7",
            "tdpbsud tmm2, tmm5, tmm6",
            "tdpbsud tmm3, tmm5, tmm7",
            "tilestored [{sums} + {stride}], tmm0",
            "tilestored [{sums} + {stride} + 64], tmm1",
            "tilestored [{sums2} + {stride}], tmm2",
            "tilestored [{sums2} + {stride} + 64], tmm3",
            x = in(reg) x, x2 = in(reg) x.add(second * k), k = in(reg) k,
            codes = in(reg) codes, sums = in(reg) sums, sums2 = in(reg) sums.add(second * COLS),
            stride = in(reg) STRIDE,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        );
    }
}

/// AMX, where the processor has it, the system gives it to this process, and it [`agrees`]. Looked up once.
pub(in crate::ops::cpu) fn detect() -> Option<Isa> {
    static AMX: OnceLock<Option<Isa>> = OnceLock::new();
    *AMX.get_or_init(|| {
        if !processor_has_amx() {
            return None;
        }
        if !permitted() {
            tracing::info!("the system keeps AMX from this process: {}", std::io::Error::last_os_error());
            return None;
        }
        // SAFETY: processor and system have just said so.
        #[allow(unsafe_code)]
        let isa = unsafe { Isa::assume_amx() };
        if isa.is_none() {
            tracing::warn!(
                "AMX does not compute what plain code does, or lacks AVX-512 VNNI: going without it"
            );
        }
        isa
    })
}

/// AMX-TILE and AMX-INT8, with their state enabled by the system.
fn processor_has_amx() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;

    #[target_feature(enable = "xsave")]
    fn enabled_state() -> u64 {
        // SAFETY: register 0 exists where XGETBV does.
        #[allow(unsafe_code)]
        unsafe {
            _xgetbv(0)
        }
    }

    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that XGETBV can be executed.
    #[allow(unsafe_code)]
    let state = unsafe { enabled_state() };
    __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && state & TILE_STATE == TILE_STATE
}

/// Asks Linux for the data of tiles, which it gives a process on request only.
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_int = 18;
    // SAFETY: the call takes two numbers, and changes nothing but what the system saves for this process.
    #[allow(unsafe_code)]
    let error = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    error == 0
}

/// Whether tiles compute the bits that plain code computes, for both sizes of groups, zeros and minima, and rows that
/// fill their tiles or not. `isa` can execute AMX. Asks for no other [`Isa`], so that detection can ask this.
pub(in crate::ops::cpu) fn agrees(isa: Isa) -> bool {
    const TILES: usize = 5;
    let mut seed = 1u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    let mut slice = Slice::boxed();
    slice.fill_with(&mut random);
    let b = slice.expanded();
    let mut x = QuantRows::default();
    x.resize(50, (TILES + 2) * TILE);
    let slots = x.slots();
    for r in 0..50 {
        let row: Vec<f32> = (0..(TILES + 2) * TILE).map(|_| random() as f32 / 1e6 - 8.0).collect();
        // SAFETY: one row after the other.
        #[allow(unsafe_code)]
        unsafe {
            slots.fill(isa, r, &row);
        }
    }
    let case = |rows, shape| {
        let Some(tiles) = Tiles::configure(isa, rows, shape) else { return false };
        let a = Left { x: &x, row: 1, rows, tile: 1, tiles: TILES };
        let (mut got, mut want) = (vec![0.5f32; rows * COLS], vec![0.5f32; rows * COLS]);
        // SAFETY: `rows` rows of 32 each; `x` has the rows and tiles, `b` as many tiles.
        #[allow(unsafe_code)]
        unsafe {
            tiles.dot(a, b, Out { to: got.as_mut_ptr(), stride: COLS });
            for r in 0..rows {
                let (a, to) = (Left { row: 1 + r, rows: 1, ..a }, want.as_mut_ptr().add(r * COLS));
                dot(Isa::PORTABLE, a, b, shape, Out { to, stride: COLS });
            }
        }
        got.iter().map(|v| v.to_bits()).eq(want.iter().map(|v| v.to_bits()))
    };
    [false, true].into_iter().all(|group16| {
        let shapes = [(0, true), (128, false)].map(|(zero, mins)| Shape { group16, mins, zero, bits: 8 });
        shapes.into_iter().all(|shape| [8, 13, 16, 21, 32, 49].into_iter().all(|rows| case(rows, shape)))
    })
}
