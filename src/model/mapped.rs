//! The one place that maps files into memory.

use std::{fs::File, path::Path};

use memmap2::Mmap;

use super::weights::LoadError;

/// Maps `file` read-only.
///
/// # Errors
/// When it cannot be opened or mapped.
pub fn map(file: &Path) -> Result<Mmap, LoadError> {
    let unreadable = |e: std::io::Error| LoadError::Unreadable { file: file.into(), reason: e.to_string() };
    let open = File::open(file).map_err(unreadable)?;
    // SAFETY: the map is read-only. A model file must not be truncated while a server uses it; that is the promise
    // every server that maps its weights asks for.
    #[allow(unsafe_code)]
    unsafe { Mmap::map(&open) }.map_err(unreadable)
}
