//! Reads parts of a weight file from several threads. Files are read, not mapped, so that the process holds a weight once.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{Mutex, PoisonError},
};

/// An open file.
#[derive(Debug)]
pub(super) struct Reader(Mutex<File>);

impl Reader {
    pub(super) fn new(file: File) -> Self {
        Self(Mutex::new(file))
    }

    /// Reads bytes `at ..` of the file, as many as `to` holds.
    pub(super) fn read_at(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        // A poisoned lock only means that another read panicked; every read seeks first.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(to).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the file became shorter after it was opened"),
            _ => e,
        })
    }
}
