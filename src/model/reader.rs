//! Reads parts of a weight file from several threads. Files are read, not mapped, so that the process holds a weight once.
//!
//! Reads name their place in the file, so that threads share it without a lock. Tests are beside the code.

use std::{fs::File, io};

/// An open file.
#[derive(Debug)]
pub(super) struct Reader(File);

impl Reader {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }

    /// Reads bytes `at ..` of the file, as many as `to` holds.
    pub(super) fn read_at(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        read_exact_at(&self.0, at, to).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the file became shorter after it was opened"),
            _ => e,
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, at: u64, to: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut at: u64, mut to: &mut [u8]) -> io::Result<()> {
    while !to.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, to, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (at, to) = (at + n as u64, &mut to[n..]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_read_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let reader = Reader::new(File::open(&path).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (reader, bytes) = (&reader, &bytes);
                scope.spawn(move || {
                    for i in 0..2000 {
                        let at = (i * 7919 + thread * 104_729) % (bytes.len() - 300);
                        let mut part = [0; 300];
                        reader.read_at(at as u64, &mut part).unwrap();
                        assert_eq!(part, bytes[at..at + 300]);
                    }
                });
            }
        });
        assert!(reader.read_at(bytes.len() as u64, &mut []).is_ok());
    }

    #[test]
    fn a_file_that_became_shorter_is_named_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        std::fs::write(&path, [7; 100]).unwrap();
        let reader = Reader::new(File::open(&path).unwrap());
        let mut part = [0; 40];
        assert!(reader.read_at(60, &mut part).is_ok());
        File::options().write(true).open(&path).unwrap().set_len(80).unwrap();
        for at in [60, 80, 1000] {
            let error = reader.read_at(at, &mut part).unwrap_err().to_string();
            assert_eq!(error, "the file became shorter after it was opened");
        }
    }
}
