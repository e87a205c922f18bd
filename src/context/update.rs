//! What comes in: an update, the groups of results of one search call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::prompt::layout::{Chunk, content_hash};

/// The results of one search call. The same update may be sent again, any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The caller's name for it, unique in the context; not empty.
    pub id: String,
    /// What chunks are scored for in this update, instead of the context's question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// One group for each query of the search call, in order.
    pub groups: Vec<Group>,
}

/// What one query of a search call found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The query that was searched for: kept in the log, and decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// The results, in retrieval order; none is fine, and so are more or fewer than B.
    pub results: Vec<Arc<Chunk>>,
}

impl Update {
    /// Hash of everything but the id: what two updates of one id must agree in.
    pub(super) fn content(&self) -> String {
        let text = serde_json::to_string(&(&self.query, &self.groups));
        content_hash(&[&text.expect("plain data can be written: this is a bug")])
    }
}
