//! The keys of a Hugging Face `config.json` that dense decoders use, old style and new.

use serde::Deserialize;

use crate::{
    model::{
        rope::{Rope, RopeScaling},
        spec::DecoderSpec,
    },
    text::shown,
};

/// A parsed `config.json`; keys that no dense decoder needs are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct HfConfig {
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    rms_norm_eps: f64,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    rope_scaling: Option<serde_json::Value>,
    rope_parameters: Option<serde_json::Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    hidden_act: Option<String>,
    #[serde(default)]
    pub(super) attention_bias: bool,
    #[serde(default)]
    pub(super) mlp_bias: bool,
    use_sliding_window: Option<bool>,
    #[serde(default)]
    layer_types: Option<Vec<String>>,
}

impl HfConfig {
    /// Class name of the model, or its type where the file names no class.
    #[must_use]
    pub fn name(&self) -> &str {
        self.architectures.first().unwrap_or(&self.model_type)
    }

    /// The spec of a decoder without biases or qk-norm.
    pub(super) fn plain_spec(&self) -> Result<DecoderSpec, String> {
        if let Some(act) = self.hidden_act.as_deref().filter(|a| *a != "silu") {
            return Err(format!("hidden_act: \"{}\" is not supported, only \"silu\"", shown(act)));
        }
        let other = self.layer_types.iter().flatten().find(|kind| *kind != "full_attention");
        if let Some(kind) = other {
            return Err(format!(
                "layer_types: \"{}\" is not supported, only \"full_attention\"",
                shown(kind)
            ));
        }
        if self.num_attention_heads == 0 {
            return Err("num_attention_heads: is 0".into());
        }
        Ok(DecoderSpec {
            n_layers: self.num_hidden_layers,
            hidden: self.hidden_size,
            intermediate: self.intermediate_size,
            n_heads: self.num_attention_heads,
            n_kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
            head_dim: self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads),
            vocab: self.vocab_size,
            norm_eps: self.rms_norm_eps,
            rope: self.rope()?,
            qkv_bias: false,
            o_bias: false,
            qk_norm: false,
            tied: self.tie_word_embeddings,
            max_context: self.max_position_embeddings,
        })
    }

    /// Sliding-window layers would need their own mask.
    pub(super) fn refuse_sliding_window(&self) -> Result<(), String> {
        match self.use_sliding_window {
            Some(true) => Err("use_sliding_window: true is not supported".into()),
            _ => Ok(()),
        }
    }

    /// New configs say `rope_parameters: {rope_type, rope_theta, …}`; older ones `rope_theta` and
    /// `rope_scaling: {type or rope_type, …}`.
    fn rope(&self) -> Result<Rope, String> {
        let (key, entry) = match (&self.rope_parameters, &self.rope_scaling) {
            (Some(entry), _) if entry.is_object() => ("rope_parameters", Some(entry)),
            (_, Some(entry)) if entry.is_object() => ("rope_scaling", Some(entry)),
            _ => ("rope_scaling", None),
        };
        let theta = entry.and_then(|e| e["rope_theta"].as_f64()).or(self.rope_theta).unwrap_or(10_000.0);
        let partial = entry.and_then(|e| e["partial_rotary_factor"].as_f64()).unwrap_or(1.0);
        if partial != 1.0 {
            return Err(format!("{key}.partial_rotary_factor: {partial} is not supported, only 1"));
        }
        let scaling = entry.map_or(Ok(RopeScaling::Default), |entry| {
            RopeScaling::from_json(entry, self.max_position_embeddings).map_err(|e| format!("{key}: {e}"))
        })?;
        Ok(Rope { theta, scaling })
    }
}

impl RopeScaling {
    /// Reads a `rope_scaling` object of `config.json` (`type` or `rope_type`, then the kind's own keys). YaRN and
    /// Llama 3 without `original_max_position_embeddings` take `max_context`.
    ///
    /// # Errors
    /// A sentence about the entry: an unknown kind lists the known ones.
    pub fn from_json(entry: &serde_json::Value, max_context: usize) -> Result<Self, String> {
        let mut entry = entry.as_object().ok_or("expected an object")?.clone();
        if let Some(kind) = entry.remove("type") {
            entry.entry("rope_type").or_insert(kind);
        }
        entry.entry("rope_type").or_insert("default".into());
        entry.entry("original_max_position_embeddings").or_insert(max_context.into());
        let kind = entry["rope_type"].clone();
        if !["default", "linear", "llama3", "yarn"].iter().any(|k| kind == *k) {
            let kind = shown(&kind.to_string());
            return Err(format!(
                "rope_type {kind} is not supported; supported are default, linear, llama3, yarn"
            ));
        }
        serde_json::from_value(entry.into()).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(extra: &serde_json::Value) -> Result<DecoderSpec, String> {
        let mut c = json!({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 100, "rms_norm_eps": 1e-6, "max_position_embeddings": 512});
        c.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value::<HfConfig>(c).map_err(|e| e.to_string())?.plain_spec()
    }

    #[test]
    fn old_and_new_rope_entries_mean_the_same() {
        let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 5e5});
        let new = config(&json!({ "rope_parameters": yarn })).unwrap();
        let old = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
        let old = config(&json!({ "rope_theta": 5e5, "rope_scaling": old })).unwrap();
        assert_eq!(new, old);
        assert_eq!(new.rope.theta, 5e5);
        let plain =
            config(&json!({"rope_theta": 1e6, "rope_scaling": null, "num_key_value_heads": null})).unwrap();
        assert_eq!((plain.rope.scaling, plain.n_kv_heads, plain.head_dim), (RopeScaling::Default, 4, 16));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_key() {
        for (extra, key) in [
            (json!({"hidden_act": "gelu"}), "hidden_act"),
            (json!({"rope_scaling": {"rope_type": "longrope"}}), "longrope"),
            (json!({"rope_scaling": {"rope_type": "linear"}}), "factor"),
            (json!({"rope_parameters": {"partial_rotary_factor": 0.5}}), "partial_rotary_factor"),
            (json!({"num_attention_heads": 0}), "num_attention_heads"),
            (json!({"layer_types": ["full_attention", "sliding_attention"]}), "sliding_attention"),
            (json!({"layer_types": ["linear_attention", "full_attention"]}), "layer_types"),
            (json!({"hidden_size": "wide"}), "invalid type"),
        ] {
            let error = config(&extra).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }
}
