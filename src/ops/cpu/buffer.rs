//! Memory for weights and KV: zeroed, aligned to cache lines, and for weights on huge pages where the system has them.
//!
//! Decoding reads every weight once per step; on pages of 4 KiB the processor then spends a third of its time finding out
//! where they are. So buffers are cut from chunks that ask for pages of 2 MiB, and small ones share a chunk.

use std::{
    fmt, io,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use memmap2::MmapMut;

/// Size and alignment of a huge page.
const PAGE: usize = 2 << 20;
/// Bytes of a chunk that small buffers share.
const CHUNK: usize = 32 << 20;
/// Buffers from this size on have a chunk of their own.
const LARGE: usize = 8 << 20;
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Numbers for which all bits zero is a value, and any bits are one.
///
/// # Safety
/// Exactly that, and the type has no padding and needs no alignment over 64.
#[allow(unsafe_code)]
pub unsafe trait Number: Copy + Send + Sync {}
// SAFETY: plain numbers.
#[allow(unsafe_code)]
unsafe impl Number for u8 {}
// SAFETY: plain numbers.
#[allow(unsafe_code)]
unsafe impl Number for i8 {}
// SAFETY: plain numbers.
#[allow(unsafe_code)]
unsafe impl Number for i32 {}
// SAFETY: plain numbers.
#[allow(unsafe_code)]
unsafe impl Number for f32 {}
// SAFETY: plain bytes of a number of 16 bits.
#[allow(unsafe_code)]
unsafe impl Number for [u8; 2] {}
// SAFETY: plain numbers, a wrapper of u16.
#[allow(unsafe_code)]
unsafe impl Number for half::f16 {}

/// A fixed number of `T`, all zero at first.
pub struct Buffer<T> {
    start: *mut T,
    len: usize,
    /// Keeps the memory.
    _chunk: Arc<Chunk>,
}

// SAFETY: a buffer owns its part of the chunk alone, like a `Vec`.
#[allow(unsafe_code)]
unsafe impl<T: Number> Send for Buffer<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Number> Sync for Buffer<T> {}

struct Chunk {
    map: MmapMut,
    /// Bytes handed out.
    used: Mutex<usize>,
}

impl<T: Number> Buffer<T> {
    /// `len` zeros. The system hands out the memory as it is first written.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn try_zeros(len: usize) -> io::Result<Self> {
        static SHARED: Mutex<Weak<Chunk>> = Mutex::new(Weak::new());
        let bytes = len.checked_mul(size_of::<T>()).and_then(|b| b.checked_next_multiple_of(LINE));
        let bytes = bytes.ok_or_else(|| too_much::<T>(len, "more than can be addressed"))?;
        if bytes >= LARGE {
            return Chunk::alone(len, true);
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((chunk, start)) = shared.upgrade().and_then(|c| c.take(bytes).map(|s| (c, s))) {
            return Ok(Self { start: start.cast(), len, _chunk: chunk });
        }
        let chunk = Arc::new(Chunk::new(CHUNK, true)?);
        *shared = Arc::downgrade(&chunk);
        let start = chunk.take(bytes).ok_or_else(|| too_much::<T>(len, "more than a chunk"))?;
        Ok(Self { start: start.cast(), len, _chunk: chunk })
    }

    /// As [`Self::try_zeros`], on small pages: for memory of which much may never be written.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn try_sparse(len: usize) -> io::Result<Self> {
        Chunk::alone(len, false)
    }
}

/// That there is no memory for `len` numbers, with the bytes that were wanted.
fn too_much<T>(len: usize, why: impl fmt::Display) -> io::Error {
    let bytes = len as u128 * size_of::<T>() as u128;
    io::Error::new(io::ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes: {why}"))
}

impl Chunk {
    fn new(bytes: usize, huge: bool) -> io::Result<Self> {
        let padded = bytes.checked_add(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(padded)?;
        // a wish: where there are no huge pages, small ones do
        #[cfg(target_os = "linux")]
        drop(map.advise(if huge { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage }));
        #[cfg(not(target_os = "linux"))]
        let _ = huge;
        let used = map.as_ptr().align_offset(PAGE);
        Ok(Self { map, used: Mutex::new(used) })
    }

    /// A buffer with a chunk of its own.
    fn alone<T>(len: usize, huge: bool) -> io::Result<Buffer<T>> {
        let refused = |why: &dyn fmt::Display| too_much::<T>(len, why);
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| refused(&"more than can be addressed"))?;
        let chunk = Arc::new(Self::new(bytes, huge).map_err(|e| refused(&e))?);
        let start = chunk.take(bytes).ok_or_else(|| refused(&"more than a chunk"))?;
        Ok(Buffer { start: start.cast(), len, _chunk: chunk })
    }

    /// The next `bytes` bytes, if there are as many left.
    fn take(&self, bytes: usize) -> Option<*mut u8> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *used;
        *used = start.checked_add(bytes).filter(|end| *end <= self.map.len())?;
        Some(self.map.as_ptr().cast_mut().wrapping_add(start))
    }
}

impl<T: Number> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` numbers of the chunk, which lives as long and whose bytes are numbers.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start, self.len)
        }
    }
}

impl<T: Number> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; no other buffer has these bytes.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start, self.len)
        }
    }
}

/// Numbers that every pass writes anew: grows like a `Vec`, on huge pages, and keeps what it has.
///
/// Rows of a pass lie far apart, so on small pages writing a panel of them costs a walk through page tables per row.
pub struct Scratch<T> {
    memory: Option<Buffer<T>>,
    len: usize,
}

impl<T: Number> Default for Scratch<T> {
    fn default() -> Self {
        Self { memory: None, len: 0 }
    }
}

impl<T: Number> Scratch<T> {
    /// Makes it `len` long. What was there stays; what is new holds any numbers.
    ///
    /// # Panics
    /// When the system has no memory left, as `Vec` does.
    pub fn resize(&mut self, len: usize) {
        let capacity = self.memory.as_ref().map_or(0, |m| m.len());
        if len > capacity {
            let new = Chunk::alone(len.max(capacity + capacity / 2), true);
            let mut new: Buffer<T> = new.unwrap_or_else(|e| panic!("no memory for {len} values: {e}"));
            new[..self.len].copy_from_slice(self);
            self.memory = Some(new);
        }
        self.len = len;
    }
}

impl<T: Number> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory.as_ref().map_or(&[], |m| &m[..self.len])
    }
}

impl<T: Number> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.memory.as_mut().map_or(&mut [], |m| &mut m[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_aligned_and_apart() {
        let mut all: Vec<Buffer<f32>> =
            [0, 1, 17, 4000, 3 << 20, 9].map(|n| Buffer::try_zeros(n).unwrap()).into();
        for (i, b) in all.iter_mut().enumerate() {
            assert_eq!(b.as_ptr() as usize % LINE, 0);
            assert!(b.iter().all(|v| *v == 0.0));
            b.fill(i as f32);
        }
        for (i, b) in all.iter().enumerate() {
            assert!(b.iter().all(|v| *v == i as f32), "buffer {i} was written through another");
        }
        drop(all);
        // what is taken next is zero again, be it the same chunk or a new one
        assert!(Buffer::<u8>::try_zeros(5000).unwrap().iter().all(|v| *v == 0));
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        assert!(Buffer::<f32>::try_zeros(usize::MAX).is_err());
        let error = Buffer::<f32>::try_zeros(usize::MAX / 8).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let want = format!("no memory for {} bytes: ", usize::MAX / 8 * 4);
        assert!(error.to_string().starts_with(&want), "{error}");
    }

    #[test]
    fn scratch_keeps_what_it_has_and_grows() {
        let mut s = Scratch::<f32>::default();
        assert!(s.is_empty());
        for len in [3, 1000, 10, 700_000, 0, 5] {
            let kept = s.len().min(len);
            s.resize(len);
            assert_eq!(s.len(), len);
            assert!(s[..kept].iter().enumerate().all(|(i, v)| *v == i as f32));
            s.iter_mut().enumerate().for_each(|(i, v)| *v = i as f32);
        }
    }

    #[test]
    fn small_buffers_fill_chunk_after_chunk() {
        let all: Vec<Buffer<u8>> = (0..20).map(|_| Buffer::try_zeros(5 << 20).unwrap()).collect();
        let mut starts: Vec<usize> = all.iter().map(|b| b.as_ptr() as usize).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|w| w[1] - w[0] >= 5 << 20));
    }
}
