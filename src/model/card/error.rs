//! Why a model card is refused, and what to do about it.

use super::FORMAT;
use crate::prompt::layout::ScorePromptError;

/// A model card that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model card {card}: {problem}")]
pub struct CardError {
    /// Name of the card (its file's name without `.toml`).
    pub card: String,
    /// What is wrong with it.
    pub problem: CardProblem,
}

/// What can be wrong with a model card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardProblem {
    /// Not TOML, or not these fields.
    #[error("the file cannot be read: {reason}")]
    NotToml {
        /// The parser's words, with the line.
        reason: String,
    },
    /// Written for another version.
    #[error(
        "it has format {found}, this version reads format {FORMAT}; rewrite the card or use the version it is for"
    )]
    OtherFormat {
        /// The file's format.
        found: u32,
    },
    /// The file's name and the id inside differ.
    #[error("its id is {id:?}; name the file after the id")]
    OtherId {
        /// The id in the file.
        id: String,
    },
    /// A field holds something it must not.
    #[error("{field} is {value:?}; it must be {must_be}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        must_be: &'static str,
    },
    /// Packages can carry one file only.
    #[error("it lists {files} files, but packages carry exactly one; drop `packages` or list one file")]
    PackagesOfManyFiles {
        /// Files listed.
        files: usize,
    },
    /// The score prompt lacks a placeholder.
    #[error(transparent)]
    Prompt(#[from] ScorePromptError),
}
