//! `POST /tokenize` and `/detokenize`, as vLLM has them: the ids a prompt would have, and back.

use axum::{Json, extract::State};
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

#[derive(Deserialize)]
struct Fields {
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    parse_special: Option<bool>,
    return_token_strs: Option<bool>,
}

/// Longest `prompt` that is tokenised, in bytes: tokenising takes some four hundred times as many.
const MAX_TEXT: usize = 1 << 20;

/// Token ids of `prompt`, at most 1 MiB, or of `messages`, which must fit the model.
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
    let work = move || match &chat {
        Some(chat) => model.chat_tokens(chat),
        None => text_tokens(&model, &fields),
    };
    let (ids, _) = off_thread(state.enter()?, work).await?;
    let mut response =
        json!({"count": ids.len(), "max_model_len": served.model.max_model_len, "tokens": ids});
    if named {
        let tokenizer = &served.model.tokenizer;
        response["token_strs"] = ids.iter().map(|&id| tokenizer.id_to_token(id)).collect();
    }
    Ok(Json(response))
}

fn text_tokens(model: &ServedModel, fields: &Fields) -> Result<Vec<u32>, ServiceError> {
    let specials = if fields.parse_special.unwrap_or(true) { Specials::Parse } else { Specials::Plain };
    let text = fields.prompt.as_deref().unwrap_or_default();
    if text.len() > MAX_TEXT {
        let reason = format!("has {} bytes; at most {MAX_TEXT} are tokenised in one request", text.len());
        return Err(ServiceError::invalid("prompt", &reason));
    }
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
    let ids = wire::token_ids(&body["tokens"], "tokens")?;
    let vocab = served.model.engine.spec().vocab;
    if let Some(i) = ids.iter().position(|&id| id as usize >= vocab) {
        let reason = format!("does not exist; the vocabulary has {vocab} tokens");
        return Err(ApiError::invalid(format!("tokens[{i}]"), &reason));
    }
    let model = served.model.clone();
    let (text, _) = off_thread(state.enter()?, move || Ok(model.tokenizer.decode(&ids, false))).await?;
    Ok(Json(json!({"prompt": text})))
}
