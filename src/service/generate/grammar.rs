//! Answers that must follow a JSON schema: for the engine a mask of tokens, made of the schema and the vocabulary.
//!
//! Owns everything that names `llguidance`; what it is spared is in `schema.rs`, and its words in `reason.rs`. The mask
//! after a token is computed on rayon's threads while the engine's next forward pass runs. Tests: here, and
//! `tests/http/tools.rs` with a real model.

mod reason;
mod schema;

use std::{
    fmt,
    sync::{Arc, OnceLock, mpsc},
};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokRxInfo, TokTrie},
};
use serde_json::{Value, json};

use reason::plain;
pub(super) use schema::{few_enough, move_references};

use crate::{engine::TokenMask, ids::TokenId, text::Tokenizer};

/// White space between the parts of JSON: as much as any layout needs, and not so much that a model loses itself in it.
const SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

/// Most states of one answer's lexer, one or two kB each; real schemas have some hundreds.
const LEXER_STATES: usize = 50_000;

/// Most symbols of a compiled schema.
const GRAMMAR_SIZE: usize = 100_000;

/// Most rules that may go on at one place of an answer: four for each property that may come next.
const ROW_ITEMS: usize = 5 * schema::MOST_PARTS;

/// Stack on which a schema is compiled, in bytes: the library's calls nest as deeply as parts of it lead to parts, and
/// twice [`schema::MOST_PARTS`] calls must fit.
const STACK: usize = 128 << 20;

/// What an answer must look like.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Anything.
    #[default]
    Text,
    /// A JSON object.
    Object,
    /// JSON that follows this schema.
    Schema(Value),
}

impl ResponseFormat {
    /// The schema, not yet made fit; none for any text.
    pub(super) fn schema(&self) -> Option<Value> {
        Some(match self {
            Self::Text => return None,
            Self::Object => json!({"type": "object"}),
            Self::Schema(Value::Object(schema)) => Value::Object(schema.clone()),
            Self::Schema(other) => json!({"allOf": [other]}),
        })
    }
}

/// Makes an object that is a schema fit to be compiled: bounds the white space between its parts. How many parts it has.
///
/// # Errors
/// A sentence when it is too much.
pub(super) fn fit(schema: &mut Value) -> Result<usize, String> {
    let parts = schema::check(schema)?;
    schema["x-guidance"] = json!({"whitespace_pattern": SPACE});
    Ok(parts)
}

/// What a model's vocabulary allows to be masked; made when the first request needs it.
#[derive(Clone, Default)]
pub(in crate::service) struct Grammars(Arc<OnceLock<Result<ParserFactory, String>>>);

/// What is to be followed.
#[derive(Clone, Debug)]
pub(super) enum Grammar {
    /// A JSON schema that is [`fit`].
    Json(Value),
    /// A grammar in Lark's notation; the schemas in it are [`fit`].
    Lark(String),
}

impl Grammars {
    /// Masks for `n` answers that follow `grammar`, each from its beginning; one of `ends` ends them. May take a second
    /// for the first request.
    ///
    /// # Errors
    /// A sentence when the grammar is not taken.
    pub(super) fn masks(
        &self,
        tokenizer: &Tokenizer,
        ends: &[TokenId],
        grammar: Grammar,
        n: usize,
    ) -> Result<Vec<Box<dyn TokenMask>>, String> {
        let factory = self.0.get_or_init(|| factory(tokenizer, ends)).as_ref().map_err(Clone::clone)?;
        let grammar = match grammar {
            Grammar::Json(schema) => TopLevelGrammar::from_json_schema(schema),
            Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark),
        };
        let compile = || {
            let first = Matcher::new(factory.create_parser(grammar));
            first.get_error().map_or_else(|| advance(first, None), |error| Err(plain(&error)))
        };
        let (first, mask) = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let thread = thread.spawn_scoped(scope, compile).map_err(|e| format!("no thread for it: {e}"))?;
            thread.join().unwrap_or_else(|_| Err("its compilation broke off".into()))
        })?;
        let one = |_| -> Box<dyn TokenMask> {
            Box::new(GrammarMask(State::Ready(Box::new(first.deep_clone()), mask.clone())))
        };
        Ok((0..n).map(one).collect())
    }
}

fn factory(tokenizer: &Tokenizer, ends: &[TokenId]) -> Result<ParserFactory, String> {
    let Some(&end) = ends.first() else {
        return Err("the model has no token that ends an answer".into());
    };
    if !tokenizer.is_byte_level() {
        return Err(
            "the model's vocabulary is not byte by byte; what its tokens spell is not known exactly".into()
        );
    }
    let vocab = tokenizer.vocab_size() as TokenId;
    let bytes = |id: TokenId| {
        let bytes = if tokenizer.id_to_token(id).is_some() { tokenizer.token_bytes(id) } else { Vec::new() };
        // so that no text spells a control token
        if tokenizer.is_control(id) { [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat() } else { bytes }
    };
    let words: Vec<Vec<u8>> = (0..vocab).map(bytes).collect();
    let trie = TokTrie::from(&TokRxInfo::new(vocab, end), &words).with_eos_tokens(ends);
    let env: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = llguidance::earley::SlicedBiasComputer::json_slices();
    let made = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
    let mut factory = made.map_err(|e| e.to_string())?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = LEXER_STATES;
    limits.max_grammar_size = GRAMMAR_SIZE;
    limits.max_items_in_row = ROW_ITEMS;
    Ok(factory)
}

/// Takes in a token, where there is one, and finds out what may come next. A finished grammar lets only its end through.
fn advance(mut matcher: Matcher, token: Option<TokenId>) -> Result<(Matcher, SimpleVob), String> {
    if let Some(token) = token {
        matcher.consume_token(token).map_err(|e| plain(&e.to_string()))?;
    }
    let mask = matcher.compute_mask_or_eos().map_err(|e| plain(&e.to_string()))?;
    Ok((matcher, mask))
}

struct GrammarMask(State);

enum State {
    Ready(Box<Matcher>, SimpleVob),
    Computing(mpsc::Receiver<Result<(Matcher, SimpleVob), String>>),
    Failed(String),
}

impl fmt::Debug for GrammarMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarMask").finish_non_exhaustive()
    }
}

impl TokenMask for GrammarMask {
    fn apply(&mut self, logits: &mut [f32]) -> Result<(), String> {
        if let State::Computing(receiver) = &self.0 {
            let next = receiver.recv().unwrap_or_else(|_| Err("its computation broke off".into()));
            self.0 = next.map_or_else(State::Failed, |(m, mask)| State::Ready(Box::new(m), mask));
        }
        match &self.0 {
            State::Ready(_, mask) => {
                let known = mask.len().min(logits.len());
                for (token, logit) in logits.iter_mut().enumerate() {
                    if token >= known || !mask.is_allowed(token as TokenId) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                Ok(())
            }
            State::Failed(reason) => Err(reason.clone()),
            State::Computing(_) => Err("it is still being computed: this is a bug".into()),
        }
    }

    fn push(&mut self, token: TokenId) {
        let failed = State::Failed("a token was chosen before its mask was known: this is a bug".into());
        if let State::Ready(matcher, _) = std::mem::replace(&mut self.0, failed) {
            let (sender, receiver) = mpsc::channel();
            self.0 = State::Computing(receiver);
            // the library catches its own panics; an answer nobody waits for any more is dropped
            rayon::spawn(move || drop(sender.send(advance(*matcher, Some(token)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::generate::fixture::tokenizer;

    /// Follows `text` byte by byte; how many bytes the mask lets through, and what it lets through then.
    fn follow(schema: Value, text: &str) -> (usize, Vec<TokenId>) {
        let mut schema = ResponseFormat::Schema(schema).schema().unwrap();
        fit(&mut schema).unwrap();
        let grammar = Grammar::Json(schema);
        let mut masks = Grammars::default().masks(&tokenizer(), &[256], grammar, 2).unwrap();
        let (mask, mut at) = (&mut masks[1], 0);
        loop {
            let mut logits = vec![0.0; 260];
            mask.apply(&mut logits).unwrap();
            match text.as_bytes().get(at) {
                Some(&byte) if logits[usize::from(byte)] == 0.0 => mask.push(byte.into()),
                _ => return (at, (0..).zip(logits).filter(|(_, l)| *l == 0.0).map(|(t, _)| t).collect()),
            }
            at += 1;
        }
    }

    #[test]
    fn only_what_the_schema_takes_is_let_through_and_the_end_ends_it() {
        let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
                            "additionalProperties": false});
        let (n, last) = follow(schema.clone(), "{\"a\": \"x\"}");
        assert_eq!((n, last.contains(&256)), (10, true), "{last:?}");
        assert_eq!(follow(schema.clone(), "{\"a\": \"z\"}").0, 7);
        assert_eq!(follow(schema.clone(), "{}").0, 1);
        let (n, first) = follow(schema, "<|end|>");
        assert_eq!((n, first), (0, vec![u32::from(b'{')]), "not before its time");
        assert_eq!(
            follow(json!({}), &format!("[1,{}2]", " ".repeat(60))).0,
            3 + 40,
            "white space is bounded"
        );
    }

    #[test]
    fn what_cannot_be_followed_is_refused_in_plain_words() {
        let masks = |schema| Grammars::default().masks(&tokenizer(), &[256], Grammar::Json(schema), 1);
        for (schema, words) in [
            (json!({"type": "strange"}), "Invalid type: strange"),
            (json!({"$ref": "#/nowhere"}), "'nowhere' not found"),
            (json!({"$ref": "#"}), "nothing can follow"),
            (json!({"type": "string", "pattern": "("}), "unclosed group"),
        ] {
            let error = masks(schema.clone()).err().unwrap_or_else(|| panic!("{schema} is taken"));
            assert!(error.contains(words), "{schema}: {error}");
            assert!(!error.contains('\n') && !error.contains("Bias"), "{error}");
        }
        let no_end = Grammars::default().masks(&tokenizer(), &[], Grammar::Json(json!({})), 1);
        assert!(no_end.unwrap_err().contains("ends an answer"));
    }

    #[test]
    fn as_many_properties_as_are_taken_can_be_followed() {
        let named: serde_json::Map<String, Value> =
            (0..schema::MOST_PARTS).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect();
        let text = "{\"p7\": 3, \"p1999\": 4}";
        assert_eq!(follow(json!({"type": "object", "properties": named}), text).0, text.len());
    }
}
