//! Why a folder cannot be used, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{Kind, identity::Difference};
use crate::text::{shown, shown_sentence};

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of one observation or run holds something else.
    #[error("{}: {reason}; remove it, and what it held is observed again", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// `study.toml` holds something else.
    #[error("{}: {reason}; what the folder holds cannot be told without it: choose another folder", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder belongs to another model, prompt or program version.
    #[error("{}: it was made with {field} {found}, this run has {wanted}; {advice}", path.display())]
    Other {
        /// The folder.
        path: PathBuf,
        /// What differs.
        field: &'static str,
        /// There.
        found: String,
        /// Here.
        wanted: String,
        /// What to do.
        advice: &'static str,
    },
    /// The folder is for something else.
    #[error("{} is the folder of {found}, and one of {wanted} is needed; choose another", path.display())]
    OtherKind {
        /// The folder.
        path: PathBuf,
        /// What it is for.
        found: Kind,
        /// What is needed.
        wanted: Kind,
    },
    /// No study there.
    #[error("{}: no study is there; `qrae localize DATA --out {}` makes one", path.display(), path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Somebody's files.
    #[error(
        "{} is not empty ({} is in it), and no study.toml says that it is a study's; choose another folder with --out",
        path.display(), shown(inside)
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// A file or folder in it.
        inside: String,
    },
    /// A link whose end does not exist.
    #[error("{} is a link that leads nowhere; choose another folder with --out", path.display())]
    Nowhere {
        /// The link.
        path: PathBuf,
    },
    /// A folder to merge in which no run came to its end.
    #[error("{}: no run was finished there; run it again, which goes on where it stopped", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// A folder to merge that has not all its run observed.
    #[error(
        "{}: {lost} of {of} observations are gone; run its part again, which observes these alone",
        path.display()
    )]
    Lost {
        /// The folder.
        path: PathBuf,
        /// Observations that are not there.
        lost: usize,
        /// Observations there were.
        of: usize,
    },
    /// Folders to merge that are not the whole of a draw.
    #[error(
        "of {of} parts of the {n} inputs drawn from {} with seed {seed}, {missing} missing; give the folders of all parts, \
         which --shard I/{of} makes of the same data, --n, --seed and --criterion",
        shown(data)
    )]
    Parts {
        /// Parts there must be.
        of: usize,
        /// Inputs in all of them.
        n: usize,
        /// Name of the data.
        data: String,
        /// Seed of the draw.
        seed: u64,
        /// Which, as `2 and 3 are`.
        missing: String,
    },
    /// The folder to merge into holds other observations.
    #[error(
        "{} holds observations that are in none of the folders to merge, such as {}; choose another folder with --out, or \
         name this one among them", path.display(), file.display()
    )]
    Strangers {
        /// The folder.
        path: PathBuf,
        /// One of them.
        file: PathBuf,
    },
}

impl StudyError {
    /// The folder at `path` is other than it should be. Its own words are made fit for a terminal.
    pub(super) fn other(path: &Path, difference: &Difference, advice: &'static str) -> Self {
        let Difference { field, found, wanted } = difference;
        Self::Other { path: path.to_owned(), field, found: shown(found), wanted: shown(wanted), advice }
    }

    /// A file that holds something else, of which a parser says `reason`.
    pub(super) fn broken(path: &Path, reason: &str) -> Self {
        Self::Broken { path: path.to_owned(), reason: shown_sentence(reason) }
    }

    pub(super) fn unreadable(path: &Path, reason: &str) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: shown_sentence(reason) }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
