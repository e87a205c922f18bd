//! One mutable slice, written by many tasks in places that do not overlap.

use std::marker::PhantomData;

/// A slice whose parts go to different tasks.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by `part`, whose callers promise that they do not overlap.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Where value `at` is, with at least `len` values from there on.
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut T {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "part {at} + {len} of {}: this is a bug",
            self.len
        );
        self.start.wrapping_add(at)
    }

    /// Values `at .. at + len`.
    ///
    /// # Safety
    /// No two parts that are alive at once overlap.
    #[allow(unsafe_code, clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, at: usize, len: usize) -> &mut [T] {
        // SAFETY: inside the slice by `at`; not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(at, len), len) }
    }
}
