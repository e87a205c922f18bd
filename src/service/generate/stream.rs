//! From the engine's tokens to text: per choice, whole characters, nothing of a stop string, log-probabilities along
//! with the text they belong to.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt};

use super::{GenerateOptions, read::Reader, tools::Call};
use crate::{
    engine::{EngineError, Finish, Phases, Token, Tokens},
    ids::TokenId,
    service::{Permit, ServiceError},
    text::{StopMatcher, TokenStream, Tokenizer},
};

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// As many tokens as allowed.
    Length,
    /// An end token, after at least one call of a tool.
    ToolCalls,
}

/// A call of a tool, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Which call of its choice, from 0.
    pub index: usize,
    /// A name that no other call has.
    pub id: String,
    /// What is called.
    pub call: Call,
}

/// What the caller asked to stop at, where that is why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// This stop string.
    Text(String),
    /// This one of `stop_token_ids`.
    Token(TokenId),
}

/// A token's log-probability, with the most probable tokens at its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token's text; where it is no whole text, its bytes in vLLM's notation, `bytes:\\xf0\\x9f`.
    pub token: String,
    /// The token's bytes; several tokens may make up one character.
    pub bytes: Vec<u8>,
    /// Natural log-probability, at least -9999.
    pub logprob: f32,
    /// Best first.
    pub top: Vec<TokenLogprob>,
}

/// What is new in one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateDelta {
    /// Which choice, from 0.
    pub choice: usize,
    /// Text to append; may be empty.
    pub text: String,
    /// Reasoning to append, where it is told apart.
    pub reasoning: String,
    /// Calls that are now whole, where they are looked for.
    pub calls: Vec<ToolCall>,
    /// Log-probabilities of the tokens that are now complete, also of those in reasoning and calls, where asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Set on the choice's last delta.
    pub finish: Option<FinishReason>,
    /// With `finish`.
    pub stop_reason: Option<StopReason>,
}

/// Tokens of a request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, counted once for all choices of a prompt.
    pub prompt_tokens: usize,
    /// Generated tokens of all choices, also the one that ended a choice.
    pub completion_tokens: usize,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: usize,
}

/// A request being generated: a stream of deltas. Ends after an error. Dropping it cancels what is left.
#[derive(Debug)]
pub struct Generation {
    choices: Vec<Choice>,
    /// Deltas to give out before any token.
    first: VecDeque<GenerateDelta>,
    /// The choice to look at first, so that none starves.
    next: usize,
    usage: Usage,
    phases: Option<Phases>,
    /// What reads each choice.
    reader: Reader,
    /// The field of the request that says what answers must look like; empty where none does.
    followed: &'static str,
    _permit: Permit,
}

#[derive(Debug)]
struct Choice {
    index: usize,
    /// None when the choice has ended.
    tokens: Option<Tokens>,
    /// Whether this choice tells how its prompt was computed, and has not yet.
    tells_prompt: bool,
    text: TokenText,
    reader: Reader,
}

impl Generation {
    pub(super) fn new(permit: Permit, reader: Reader) -> Self {
        let (choices, first, usage) = (Vec::new(), VecDeque::new(), Usage::default());
        Self { choices, first, next: 0, usage, phases: None, reader, followed: "", _permit: permit }
    }

    /// Answers must look as that field of the request says.
    pub(super) fn follow(&mut self, field: &'static str) {
        self.followed = field;
    }

    /// Gives out `text` before the choice's own.
    pub(super) fn say_first(&mut self, choice: usize, text: String) {
        self.first.push_back(GenerateDelta { choice, text, ..GenerateDelta::default() });
    }

    /// Adds the choices of one prompt.
    pub(super) fn add_prompt(
        &mut self,
        tokenizer: &Tokenizer,
        options: &GenerateOptions,
        prompt_tokens: usize,
        streams: Vec<Tokens>,
    ) {
        self.usage.prompt_tokens += prompt_tokens;
        for (i, tokens) in streams.into_iter().enumerate() {
            self.choices.push(Choice {
                index: self.choices.len(),
                tokens: Some(tokens),
                tells_prompt: i == 0,
                text: TokenText::new(tokenizer, options, &self.reader.markers()),
                reader: self.reader.clone(),
            });
        }
    }

    /// Number of choices.
    #[must_use]
    pub fn n_choices(&self) -> usize {
        self.choices.len()
    }

    /// Tokens so far; final when the stream has ended.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// When the engine computed the prompt; of several, from the first one's start to the last one's end. None before the
    /// first token.
    #[must_use]
    pub fn phases(&self) -> Option<Phases> {
        self.phases
    }

    fn fail(&mut self, error: EngineError) -> Poll<Option<Result<GenerateDelta, ServiceError>>> {
        self.choices.iter_mut().for_each(|choice| choice.tokens = None);
        Poll::Ready(Some(Err(match error {
            EngineError::Mask { reason } => ServiceError::unfollowed(self.followed, &reason),
            other => other.into(),
        })))
    }
}

impl Stream for Generation {
    type Item = Result<GenerateDelta, ServiceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(delta) = this.first.pop_front() {
            return Poll::Ready(Some(Ok(delta)));
        }
        let n = this.choices.len();
        for i in (this.next..n).chain(0..this.next) {
            loop {
                let choice = &mut this.choices[i];
                let Some(tokens) = &mut choice.tokens else { break };
                let token = match tokens.poll_recv(context) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Ok(token))) => token,
                    Poll::Ready(Some(Err(error))) => return this.fail(error),
                    Poll::Ready(None) => return this.fail(EngineError::Stopped),
                };
                this.usage.completion_tokens += 1;
                if std::mem::take(&mut choice.tells_prompt) {
                    this.usage.cached_tokens += token.cached_tokens;
                    this.phases = this.phases.into_iter().chain(token.phases).reduce(spanning);
                }
                if let Some(delta) = choice.take(token) {
                    this.next = (i + 1) % n;
                    return Poll::Ready(Some(Ok(delta)));
                }
            }
        }
        if this.choices.iter().all(|c| c.tokens.is_none()) { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// From the start of the first to the end of the last.
fn spanning(a: Phases, b: Phases) -> Phases {
    Phases {
        submitted: a.submitted.min(b.submitted),
        started: a.started.min(b.started),
        prefilled: a.prefilled.max(b.prefilled),
    }
}

impl Choice {
    /// Takes in a token; lets go of the engine's stream at once when the choice is at its end.
    fn take(&mut self, token: Token) -> Option<GenerateDelta> {
        let delta = self.reader.read(self.text.push(token)?)?;
        if delta.finish.is_some() {
            self.tokens = None;
        }
        Some(GenerateDelta { choice: self.index, ..delta })
    }
}

/// The text of one choice as it grows.
#[derive(Debug)]
struct TokenText {
    tokenizer: Tokenizer,
    stop: Vec<String>,
    stop_token_ids: Vec<TokenId>,
    /// Control tokens have no text, but for these.
    skip_special: bool,
    shown: Vec<TokenId>,
    /// None after the last token.
    decoder: Option<TokenStream>,
    matcher: StopMatcher,
    /// Bytes of text decoded, and of those given out.
    decoded: usize,
    given: usize,
    /// Log-probabilities that wait for their text, with where it starts and ends.
    held: VecDeque<(usize, usize, TokenLogprob)>,
}

impl TokenText {
    /// Control tokens among `markers` have a text in any case.
    fn new(tokenizer: &Tokenizer, options: &GenerateOptions, markers: &[&str]) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            stop: options.stop.clone(),
            stop_token_ids: options.stop_token_ids.clone(),
            skip_special: options.skip_special_tokens,
            shown: markers.iter().filter_map(|marker| tokenizer.token_to_id(marker)).collect(),
            decoder: Some(TokenStream::new(tokenizer, false)),
            matcher: StopMatcher::new(options.stop.clone()),
            decoded: 0,
            given: 0,
            held: VecDeque::new(),
        }
    }

    /// What a token adds: nothing while its text is held back. The token that stops has no text.
    fn push(&mut self, token: Token) -> Option<GenerateDelta> {
        let stops = token.finish == Some(Finish::StopToken);
        let start = self.decoded;
        let piece = self.decode(&token, stops);
        self.decoded += piece.len();
        if let Some(logprobs) = token.logprobs.filter(|_| !stops) {
            let top = logprobs.top.iter().map(|&(id, l)| self.logprob(id, l, Vec::new())).collect();
            let logprob = self.logprob(token.id, logprobs.chosen, top);
            // a part of a character waits for the rest of it
            self.held.push_back((start, self.decoded.max(start + 1), logprob));
        }
        let step = self.matcher.push(&piece);
        let mut text = step.emit;
        let end = match (step.stopped, token.finish) {
            (Some(i), _) => Some((FinishReason::Stop, Some(StopReason::Text(self.stop[i].clone())))),
            (None, None) => None,
            (None, Some(finish)) => {
                text += &std::mem::replace(&mut self.matcher, StopMatcher::new(Vec::new())).finish();
                let asked = stops && self.stop_token_ids.contains(&token.id);
                let reason = if finish == Finish::Length { FinishReason::Length } else { FinishReason::Stop };
                Some((reason, asked.then_some(StopReason::Token(token.id))))
            }
        };
        self.given += text.len();
        let logprobs = self.release(end.is_some());
        let (finish, stop_reason) = end.map_or((None, None), |(finish, reason)| (Some(finish), reason));
        let anything = !text.is_empty() || !logprobs.is_empty() || finish.is_some();
        anything.then_some(GenerateDelta { text, logprobs, finish, stop_reason, ..GenerateDelta::default() })
    }

    fn decode(&mut self, token: &Token, stops: bool) -> String {
        let Some(mut decoder) = self.decoder.take() else { return String::new() };
        let hidden =
            self.skip_special && self.tokenizer.is_control(token.id) && !self.shown.contains(&token.id);
        let mut piece = if stops || hidden { None } else { decoder.push(token.id) }.unwrap_or_default();
        if token.finish.is_some() {
            piece += &decoder.finish();
        } else {
            self.decoder = Some(decoder);
        }
        piece
    }

    /// Log-probabilities whose text has been given out; at the end also those whose text was given out in part.
    fn release(&mut self, end: bool) -> Vec<TokenLogprob> {
        let cut = self.given < self.decoded;
        let waits =
            |start: usize, stop: usize| if end { cut && start >= self.given } else { stop > self.given };
        let n = self.held.iter().take_while(|(start, stop, _)| !waits(*start, *stop)).count();
        self.held.drain(..n).map(|(_, _, logprob)| logprob).collect()
    }

    fn logprob(&self, id: TokenId, logprob: f32, top: Vec<TokenLogprob>) -> TokenLogprob {
        let bytes = self.tokenizer.token_bytes(id);
        let escaped = || bytes.iter().fold("bytes:".to_owned(), |text, b| text + &format!("\\x{b:02x}"));
        let token = std::str::from_utf8(&bytes).map_or_else(|_| escaped(), str::to_owned);
        TokenLogprob { token, bytes, logprob: logprob.max(-9999.0), top }
    }
}

/// A whole choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// Its text.
    pub text: String,
    /// Its reasoning, where it is told apart.
    pub reasoning: String,
    /// Its calls of tools, where they are looked for.
    pub calls: Vec<ToolCall>,
    /// Log-probabilities of its tokens, where asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Why it ended.
    pub finish: Option<FinishReason>,
    /// What it was asked to stop at.
    pub stop_reason: Option<StopReason>,
}

/// Reads a stream of deltas to its end: the whole choices, `n` of them, in order.
///
/// # Errors
/// The stream's.
pub async fn collect<S>(deltas: &mut S, n: usize) -> Result<Vec<Completion>, ServiceError>
where
    S: Stream<Item = Result<GenerateDelta, ServiceError>> + Unpin,
{
    let mut choices = vec![Completion::default(); n];
    while let Some(delta) = deltas.next().await {
        let delta = delta?;
        let choice = &mut choices[delta.choice];
        choice.text += &delta.text;
        choice.reasoning += &delta.reasoning;
        choice.calls.extend(delta.calls);
        choice.logprobs.extend(delta.logprobs);
        choice.finish = delta.finish.or(choice.finish);
        choice.stop_reason = delta.stop_reason.or(choice.stop_reason.take());
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Logprobs, service::generate::fixture::tokenizer};

    /// Feeds bytes as tokens, the last with `finish`.
    fn run(bytes: &[u32], finish: Finish, stop: &[&str]) -> (Vec<GenerateDelta>, usize) {
        let stop = stop.iter().map(|s| (*s).into()).collect();
        let options =
            GenerateOptions { stop, logprobs: Some(0), stop_token_ids: vec![10], ..Default::default() };
        let mut text = TokenText::new(&tokenizer(), &options, &[]);
        let mut deltas = Vec::new();
        for (i, &id) in bytes.iter().enumerate() {
            let last = i + 1 == bytes.len();
            let logprobs = Some(Logprobs { chosen: 0.0 - i as f32, top: vec![] });
            let token =
                Token { id, logprobs, finish: last.then_some(finish), cached_tokens: 0, phases: None };
            deltas.extend(text.push(token));
            if deltas.last().is_some_and(|d| d.finish.is_some()) {
                return (deltas, i + 1);
            }
        }
        (deltas, bytes.len())
    }

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn whole(deltas: &[GenerateDelta]) -> (String, Vec<f32>) {
        let logprobs = deltas.iter().flat_map(|d| d.logprobs.iter().map(|l| l.logprob)).collect();
        (deltas.iter().map(|d| d.text.as_str()).collect(), logprobs)
    }

    #[test]
    fn a_stop_string_ends_a_choice_at_its_last_token_and_leaves_no_trace() {
        let (deltas, used) = run(&bytes("ab\nObs: no\nObserve"), Finish::Length, &["\nObserve", "x"]);
        assert_eq!(whole(&deltas), ("ab\nObs: no".into(), (0..10).map(|i| 0.0 - i as f32).collect()));
        let last = deltas.last().unwrap();
        assert_eq!((last.finish, used), (Some(FinishReason::Stop), 18));
        assert_eq!(last.stop_reason, Some(StopReason::Text("\nObserve".into())));
        assert!(deltas.iter().all(|d| !d.text.ends_with('\n')), "held until it is no stop: {deltas:?}");
    }

    #[test]
    fn held_text_comes_out_when_no_stop_follows() {
        let (deltas, _) = run(&bytes("ab\nOb"), Finish::Length, &["\nObserve"]);
        assert_eq!(whole(&deltas), ("ab\nOb".into(), vec![0.0, -1.0, -2.0, -3.0, -4.0]));
        assert_eq!(
            (deltas.last().unwrap().finish, &deltas.last().unwrap().stop_reason),
            (Some(FinishReason::Length), &None)
        );
    }

    #[test]
    fn the_token_that_stops_has_no_text_and_says_whether_it_was_asked_for() {
        let (deltas, _) = run(&[97, 10], Finish::StopToken, &[]);
        assert_eq!(whole(&deltas), ("a".into(), vec![0.0]));
        assert_eq!(deltas.last().unwrap().stop_reason, Some(StopReason::Token(10)));
        let (deltas, _) = run(&[97, 256], Finish::StopToken, &[]);
        assert_eq!(whole(&deltas).0, "a");
        let last = deltas.last().unwrap();
        assert_eq!((last.finish, &last.stop_reason), (Some(FinishReason::Stop), &None));
    }

    #[test]
    fn characters_are_never_split() {
        let (deltas, _) = run(&bytes("é日👩"), Finish::Length, &[]);
        let texts: Vec<&str> = deltas.iter().map(|d| d.text.as_str()).filter(|t| !t.is_empty()).collect();
        assert_eq!(texts, ["é", "日", "👩"]);
        assert_eq!(whole(&deltas).1.len(), 9, "every token has its log-probability");
        let (deltas, _) = run(&bytes("é日👩")[..4], Finish::Length, &[]);
        assert_eq!(whole(&deltas).0, "é\u{fffd}");
        let (deltas, _) = run(&bytes("é日👩"), Finish::Length, &["日"]);
        assert_eq!(whole(&deltas), ("é".into(), vec![0.0, -1.0]));
    }
}
