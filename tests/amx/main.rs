//! The AMX kernel of quantised products against the other kernels, bit for bit, through an emulator of the tile
//! instructions (`emulator.rs`): on Linux with AVX-512 VNNI, whether the processor has AMX or not.
#![allow(clippy::unwrap_used)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod emulator;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod kernel;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[test]
fn amx() {
    eprintln!("SKIPPED: the AMX kernel runs on Linux on x86-64 only");
}
