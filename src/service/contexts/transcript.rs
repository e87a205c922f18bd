//! A conversation whose search results a context manages: what the model is sent in their place.

use std::{collections::HashMap, ops::Range, sync::Arc};

use regex::Regex;
use serde_json::Value;

use super::{Contexts, Settings, Updated, View, now, storage};
use crate::{
    context::{Answer, Config},
    kv::Salt,
    service::{
        Permit, ServedModel, ServiceError,
        generate::{off_thread, straighten},
        score::{ScoreAnswer, ScoreJob},
    },
    store::Name,
    transcript::{Block, Deferred, Message, find, replace, write},
};

/// How a conversation is managed.
pub struct Managing {
    /// By which context.
    pub name: Name,
    /// What is said of results that wait.
    pub deferred: Deferred,
    /// How results are printed, where in no form that is known.
    pub pattern: Option<Regex>,
    /// What the context is, where it is yet to be made.
    pub new: NewContext,
}

/// A context that is made when it is first used.
pub struct NewContext {
    /// How it scores: a job without queries or chunks.
    pub job: ScoreJob,
    /// Its rules.
    pub config: Config,
    /// Its question; the first message of a user by default.
    pub question: Option<String>,
    /// How many seconds after its last use it is forgotten.
    pub expires_in: Option<i64>,
}

/// A managed conversation.
pub struct Managed {
    /// The messages that the model is sent.
    pub messages: Value,
    /// The context now.
    pub view: View,
    /// Whether it was made just now.
    pub created: bool,
    /// The blocks of results, in order.
    pub blocks: Vec<ManagedBlock>,
    /// The batches that were scored now.
    pub scored: Vec<ScoreAnswer>,
}

/// A block of results, and what became of it.
pub struct ManagedBlock {
    /// Which message it is in, from 0.
    pub message: usize,
    /// What became of its update.
    pub answer: Arc<Answer>,
    /// Whether the update was done before.
    pub replayed: bool,
}

impl Contexts {
    /// Finds search results in `messages` and brings those that are new to the context, which is made where there is none
    /// yet. The same conversation gets the same messages again, also when it has grown.
    ///
    /// # Errors
    /// When a message is wrong, or as [`update`](Self::update), with the field in the messages. Updates before the one
    /// that failed are done, and a retry goes on from there.
    pub async fn manage(
        &self,
        model: &Arc<ServedModel>,
        messages: &Value,
        managing: &Managing,
        salt: &Salt,
        permit: Permit,
    ) -> Result<(Managed, Permit), ServiceError> {
        let mut messages = straighten(messages)?;
        let (texts, pattern) = (texts(&messages), managing.pattern.clone());
        // a pattern may take its time
        let look = move || {
            let read: Vec<Message<'_>> = texts.iter().map(|(role, text)| Message { role, text }).collect();
            let blocks = find(&read, pattern.as_ref());
            Ok((texts, blocks))
        };
        let ((texts, blocks), permit) = off_thread(permit, look).await?;
        let (created, mut view, mut permit) = self.begun(model, &texts, managing, permit).await?;
        let (mut done, mut scored) = (Vec::new(), Vec::new());
        for block in &blocks {
            let known = view.state.answer(&block.update.id).cloned();
            let replayed = known.is_some();
            let answer = match known {
                Some(answer) => Arc::new(answer),
                None => {
                    let update =
                        self.update(model, &managing.name, block.update.clone(), (salt, true), permit);
                    let (updated, back) = update.await.map_err(|e| in_message(e, block.message))?;
                    let Updated { view: after, answer, scored: now, .. } = updated;
                    (view, permit) = (after, back);
                    scored.extend(now);
                    answer
                }
            };
            done.push(ManagedBlock { message: block.message, answer, replayed });
        }
        if scored.is_empty() && view.header.expires_in.is_some() {
            self.store.touch(&view.header.uid, now()).await.map_err(|e| storage(&managing.name, e))?;
        }
        let answers: Vec<&Answer> = done.iter().map(|block| &*block.answer).collect();
        let written = write(&view.state, &answers, managing.deferred);
        put(&mut messages, &texts, &blocks, &written);
        Ok((Managed { messages, view, created, blocks: done, scored }, permit))
    }

    /// The context, made where there is none.
    async fn begun(
        &self,
        model: &Arc<ServedModel>,
        texts: &[(String, String)],
        managing: &Managing,
        permit: Permit,
    ) -> Result<(bool, View, Permit), ServiceError> {
        let name = &managing.name;
        match self.view(name).await {
            Err(ServiceError::NoContext { .. }) => {}
            other => return Ok((false, other?, permit)),
        }
        let NewContext { job, config, question, expires_in } = &managing.new;
        let settings = Settings::new(model, job)?;
        let first = texts.iter().find(|(role, _)| role == "user").map(|(_, text)| text);
        let question = question.as_ref().or(first).map_or("", String::as_str);
        let permit = settings.check(model, question, *config, permit).await?;
        match self.create(name, &settings, *config, question, *expires_in).await {
            // somebody was faster
            Err(ServiceError::Conflict { .. }) => Ok((false, self.view(name).await?, permit)),
            made => Ok((true, made?, permit)),
        }
    }
}

/// Roles and texts of straight messages.
fn texts(messages: &Value) -> Vec<(String, String)> {
    let word = |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
    messages.as_array().into_iter().flatten().map(|m| (word(m, "role"), word(m, "content"))).collect()
}

/// Puts what was written in the place of the blocks.
fn put(messages: &mut Value, texts: &[(String, String)], blocks: &[Block], written: &[String]) {
    let mut parts: HashMap<usize, Vec<(Range<usize>, &str)>> = HashMap::new();
    for (block, text) in blocks.iter().zip(written) {
        parts.entry(block.message).or_default().push((block.bytes.clone(), text));
    }
    for (message, parts) in parts {
        messages[message]["content"] = replace(&texts[message].1, &parts).into();
    }
}

/// An error of an update, told of the message that holds it.
fn in_message(mut error: ServiceError, message: usize) -> ServiceError {
    if let ServiceError::Invalid { field, .. }
    | ServiceError::TooLong { field, .. }
    | ServiceError::TextTooLong { field, .. } = &mut error
        && (field.starts_with("results") || field.starts_with("groups"))
    {
        *field = format!("messages[{message}].content");
    }
    error
}
