//! The demo's question and search results, shipped inside the program.

use serde::Deserialize;

use crate::prompt::layout::Chunk;

/// A question whose answer is in some of the snippets. All of it is made up: no model knows it by heart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Story {
    pub(super) question: String,
    /// A word that only a right answer contains.
    pub(super) answer: String,
    /// Ids of the snippets that tell a part of the answer.
    relevant: Vec<String>,
    pub(super) snippets: Vec<Chunk>,
}

impl Story {
    pub(super) fn shipped() -> Self {
        serde_json::from_str(include_str!("snippets.json"))
            .expect("the shipped story is valid: this is a bug")
    }

    /// Whether a snippet tells a part of the answer.
    pub(super) fn is_relevant(&self, snippet: &Chunk) -> bool {
        snippet.id.as_ref().is_some_and(|id| self.relevant.contains(id))
    }

    /// Whether a text gives the answer.
    pub(super) fn is_answered_by(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.answer.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_holds_together() {
        let story = Story::shipped();
        let titled = |c: &Chunk| c.title.as_ref().is_some_and(|t| !t.is_empty()) && c.url.is_some();
        assert!(story.snippets.iter().all(titled));
        let relevant: Vec<&Chunk> = story.snippets.iter().filter(|s| story.is_relevant(s)).collect();
        assert_eq!(relevant.len(), story.relevant.len(), "a relevant id names no snippet");
        assert!(relevant.len() * 2 < story.snippets.len(), "most results must not help");
        for snippet in &story.snippets {
            assert!(!story.is_answered_by(&snippet.text) || story.is_relevant(snippet), "{snippet:?}");
        }
        assert!(relevant.iter().any(|s| story.is_answered_by(&s.text)));
        assert!(!story.is_answered_by(&story.question));
    }
}
