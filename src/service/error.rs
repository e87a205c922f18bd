//! Why a use case failed, in the caller's terms.

use crate::engine::EngineError;

/// A request that cannot be served.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ServiceError {
    /// A field of the request is wrong.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, as the caller spells it: `chunks[3].text`.
        field: String,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// Prompt (and answer) would not fit the model.
    #[error("{field}: the prompt has {prompt} tokens{}; the limit is {limit}", asked(*prompt, *new))]
    TooLong {
        /// The field that holds the long part.
        field: String,
        /// Prompt tokens.
        prompt: usize,
        /// Tokens to generate.
        new: usize,
        /// Most tokens in all.
        limit: usize,
    },
    /// Told without tokenising: texts that cannot fit the model.
    #[error("{field}: {bytes} bytes of text are at least {least} tokens; the limit is {limit}")]
    TextTooLong {
        /// The field that holds the long part.
        field: String,
        /// Bytes of text.
        bytes: usize,
        /// Fewest tokens they can be.
        least: usize,
        /// Most tokens in all.
        limit: usize,
    },
    /// Something named in the request does not exist.
    #[error("{field}: {name:?} does not exist; there is {known}")]
    Unknown {
        /// The field.
        field: String,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The request names no heads, and the model has no head set to fall back on.
    #[error(
        "head_set: this model has no default head set, so heads must be named, as in \"heads\": [\"L16H7\", \"L13H13\"]\
         {sets}"
    )]
    NoHeadSet {
        /// Sets there are besides, and why others are left out; may be empty.
        sets: String,
    },
    /// There is no such context, or it is another key's.
    #[error("there is no context {id:?}; POST /v1/contexts makes one")]
    NoContext {
        /// The id that was asked for.
        id: String,
    },
    /// What is asked does not go with what there is.
    #[error("{field}: {reason}")]
    Conflict {
        /// The field.
        field: String,
        /// Why not.
        reason: String,
    },
    /// Contexts cannot be read or written.
    #[error("{reason}")]
    Storage {
        /// Why.
        reason: String,
    },
    /// Too many requests at once.
    #[error("{limit} requests are in progress, which is the limit; try again shortly")]
    Overloaded {
        /// The limit.
        limit: usize,
    },
    /// The engine could not do it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

fn asked(prompt: usize, new: usize) -> String {
    if new == 0 {
        String::new()
    } else {
        format!(" and asks for {new} more, together {}", prompt.saturating_add(new))
    }
}

impl ServiceError {
    /// A [`ServiceError::Invalid`].
    pub fn invalid(field: impl Into<String>, reason: &(impl ToString + ?Sized)) -> Self {
        Self::Invalid { field: field.into(), reason: reason.to_string() }
    }

    /// `field` says what answers must look like, and that cannot be followed.
    pub(super) fn unfollowed(field: impl Into<String>, reason: &str) -> Self {
        Self::invalid(field, &format!("cannot be followed: {reason}"))
    }
}
