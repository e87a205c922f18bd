//! From model files to something that can be served.

use std::path::PathBuf;

use super::{
    ServiceError,
    generate::{Grammars, ReasoningParser, ToolFormat, ToolParser, control_texts},
    heads::HeadSets,
};
use crate::{
    engine::{EngineConfig, EngineHandle},
    hub::ModelFiles,
    ids::{BLOCK_SIZE, TokenId},
    model::{
        Compute, DecoderSpec, LoadError,
        card::ModelCard,
        gguf::{GgufError, GgufFile},
        load,
        rope::RopeScaling,
    },
    ops::{KvStore, PageLayout, cpu::Isa},
    prompt::{
        EncodeError, PieceEncoder, Specials,
        layout::{ScorePrompt, TemplatePieces, prompt_hash},
        template::{CHATML, ChatTemplate, RenderInput, TemplateError},
    },
    sched::SchedConfig,
    score::heads::{HeadSetError, HeadTarget},
    text::{Tokenizer, TokenizerError},
};

/// What stands where the user's words will be, while a template is cut in two: an invisible separator on both sides, so
/// that no template trims it.
const SENTINEL: &str = "\u{2063}USER\u{2063}";

/// How a model is loaded and run; everything has a default that works on a laptop.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Kernel threads; the machine's cores by default.
    pub threads: Option<usize>,
    /// Longest prompt plus answer, at most what the model was made for.
    pub max_model_len: Option<usize>,
    /// Tokens the KV pool holds.
    pub kv_tokens: Option<usize>,
    /// Tokens of one step.
    pub max_batched_tokens: Option<usize>,
    /// Prefill tokens of one sequence in one step.
    pub prefill_chunk: Option<usize>,
    /// Prefill tokens of a step in which some sequence decodes.
    pub prefill_beside_decode: Option<usize>,
    /// Sequences that run at once.
    pub max_sequences: Option<usize>,
    /// Turns the prefix cache off.
    pub no_prefix_cache: bool,
    /// Runs scoring passes through every layer.
    pub no_early_exit: bool,
    /// Arithmetic of the linear layers.
    pub compute: Compute,
    /// Overrides the model's rotary scaling.
    pub rope_scaling: Option<RopeScaling>,
    /// A head set file used in place of the shipped ones for this model, or the name of a shipped one to use by default.
    pub head_set: Option<PathBuf>,
    /// A Jinja file used in place of the model's chat template.
    pub chat_template: Option<PathBuf>,
    /// Which format of tool calls is read in answers to requests with tools.
    pub tool_parser: ToolParser,
    /// Which reasoning is told apart from answers.
    pub reasoning_parser: ReasoningParser,
    /// Name in requests; the card's id or the file's name by default.
    pub served_name: Option<String>,
}

/// A model that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its weights.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its GGUF file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Its chat template.
    #[error("chat template: {0}")]
    Template(#[from] TemplateError),
    /// A head set.
    #[error(transparent)]
    HeadSet(#[from] HeadSetError),
    /// A file named on the command line.
    #[error("{}: cannot be read: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The tokenizer and the weights do not belong together.
    #[error("the tokenizer has {tokenizer} tokens, the model only {model}; they do not belong together")]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// Rows of the embedding.
        model: usize,
    },
    /// A length that was asked for cannot be served.
    #[error("--max-model-len {asked} is more than the {limit} tokens that {of}")]
    TooLong {
        /// Tokens asked for.
        asked: usize,
        /// Most tokens there can be.
        limit: usize,
        /// What limits them.
        of: &'static str,
    },
    /// A head set that was named and is not there.
    #[error(transparent)]
    HeadSetName(#[from] ServiceError),
    /// The tokenizer refused one of the template's own pieces.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The engine did not start.
    #[error("the engine did not start: {0}")]
    Engine(String),
}

/// A loaded model with everything a request needs.
#[derive(Clone)]
pub struct ServedModel {
    /// Name in requests and answers.
    pub id: String,
    /// The engine that runs it.
    pub engine: EngineHandle,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template.
    pub template: ChatTemplate,
    /// The template cut around the user's words, for scoring prompts.
    pub pieces: TemplatePieces,
    /// The texts of scoring prompts.
    pub score_prompt: ScorePrompt,
    /// Hash of the scoring prompt.
    pub prompt_hash: String,
    /// Head sets that fit.
    pub head_sets: HeadSets,
    /// Tokens that end a generation.
    pub stop_tokens: Vec<TokenId>,
    /// Longest prompt plus answer, in tokens.
    pub max_model_len: usize,
    /// Arithmetic of the linear layers.
    pub compute: Compute,
    /// What it runs on: instruction set and threads.
    pub processor: String,
    /// Most tokens of one step of the engine.
    pub(super) step_tokens: usize,
    /// The texts of the control tokens, longest first.
    pub(super) control_texts: Vec<String>,
    /// Which format of tool calls is read.
    pub(super) tool_parser: ToolParser,
    /// The format that the template shows.
    pub(super) tool_format: Option<ToolFormat>,
    /// Which reasoning is told apart.
    pub(super) reasoning_parser: ReasoningParser,
    /// For answers that must follow a format.
    pub(super) grammars: Grammars,
}

impl ServedModel {
    /// Loads `files` and starts an engine on them. `card` is the model's card, where there is one.
    ///
    /// # Errors
    /// When any file is unusable; the message names file, key and reason.
    pub fn load(
        files: &ModelFiles,
        card: Option<&ModelCard>,
        options: &LoadOptions,
    ) -> Result<Self, ServeError> {
        let rope = options.rope_scaling.clone();
        let (decoder, tokenizer) = match files {
            ModelFiles::Gguf(path) => {
                let file = GgufFile::open(path)?;
                let tokenizer = Tokenizer::from_spec(&file.tokenizer_spec()?)?;
                (load::gguf(&file, rope, options.compute)?, tokenizer)
            }
            // first what is read in no time: a folder that lacks its tokenizer says so before its weights are loaded
            ModelFiles::Folder(path) => {
                let tokenizer = Tokenizer::from_json_file(path.join("tokenizer.json"))?;
                (load::folder(path, rope, options.compute)?, tokenizer)
            }
        };
        let spec = decoder.spec().clone();
        if tokenizer.vocab_size() > spec.vocab {
            return Err(ServeError::Vocabulary { tokenizer: tokenizer.vocab_size(), model: spec.vocab });
        }
        let source = match &options.chat_template {
            Some(file) => read(file)?,
            None => tokenizer.chat_template().unwrap_or(CHATML).to_owned(),
        };
        let template = ChatTemplate::new(&source)?;
        let pieces = pieces(&template, &tokenizer, card)?;
        let score_prompt = card.map(|c| c.score_prompt.clone()).unwrap_or_default();
        let prompt_hash = prompt_hash(&score_prompt, &pieces);
        let id = options.served_name.clone().unwrap_or_else(|| name(files, card));
        let target = HeadTarget {
            model: card.map_or(&id, |c| &c.id),
            n_heads: spec.n_heads,
            full_rows: &vec![true; spec.n_layers],
            prompt_hash: &prompt_hash,
            tokenizer_hash: tokenizer.hash(),
        };
        let head_sets = HeadSets::load(card, options.head_set.as_ref(), &target)?;
        let stops = card.map_or(&[][..], |c| &c.stop_tokens).iter().filter_map(|t| tokenizer.token_to_id(t));
        let mut stop_tokens: Vec<TokenId> = tokenizer.eos_ids().iter().copied().chain(stops).collect();
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        let (max_model_len, config) = lengths(&spec, options)?;
        let engine = EngineHandle::start(decoder, &config).map_err(ServeError::Engine)?;
        Ok(Self {
            id,
            engine,
            control_texts: control_texts(&tokenizer),
            tool_parser: options.tool_parser,
            tool_format: ToolFormat::of_template(&source),
            reasoning_parser: options.reasoning_parser,
            grammars: Grammars::default(),
            tokenizer,
            template,
            pieces,
            score_prompt,
            prompt_hash,
            head_sets,
            stop_tokens,
            max_model_len,
            compute: options.compute,
            step_tokens: config.sched.max_batched_tokens,
            processor: format!("{}, {} threads", Isa::detect(), config.threads),
        })
    }

    /// The text of the BOS token, for templates that write it.
    #[must_use]
    pub fn bos_text(&self) -> Option<String> {
        self.tokenizer.bos().and_then(|id| self.tokenizer.id_to_token(id))
    }

    /// The text of the model's main end token.
    #[must_use]
    pub fn eos_text(&self) -> Option<String> {
        self.tokenizer.eos_ids().first().and_then(|&id| self.tokenizer.id_to_token(id))
    }
}

fn read(file: &PathBuf) -> Result<String, ServeError> {
    std::fs::read_to_string(file).map_err(|e| ServeError::File { file: file.clone(), reason: e.to_string() })
}

/// The model's name where nobody gave one.
fn name(files: &ModelFiles, card: Option<&ModelCard>) -> String {
    let (ModelFiles::Gguf(path) | ModelFiles::Folder(path)) = files;
    let stem = || path.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
    card.map_or_else(stem, |c| c.id.clone())
}

/// Renders the template around a sentinel and settles who writes the BOS token.
fn pieces(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    card: Option<&ModelCard>,
) -> Result<TemplatePieces, ServeError> {
    let bos_text = tokenizer.bos().and_then(|id| tokenizer.id_to_token(id));
    let eos_text = tokenizer.eos_ids().first().and_then(|&id| tokenizer.id_to_token(id));
    let base = RenderInput {
        bos_token: bos_text.as_deref(),
        eos_token: eos_text.as_deref(),
        ..RenderInput::default()
    };
    let (before, after) = template.split_around(SENTINEL, &base)?;
    let named = card.and_then(|c| c.bos.as_deref()).and_then(|t| tokenizer.token_to_id(t));
    let bos = named.or_else(|| tokenizer.bos().filter(|_| tokenizer.adds_bos()));
    // fails now rather than in the first request
    tokenizer.encode(&before, Specials::Parse)?;
    tokenizer.encode(&after, Specials::Parse)?;
    Ok(TemplatePieces { before, after, bos })
}

/// The longest prompt plus answer, and an engine that holds it. A length that was asked for is granted or refused.
fn lengths(spec: &DecoderSpec, options: &LoadOptions) -> Result<(usize, EngineConfig), ServeError> {
    let limit = options.rope_scaling.as_ref().map_or(spec.max_context, |r| r.stretched(spec.max_context));
    let asked = options.max_model_len.unwrap_or(limit);
    if asked > limit {
        return Err(ServeError::TooLong { asked, limit, of: "the model was made for" });
    }
    let config = engine_config(spec, asked, options);
    let pool = config.kv_blocks.saturating_mul(BLOCK_SIZE);
    if asked > pool && options.max_model_len.is_some() {
        return Err(ServeError::TooLong { asked, limit: pool, of: "the KV pool (--kv-tokens) holds" });
    }
    Ok((asked.min(pool), config))
}

/// Sizes that fit the machine where the options leave them open.
fn engine_config(spec: &DecoderSpec, max_model_len: usize, options: &LoadOptions) -> EngineConfig {
    let layout = PageLayout { n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    let block = KvStore::block_bytes(spec.n_layers, layout, options.compute.kv_float());
    // room for a few long prompts, at most 4 GiB; memory is taken only as blocks are first used
    let kv_tokens = options
        .kv_tokens
        .unwrap_or_else(|| max_model_len.saturating_mul(4).min((4 << 30) / block * BLOCK_SIZE));
    let threads =
        options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    EngineConfig {
        kv_blocks: kv_tokens.div_ceil(BLOCK_SIZE).max(1),
        sched: SchedConfig {
            max_batched_tokens: options.max_batched_tokens.unwrap_or(1024),
            prefill_chunk: options.prefill_chunk.unwrap_or(512),
            prefill_beside_decode: options.prefill_beside_decode.unwrap_or(64),
            max_sequences: options.max_sequences.unwrap_or(64),
        },
        threads: threads.max(1),
        prefix_cache: !options.no_prefix_cache,
        early_exit: !options.no_early_exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rope::Rope;

    #[test]
    fn no_length_wraps() {
        let spec = DecoderSpec {
            n_layers: 1,
            hidden: 64,
            intermediate: 64,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 64,
            vocab: 1,
            norm_eps: 1e-6,
            rope: Rope { theta: 1e4, scaling: RopeScaling::Default },
            qkv_bias: false,
            o_bias: false,
            qk_norm: false,
            tied: true,
            max_context: 512,
        };
        // four times as much, the size of a pool, would be nothing
        let factor = (1u64 << 53) as f64;
        let stretched =
            LoadOptions { rope_scaling: Some(RopeScaling::Linear { factor }), ..LoadOptions::default() };
        let (len, config) = lengths(&spec, &stretched).unwrap();
        assert_eq!(len, config.kv_blocks * BLOCK_SIZE);
        assert!(config.kv_blocks > 1000, "{config:?}");
        let pool = LoadOptions { kv_tokens: Some(usize::MAX), ..LoadOptions::default() };
        assert_eq!(lengths(&spec, &pool).unwrap().0, 512);
    }
}
