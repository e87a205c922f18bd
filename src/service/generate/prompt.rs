//! From a conversation or a text to the ids of a prompt.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::{ChatPrompt, TextPrompt, disguise::Disguise, messages::straighten};
use crate::{
    ids::TokenId,
    prompt::{
        PieceEncoder, Specials,
        template::{ChatTemplate, CivilTime, RenderInput, TemplateError},
    },
    service::{ServedModel, ServiceError},
};

impl ServedModel {
    /// The token ids of a rendered conversation: those of the whole rendered text, as Hugging Face gives them, except
    /// that control tokens spelled in the caller's own texts stay characters (see `disguise`). Starts with BOS where
    /// the model wants it, once.
    ///
    /// # Errors
    /// When messages, template or its variables are wrong, or a long text cannot fit the model; the error names the field.
    pub fn chat_tokens(&self, chat: &ChatPrompt) -> Result<Vec<TokenId>, ServiceError> {
        if chat.add_generation_prompt && chat.continue_final_message {
            let reason = "cannot be combined with add_generation_prompt; set that to false";
            return Err(ServiceError::invalid("continue_final_message", reason));
        }
        let messages = straighten(&chat.messages)?;
        let variables = Value::Object(chat.chat_template_kwargs.clone());
        let tools = chat.tools.as_ref().filter(|t| t.as_array().is_none_or(|list| !list.is_empty()));
        let outside: Vec<&Value> = [&messages, &variables].into_iter().chain(tools).collect();
        let disguise = Disguise::of(&outside, &self.control_texts);
        let disguise = disguise.ok_or_else(|| {
            let reason = "spell control tokens and use up all private-use characters; leave out either";
            ServiceError::invalid("messages", reason)
        })?;
        let ids = if disguise.is_empty() {
            let text = self.render(chat, &messages, tools)?;
            self.check_text("messages", &text)?;
            self.tokenizer.encode(&text, Specials::Parse).map(|e| e.ids)
        } else {
            let kwargs = disguise.put_on_map(&chat.chat_template_kwargs);
            let masked = ChatPrompt {
                chat_template_kwargs: kwargs,
                messages: Value::Null,
                tools: None,
                ..chat.clone()
            };
            let tools = tools.map(|t| disguise.put_on(t));
            let text = self.render(&masked, &disguise.put_on(&messages), tools.as_ref())?;
            self.check_text("messages", &text)?;
            disguise.encode(&text, &self.tokenizer)
        };
        self.with_bos(ids.map_err(|e| ServiceError::invalid("messages", &e))?, "messages")
    }

    /// The token ids of a text to continue. Control tokens in it are parsed: clients render templates themselves.
    ///
    /// # Errors
    /// When it is empty, cannot fit the model, or a token is not in the vocabulary; the error names `field`.
    pub fn prompt_tokens(&self, prompt: &TextPrompt, field: &str) -> Result<Vec<TokenId>, ServiceError> {
        match prompt {
            TextPrompt::Text(text) => {
                self.check_text(field, text)?;
                let ids = self.tokenizer.encode(text, Specials::Parse);
                self.with_bos(ids.map_err(|e| ServiceError::invalid(field, &e))?.ids, field)
            }
            TextPrompt::Tokens(ids) => {
                let vocab = self.engine.spec().vocab;
                if let Some((i, id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= vocab) {
                    let reason = format!("token {id} does not exist; the vocabulary has {vocab}");
                    return Err(ServiceError::invalid(format!("{field}[{i}]"), &reason));
                }
                if ids.is_empty() {
                    return Err(ServiceError::invalid(field, "has no tokens; at least one is needed"));
                }
                Ok(ids.clone())
            }
        }
    }

    /// Puts BOS first where the model wants it and it is not there yet.
    fn with_bos(&self, mut ids: Vec<TokenId>, field: &str) -> Result<Vec<TokenId>, ServiceError> {
        if let Some(bos) = self.pieces.bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        if ids.is_empty() {
            return Err(ServiceError::invalid(field, "has no tokens; at least one is needed"));
        }
        Ok(ids)
    }

    fn render(
        &self,
        chat: &ChatPrompt,
        messages: &Value,
        tools: Option<&Value>,
    ) -> Result<String, ServiceError> {
        let own = chat.chat_template.as_deref().map(ChatTemplate::new).transpose();
        let own = own.map_err(|e| ServiceError::invalid("chat_template", &e))?;
        let (bos, eos) = (self.bos_text(), self.eos_text());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let input = RenderInput {
            messages,
            add_generation_prompt: chat.add_generation_prompt,
            tools,
            bos_token: bos.as_deref(),
            eos_token: eos.as_deref(),
            extra: Some(&chat.chat_template_kwargs),
            now: Some(CivilTime::from_unix(now)),
        };
        let rendered = own.as_ref().unwrap_or(&self.template).render(&input);
        let mut text = rendered.map_err(|e| {
            let blame = own.is_some() && !matches!(e, TemplateError::Raised { .. });
            ServiceError::invalid(if blame { "chat_template" } else { "messages" }, &e)
        })?;
        if chat.continue_final_message {
            let end = open_end(&text, messages).ok_or_else(|| {
                let reason =
                    "the chat template does not show the last message unchanged, so it cannot be left open";
                ServiceError::invalid("continue_final_message", reason)
            })?;
            text.truncate(end);
        }
        Ok(text)
    }
}

/// Where the last message's content ends in the rendered text, as Hugging Face finds it: its spaces at the end count
/// where the template kept them.
fn open_end(text: &str, messages: &Value) -> Option<usize> {
    let content = messages.as_array()?.last()?["content"].as_str()?;
    let start = text.rfind(content.trim())?;
    let whole = content.trim_start();
    let shown = if text[start..].starts_with(whole) { whole } else { content.trim() };
    Some(start + shown.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_message_is_left_open_where_its_text_ends() {
        let end = |text: &str, content: &str| {
            let messages = json!([{"role": "assistant", "content": content}]);
            open_end(text, &messages).map(|end| text[..end].to_owned())
        };
        assert_eq!(end("<u>hi<a>hi there <end>", " hi there ").as_deref(), Some("<u>hi<a>hi there "));
        assert_eq!(end("<u>hi<a>hi there<end>", " hi there ").as_deref(), Some("<u>hi<a>hi there"));
        assert_eq!(end("<a>HI<end>", "hi"), None);
    }
}
