//! Putting studies together: everything is checked before anything is written.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

use super::{Folder, StudyError, identity::Kind, run::all_parts, vacant, write_whole};

/// What to do about studies that were made with different things.
const ADVICE: &str = "only studies that were made alike can be merged";

impl Folder {
    /// Copies the observations and runs of `parts`, of which there is at least one, to the study in `root`, which is
    /// made if need be; gives it with the number that came from each.
    ///
    /// # Errors
    /// When the parts were not made alike, parts of a draw are missing, a file cannot be read, or `root` holds what is
    /// in none of them. Then nothing was written.
    pub fn merge(root: &Path, parts: &[Self]) -> Result<(Self, Vec<usize>), StudyError> {
        let identity = parts[0].identity();
        let (mut runs, mut names) = (Vec::new(), BTreeSet::new());
        for part in parts {
            part.must_be(identity, ADVICE)?;
            let own = part.runs()?;
            if own.is_empty() {
                return Err(StudyError::Unfinished { path: part.root.clone() });
            }
            let files = part.files()?;
            for file in &files {
                part.read(file)?;
            }
            let here: BTreeSet<OsString> =
                files.iter().filter_map(|f| f.file_name()).map(Into::into).collect();
            let wanted: BTreeSet<&str> =
                own.iter().flat_map(|run| &run.observed).map(String::as_str).collect();
            let lost = wanted.iter().filter(|name| !here.contains(OsStr::new(name))).count();
            if lost > 0 {
                return Err(StudyError::Lost { path: part.root.clone(), lost, of: wanted.len() });
            }
            runs.extend(own);
            names.extend(here);
        }
        all_parts(&runs)?;
        holds_only(root, &names)?;
        let merged = Self::create(root, identity)?;
        let taken = parts.iter().map(|part| merged.take_from(part)).collect::<Result<_, _>>()?;
        runs.iter().try_for_each(|run| merged.finish(run))?;
        Ok((merged, taken))
    }

    /// Copies what is not here yet.
    fn take_from(&self, part: &Self) -> Result<usize, StudyError> {
        let mut taken = 0;
        for file in part.files()? {
            let to = self.inputs().join(file.file_name().unwrap_or_default());
            if !to.is_file() {
                write_whole(&to, &fs::read(&file).map_err(StudyError::io(&file))?)?;
                taken += 1;
            }
        }
        Ok(taken)
    }
}

/// Checks that the study in `root`, if there is one, has no observation but these.
fn holds_only(root: &Path, names: &BTreeSet<OsString>) -> Result<(), StudyError> {
    let there = match Folder::open(root, Kind::Study) {
        Ok(there) => there,
        Err(StudyError::Missing { .. }) => return vacant(root),
        Err(other) => return Err(other),
    };
    let own = |file: &Path| file.file_name().is_some_and(|name| names.contains(name));
    match there.files()?.into_iter().find(|file| !own(file)) {
        Some(file) => Err(StudyError::Strangers { path: root.to_owned(), file }),
        None => Ok(()),
    }
}
