//! Why a stored context cannot be had.

use super::Address;

/// A store that does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none to be used.
    #[error("contexts cannot be stored at {address}: {reason}")]
    Open {
        /// The place.
        address: Address,
        /// What it said.
        reason: String,
    },
    /// There is a context of that name.
    #[error("there is a context of that name")]
    Exists,
    /// There is no such context, or none any more.
    #[error("there is no such context")]
    Gone,
    /// Somebody else added events since these were decided.
    #[error("the context has moved on")]
    Moved,
    /// What is stored is not what this version writes.
    #[error("what is stored of a context cannot be read: {reason}")]
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// The database failed.
    #[error("the database of contexts failed: {0}")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    pub(super) fn unreadable(reason: &impl ToString) -> Self {
        Self::Unreadable { reason: reason.to_string() }
    }
}
