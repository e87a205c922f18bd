//! The model folder: finished files under their own names, checked once, written by one process at a time.
//!
//! A file appears under its final name only by a rename of a complete, checked file. Beside `name` live
//! `name.ok` (hash, size and time of the last check, so that a start does not hash half a gigabyte) and
//! `name.lock` (an advisory lock, held while the file is made; it stays, removing it would be a race).
//! Unfinished work lives in `.fetch-name-*` folders, which whoever next holds the lock removes.
//! Tests: below and `tests/hub.rs`.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use sha2::{Digest, Sha256};

use super::{HubError, report::Reporter};

/// A folder of finished model files.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// The folder; made when the first file is fetched.
    pub(super) dir: PathBuf,
}

impl Store {
    /// The path of `file` when it is there and its sha256 is `expected` (lower-case hex).
    pub(super) fn cached(
        &self,
        file: &str,
        expected: &str,
        say: Reporter,
    ) -> Result<Option<PathBuf>, HubError> {
        let path = self.dir.join(file);
        if !path.is_file() {
            return Ok(None);
        }
        let sidecar = beside(&path, ".ok");
        let stamp = stamp(&path, expected).map_err(HubError::io("read", &path))?;
        if fs::read_to_string(&sidecar).is_ok_and(|kept| kept == stamp) {
            return Ok(Some(path));
        }
        let bar = say.spinner(&format!("checking {file} (once)"));
        let found = sha256_of(&path).map_err(HubError::io("read", &path))?;
        bar.finish_and_clear();
        if found != expected {
            return Err(HubError::WrongHash {
                what: path.display().to_string(),
                expected: expected.into(),
                found,
            });
        }
        remember(&sidecar, &stamp);
        Ok(Some(path))
    }

    /// Waits until this process alone may make `file`, and removes what an interrupted run left behind.
    pub(super) fn begin(&self, file: &str, say: Reporter) -> Result<Making, HubError> {
        fs::create_dir_all(&self.dir).map_err(HubError::io("create", &self.dir))?;
        let path = self.dir.join(file);
        let lock_path = beside(&path, ".lock");
        let io = || HubError::io("lock", &lock_path);
        let lock = File::options().create(true).append(true).open(&lock_path).map_err(io())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say.note(&format!("another process is fetching {file}, waiting for it"));
                lock.lock().map_err(io())?;
            }
            Err(TryLockError::Error(error)) => return Err(io()(error)),
        }
        let prefix = format!(".fetch-{file}-");
        for entry in fs::read_dir(&self.dir).map_err(HubError::io("list", &self.dir))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // Left over from a killed run: nobody else works on this file while we hold its lock.
                fs::remove_dir_all(entry.path()).map_err(HubError::io("remove", entry.path()))?;
            }
        }
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let work = self.dir.join(format!("{prefix}{}-{nanos}", std::process::id()));
        fs::create_dir(&work).map_err(HubError::io("create", &work))?;
        Ok(Making { path, work, _lock: lock })
    }
}

/// The right to make one file; dropping it removes unfinished work and lets others try.
#[derive(Debug)]
pub(super) struct Making {
    path: PathBuf,
    /// An empty folder on the same file system, for parts and temporaries.
    pub(super) work: PathBuf,
    _lock: File,
}

impl Making {
    /// Gives the finished `part` (a file in `work` whose hash was checked to be `sha256`) its final name.
    pub(super) fn publish(self, part: &Path, sha256: &str) -> Result<PathBuf, HubError> {
        File::open(part).and_then(|file| file.sync_all()).map_err(HubError::io("write", part))?;
        fs::rename(part, &self.path).map_err(HubError::io("rename to", &self.path))?;
        if let Ok(stamp) = stamp(&self.path, sha256) {
            remember(&beside(&self.path, ".ok"), &stamp);
        }
        Ok(self.path.clone())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.work) {
            tracing::warn!("could not remove {:?}: {error}", self.work);
        }
    }
}

/// `path` with `suffix` added to its file name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What must be unchanged for a remembered check to hold: the expected hash, the size and the mtime.
fn stamp(path: &Path, sha256: &str) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    let mtime = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    Ok(format!("{sha256} {} {mtime}\n", meta.len()))
}

/// Failing to remember (a read-only folder, say) costs another check at the next start, nothing else.
fn remember(sidecar: &Path, stamp: &str) {
    if let Err(error) = fs::write(sidecar, stamp) {
        tracing::debug!("could not write {sidecar:?}: {error}");
    }
}

/// The sha256 of a file, in lower-case hex, read in pieces.
pub(super) fn sha256_of(path: &Path) -> io::Result<String> {
    let mut hashing = Hashing::new(io::sink());
    io::copy(&mut File::open(path)?, &mut hashing)?;
    Ok(hashing.finish())
}

/// A writer that hashes what passes through.
pub(super) struct Hashing<W> {
    inner: W,
    sha256: Sha256,
}

impl<W: Write> Hashing<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, sha256: Sha256::new() }
    }

    /// The hash of everything written, in lower-case hex.
    pub(super) fn finish(self) -> String {
        self.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.sha256.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Reporter = Reporter { progress: false };

    #[test]
    fn the_hash_is_sha256() {
        let mut hashing = Hashing::new(Vec::new());
        hashing.write_all(b"ab").unwrap();
        hashing.write_all(b"c").unwrap();
        assert_eq!(hashing.inner, b"abc");
        // FIPS 180-2, appendix B.1
        assert_eq!(hashing.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_check_is_remembered_until_the_file_or_the_promise_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store { dir: dir.path().to_owned() };
        let path = dir.path().join("m.gguf");
        fs::write(&path, "abc").unwrap();
        let good = sha256_of(&path).unwrap();
        assert_eq!(store.cached("m.gguf", &good, QUIET).unwrap(), Some(path.clone()));

        // Same size and time, other bytes: only a remembered check can still say yes.
        let mtime = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "abd").unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(mtime).unwrap();
        assert!(store.cached("m.gguf", &good, QUIET).is_ok());

        let other = "0".repeat(64);
        assert!(matches!(store.cached("m.gguf", &other, QUIET), Err(HubError::WrongHash { .. })));
        fs::write(&path, "abde").unwrap();
        assert!(matches!(store.cached("m.gguf", &good, QUIET), Err(HubError::WrongHash { .. })));
        assert_eq!(store.cached("absent.gguf", &good, QUIET).unwrap(), None);
    }

    #[test]
    fn unfinished_work_is_gone_after_a_drop_and_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store { dir: dir.path().join("models") };
        let making = store.begin("m.gguf", QUIET).unwrap();
        let work = making.work.clone();
        fs::write(work.join("part"), "half").unwrap();
        drop(making);
        assert!(!work.exists());

        let left = store.dir.join(".fetch-m.gguf-1-1");
        let others = store.dir.join(".fetch-n.gguf-1-1");
        fs::create_dir(&left).unwrap();
        fs::create_dir(&others).unwrap();
        drop(store.begin("m.gguf", QUIET).unwrap());
        assert!(!left.exists(), "work of a killed run stays behind");
        assert!(others.exists(), "work on another file may be alive");
    }
}
