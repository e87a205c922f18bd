//! Flags that several commands share. Names are vLLM's where the meaning is the same.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, ValueEnum, builder::FalseyValueParser};

use crate::{
    model::{Compute, rope::RopeScaling},
    service::{
        LoadOptions,
        generate::{ReasoningParser, ToolFormat, ToolParser},
    },
};

/// The model used when none is named.
pub(super) const DEFAULT_MODEL: &str = "qwen2.5-coder-0.5b-instruct";

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Which model.
#[derive(Args, Debug)]
pub(super) struct ModelArgs {
    /// A card's id (see `qrae models list`), a .gguf file, a folder with config.json, or OWNER/NAME[:FILE.gguf][@REVISION]
    /// on the hub
    #[arg(long, env = "QRAE_MODEL", value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub(super) model: String,
    /// Use what is on this machine; never download
    #[arg(long, env = "QRAE_OFFLINE", value_parser = FalseyValueParser::new())]
    pub(super) offline: bool,
}

/// How it runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(super) struct EngineArgs {
    /// Kernel threads [default: the machine's cores]
    #[arg(long, env = "QRAE_THREADS", value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Longest prompt plus answer in tokens [default: what the model was made for]
    #[arg(long, env = "QRAE_MAX_MODEL_LEN", value_name = "TOKENS")]
    max_model_len: Option<NonZeroUsize>,
    /// Tokens the KV pool holds [default: four longest prompts, at most 4 GiB]
    #[arg(long, env = "QRAE_KV_TOKENS", value_name = "TOKENS")]
    kv_tokens: Option<NonZeroUsize>,
    /// Most tokens of one step, over all requests [default: 1024]
    #[arg(long, env = "QRAE_MAX_NUM_BATCHED_TOKENS", value_name = "TOKENS")]
    max_num_batched_tokens: Option<NonZeroUsize>,
    /// Most prompt tokens of one request in one step [default: 512]
    #[arg(long, env = "QRAE_PREFILL_CHUNK", value_name = "TOKENS")]
    prefill_chunk: Option<NonZeroUsize>,
    /// Most prompt tokens of one step while some answer is being generated: bounds the pause between its tokens
    /// [default: 64]
    #[arg(long, env = "QRAE_PREFILL_BESIDE_DECODE", value_name = "TOKENS")]
    prefill_beside_decode: Option<NonZeroUsize>,
    /// Most sequences that run at once, and one score more where all of them are answers, or the other way round
    /// [default: 64]
    #[arg(long, env = "QRAE_MAX_NUM_SEQS", value_name = "N")]
    max_num_seqs: Option<NonZeroUsize>,
    /// Compute every prompt whole, reuse no KV
    #[arg(long, env = "QRAE_NO_PREFIX_CACHING", value_parser = FalseyValueParser::new())]
    no_prefix_caching: bool,
    /// Run every layer when scoring, also those above the last head
    #[arg(long, env = "QRAE_NO_EARLY_EXIT", value_parser = FalseyValueParser::new())]
    no_early_exit: bool,
    /// Arithmetic of the linear layers: int8 multiplies quantised weights as the file holds them, quantises others
    /// to 8 bits at load, and keeps KV in f16; f32 is the reference, which dequantises what is quantised, keeps
    /// f32, f16 and bf16 weights as they are, and keeps KV in f32. f32 is some five times slower and holds quantised weights
    /// in 4 bytes each; int8 ranks 1 to 2 of 100 pairs of chunks otherwise, near ties (README, Numerics)
    #[arg(long, env = "QRAE_COMPUTE", value_enum, default_value_t)]
    compute: ComputeArg,
    /// Rotary scaling in place of the model's own, as in config.json: '{"rope_type":"yarn","factor":4.0,
    /// "original_max_position_embeddings":32768}'
    #[arg(long, env = "QRAE_ROPE_SCALING", value_name = "JSON", value_parser = rope_scaling)]
    rope_scaling: Option<RopeScaling>,
    /// A Jinja file in place of the model's chat template
    #[arg(long, env = "QRAE_CHAT_TEMPLATE", value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

/// [`Compute`] as a flag.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum ComputeArg {
    #[default]
    Int8,
    F32,
}

impl EngineArgs {
    /// The service's options, as far as these flags go.
    pub(super) fn options(&self) -> LoadOptions {
        let plain = |n: Option<NonZeroUsize>| n.map(NonZeroUsize::get);
        LoadOptions {
            threads: plain(self.threads),
            max_model_len: plain(self.max_model_len),
            kv_tokens: plain(self.kv_tokens),
            max_batched_tokens: plain(self.max_num_batched_tokens),
            prefill_chunk: plain(self.prefill_chunk),
            prefill_beside_decode: plain(self.prefill_beside_decode),
            max_sequences: plain(self.max_num_seqs),
            no_prefix_cache: self.no_prefix_caching,
            no_early_exit: self.no_early_exit,
            compute: match self.compute {
                ComputeArg::Int8 => Compute::Int8,
                ComputeArg::F32 => Compute::F32,
            },
            rope_scaling: self.rope_scaling.clone(),
            chat_template: self.chat_template.clone(),
            ..LoadOptions::default()
        }
    }
}

/// What is told apart in answers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Answers")]
pub(super) struct AnswerArgs {
    /// Form of tool calls that is read in answers to requests with tools: auto takes the one that the chat template
    /// shows; none leaves every answer as text
    #[arg(long, env = "QRAE_TOOL_CALL_PARSER", value_enum, default_value = "auto", value_name = "FORM")]
    tool_call_parser: ToolParserArg,
    /// think tells what stands between <think> and </think> apart, as "reasoning"; none leaves it in the text
    #[arg(long, env = "QRAE_REASONING_PARSER", value_enum, default_value = "none", value_name = "FORM")]
    reasoning_parser: ReasoningParserArg,
}

/// [`ToolParser`] as a flag.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ToolParserArg {
    Auto,
    Hermes,
    Xml,
    Pangu,
    None,
}

/// [`ReasoningParser`] as a flag.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReasoningParserArg {
    None,
    Think,
}

impl AnswerArgs {
    /// Puts them into the service's options.
    pub(super) fn apply(&self, options: &mut LoadOptions) {
        options.tool_parser = match self.tool_call_parser {
            ToolParserArg::Auto => ToolParser::Auto,
            ToolParserArg::Hermes => ToolParser::Format(ToolFormat::Hermes),
            ToolParserArg::Xml => ToolParser::Format(ToolFormat::Xml),
            ToolParserArg::Pangu => ToolParser::Format(ToolFormat::Pangu),
            ToolParserArg::None => ToolParser::Off,
        };
        options.reasoning_parser = match self.reasoning_parser {
            ReasoningParserArg::None => ReasoningParser::None,
            ReasoningParserArg::Think => ReasoningParser::Think,
        };
    }
}

/// Unlike in config.json, the length that YaRN and Llama 3 stretch from must be said: the model is not known yet.
fn rope_scaling(json: &str) -> Result<RopeScaling, String> {
    let entry: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let kind = entry.get("rope_type").or_else(|| entry.get("type")).and_then(|kind| kind.as_str());
    let stretches = matches!(kind, Some("yarn" | "llama3"));
    if stretches && entry.get("original_max_position_embeddings").is_none() {
        return Err("original_max_position_embeddings is missing: the length before stretching".into());
    }
    RopeScaling::from_json(&entry, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rope_scaling_says_what_it_lacks() {
        let yarn = r#"{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}"#;
        assert!(matches!(rope_scaling(yarn), Ok(RopeScaling::Yarn { .. })));
        let bare = rope_scaling(r#"{"type":"yarn","factor":4.0}"#).unwrap_err();
        assert!(bare.contains("original_max_position_embeddings"), "{bare}");
        assert!(rope_scaling(r#"{"rope_type":"spiral"}"#).unwrap_err().contains("linear"));
        assert!(rope_scaling("[]").is_err() && rope_scaling("{").is_err());
        assert_eq!(rope_scaling("{}"), Ok(RopeScaling::Default));
    }
}
