//! Runs Intel AMX int8 kernels on CPUs without AMX: a `SIGILL` handler that decodes and executes the tile
//! instructions in software, from their description in Intel's manual (SDM volume 2). Everything else a kernel
//! does, AVX-512 included, runs on the CPU. Where CPU and system have AMX, nothing is emulated.
//!
//! Emulated: `LDTILECFG`, `STTILECFG`, `TILERELEASE`, `TILEZERO`, `TILELOADD`, `TILELOADDT1`, `TILESTORED`,
//! `TDPBSSD`, `TDPBSUD`, `TDPBUSD`, `TDPBUUD`; every register and addressing form of 64-bit code, except address-size
//! and FS/GS prefixes. A program that breaks a rule of the manual (unlike shapes, one tile twice, a bad
//! configuration …) gets the rule on stderr and dies of the signal that hardware and Linux would send: `SIGILL` for
//! #UD, `SIGSEGV` for #GP. A bad address faults as it would in any code, only inside the handler.
#![allow(unsafe_code)] // a signal handler that reads and writes the memory a program names
#![allow(dead_code, unreachable_pub)] // each test uses what it needs

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _xgetbv},
    },
    cell::RefCell,
    ffi::{c_int, c_void},
    fmt::{self, Write as _},
    mem::MaybeUninit,
    ptr,
    sync::{
        OnceLock,
        atomic::{Ordering::SeqCst, compiler_fence},
    },
};

/// What executes the tile instructions of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The CPU; the process has permission to use its tiles.
    Native,
    /// The handler of this file.
    Emulated,
}

/// Makes the tile instructions usable in every thread of this process. Call it before the first one; more calls do
/// nothing more. CPUID still says what the CPU has: tests must call the kernel itself, not what selects it.
pub fn install() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| {
        if cpu_has_tiles() {
            request_permission();
            return Mode::Native;
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all-zero bytes are a valid `sigaction` (no handler, empty mask); the handler has the signature
        // that SA_SIGINFO promises, and allocates, locks and unwinds nowhere.
        let previous = unsafe {
            let action = action.assume_init_mut();
            action.sa_sigaction = on_illegal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, action, previous.as_mut_ptr()), 0);
            previous.assume_init()
        };
        assert!(PREVIOUS.set(previous).is_ok(), "installed once");
        Mode::Emulated
    })
}

/// Tile instructions executed for this thread; always 0 under [`Mode::Native`]. A test shows with it that a kernel
/// took the path it means to test.
pub fn executed() -> u64 {
    compiler_fence(SeqCst); // the handler writes behind the back of code whose assembly is `nomem`
    TILES.with_borrow(|tiles| tiles.executed)
}

/// Whether this thread's emulated tiles are configured: a kernel should leave them released.
pub fn configured() -> bool {
    compiler_fence(SeqCst);
    TILES.with_borrow(|tiles| tiles.configured)
}

/// AMX-TILE and AMX-INT8 in CPUID, and tile state enabled by the system.
fn cpu_has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const TILE_AND_INT8: u32 = 3 << 24;
    const TILE_STATE: u64 = 3 << 17;

    #[target_feature(enable = "xsave")]
    fn enabled_state() -> u64 {
        // SAFETY: register 0 exists where XGETBV does.
        unsafe { _xgetbv(0) }
    }

    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that XGETBV may be executed.
    let state = unsafe { enabled_state() };
    __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && state & TILE_STATE == TILE_STATE
}

/// Linux gives a process its tile data only on request.
fn request_permission() {
    const ARCH_REQ_XCOMP_PERM: c_int = 0x1023;
    const XFEATURE_XTILEDATA: c_int = 18;
    // SAFETY: the call takes two numbers and changes only what the kernel saves for this process.
    let denied = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    assert_eq!(denied, 0, "no permission for AMX: {}", std::io::Error::last_os_error());
}

const TILE_COUNT: usize = 8;
const MOST_ROWS: usize = 16;
const ROW_BYTES: usize = 64;

/// A rule of the manual that the program broke.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// #UD.
    Undefined(&'static str),
    /// #GP.
    Protection(&'static str),
}

/// Whether the bytes of the left and of the right factor are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signed(bool, bool);

#[derive(Debug, PartialEq, Eq)]
enum Op {
    LoadConfig(Operand),
    StoreConfig(Operand),
    Release,
    Zero(usize),
    Load(usize, Operand),
    Store(usize, Operand),
    Dot { signed: Signed, dest: usize, left: usize, right: usize },
}

#[derive(Debug, PartialEq, Eq)]
enum Base {
    None,
    Register(usize),
    /// The address of the next instruction.
    Next,
}

/// A memory operand; registers by their number in instructions.
#[derive(Debug, PartialEq, Eq)]
struct Operand {
    base: Base,
    /// Register and shift.
    index: Option<(usize, u8)>,
    displacement: i32,
}

/// The registers an operand may name.
struct Registers {
    general: [u64; 16],
    next: u64,
}

impl Operand {
    fn start(&self, registers: &Registers) -> u64 {
        let base = match self.base {
            Base::None => 0,
            Base::Register(number) => registers.general[number],
            Base::Next => registers.next,
        };
        base.wrapping_add_signed(self.displacement.into())
    }

    /// The scaled index: the distance of rows for tile loads and stores, part of the address for others.
    fn stride(&self, registers: &Registers) -> u64 {
        self.index.map_or(0, |(number, shift)| registers.general[number] << shift)
    }
}

/// The instruction whose bytes `fetch` gives one by one, and its length. It asks for no byte behind the
/// instruction. None if it is none of ours.
fn decode(mut fetch: impl FnMut() -> u8) -> Option<(Op, u64)> {
    let mut length = 0;
    let mut byte = || {
        length += 1;
        fetch()
    };
    // VEX: C4, ~R ~X ~B map, W ~vvvv L pp; all ours lie in map 2 (0F 38) with W = L = 0
    if byte() != 0xc4 {
        return None;
    }
    let extend = byte();
    let [r, x, b] = [7, 6, 5].map(|bit| usize::from(!extend >> bit & 1) << 3);
    let last = byte();
    if extend & 0x1f != 2 || last & 0x84 != 0 {
        return None;
    }
    let vvvv = usize::from(!last >> 3 & 15);
    let prefix = last & 3; // none, 66, F3, F2
    let opcode = byte();
    if !matches!(opcode, 0x49 | 0x4b | 0x5e) {
        return None;
    }
    let modrm = byte();
    let (mode, reg, rm) = (modrm >> 6, r | usize::from(modrm >> 3 & 7), usize::from(modrm & 7));
    let memory = mode != 3;
    if opcode != 0x5e && vvvv != 0 || reg >= TILE_COUNT {
        return None;
    }
    let op = match (opcode, prefix, memory) {
        (0x49, 0, true) if reg == 0 => Op::LoadConfig(operand(mode, rm, x, b, &mut byte)),
        (0x49, 1, true) if reg == 0 => Op::StoreConfig(operand(mode, rm, x, b, &mut byte)),
        (0x49, 0, false) if modrm == 0xc0 => Op::Release,
        (0x49, 3, false) if rm == 0 => Op::Zero(reg),
        // tile loads and stores take only operands with a SIB byte
        (0x4b, 1 | 3, true) if rm == 4 => Op::Load(reg, operand(mode, rm, x, b, &mut byte)),
        (0x4b, 2, true) if rm == 4 => Op::Store(reg, operand(mode, rm, x, b, &mut byte)),
        (0x5e, _, false) if vvvv < TILE_COUNT && b == 0 => {
            let signed = [Signed(false, false), Signed(false, true), Signed(true, false), Signed(true, true)];
            Op::Dot { signed: signed[usize::from(prefix)], dest: reg, left: rm, right: vvvv }
        }
        _ => return None,
    };
    Some((op, length))
}

/// The memory operand behind a ModRM byte with these fields; `x` and `b` are bit 3 of index and base.
fn operand(mode: u8, rm: usize, x: usize, b: usize, byte: &mut impl FnMut() -> u8) -> Operand {
    let (mut base, mut index) = (Base::Register(b | rm), None);
    let mut absolute = false;
    if rm == 4 {
        let sib = byte();
        let number = x | usize::from(sib >> 3 & 7);
        index = (number != 4).then_some((number, sib >> 6));
        base = Base::Register(b | usize::from(sib & 7));
        if mode == 0 && sib & 7 == 5 {
            (base, absolute) = (Base::None, true);
        }
    } else if mode == 0 && rm == 5 {
        (base, absolute) = (Base::Next, true);
    }
    let displacement = match mode {
        1 => i32::from(byte().cast_signed()),
        0 if !absolute => 0,
        _ => i32::from_le_bytes([byte(), byte(), byte(), byte()]),
    };
    Operand { base, index, displacement }
}

/// The tile state of a thread, with palette 1, the only one there is.
struct Tiles {
    configured: bool,
    /// Where a load or store goes on; only a configuration sets it.
    start_row: usize,
    rows: [usize; TILE_COUNT],
    /// Bytes per row.
    width: [usize; TILE_COUNT],
    data: [[[u8; ROW_BYTES]; MOST_ROWS]; TILE_COUNT],
    executed: u64,
}

thread_local! {
    // constant and without a destructor: plain memory of the thread, which a signal handler may use
    static TILES: RefCell<Tiles> = const { RefCell::new(Tiles::new()) };
}

impl Tiles {
    const fn new() -> Self {
        Tiles {
            configured: false,
            start_row: 0,
            rows: [0; TILE_COUNT],
            width: [0; TILE_COUNT],
            data: [[[0; ROW_BYTES]; MOST_ROWS]; TILE_COUNT],
            executed: 0,
        }
    }

    fn release(&mut self) {
        *self = Tiles { executed: self.executed, ..Tiles::new() };
    }

    /// LDTILECFG.
    fn configure(&mut self, config: &[u8; 64]) -> Result<(), Fault> {
        use Fault::Protection;
        if config[0] == 0 {
            self.release();
            return Ok(());
        }
        if config[0] != 1 {
            return Err(Protection("the palette is neither 0 nor 1"));
        }
        // behind the eight tiles lies room for eight more, which palette 1 does not have
        let mut reserved = [&config[2..16], &config[32..48], &config[56..]].into_iter().flatten();
        if reserved.any(|&byte| byte != 0) {
            return Err(Protection("a reserved byte of the tile configuration is not zero"));
        }
        let width: [usize; TILE_COUNT] =
            std::array::from_fn(|t| u16::from_le_bytes([config[16 + 2 * t], config[17 + 2 * t]]).into());
        let rows: [usize; TILE_COUNT] = std::array::from_fn(|t| config[48 + t].into());
        for (&width, &rows) in width.iter().zip(&rows) {
            if width > ROW_BYTES || rows > MOST_ROWS {
                return Err(Protection("a tile has more than 16 rows or 64 bytes per row"));
            }
            if (width == 0) != (rows == 0) {
                return Err(Protection("a tile has rows without bytes or bytes without rows"));
            }
        }
        self.release();
        (self.configured, self.start_row, self.rows, self.width) = (true, config[1].into(), rows, width);
        Ok(())
    }

    /// STTILECFG.
    fn config(&self) -> [u8; 64] {
        let mut config = [0; 64];
        if self.configured {
            (config[0], config[1]) = (1, self.start_row as u8);
            for t in 0..TILE_COUNT {
                config[16 + 2 * t] = self.width[t] as u8;
                config[48 + t] = self.rows[t] as u8;
            }
        }
        config
    }

    fn check_valid(&self, tile: usize) -> Result<(), Fault> {
        match (self.configured, self.rows[tile]) {
            (false, _) => Err(Fault::Undefined("tiles are not configured")),
            (true, 0) => Err(Fault::Undefined("the configuration leaves this tile out")),
            (true, _) => Ok(()),
        }
    }

    /// The rows that a load or store of the tile moves.
    fn rows_to_move(&self, tile: usize) -> Result<std::ops::Range<usize>, Fault> {
        self.check_valid(tile)?;
        if !self.width[tile].is_multiple_of(4) {
            return Err(Fault::Undefined("bytes per row are no multiple of 4"));
        }
        if self.start_row >= self.rows[tile] {
            return Err(Fault::Undefined("start_row lies behind the tile"));
        }
        Ok(self.start_row..self.rows[tile])
    }

    /// TDPB*: `dest[m][n] += Σ left[m][4k + i] · right[k][4n + i]` over k and i < 4, modulo 2³².
    fn dot(&mut self, signed: Signed, dest: usize, left: usize, right: usize) -> Result<(), Fault> {
        use Fault::Undefined;
        if dest == left || dest == right || left == right {
            return Err(Undefined("the same tile twice"));
        }
        for tile in [dest, left, right] {
            self.check_valid(tile)?;
            if !self.width[tile].is_multiple_of(4) {
                return Err(Undefined("bytes per row are no multiple of 4"));
            }
        }
        let (rows, columns, depth) = (self.rows[dest], self.width[dest] / 4, self.rows[right]);
        if self.rows[left] != rows || self.width[right] != self.width[dest] || self.width[left] != 4 * depth {
            return Err(Undefined("the shapes of the tiles do not match"));
        }
        let widen = |byte: u8, signed| if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) };
        let mut sums = [[0; ROW_BYTES]; MOST_ROWS];
        for (m, sums) in sums.iter_mut().enumerate().take(rows) {
            for n in (0..4 * columns).step_by(4) {
                let old = &self.data[dest][m][n..n + 4];
                let mut sum = i32::from_le_bytes([old[0], old[1], old[2], old[3]]);
                for k in 0..depth {
                    for i in 0..4 {
                        let a = widen(self.data[left][m][4 * k + i], signed.0);
                        let b = widen(self.data[right][k][n + i], signed.1);
                        sum = sum.wrapping_add(a * b);
                    }
                }
                sums[n..n + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        self.data[dest] = sums;
        self.start_row = 0;
        Ok(())
    }

    /// Executes one instruction.
    ///
    /// # Safety
    ///
    /// As for the instruction: what it reads or writes at the address in `registers` must be the program's to read
    /// or write.
    unsafe fn execute(&mut self, op: &Op, registers: &Registers) -> Result<(), Fault> {
        let at = |address: u64| ptr::with_exposed_provenance_mut::<u8>(address as usize);
        match op {
            Op::LoadConfig(operand) => {
                let from = at(operand.start(registers).wrapping_add(operand.stride(registers)));
                let mut config = [0; 64];
                // SAFETY: the caller vouches for 64 readable bytes.
                unsafe { copy(from, config.as_mut_ptr(), config.len()) };
                self.configure(&config)?;
            }
            Op::StoreConfig(operand) => {
                let to = at(operand.start(registers).wrapping_add(operand.stride(registers)));
                let config = self.config();
                // SAFETY: the caller vouches for 64 writable bytes.
                unsafe { copy(config.as_ptr(), to, config.len()) };
            }
            Op::Release => self.release(),
            &Op::Zero(tile) => {
                self.check_valid(tile)?;
                self.data[tile] = [[0; ROW_BYTES]; MOST_ROWS];
                self.start_row = 0;
            }
            &Op::Load(tile, ref operand) => {
                let rows = self.rows_to_move(tile)?;
                self.data[tile][self.rows[tile]..].fill([0; ROW_BYTES]);
                let (start, stride) = (operand.start(registers), operand.stride(registers));
                for row in rows {
                    let from = at(start.wrapping_add(stride.wrapping_mul(row as u64)));
                    let to = &mut self.data[tile][row];
                    *to = [0; ROW_BYTES];
                    // SAFETY: the caller vouches for the source; a row has at most ROW_BYTES bytes.
                    unsafe { copy(from, to.as_mut_ptr(), self.width[tile]) };
                }
                self.start_row = 0;
            }
            &Op::Store(tile, ref operand) => {
                let (start, stride) = (operand.start(registers), operand.stride(registers));
                for row in self.rows_to_move(tile)? {
                    let to = at(start.wrapping_add(stride.wrapping_mul(row as u64)));
                    // SAFETY: the caller vouches for the destination; a row has at most ROW_BYTES bytes.
                    unsafe { copy(self.data[tile][row].as_ptr(), to, self.width[tile]) };
                }
                self.start_row = 0;
            }
            &Op::Dot { signed, dest, left, right } => self.dot(signed, dest, left, right)?,
        }
        self.executed += 1;
        Ok(())
    }
}

/// Copies bytes between the program's memory and ours. In assembly, where a bad address is a fault of the CPU and
/// not undefined behaviour.
///
/// # Safety
///
/// That many bytes must be the program's to read and to write.
unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: copies what the caller allows; the direction flag is clear in compiled code and in signal handlers.
    unsafe {
        asm!("rep movsb", inout("rsi") from => _, inout("rdi") to => _, inout("rcx") count => _,
            options(nostack, preserves_flags));
    }
}

/// What handled SIGILL before us.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

extern "C" fn on_illegal(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    /// Where a signal's context holds the registers, by their number in instructions.
    const GENERAL: [c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    // SAFETY: the kernel passes a SA_SIGINFO handler these two, for it alone.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let values = &mut context.uc_mcontext.gregs;
    let rip = values[libc::REG_RIP as usize].cast_unsigned();
    let mut next = rip;
    let decoded = decode(|| {
        // SAFETY: the CPU fetched the instruction from here, and `decode` asks for no byte behind it.
        let byte = unsafe { ptr::with_exposed_provenance::<u8>(next as usize).read() };
        next += 1;
        byte
    });
    let Some((op, length)) = decoded.filter(|_| info.si_code > 0 /* from the CPU, not from kill */) else {
        // SAFETY: puts back what was in force before `install`. If the CPU refused an instruction, it will again.
        unsafe {
            libc::sigaction(libc::SIGILL, PREVIOUS.get().map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
            if info.si_code <= 0 {
                libc::raise(libc::SIGILL);
            }
        }
        return;
    };
    let next = rip + length;
    let registers = Registers { general: GENERAL.map(|at| values[at as usize].cast_unsigned()), next };
    // SAFETY: the program itself executes this instruction with these registers.
    match TILES.with_borrow_mut(|tiles| unsafe { tiles.execute(&op, &registers) }) {
        Ok(()) => values[libc::REG_RIP as usize] = next.cast_signed(),
        Err(Fault::Undefined(rule)) => die(libc::SIGILL, &op, rip, rule),
        Err(Fault::Protection(rule)) => die(libc::SIGSEGV, &op, rip, rule),
    }
}

/// Says what was wrong, and ends the process with this signal.
fn die(signal: c_int, op: &Op, rip: u64, rule: &str) {
    let mut text = Text { bytes: [0; 512], length: 0 };
    let _ = writeln!(text, "AMX emulator: {rule}: {op:?} at {rip:#x}"); // a message too long ends early
    // SAFETY: the calls are allowed in signal handlers; the bytes are ours. SIGILL stays blocked until the handler
    // returns, SIGSEGV ends the process at once.
    unsafe {
        libc::write(2, text.bytes.as_ptr().cast(), text.length);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// A message built without allocation.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
