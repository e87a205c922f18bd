//! The words of a scoring prompt, as a model card gives them, and the hash that binds head sets to them.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TemplatePieces;

/// The texts around query and chunks. Missing fields of a card take the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScorePrompt {
    /// Comes first, followed by a blank line; left out when empty.
    pub instruction: String,
    /// One chunk: `{text}` exactly once, `{i}` (the chunk's number, from 1) at most once.
    pub block: String,
    /// After every block, also the last.
    pub separator: String,
    /// The question: `{query}` exactly once.
    pub query: String,
    /// Ends the input; may produce special tokens. None: the chat template's text after the user message,
    /// with its generation prompt. Empty: nothing, so the query's last token is the read position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_suffix: Option<String>,
}

/// A placeholder is missing or repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("score prompt: {field} must hold {placeholder} {wanted}, but {text:?} holds it {found} times")]
pub struct ScorePromptError {
    /// The field of the card.
    pub field: &'static str,
    /// The placeholder.
    pub placeholder: &'static str,
    /// How often it may occur, in words.
    pub wanted: &'static str,
    /// How often it occurs.
    pub found: usize,
    /// The field's text.
    pub text: String,
}

impl Default for ScorePrompt {
    fn default() -> Self {
        Self {
            instruction: "Answer the question using the search results below.".to_owned(),
            block: "[{i}] {text}".to_owned(),
            separator: "\n\n".to_owned(),
            query: "Question: {query}".to_owned(),
            query_suffix: None,
        }
    }
}

impl ScorePrompt {
    /// Whether every placeholder occurs as often as it must.
    pub fn check(&self) -> Result<(), ScorePromptError> {
        let once = |field, text: &str, placeholder: &'static str, optional: bool| {
            let found = text.matches(placeholder).count();
            let wanted = if optional { "at most once" } else { "exactly once" };
            let fits = found == 1 || (optional && found == 0);
            if fits {
                Ok(())
            } else {
                Err(ScorePromptError { field, placeholder, wanted, found, text: text.to_owned() })
            }
        };
        once("block", &self.block, "{text}", false)?;
        once("block", &self.block, "{i}", true)?;
        once("query", &self.query, "{query}", false)
    }

    /// What ends the input, with this prompt in this template.
    #[must_use]
    pub fn suffix<'a>(&'a self, pieces: &'a TemplatePieces) -> &'a str {
        self.query_suffix.as_deref().unwrap_or(&pieces.after)
    }

    /// The instruction and its blank line, if there is one.
    pub(super) fn instruction_text(&self) -> Option<String> {
        (!self.instruction.is_empty()).then(|| format!("{}\n\n", self.instruction))
    }

    /// The query in its sentence. The query's own text is never looked into for placeholders.
    pub(super) fn query_text(&self, query: &str) -> String {
        let (before, after) = self.query.split_once("{query}").unwrap_or((&self.query, ""));
        format!("{before}{query}{after}")
    }

    /// What stands before and after the text in block `number`. The text itself is not passed in, so
    /// nothing in it can be taken for a placeholder.
    pub(super) fn block_around(&self, number: usize) -> (String, String) {
        let (before, after) = self.block.split_once("{text}").unwrap_or((&self.block, ""));
        let number = number.to_string();
        (before.replace("{i}", &number), after.replace("{i}", &number))
    }
}

/// The hash of everything in a scoring prompt that is not query or chunk, `sha256:` and 64 hex digits.
/// A head set found with one prompt says nothing about another.
#[must_use]
pub fn prompt_hash(prompt: &ScorePrompt, pieces: &TemplatePieces) -> String {
    let bos = pieces.bos.map_or_else(String::new, |id| id.to_string());
    content_hash(&[
        "scoring prompt 1",
        &bos,
        &pieces.before,
        &prompt.instruction,
        &prompt.block,
        &prompt.separator,
        &prompt.query,
        prompt.suffix(pieces),
    ])
}

/// SHA-256 over a list of texts, each preceded by its length so that no two lists look alike;
/// `sha256:` and 64 hex digits.
#[must_use]
pub fn content_hash(fields: &[&str]) -> String {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field.as_bytes());
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_must_occur_as_often_as_promised() {
        let with = |field: &str, text: &str| {
            let mut prompt = ScorePrompt::default();
            match field {
                "block" => prompt.block = text.to_owned(),
                _ => prompt.query = text.to_owned(),
            }
            prompt.check()
        };
        for good in ["{text}", "[{i}] {text}", "<doc>{text}</doc {i}>"] {
            assert_eq!(with("block", good), Ok(()));
        }
        for (field, bad, found) in [
            ("block", "[{i}]", 0),
            ("block", "{text}{text}", 2),
            ("block", "{i}{i}{text}", 2),
            ("query", "Q:", 0),
            ("query", "{query}{query}", 2),
        ] {
            let error = with(field, bad).unwrap_err();
            assert_eq!((error.field, error.found, error.text.as_str()), (field, found, bad));
        }
    }

    #[test]
    fn text_is_never_searched_for_placeholders() {
        let prompt = ScorePrompt { block: "{i}:{text}/{i}".to_owned(), ..ScorePrompt::default() };
        assert_eq!(prompt.block_around(12), ("12:".to_owned(), "/12".to_owned()));
        assert_eq!(
            prompt.query_text("what is {query}, {i}, {text}?"),
            "Question: what is {query}, {i}, {text}?"
        );
    }

    #[test]
    fn a_card_names_only_what_differs() {
        let prompt: ScorePrompt = toml::from_str("query_suffix = \"\\nAnswer:\"").unwrap();
        assert_eq!(
            prompt,
            ScorePrompt { query_suffix: Some("\nAnswer:".to_owned()), ..ScorePrompt::default() }
        );
        assert!(toml::from_str::<ScorePrompt>("sufix = \"x\"").is_err(), "a misspelt field must not pass");
    }

    #[test]
    fn the_hash_moves_with_every_part_and_with_nothing_else() {
        let pieces = TemplatePieces { before: "b".into(), after: "a".into(), bos: None };
        let base = prompt_hash(&ScorePrompt::default(), &pieces);
        assert!(base.starts_with("sha256:") && base.len() == 7 + 64);
        let change = |f: fn(&mut ScorePrompt, &mut TemplatePieces)| {
            let (mut prompt, mut pieces) = (ScorePrompt::default(), pieces.clone());
            f(&mut prompt, &mut pieces);
            prompt_hash(&prompt, &pieces)
        };
        let mut seen = vec![
            base.clone(),
            change(|p, _| p.instruction.push('x')),
            change(|p, _| p.block.push('x')),
            change(|p, _| p.separator.push('x')),
            change(|p, _| p.query.push('x')),
            change(|p, _| p.query_suffix = Some(String::new())),
            change(|_, t| t.before.push('x')),
            change(|_, t| t.after.push('x')),
            change(|_, t| t.bos = Some(1)),
        ];
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 9);
        assert_eq!(
            change(|p, _| p.query_suffix = Some("a".into())),
            base,
            "the same suffix, named or taken from the template"
        );
        assert_ne!(content_hash(&["ab", "c"]), content_hash(&["a", "bc"]));
    }

    #[test]
    fn content_hash_is_sha256_of_length_and_text() {
        // sha256 of eight zero bytes
        assert_eq!(
            content_hash(&[""]),
            "sha256:af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc"
        );
    }
}
