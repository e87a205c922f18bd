//! Search results inside a conversation: finding them, and writing in their place what a context admitted. Pure.
//!
//! Agents send the whole conversation with every request. A *block* is a tool's answer in it that holds search results;
//! each is an update of a context, and its id is made of its text, so that the same block of a later request is the same
//! update and is answered as it was. In a block's place stands what the whitelist had after its update and no earlier block
//! of the conversation shows. All that is fixed once the update is done, so a message is written once: what was sent to the
//! model before is sent again to the letter, and its KV is reused.
//!
//! ```text
//!   messages ──find──▶ blocks (message, bytes, update) ──context──▶ answers ──write──▶ texts ──▶ messages
//! ```
//!
//! Tests: beside the parts, and `tests.rs` for what is written once.

mod find;
mod json;
mod list;
#[cfg(test)]
mod tests;
mod write;

pub use find::{Block, Message, find};
pub use write::{Deferred, replace, write};

use crate::{context::Group, prompt::layout::Chunk};

/// A search's results as a tool prints them: one list for each query.
type Groups = Vec<Group>;

fn group(search: Option<String>, results: Vec<Chunk>) -> Group {
    Group { search, results: results.into_iter().map(Into::into).collect() }
}
