//! A stand-in for Python: a shell script that puts wheels made by the test where pip would.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use zip::{ZipWriter, write::SimpleFileOptions};

/// The script, its shelf of wheels and its diary.
pub(crate) struct FakePip {
    dir: tempfile::TempDir,
}

impl FakePip {
    /// A pip that knows no package yet.
    pub(crate) fn new() -> Self {
        let fake = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(fake.dir.path().join("shelf")).unwrap();
        // The real arguments end in `-d DIR name==version`.
        fake.script(
            r#"echo "$@" >> HERE/diary
while [ $# -gt 1 ]; do [ "$1" = -d ] && dir=$2; shift; done
wheel=HERE/shelf/${1%%==*}.whl
[ -e "$wheel" ] || { echo "ERROR: No matching distribution found for $1" >&2; exit 1; }
while [ -e HERE/hold ]; do sleep 0.05; done
cp "$wheel" "$dir/""#,
        );
        fake
    }

    /// Replaces what the interpreter does; `HERE` is the fake's own folder.
    pub(crate) fn script(&self, body: &str) {
        let body = body.replace("HERE", &self.dir.path().display().to_string());
        fs::write(self.python(), format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(self.python(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What to start instead of `python3`.
    pub(crate) fn python(&self) -> PathBuf {
        self.dir.path().join("python")
    }

    /// Makes a package with these files.
    pub(crate) fn wheel(&self, package: &str, files: &[(&str, &[u8])]) {
        let mut zip = ZipWriter::new(fs::File::create(self.wheel_path(package)).unwrap());
        for (name, body) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(body).unwrap();
        }
        zip.finish().unwrap();
    }

    /// Where a package's wheel lies.
    pub(crate) fn wheel_path(&self, package: &str) -> PathBuf {
        self.dir.path().join("shelf").join(format!("{package}.whl"))
    }

    /// While this file exists, downloads do not end.
    pub(crate) fn hold(&self) -> PathBuf {
        self.dir.path().join("hold")
    }

    /// The arguments of every run so far.
    pub(crate) fn runs(&self) -> Vec<String> {
        let diary = fs::read_to_string(self.dir.path().join("diary")).unwrap_or_default();
        diary.lines().map(str::to_owned).collect()
    }
}

/// Every name in a folder, sorted.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>();
    names.sort();
    names
}
