//! `POST /tokenize` and `/detokenize`, as vLLM has them: the ids a prompt would have, and back.

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ApiError, AppState,
    wire::{self, Body, chat::Conversation},
};
use crate::{
    prompt::{PieceEncoder, Specials},
    service::{ServedModel, ServiceError, generate::off_thread},
};

/// Fields of `/tokenize`, besides those of a conversation.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Fields {
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    parse_special: Option<bool>,
    return_token_strs: Option<bool>,
}

/// Fields of `/detokenize`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Ids {
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::TokenIds")]
    tokens: Value,
}

/// Most ids that are turned into text, where the model's length is not more.
const MAX_IDS: usize = 1 << 18;

/// Token ids of `prompt`, at most 1 MiB where the model's length does not give more, or of `messages`, which must fit the
/// model.
pub(super) async fn tokenize(
    State(state): State<AppState>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    served.check_model(&body)?;
    state.check_template(&body)?;
    let fields: Fields = wire::typed(&body)?;
    let chat = match (&fields.prompt, body["messages"].is_null()) {
        (Some(_), true) => None,
        (None, false) => Some(wire::typed::<Conversation>(&body)?.prompt()?),
        (Some(_), false) => {
            return Err(ApiError::invalid("prompt", "is given beside messages; give one of them"));
        }
        (None, true) => return Err(ApiError::invalid("prompt", "is missing; give prompt or messages")),
    };
    let (model, named) = (served.model.clone(), fields.return_token_strs.unwrap_or(false));
    let work = move || {
        let ids = match &chat {
            Some(chat) => model.chat_tokens(chat)?,
            None => text_tokens(&model, &fields)?,
        };
        let mut response = json!({"count": ids.len(), "max_model_len": model.max_model_len, "tokens": ids});
        if named {
            response["token_strs"] = ids.iter().map(|&id| model.tokenizer.id_to_token(id)).collect();
        }
        Ok(response)
    };
    let (response, _) = off_thread(state.enter()?, work).await?;
    Ok(Json(response))
}

fn text_tokens(model: &ServedModel, fields: &Fields) -> Result<Vec<u32>, ServiceError> {
    let specials = if fields.parse_special.unwrap_or(true) { Specials::Parse } else { Specials::Plain };
    let text = fields.prompt.as_deref().unwrap_or_default();
    model.check_bytes("prompt", text.len())?;
    let mut ids =
        model.tokenizer.encode(text, specials).map_err(|e| ServiceError::invalid("prompt", &e))?.ids;
    let bos = model.pieces.bos.filter(|_| fields.add_special_tokens.unwrap_or(true));
    if let Some(bos) = bos.filter(|bos| ids.first() != Some(bos)) {
        ids.insert(0, bos);
    }
    Ok(ids)
}

/// The text of `tokens`, with control tokens as they are written.
pub(super) async fn detokenize(
    State(state): State<AppState>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    served.check_model(&body)?;
    let fields: Ids = wire::typed(&body)?;
    let ids = wire::token_ids(&fields.tokens, "tokens")?;
    let (vocab, most) = (served.model.engine.spec().vocab, MAX_IDS.max(served.model.max_model_len));
    if ids.len() > most {
        let reason = format!("has {} ids; at most {most} are turned into text in one request", ids.len());
        return Err(ApiError::invalid("tokens", &reason));
    }
    if let Some(i) = ids.iter().position(|&id| id as usize >= vocab) {
        let reason = format!("does not exist; the vocabulary has {vocab} tokens");
        return Err(ApiError::invalid(format!("tokens[{i}]"), &reason));
    }
    let model = served.model.clone();
    let (text, _) = off_thread(state.enter()?, move || Ok(model.tokenizer.decode(&ids, false))).await?;
    Ok(Json(json!({"prompt": text})))
}
