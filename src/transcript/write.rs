//! What stands in the place of search results.

use std::{collections::BTreeSet, fmt::Write as _, ops::Range};

use serde::{Deserialize, Serialize};

use crate::{
    context::{Answer, Candidate, ChunkId, State},
    prompt::layout::Chunk,
};

/// What is said of results that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferred {
    /// Nothing.
    #[default]
    Hidden,
    /// Their number, title and address, a line each.
    Stubs,
}

/// The text for each block of a conversation, whose updates were answered so. `state` may have gone on since: nothing that
/// came after a block's update is shown in its place.
#[must_use]
pub fn write(state: &State, answers: &[&Answer], deferred: Deferred) -> Vec<String> {
    let mut shown: BTreeSet<ChunkId> = BTreeSet::new();
    let text = |answer: &&Answer| {
        let now = state.whitelist_after(answer.update).map(|admitted| &*admitted.candidate);
        let new: Vec<&Candidate> = now.filter(|candidate| shown.insert(candidate.id)).collect();
        one(state, answer, &new, deferred)
    };
    answers.iter().map(text).collect()
}

fn one(state: &State, answer: &Answer, new: &[&Candidate], deferred: Deferred) -> String {
    let mut text = String::new();
    for Candidate { id, chunk, .. } in new {
        // writing to a string cannot fail
        let _ = writeln!(text, "{}\n{}\n", heading(*id, chunk), chunk.text.trim());
    }
    if new.is_empty() {
        text.push_str("Nothing new was found that is relevant so far.\n");
    }
    let waiting: Vec<ChunkId> = answer.deferred();
    if deferred == Deferred::Stubs && !waiting.is_empty() {
        text.push_str("Also found, and not shown:\n");
        for candidate in waiting.iter().filter_map(|id| state.chunk(*id)) {
            let _ = writeln!(text, "{}", heading(candidate.id, &candidate.chunk));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// `[7] title (address)`; an id the tool gave stands for a missing address.
fn heading(id: ChunkId, chunk: &Chunk) -> String {
    let title = chunk.title.as_deref().filter(|title| !title.is_empty());
    let place = chunk.url.as_deref().or(chunk.id.as_deref()).filter(|place| !place.is_empty());
    let title = title.map_or_else(String::new, |title| format!(" {title}"));
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    format!("[{id}]{title}{place}")
}

/// `text` with other texts in the place of some of its parts, which are in order and apart.
#[must_use]
pub fn replace(text: &str, parts: &[(Range<usize>, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (bytes, new) in parts {
        out.push_str(&text[at..bytes.start]);
        out.push_str(new);
        at = bytes.end;
    }
    out + &text[at..]
}
