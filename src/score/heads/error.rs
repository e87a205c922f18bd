//! Why a head set is refused, and what to do about it.

use crate::ids::HeadRef;

/// A head set that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("head set {set}: {problem}")]
pub struct HeadSetError {
    /// Name of the set.
    pub set: String,
    /// What is wrong with it.
    pub problem: HeadSetProblem,
}

/// What can be wrong with a head set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadSetProblem {
    /// Not TOML, or not these fields.
    #[error("the file cannot be read: {reason}")]
    NotToml {
        /// The parser's words, with the line.
        reason: String,
    },
    /// Written by another version.
    #[error("it has format {found}, this version reads format {known}; localize the heads again")]
    OtherFormat {
        /// The file's format.
        found: u32,
        /// The format understood.
        known: u32,
    },
    /// No head at all.
    #[error("it names no heads; give at least one, such as \"L16H7\"")]
    NoHeads,
    /// The same head twice would count twice in the mean.
    #[error("{head} is named more than once; name each head once")]
    Repeated {
        /// The head.
        head: HeadRef,
    },
    /// A head the model does not have.
    #[error("{head} does not exist in {n_layers} layers of {n_heads} heads; both are counted from 0")]
    OutOfRange {
        /// The head.
        head: HeadRef,
        /// Layers of the model.
        n_layers: usize,
        /// Heads per layer.
        n_heads: usize,
    },
    /// The set claims to be bound but does not say to what.
    #[error(
        "it lacks {field}; localize the heads again to record it, or state `provisional = true` (found with this model, hashes unknown) or `published = true` (taken from a publication)"
    )]
    Unbound {
        /// The missing field.
        field: &'static str,
    },
    /// Both hashes are there.
    #[error("it records both hashes, so it is not provisional; remove `provisional`")]
    NotProvisional,
    /// Both standings are claimed.
    #[error("it is either published or provisional; remove one of the two")]
    TwoStandings,
    /// Found with another model.
    #[error(
        "it was found with {found_with}, but {loaded} is loaded; heads do not carry over between models, localize them for this one"
    )]
    OtherModel {
        /// The file's model id.
        found_with: String,
        /// The loaded model id.
        loaded: String,
    },
    /// Same name, other model.
    #[error("it is for {} layers of {} heads, but the loaded model has {} of {}; check that the weights are the ones the file names", named.0, named.1, loaded.0, loaded.1)]
    OtherShape {
        /// Layers and heads in the file.
        named: (usize, usize),
        /// Layers and heads of the model.
        loaded: (usize, usize),
    },
    /// Found with another scoring prompt.
    #[error(
        "it was found with prompt {found_with}, but {loaded} is in use; restore that score prompt and chat template, or localize the heads again with this one"
    )]
    OtherPrompt {
        /// Hash in the file.
        found_with: String,
        /// Hash in use.
        loaded: String,
    },
    /// Found with another tokenizer.
    #[error(
        "it was found with tokenizer {found_with}, but {loaded} is in use; restore that tokenizer, or localize the heads again with this one"
    )]
    OtherTokenizer {
        /// Hash in the file.
        found_with: String,
        /// Hash in use.
        loaded: String,
    },
    /// The layer's rows are not there to be read.
    #[error(
        "{head} lies in a layer without full attention rows (a sliding window, or no attention); choose heads of full-attention layers"
    )]
    NoFullRows {
        /// The head.
        head: HeadRef,
    },
}
