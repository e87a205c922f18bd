//! The dot kernels with 256-bit vectors, for processors without AVX-512 VNNI: the bits of `dot.rs`, by its formula.
//!
//! A row, or two, passes over all 32 outputs of a slice group by group, eight outputs (a *quarter*) to a vector. There are
//! two ways to sum codes times activations exactly:
//!
//! - `vpmaddubsw` multiplies and adds pairs into 16 bits, where sums stay as long as they cannot overflow
//!   (`rows.rs` has the bounds); `vpmaddwd` adds those in pairs into 32 bits. Codes of 8 bits are too large for that: they go in
//!   as magnitudes of what is left when the zero of 128 is taken away, and the signs of that go to the activations.
//! - `vpdpbusd` does it all at once where the processor has AVX-VNNI ([`Isa::has_avx_vnni`]). **No such processor has run
//!   this**: tests run the same code with AVX-512's encoding of the instruction.
//!
//! One row, or two, read codes as they are stored: to expand them first would take as long as to multiply them.
//!
//! Knows slices, rows and stored tiles (`codes.rs`), no matrices. Tests: `tests.rs` beside this, and `../tests.rs`.

mod codes;
mod rows;
#[cfg(test)]
mod tests;

pub(super) use codes::{expand, numbers};

use super::{
    dot::{Left, Out, Shape},
    slice::Expanded,
    stored::Tiles,
};
use crate::ops::cpu::tile::Isa;
use rows::rows;

/// Vectors of the 32 outputs.
const QUARTERS: usize = 4;
/// Bytes of one.
const QUARTER: usize = 32;

/// Rows that are not worth expanding codes for.
pub(super) const FEW: usize = 2;

/// How codes meet activations: `vpmaddubsw`.
const MADD: u8 = 0;
/// `vpdpbusd` of AVX-VNNI.
const VNNI: u8 = 1;
/// `vpdpbusd` of AVX-512: what a test can run in place of [`VNNI`].
#[cfg(test)]
const VNNI_512: u8 = 2;

/// Rows `a` times codes (tiles as expanded or stored), with the scales and minima of the slice and the format's zero.
type Kernel = unsafe fn(Left<'_>, Tiles, Expanded<'_>, u8, Out);

/// As `dot::dot`.
///
/// # Safety
/// As `dot::dot`; the processor has AVX2 and FMA.
#[allow(unsafe_code)]
pub(super) unsafe fn dot(isa: Isa, a: Left<'_>, b: Expanded<'_>, shape: Shape, out: Out) {
    let (one, two) = if isa.has_avx_vnni() {
        (kernel::<1, false, VNNI>(shape), kernel::<2, false, VNNI>(shape))
    } else {
        (kernel::<1, false, MADD>(shape), kernel::<2, false, MADD>(shape))
    };
    // what two rows keep does not fit the registers, which costs more the shorter groups are
    let most = if shape.group16 { 1 } else { 2 };
    for row in (0..a.rows).step_by(most) {
        let rows = (a.rows - row).min(most);
        // SAFETY: the caller's promise, row by row; expanded tiles are what the kernels take.
        unsafe {
            let out = Out { to: out.to.add(row * out.stride), ..out };
            let a = Left { row: a.row + row, rows, ..a };
            (if rows == 2 { two } else { one })(a, Tiles::expanded(b.codes), b, shape.zero, out);
        }
    }
}

/// As [`dot`] for [`FEW`] rows at most and tiles as they are `stored`; of `b`, scales and minima count.
///
/// # Safety
/// As [`dot`]; `a.tiles` tiles are stored.
#[allow(unsafe_code)]
pub(super) unsafe fn dot_stored(
    isa: Isa,
    a: Left<'_>,
    stored: Tiles,
    b: Expanded<'_>,
    shape: Shape,
    out: Out,
) {
    assert!(a.rows <= FEW, "{} rows: this is a bug", a.rows);
    let kernel = match (a.rows, isa.has_avx_vnni()) {
        (1, false) => kernel::<1, true, MADD>(shape),
        (1, true) => kernel::<1, true, VNNI>(shape),
        (_, false) => kernel::<2, true, MADD>(shape),
        (_, true) => kernel::<2, true, VNNI>(shape),
    };
    // SAFETY: the caller's promise, and as many stored tiles as the rows have.
    unsafe { kernel(a, stored, b, shape.zero, out) };
}

fn kernel<const R: usize, const STORED: bool, const DOT: u8>(shape: Shape) -> Kernel {
    assert!(shape.mins == (shape.zero == 0), "no format is like {shape:?}: this is a bug");
    match (shape.bits, shape.group16, shape.mins) {
        (4, false, false) => rows::<R, 4, false, false, STORED, DOT>,
        (4, false, true) => rows::<R, 4, false, true, STORED, DOT>,
        (4, true, false) => rows::<R, 4, true, false, STORED, DOT>,
        (4, true, true) => rows::<R, 4, true, true, STORED, DOT>,
        (5, false, false) => rows::<R, 5, false, false, STORED, DOT>,
        (5, false, true) => rows::<R, 5, false, true, STORED, DOT>,
        (6, true, false) => rows::<R, 6, true, false, STORED, DOT>,
        (8, false, false) if shape.zero == 128 => rows::<R, 8, false, false, STORED, DOT>,
        _ => panic!("no format is like {shape:?}: this is a bug"),
    }
}
