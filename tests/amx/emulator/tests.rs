//! Each instruction as the assembler writes it, executed by whatever [`install`] found: the handler, or a CPU
//! with AMX. Only the tests of the decoder and of the counters are about the emulator alone.

use std::{arch::x86_64::*, thread};

use super::*;

/// A configuration with these rows and bytes per row.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Config([u8; 64]);

fn config(tiles: &[(usize, usize)]) -> Config {
    let mut config = Config([0; 64]);
    config.0[0] = 1;
    for (t, &(rows, width)) in tiles.iter().enumerate() {
        config.0[16 + 2 * t] = width as u8;
        config.0[48 + t] = rows as u8;
    }
    config
}

fn load_config(config: &Config) {
    install();
    // SAFETY: reads the 64 bytes of `config`.
    unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack)) };
}

fn stored_config() -> Config {
    let mut config = Config([0xaa; 64]);
    // SAFETY: writes the 64 bytes of `config`.
    unsafe { asm!("sttilecfg [{}]", in(reg) &mut config, options(nostack)) };
    config
}

fn release() {
    // SAFETY: touches no memory.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Loads a tile, from the first of `bytes` on, with this stride.
macro_rules! load {
    ($tile:tt, $bytes:expr, $stride:expr) => {
        // SAFETY: the tests that use it give tiles that end within the bytes.
        unsafe {
            asm!(concat!("tileloadd ", $tile, ", [{} + {}*1]"),
                in(reg) $bytes.as_ptr(), in(reg) $stride as isize, out($tile) _, options(nostack))
        }
    };
}

macro_rules! store {
    ($tile:tt, $bytes:expr, $stride:expr) => {
        // SAFETY: the tests that use it give tiles that end within the bytes.
        unsafe {
            asm!(concat!("tilestored [{} + {}*1], ", $tile),
                in(reg) $bytes.as_mut_ptr(), in(reg) $stride as isize, options(nostack))
        }
    };
}

/// Bytes without pattern, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

fn operand(base: Base, index: Option<(usize, u8)>, displacement: i32) -> Operand {
    Operand { base, index, displacement }
}

#[test]
fn the_decoder_reads_what_the_assembler_writes() {
    let dot = |dest, left, right, signed| Op::Dot { signed, dest, left, right };
    let rax = || Base::Register(0);
    let cases: &[(&str, &[u8], Op)] = &[
        ("ldtilecfg [rax]", &[0xc4, 0xe2, 0x78, 0x49, 0x00], Op::LoadConfig(operand(rax(), None, 0))),
        (
            "ldtilecfg [rip + 4]",
            &[0xc4, 0xe2, 0x78, 0x49, 0x05, 4, 0, 0, 0],
            Op::LoadConfig(operand(Base::Next, None, 4)),
        ),
        (
            "sttilecfg [rax + 64]",
            &[0xc4, 0xe2, 0x79, 0x49, 0x40, 0x40],
            Op::StoreConfig(operand(rax(), None, 64)),
        ),
        ("tilerelease", &[0xc4, 0xe2, 0x78, 0x49, 0xc0], Op::Release),
        ("tilezero tmm3", &[0xc4, 0xe2, 0x7b, 0x49, 0xd8], Op::Zero(3)),
        (
            "tileloadd tmm7, [rax + rax*4 - 8]",
            &[0xc4, 0xe2, 0x7b, 0x4b, 0x7c, 0x80, 0xf8],
            Op::Load(7, operand(rax(), Some((0, 2)), -8)),
        ),
        (
            "tileloaddt1 tmm2, [r13 + r14*2 + 1024]",
            &[0xc4, 0x82, 0x79, 0x4b, 0x94, 0x75, 0, 4, 0, 0],
            Op::Load(2, operand(Base::Register(13), Some((14, 1)), 1024)),
        ),
        (
            "tileloadd tmm2, [r12]",
            &[0xc4, 0xc2, 0x7b, 0x4b, 0x14, 0x24],
            Op::Load(2, operand(Base::Register(12), None, 0)),
        ),
        (
            "tileloadd tmm2, [r12 + r12]",
            &[0xc4, 0x82, 0x7b, 0x4b, 0x14, 0x24],
            Op::Load(2, operand(Base::Register(12), Some((12, 0)), 0)),
        ),
        (
            "tileloadd tmm2, [rax*8 + 0x1000]",
            &[0xc4, 0xe2, 0x7b, 0x4b, 0x14, 0xc5, 0, 0x10, 0, 0],
            Op::Load(2, operand(Base::None, Some((0, 3)), 0x1000)),
        ),
        (
            "tilestored [rax + rax], tmm2",
            &[0xc4, 0xe2, 0x7a, 0x4b, 0x14, 0x00],
            Op::Store(2, operand(rax(), Some((0, 0)), 0)),
        ),
        ("tdpbusd tmm0, tmm1, tmm2", &[0xc4, 0xe2, 0x69, 0x5e, 0xc1], dot(0, 1, 2, Signed(false, true))),
        ("tdpbsud tmm3, tmm4, tmm5", &[0xc4, 0xe2, 0x52, 0x5e, 0xdc], dot(3, 4, 5, Signed(true, false))),
        ("tdpbssd tmm3, tmm4, tmm5", &[0xc4, 0xe2, 0x53, 0x5e, 0xdc], dot(3, 4, 5, Signed(true, true))),
        ("tdpbuud tmm3, tmm4, tmm7", &[0xc4, 0xe2, 0x40, 0x5e, 0xdc], dot(3, 4, 7, Signed(false, false))),
    ];
    for (text, bytes, op) in cases {
        let mut rest = bytes.iter();
        let decoded = decode(|| *rest.next().unwrap()); // panics if it asks for more than there is
        assert_eq!(decoded.as_ref().map(|(op, _)| op), Some(op), "{text}");
        assert_eq!(decoded.unwrap().1 as usize, bytes.len(), "{text}");
    }
}

#[test]
fn the_decoder_leaves_other_instructions_alone() {
    let others: &[(&str, &[u8])] = &[
        ("ud2", &[0x0f, 0x0b]),
        ("VEX in two bytes", &[0xc5, 0xf8, 0x77]),
        ("map 3", &[0xc4, 0xe3, 0x7b, 0x4b, 0x14, 0x24]),
        ("VEX.W", &[0xc4, 0xe2, 0xfb, 0x4b, 0x14, 0x24]),
        ("VEX.L", &[0xc4, 0xe2, 0x7f, 0x4b, 0x14, 0x24]),
        ("tdpbf16ps", &[0xc4, 0xe2, 0x6a, 0x5c, 0xc1]),
        ("a load without SIB byte", &[0xc4, 0xe2, 0x7b, 0x4b, 0x10]),
        ("a load that names a vvvv register", &[0xc4, 0xe2, 0x63, 0x4b, 0x14, 0x24]),
        ("tile 10", &[0xc4, 0x62, 0x7b, 0x4b, 0x14, 0x24]),
        ("a product with memory", &[0xc4, 0xe2, 0x69, 0x5e, 0x01]),
        ("a product with tile 9", &[0xc4, 0xe2, 0x31, 0x5e, 0xc1]),
    ];
    for (what, bytes) in others {
        let mut rest = bytes.iter();
        assert_eq!(decode(|| *rest.next().unwrap()), None, "{what}");
    }
}

#[test]
fn a_configuration_is_stored_as_loaded() {
    install();
    release();
    assert_eq!(stored_config(), Config([0; 64]), "released");
    let mut all = config(&[(1, 4), (16, 64), (3, 60), (0, 0), (15, 8), (7, 7), (2, 1), (16, 4)]);
    load_config(&all);
    assert_eq!(stored_config(), all);
    all.0[1] = 5; // start_row
    load_config(&all);
    assert_eq!(stored_config(), all);
    // SAFETY: the operand of ldtilecfg lies in the code, behind a jump over it.
    unsafe {
        asm!(
            "ldtilecfg [rip + 2f]",
            "jmp 3f",
            ".balign 64",
            "2:",
            ".byte 1",
            ".zero 15",
            ".short 12",
            ".zero 30",
            ".byte 9",
            ".zero 15",
            "3:",
            options(nostack)
        );
    }
    assert_eq!(stored_config(), config(&[(9, 12)]));
    let four = [config(&[(1, 4)]), config(&[(2, 8)]), config(&[(3, 12)]), config(&[(4, 16)])];
    // SAFETY: the address is that of four[3].
    unsafe { asm!("ldtilecfg [{} + {}*8 - 64]", in(reg) &four, in(reg) 32_u64, options(nostack)) };
    assert_eq!(stored_config(), four[3]);
    load_config(&Config([0; 64])); // palette 0 releases
    assert_eq!(stored_config(), Config([0; 64]));
}

#[test]
fn every_shape_moves_its_rows_and_nothing_else() {
    let source = noise(1, 16 * 200);
    for rows in 1..=16 {
        for width in (4..=64).step_by(4) {
            for (from, to) in [(64, 64), (width, 68), (200, width), (0, 65)] {
                load_config(&config(&[(rows, width), (rows, width)]));
                load!("tmm1", source, from);
                let mut stored = vec![0x5a; 16 * 68];
                store!("tmm1", stored, to);
                let mut expected = vec![0x5a; 16 * 68];
                for row in 0..rows {
                    expected[row * to..][..width].copy_from_slice(&source[row * from..][..width]);
                }
                assert_eq!(stored, expected, "{rows} rows of {width} bytes, strides {from} and {to}");
            }
        }
    }
    release();
}

#[test]
fn a_negative_stride_walks_backwards() {
    let source = noise(2, 16 * 64);
    load_config(&config(&[(16, 64)]));
    load!("tmm0", source[15 * 64..], -64);
    let mut stored = vec![0; 16 * 64];
    store!("tmm0", stored, 64);
    let reversed: Vec<u8> = source.chunks(64).rev().flatten().copied().collect();
    assert_eq!(stored, reversed);
    release();
}

#[test]
fn a_load_starts_at_start_row_and_a_configuration_zeroes_the_tiles() {
    let source = noise(3, 16 * 64);
    let mut from_row_5 = config(&[(8, 16)]);
    load_config(&from_row_5);
    load!("tmm0", source, 64);
    from_row_5.0[1] = 5;
    load_config(&from_row_5);
    load!("tmm0", source, 64);
    let mut stored = vec![0x5a; 16 * 64];
    store!("tmm0", stored, 64);
    for (row, (is, was)) in stored.chunks(64).zip(source.chunks(64)).enumerate() {
        let expected = match row {
            0..5 => [0; 16],
            5..8 => was[..16].try_into().unwrap(),
            _ => [0x5a; 16],
        };
        assert_eq!(is[..16], expected, "row {row}");
        assert_eq!(is[16..], [0x5a; 48], "row {row}");
    }
    release();
}

/// Loads and stores tile 2 by way of these registers: base, index, its scale and displacement. They get their
/// values by pops, so any two will do.
macro_rules! addressed {
    ($($base:literal $index:literal $scale:literal $disp:literal;)*) => {$({
        let (rows, width) = (5, 24);
        let stride = 40 * $scale;
        let source = noise(($disp as i64 as u64) ^ $scale, 5 * stride);
        let mut stored = vec![0x5a; 5 * stride];
        let at = |p: *const u8| p.wrapping_offset(-($disp as isize));
        load_config(&config(&[(0, 0), (0, 0), (rows, width)]));
        // SAFETY: five rows of 24 bytes, `stride` apart, lie within both; the registers that the compiler
        // keeps for itself are put back.
        unsafe {
            asm!(
                "push rbx", "push rbp", "push rdx",
                "push rsi", "push rdi", concat!("pop ", $base), concat!("pop ", $index),
                concat!("tileloadd tmm2, [", $base, " + ", $index, "*", $scale, " + ", $disp, "]"),
                "pop rdi", "push 40", "push rdi", concat!("pop ", $base), concat!("pop ", $index),
                concat!("tilestored [", $base, " + ", $index, "*", $scale, " + ", $disp, "], tmm2"),
                "pop rbp", "pop rbx",
                inout("rdi") at(source.as_ptr()) => _, inout("rsi") 40_usize => _,
                inout("rdx") at(stored.as_mut_ptr()) => _,
                out("rax") _, out("rcx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _, out("tmm2") _,
            );
        }
        let mut expected = vec![0x5a; 5 * stride];
        for row in 0..rows {
            expected[row * stride..][..width].copy_from_slice(&source[row * stride..][..width]);
        }
        assert_eq!(stored, expected, concat!($base, " + ", $index, "*", $scale, " + ", $disp));
    })*};
}

#[test]
fn every_register_addresses() {
    addressed! {
        "rax" "rcx" 1 0; "rcx" "rdx" 2 8; "rdx" "rbx" 4 -8; "rbx" "rbp" 8 127; "rbp" "rsi" 1 0;
        "rbp" "rax" 2 -128; "rsi" "rdi" 4 128; "rdi" "rsi" 8 -129; "rdi" "r8" 1 1000; "r8" "r9" 2 0;
        "r9" "r10" 4 100; "r10" "r11" 8 -100000; "r11" "r12" 1 0; "r12" "r13" 2 0; "r13" "r14" 4 0;
        "r14" "r15" 8 16; "r15" "rax" 1 0x12345678; "rax" "r8" 1 0; "r8" "rax" 1 0; "r12" "rbx" 4 64;
        "r13" "rbp" 2 0x7fffffff; "rbx" "r12" 1 -0x80000000;
    }
    release();
}

#[test]
fn rows_lie_on_the_stack_or_share_an_address() {
    let source = noise(4, 16 * 16);
    load_config(&config(&[(16, 16), (4, 16)]));
    let mut stored = vec![0; 16 * 16];
    // SAFETY: copies 256 bytes to the stack, and loads the tile from there; then stores it.
    unsafe {
        asm!(
            "sub rsp, 256", "mov rdi, rsp", "mov ecx, 256", "cld", "rep movsb",
            "tileloadd tmm0, [rsp + rdx]",
            "add rsp, 256",
            "tilestored [rax + rdx], tmm0",
            inout("rsi") source.as_ptr() => _, in("rdx") 16_u64, in("rax") stored.as_mut_ptr(),
            out("rdi") _, out("rcx") _, out("tmm0") _,
        );
    }
    assert_eq!(stored, source);
    // SAFETY: without an index every row is the first one.
    unsafe {
        asm!("tileloadd tmm1, [{} + 32]", in(reg) source.as_ptr(), out("tmm1") _, options(nostack));
    }
    store!("tmm1", stored, 16);
    assert_eq!(stored[..64], source[32..48].repeat(4));
    release();
}

#[test]
fn an_address_may_have_no_base() {
    const AT: usize = 0x1000_0000; // as in the operands below
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new page where nothing is mapped, or a failure.
    let page = unsafe {
        let page = libc::mmap(
            ptr::without_provenance_mut(AT),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        assert_eq!(page.addr(), AT, "{}", std::io::Error::last_os_error());
        std::slice::from_raw_parts_mut(page.cast::<u8>(), 4096)
    };
    let source = noise(10, 8 * 40);
    page[..320].copy_from_slice(&source);
    load_config(&config(&[(8, 20)]));
    // SAFETY: reads and writes within the page, eight rows 40 bytes apart.
    unsafe {
        asm!("tileloadd tmm0, [{i}*8 + 0x10000000]", "tilestored [{i}*8 + 0x10000400], tmm0",
            i = in(reg) 5_u64, out("tmm0") _, options(nostack));
    }
    for (to, from) in page[0x400..].chunks(40).zip(source.chunks(40)) {
        assert_eq!(to[..20], from[..20]);
        assert_eq!(to[20..], [0; 20]);
    }
    release();
}

#[test]
fn tilezero_zeroes_and_t1_loads_as_any_load() {
    let source = noise(5, 16 * 64);
    load_config(&config(&[(16, 64), (16, 64), (16, 64)]));
    load!("tmm0", source, 64);
    load!("tmm1", source, 64);
    // SAFETY: loads 16 rows of 64 bytes.
    unsafe {
        asm!("tilezero tmm1", "tileloaddt1 tmm2, [{} + {}]", in(reg) source.as_ptr(), in(reg) 64_u64,
            out("tmm1") _, out("tmm2") _, options(nostack));
    }
    let mut stored = [vec![1; 1024], vec![1; 1024], vec![1; 1024]];
    store!("tmm0", stored[0], 64);
    store!("tmm1", stored[1], 64);
    store!("tmm2", stored[2], 64);
    assert_eq!(stored, [source.clone(), vec![0; 1024], source]);
    release();
}

/// The product by its definition on plain matrices: `left` is m × 4k bytes, `right` 4k × n, `sums` m × n.
fn multiply(signed: Signed, [m, n, k]: [usize; 3], left: &[u8], right: &[u8], sums: &[i32]) -> Vec<i32> {
    let value = |byte: u8, signed: bool| if signed { i64::from(byte as i8) } else { i64::from(byte) };
    let at = |place: usize| {
        let (row, column) = (place / n, place % n);
        let products = (0..4 * k)
            .map(|i| value(left[row * 4 * k + i], signed.0) * value(right[i * n + column], signed.1));
        (i64::from(sums[place]) + products.sum::<i64>()) as i32
    };
    (0..m * n).map(at).collect()
}

/// Rows of `right` (4k × n) in fours, the four bytes of a column together: what the right tile holds.
fn interleaved(n: usize, right: &[u8]) -> Vec<u8> {
    let four = |rows: &[u8]| (0..4 * n).map(|at| rows[at % 4 * n + at / 4]).collect::<Vec<_>>();
    right.chunks(4 * n).flat_map(four).collect()
}

macro_rules! product {
    ($op:literal $dest:tt $left:tt $right:tt, $shape:expr, $sums:expr, $a:expr, $b:expr) => {{
        let ([m, n, k], number) = ($shape, |name: &str| usize::from(name.as_bytes()[3] - b'0'));
        let mut tiles = [(0, 0); 8];
        tiles[number($dest)] = (m, 4 * n);
        tiles[number($left)] = (m, 4 * k);
        tiles[number($right)] = (k, 4 * n);
        load_config(&config(&tiles));
        let mut sums: Vec<i32> = $sums;
        load!($dest, sums, 4 * n);
        load!($left, $a, 4 * k);
        load!($right, $b, 4 * n);
        // SAFETY: touches no memory.
        unsafe {
            asm!(concat!($op, " ", $dest, ", ", $left, ", ", $right), out($dest) _, options(nostack, nomem));
        }
        store!($dest, sums, 4 * n);
        sums
    }};
}

fn sums(seed: u64, length: usize) -> Vec<i32> {
    noise(seed, 4 * length).chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn check_products(shape: [usize; 3], left: &[u8], right: &[u8], old: &[i32]) {
    let [_, n, _] = shape;
    let tile = interleaved(n, right);
    let products = [
        (Signed(true, true), product!("tdpbssd" "tmm0" "tmm1" "tmm2", shape, old.to_vec(), left, tile)),
        (Signed(true, false), product!("tdpbsud" "tmm7" "tmm6" "tmm5", shape, old.to_vec(), left, tile)),
        (Signed(false, true), product!("tdpbusd" "tmm3" "tmm0" "tmm4", shape, old.to_vec(), left, tile)),
        (Signed(false, false), product!("tdpbuud" "tmm5" "tmm7" "tmm3", shape, old.to_vec(), left, tile)),
        (Signed(false, true), product!("tdpbusd" "tmm4" "tmm2" "tmm6", shape, old.to_vec(), left, tile)),
        (Signed(true, false), product!("tdpbsud" "tmm1" "tmm4" "tmm7", shape, old.to_vec(), left, tile)),
    ];
    for (signed, product) in products {
        let expected = multiply(signed, shape, left, right, old);
        assert_eq!(product, expected, "{signed:?} {shape:?}");
    }
    release();
}

#[test]
fn products_of_every_shape_are_those_of_the_definition() {
    for m in [1, 2, 7, 15, 16] {
        for n in 1..=16 {
            for k in [1, 3, 8, 13, 16] {
                let seed = (m * 10_000 + n * 100 + k) as u64;
                let (left, right) = (noise(seed, m * 4 * k), noise(seed + 1, 4 * k * n));
                check_products([m, n, k], &left, &right, &sums(seed + 2, m * n));
            }
        }
    }
}

#[test]
fn extreme_products_wrap_and_do_not_saturate() {
    let shape = [16, 16, 16];
    for left in [0, 1, 127, 128, 255] {
        for right in [0, 1, 127, 128, 255] {
            for old in [0, 1, -1, i32::MAX, i32::MIN] {
                check_products(shape, &[left; 1024], &[right; 1024], &[old; 256]);
            }
        }
    }
}

#[test]
fn products_are_those_of_the_vector_instruction() {
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn row(old: &[i32; 16], left: &[u8; 64], right: &[u8]) -> [i32; 16] {
        // SAFETY: the arrays are as long as what is read and written.
        unsafe {
            let mut sum = _mm512_loadu_si512(old.as_ptr().cast());
            for k in 0..16 {
                let four = i32::from_le_bytes(left[4 * k..4 * k + 4].try_into().unwrap());
                let b = _mm512_loadu_si512(right[64 * k..64 * k + 64].as_ptr().cast());
                sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), b);
            }
            let mut new = [0; 16];
            _mm512_storeu_si512(new.as_mut_ptr().cast(), sum);
            new
        }
    }
    if !is_x86_feature_detected!("avx512vnni") {
        return;
    }
    for seed in 0..50 {
        let (left, right, old) = (noise(seed, 1024), noise(seed + 100, 1024), sums(seed + 200, 256));
        let new = product!("tdpbusd" "tmm0" "tmm1" "tmm2", [16, 16, 16], old.clone(), left, right);
        for m in 0..16 {
            let (old, left) = (&old[16 * m..16 * m + 16], &left[64 * m..64 * m + 64]);
            // SAFETY: the CPU has the instruction.
            let row = unsafe { row(old.try_into().unwrap(), left.try_into().unwrap(), &right) };
            assert_eq!(new[16 * m..16 * m + 16], row, "seed {seed}, row {m}");
        }
    }
    release();
}

#[test]
fn other_registers_and_flags_keep_their_values() {
    if !is_x86_feature_detected!("avx512bw") {
        return;
    }
    let source = noise(6, 1024);
    let wide = noise(7, 64);
    load_config(&config(&[(16, 64), (16, 64), (16, 64)]));
    let (mut out, mut mask, mut carry, mut counts) = (vec![0; 128], 0_u64, 0_u8, [0_u64; 4]);
    // SAFETY: reads 16 rows of 64 bytes and 64 bytes, writes 128 bytes.
    unsafe {
        asm!(
            "vmovdqu64 zmm7, [{wide}]", "vmovdqu64 zmm29, [{wide}]", "kmovq k3, {ones}",
            "mov r12, 12", "mov r13, 13", "mov r14, 14", "mov r15, 15",
            "stc",
            "tileloadd tmm1, [{source} + {stride}]", "tileloadd tmm2, [{source} + {stride}]",
            "tilezero tmm0", "tdpbusd tmm0, tmm1, tmm2", "tilerelease",
            "setc {carry}",
            "vmovdqu64 [{out}], zmm7", "vmovdqu64 [{out} + 64], zmm29", "kmovq {ones}, k3",
            wide = in(reg) wide.as_ptr(), source = in(reg) source.as_ptr(), stride = in(reg) 64_u64,
            out = in(reg) out.as_mut_ptr(), ones = inout(reg) 0x0123_4567_89ab_cdef_u64 => mask,
            carry = inout(reg_byte) carry,
            out("r12") counts[0], out("r13") counts[1], out("r14") counts[2], out("r15") counts[3],
            out("zmm7") _, out("zmm29") _, out("k3") _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, options(nostack),
        );
    }
    assert_eq!(out, wide.repeat(2));
    assert_eq!((mask, carry, counts), (0x0123_4567_89ab_cdef, 1, [12, 13, 14, 15]));
}

#[test]
fn threads_have_their_own_tiles() {
    let count = |rows: usize| {
        let mut stored = vec![0; 64 * rows];
        load_config(&config(&[(rows, 64)]));
        let source = noise(rows as u64, 64 * rows);
        for _ in 0..100 {
            load!("tmm0", source, 64);
            thread::yield_now();
            store!("tmm0", stored, 64);
            assert_eq!(stored, source);
        }
        assert_eq!(stored_config(), config(&[(rows, 64)]));
        release();
    };
    thread::scope(|scope| {
        for rows in 1..=8 {
            scope.spawn(move || count(rows));
        }
    });
}

#[test]
fn the_counter_counts_this_thread() {
    let emulated = u64::from(install() == Mode::Emulated);
    thread::spawn(move || {
        let source = noise(8, 64);
        assert_eq!((executed(), configured()), (0, false));
        load_config(&config(&[(1, 64)]));
        load!("tmm0", source, 64);
        assert_eq!((executed(), configured()), (2 * emulated, emulated == 1));
        release();
        assert_eq!((executed(), configured()), (3 * emulated, false));
    })
    .join()
    .unwrap();
}

#[test]
fn rows_may_end_where_memory_ends() {
    const PAGE: usize = 4096;
    // SAFETY: maps two new pages, takes access to the second away, and lends out the first.
    let page = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(ptr::null_mut(), 2 * PAGE, access, flags, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
        std::slice::from_raw_parts_mut(pages.cast::<u8>(), PAGE)
    };
    page.copy_from_slice(&noise(9, PAGE));
    let before = page.to_vec();
    load_config(&config(&[(4, 12)]));
    load!("tmm0", page[PAGE - 12 - 3 * 64..], 64);
    store!("tmm0", page[PAGE - 12 - 3 * 100..], 100);
    for row in 1..=4 {
        let (to, from) = (PAGE - 12 - (4 - row) * 100, PAGE - 12 - (4 - row) * 64);
        assert_eq!(page[to..to + 12], before[from..from + 12]);
    }
    release();
}

/// Runs this in a child process, which must die of this signal.
fn dies_of(signal: c_int, run: impl FnOnce()) {
    install();
    // SAFETY: the child does nothing but what a signal handler may do, until it dies or exits.
    let status = unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::close(2);
            libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
            for reset in [libc::SIGSEGV, libc::SIGBUS] {
                libc::signal(reset, libc::SIG_DFL); // the standard library's, for stack overflows
            }
            run();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert!(libc::WIFSIGNALED(status), "the child exits with {}", libc::WEXITSTATUS(status));
    assert_eq!(libc::WTERMSIG(status), signal);
}

#[test]
fn broken_rules_end_the_process() {
    let memory = [0_u8; 1024];
    let with = |tiles: &[(usize, usize)]| config(tiles);
    macro_rules! undefined {
        ($tiles:expr, $text:literal) => {{
            let config = $tiles;
            dies_of(libc::SIGILL, || {
                load_config(&config);
                // SAFETY: the instruction must not be executed; if it is, it only reads the memory.
                unsafe { asm!($text, in("rax") memory.as_ptr(), in("rcx") 64_u64) };
            });
        }};
    }
    undefined!(Config([0; 64]), "tileloadd tmm0, [rax + rcx]"); // no configuration
    undefined!(Config([0; 64]), "tdpbusd tmm0, tmm1, tmm2");
    undefined!(with(&[(16, 64)]), "tileloadd tmm1, [rax + rcx]"); // no such tile
    undefined!(with(&[(16, 64)]), "tilezero tmm7");
    undefined!(with(&[(16, 62)]), "tileloadd tmm0, [rax + rcx]"); // half a dword
    let mut late = with(&[(4, 64)]);
    late.0[1] = 4;
    undefined!(late, "tileloadd tmm0, [rax + rcx]"); // start_row behind the tile
    let square = with(&[(16, 64); 3]);
    // the assembler refuses tdpbusd with tmm0, tmm0, tmm1; with tmm0, tmm1, tmm0; with tmm0, tmm1, tmm1
    undefined!(square, ".byte 0xc4, 0xe2, 0x71, 0x5e, 0xc0");
    undefined!(square, ".byte 0xc4, 0xe2, 0x79, 0x5e, 0xc1");
    undefined!(square, ".byte 0xc4, 0xe2, 0x71, 0x5e, 0xc1");
    undefined!(with(&[(16, 64), (15, 64), (16, 64)]), "tdpbsud tmm0, tmm1, tmm2"); // m
    undefined!(with(&[(16, 60), (16, 64), (16, 64)]), "tdpbuud tmm0, tmm1, tmm2"); // n
    undefined!(with(&[(16, 64), (16, 60), (16, 64)]), "tdpbssd tmm0, tmm1, tmm2"); // k
    undefined!(square, "ud2");
    // SAFETY: an instruction that all CPUs refuse.
    dies_of(libc::SIGILL, || unsafe { asm!("ud2") });
    // SAFETY: a signal sent to oneself.
    dies_of(libc::SIGILL, || unsafe { _ = libc::raise(libc::SIGILL) });
    for (at, value) in
        [(0, 2), (2, 1), (15, 1), (16, 65), (17, 1), (32, 1), (47, 1), (48, 17), (56, 1), (63, 1)]
    {
        let mut bad = square;
        bad.0[at] = value;
        dies_of(libc::SIGSEGV, || load_config(&bad));
    }
    dies_of(libc::SIGSEGV, || load_config(&with(&[(0, 64)])));
    dies_of(libc::SIGSEGV, || load_config(&with(&[(16, 0)])));
    // SAFETY: reads address 0, which must end the process.
    dies_of(libc::SIGSEGV, || unsafe {
        load_config(&square);
        asm!("tileloadd tmm0, [{z} + {z}]", z = in(reg) 0_usize);
    });
}
