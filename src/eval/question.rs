//! One labelled question: what a model is asked about some chunks, and what is known about the right answer.
//!
//! Plain data; where it came from is `data`'s business. Tests: at the end of this file.

use crate::prompt::layout::{Chunk, content_hash};

/// A question with its retrieved chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its name, unique in its file; never shown to a model.
    pub id: String,
    /// What is asked; not blank.
    pub query: String,
    /// What was retrieved, in retrieval order; at least one.
    pub chunks: Vec<Chunk>,
    /// One per chunk where they are known: 0 not relevant, higher is more relevant.
    pub labels: Option<Vec<u32>>,
    /// The reference answer.
    pub answer: Option<String>,
    /// Which agent run it was taken from.
    pub trajectory: Option<String>,
}

impl Question {
    /// Whether its labels tell chunks apart: some are relevant, and some are not.
    #[must_use]
    pub fn tells_apart(&self) -> bool {
        let labels = self.labels.as_deref().unwrap_or_default();
        labels.iter().any(|&label| label > 0) && labels.contains(&0)
    }

    /// Hash of what a model sees (the query, and each chunk as it lies in a prompt) and of labels and answer:
    /// two questions with equal hashes give equal results. `sha256:` and 64 hex digits.
    #[must_use]
    pub fn content_hash(&self) -> String {
        let texts: Vec<String> = self.chunks.iter().map(|chunk| chunk.serialise().0).collect();
        let labels = self.labels.as_ref().map(|labels| {
            let words: Vec<String> = labels.iter().map(u32::to_string).collect();
            words.join(",")
        });
        let known = |there: bool| if there { "known" } else { "unknown" };
        let mut fields = vec![
            "question 1",
            &self.query,
            known(self.answer.is_some()),
            self.answer.as_deref().unwrap_or(""),
            known(labels.is_some()),
            labels.as_deref().unwrap_or(""),
        ];
        fields.extend(texts.iter().map(String::as_str));
        content_hash(&fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let chunk = |title: Option<&str>, text: &str| Chunk {
            title: title.map(str::to_owned),
            text: text.to_owned(),
            ..Chunk::default()
        };
        Question {
            id: "a".into(),
            query: "q".into(),
            chunks: vec![chunk(Some("t"), "x"), chunk(None, "y")],
            labels: Some(vec![1, 0]),
            answer: Some("x".into()),
            trajectory: None,
        }
    }

    #[test]
    fn only_both_kinds_of_labels_tell_chunks_apart() {
        for (labels, tells) in [
            (Some(vec![0, 2]), true),
            (Some(vec![1, 2]), false),
            (Some(vec![0, 0]), false),
            (Some(Vec::new()), false),
            (None, false),
        ] {
            assert_eq!(Question { labels: labels.clone(), ..question() }.tells_apart(), tells, "{labels:?}");
        }
    }

    fn changed(change: impl FnOnce(&mut Question)) -> String {
        let mut other = question();
        change(&mut other);
        other.content_hash()
    }

    #[test]
    fn the_hash_changes_with_all_that_a_result_depends_on() {
        let mut seen = vec![
            question().content_hash(),
            changed(|q| q.query.push('x')),
            changed(|q| q.chunks[0].title = None),
            changed(|q| q.chunks[0].text.push('x')),
            changed(|q| q.chunks.reverse()),
            changed(|q| q.chunks.truncate(1)),
            changed(|q| q.labels = Some(vec![0, 1])),
            changed(|q| q.labels = Some(vec![10])),
            changed(|q| q.labels = Some(Vec::new())),
            changed(|q| q.labels = None),
            changed(|q| q.answer = Some("y".into())),
            changed(|q| q.answer = Some(String::new())),
            changed(|q| q.answer = None),
        ];
        seen.sort();
        let n = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), n);
    }

    #[test]
    fn the_hash_does_not_change_with_what_no_model_sees() {
        let base = question().content_hash();
        assert_eq!(changed(|q| q.id.push('x')), base);
        assert_eq!(changed(|q| q.trajectory = Some("t".into())), base);
        assert_eq!(changed(|q| q.chunks[0].id = Some("d7".into())), base);
        assert_eq!(changed(|q| q.chunks[0].url = Some("https://example.org".into())), base);
        assert_eq!(changed(|q| q.chunks[1].title = Some(String::new())), base, "an empty title is none");
    }
}
