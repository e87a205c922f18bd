//! What both generation requests have: how tokens are chosen, when to stop, and how the answer is sent.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Rest, token_ids};
use crate::{
    engine::Sampling,
    http::ApiError,
    kv::Salt,
    service::generate::{
        FinishReason, GenerateOptions, ResponseFormat, StopReason, TokenLogprob, Usage, random_seed,
    },
};

/// Most stop strings of one request.
const MAX_STOPS: usize = 16;
/// Most top log-probabilities per token.
const MAX_LOGPROBS: i64 = 20;
/// Most choices per prompt.
const MAX_N: i64 = 16;

/// Fields that would change the answer and are not supported: refused, where others that are not known are ignored.
const UNSUPPORTED: [&str; 11] = [
    "suffix",
    "logit_bias",
    "use_beam_search",
    "min_tokens",
    "prompt_logprobs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "truncate_prompt_tokens",
];

/// Most `stop_token_ids`: each is looked for after each token.
const MAX_STOP_TOKENS: usize = 256;

/// The fields, as sent.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Common {
    #[schemars(range(min = 0.0, max = 2.0))]
    temperature: Option<f64>,
    #[schemars(range(min = 0.0, max = 1.0))]
    top_p: Option<f64>,
    #[schemars(range(min = -1))]
    top_k: Option<i64>,
    #[schemars(range(min = 0.0, max = 1.0))]
    min_p: Option<f64>,
    #[schemars(range(min = -2.0, max = 2.0))]
    presence_penalty: Option<f64>,
    #[schemars(range(min = -2.0, max = 2.0))]
    frequency_penalty: Option<f64>,
    #[schemars(range(min = 0.01, max = 100.0))]
    repetition_penalty: Option<f64>,
    seed: Option<i64>,
    #[schemars(range(min = 1))]
    max_tokens: Option<i64>,
    #[schemars(range(min = 1))]
    max_completion_tokens: Option<i64>,
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::Stops")]
    stop: Value,
    #[serde(default)]
    #[schemars(with = "Option<crate::http::openapi::shapes::TokenIds>")]
    stop_token_ids: Value,
    ignore_eos: Option<bool>,
    #[schemars(range(min = 1, max = MAX_N))]
    n: Option<i64>,
    skip_special_tokens: Option<bool>,
    #[schemars(with = "Option<crate::http::openapi::shapes::CacheSalt>")]
    cache_salt: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::ResponseFormat")]
    response_format: Value,
    #[serde(default)]
    #[schemars(skip)]
    best_of: Value,
    /// Only their names matter.
    #[serde(flatten)]
    #[schemars(skip)]
    pub(in crate::http) rest: Rest,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// How the answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Delivery {
    /// As server-sent events.
    pub(in crate::http) stream: bool,
    /// With a last event that holds the usage.
    pub(in crate::http) include_usage: bool,
}

impl Common {
    pub(in crate::http) fn delivery(&self) -> Delivery {
        let include_usage = self.stream_options.and_then(|o| o.include_usage).unwrap_or(false);
        Delivery { stream: self.stream.unwrap_or(false), include_usage }
    }

    /// Checks every range. `body` is the whole request.
    pub(in crate::http) fn options(&self, body: &Value) -> Result<GenerateOptions, ApiError> {
        self.check_supported(body)?;
        let n = in_range("n", self.n.unwrap_or(1), 1, MAX_N)?;
        let max = match (self.max_completion_tokens, self.max_tokens) {
            (Some(max), _) => Some(in_range("max_completion_tokens", max, 1, i64::MAX)?),
            (None, max) => max.map(|max| in_range("max_tokens", max, 1, i64::MAX)).transpose()?,
        };
        if self.cache_salt.as_deref().is_some_and(|salt| salt.is_empty() || salt.len() > 1024) {
            return Err(ApiError::invalid("cache_salt", "must have 1 to 1024 bytes"));
        }
        let stop_token_ids = match &self.stop_token_ids {
            Value::Null => Vec::new(),
            Value::Array(ids) if ids.len() > MAX_STOP_TOKENS => {
                let reason = format!("has {} ids, at most {MAX_STOP_TOKENS} are taken", ids.len());
                return Err(ApiError::invalid("stop_token_ids", &reason));
            }
            ids => token_ids(ids, "stop_token_ids")?,
        };
        Ok(GenerateOptions {
            sampling: self.sampling()?,
            max_tokens: max,
            stop: stops(&self.stop)?,
            stop_token_ids,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs: None,
            n,
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            format: response_format(&self.response_format)?,
            salt: self.cache_salt.as_deref().map_or_else(Salt::none, Salt::new),
        })
    }

    fn sampling(&self) -> Result<Sampling, ApiError> {
        let top_k = self.top_k.unwrap_or(0);
        if top_k < -1 {
            return Err(ApiError::invalid("top_k", "must be at least 1, or 0 or -1 for no cut"));
        }
        let repetition_penalty =
            between("repetition_penalty", self.repetition_penalty.unwrap_or(1.0), 0.01, 100.0)?;
        let top_p = between("top_p", self.top_p.unwrap_or(1.0), 0.0, 1.0)?;
        if self.top_p.is_some_and(|p| p <= 0.0) {
            return Err(ApiError::invalid("top_p", "must be above 0 and at most 1"));
        }
        let min_p = between("min_p", self.min_p.unwrap_or(0.0), 0.0, 1.0)?;
        if self.min_p.is_some_and(|p| p >= 1.0) {
            return Err(ApiError::invalid("min_p", "must be at least 0 and below 1"));
        }
        Ok(Sampling {
            temperature: between("temperature", self.temperature.unwrap_or(1.0), 0.0, 2.0)?,
            top_p,
            top_k: usize::try_from(top_k).unwrap_or(0),
            min_p,
            presence_penalty: between("presence_penalty", self.presence_penalty.unwrap_or(0.0), -2.0, 2.0)?,
            frequency_penalty: between(
                "frequency_penalty",
                self.frequency_penalty.unwrap_or(0.0),
                -2.0,
                2.0,
            )?,
            repetition_penalty,
            seed: self.seed.map_or_else(random_seed, i64::cast_unsigned),
        })
    }

    fn check_supported(&self, body: &Value) -> Result<(), ApiError> {
        if !self.best_of.is_null() {
            return Err(ApiError::invalid("best_of", "is not supported; use n"));
        }
        let asks = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Number(n) => n.as_f64() != Some(0.0),
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(_) | Value::Bool(true) => true,
        };
        match UNSUPPORTED.iter().find(|name| asks(&body[**name])) {
            Some(name) => Err(ApiError::invalid(*name, "is not supported yet; leave it out")),
            None => Ok(()),
        }
    }
}

/// OpenAI's `response_format`.
fn response_format(format: &Value) -> Result<ResponseFormat, ApiError> {
    if format.is_null() {
        return Ok(ResponseFormat::Text);
    }
    if !format.is_object() {
        return Err(ApiError::invalid("response_format", "must be an object with a type"));
    }
    match format["type"].as_str() {
        Some("text") => Ok(ResponseFormat::Text),
        Some("json_object") => Ok(ResponseFormat::Object),
        Some("json_schema") => match &format["json_schema"]["schema"] {
            schema @ (Value::Object(_) | Value::Bool(true)) => Ok(ResponseFormat::Schema(schema.clone())),
            _ => Err(ApiError::invalid("response_format.json_schema.schema", "must be a JSON schema")),
        },
        _ => {
            let reason = "must be \"text\", \"json_object\" or \"json_schema\"";
            Err(ApiError::invalid("response_format.type", reason))
        }
    }
}

/// Names of fields that neither type knows are logged; nothing else happens to them.
pub(in crate::http) fn note_unknown(one: &Rest, other: &Rest) {
    let mut ignored: Vec<&String> = one.keys().filter(|name| other.contains_key(*name)).collect();
    ignored.retain(|name| *name != "model");
    if !ignored.is_empty() {
        tracing::debug!(?ignored, "unknown fields of a request were ignored");
    }
}

/// The number of log-probabilities asked for.
pub(in crate::http) fn logprob_count(field: &str, n: i64) -> Result<usize, ApiError> {
    in_range(field, n, 0, MAX_LOGPROBS)
}

fn in_range(field: &str, value: i64, min: i64, max: i64) -> Result<usize, ApiError> {
    let fits = usize::try_from(value).ok().filter(|_| (min..=max).contains(&value));
    fits.ok_or_else(|| match max {
        i64::MAX => ApiError::invalid(field, &format!("is {value}, must be at least {min}")),
        _ => ApiError::invalid(field, &format!("is {value}, must be {min} to {max}")),
    })
}

fn between(field: &str, value: f64, min: f64, max: f64) -> Result<f32, ApiError> {
    let fits = (min..=max).contains(&value);
    let wrong = || ApiError::invalid(field, &format!("is {value}, must be {min} to {max}"));
    fits.then_some(value as f32).ok_or_else(wrong)
}

fn stops(value: &Value) -> Result<Vec<String>, ApiError> {
    let list: Vec<&Value> = match value {
        Value::Null => Vec::new(),
        Value::String(_) => vec![value],
        Value::Array(list) => list.iter().collect(),
        _ => return Err(ApiError::invalid("stop", "must be a string or a list of strings")),
    };
    if list.len() > MAX_STOPS {
        return Err(ApiError::invalid(
            "stop",
            &format!("has {} strings, at most {MAX_STOPS} are taken", list.len()),
        ));
    }
    let one = |(i, v): (usize, &Value)| {
        let text = v.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let field = if value.is_array() { format!("stop[{i}]") } else { "stop".into() };
        text.ok_or_else(|| ApiError::invalid(field, "must be a string that is not empty"))
    };
    list.into_iter().enumerate().map(one).collect()
}

/// Tokens of a request, as OpenAI counts them.
pub(in crate::http) fn usage(usage: Usage) -> Value {
    let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    })
}

pub(in crate::http) fn finish_reason(finish: Option<FinishReason>) -> Value {
    match finish {
        None => Value::Null,
        Some(FinishReason::Stop) => "stop".into(),
        Some(FinishReason::Length) => "length".into(),
        Some(FinishReason::ToolCalls) => "tool_calls".into(),
    }
}

pub(in crate::http) fn stop_reason(reason: Option<&StopReason>) -> Value {
    match reason {
        None => Value::Null,
        Some(StopReason::Text(text)) => text.as_str().into(),
        Some(StopReason::Token(id)) => (*id).into(),
    }
}

/// Characters of a token's text.
pub(in crate::http) fn token_chars(logprob: &TokenLogprob) -> usize {
    // bytes that begin a character
    logprob.bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}
