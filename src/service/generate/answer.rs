//! What is looked for in an answer, and what it must look like: from the caller's wishes to a reader and to masks.

use std::collections::VecDeque;

use serde_json::Value;

use super::{
    ChatJob, ChatPrompt, GenerateOptions, Reader, ResponseFormat, ToolChoice, ToolFormat, ToolParser,
    grammar::{self, Grammar},
    think,
    tools::{self, Offered},
};
use crate::{
    engine::TokenMask,
    ids::TokenId,
    service::{ServedModel, ServiceError},
};

/// What is looked for in a chat's answer. The default finds calls where tools are offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Whether and what the model is to call.
    pub tool_choice: ToolChoice,
    /// It may call several tools; otherwise its answer ends with the first call.
    pub parallel_tool_calls: bool,
    /// Reasoning that is told apart is told.
    pub include_reasoning: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { tool_choice: ToolChoice::Auto, parallel_tool_calls: true, include_reasoning: true }
    }
}

/// Which reasoning a server tells apart from answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningParser {
    /// None: it stays in the text.
    #[default]
    None,
    /// What stands between `<think>` and `</think>`.
    Think,
}

/// Tools of a request whose calls are looked for.
struct Wanted {
    offered: Offered,
    format: ToolFormat,
}

/// Fields of a request that say what an answer must look like.
const FORMAT: &str = "response_format";
const TOOLS: &str = "tools";

/// What holds answers to a form: a mask for each choice, prompt by prompt, or none.
#[derive(Debug, Default)]
pub(super) struct Masks {
    each: VecDeque<Box<dyn TokenMask>>,
    /// The field of the request that says the form; empty without one.
    pub(super) field: &'static str,
}

impl Masks {
    /// Those of the next `n` choices.
    pub(super) fn take(&mut self, n: usize) -> Vec<Box<dyn TokenMask>> {
        self.each.drain(..n.min(self.each.len())).collect()
    }
}

impl ServedModel {
    /// What reads a chat's answer, and the masks of its choices: one for each or none.
    pub(super) fn answer(&self, job: &ChatJob, ids: &[TokenId]) -> Result<(Reader, Masks), ServiceError> {
        let opened = self.opens_reasoning(ids);
        let mut reader = Reader::default();
        if self.reasoning_parser == ReasoningParser::Think {
            reader = reader.with_think(opened, job.answer.include_reasoning);
        }
        let wanted = self.wanted(&job.prompt, &job.answer.tool_choice)?;
        let masks = match &wanted {
            Some(wanted) => self.tool_masks(job, wanted)?,
            None => self.format_masks(&job.options, 1)?,
        };
        if opened && !masks.each.is_empty() {
            let field = if job.options.format == ResponseFormat::Text { "tool_choice" } else { FORMAT };
            let reason = "cannot be followed by a model whose chat template opens its reasoning; turn that off, as \
                          with \"chat_template_kwargs\": {\"enable_thinking\": false}";
            return Err(ServiceError::invalid(field, reason));
        }
        if let Some(Wanted { offered, format }) = wanted {
            reader = reader.with_tools(format, offered, !job.answer.parallel_tool_calls);
        }
        Ok((reader, masks))
    }

    /// The masks of the choices of `prompts` prompts that must follow the caller's format; none without one.
    pub(super) fn format_masks(
        &self,
        options: &GenerateOptions,
        prompts: usize,
    ) -> Result<Masks, ServiceError> {
        match format_schema(options)? {
            Some(schema) => self.masks(Grammar::Json(schema), options, prompts, FORMAT),
            None => Ok(Masks::default()),
        }
    }

    /// Whether the prompt ends inside the reasoning.
    fn opens_reasoning(&self, ids: &[TokenId]) -> bool {
        let end = &ids[ids.len().saturating_sub(8)..];
        self.tokenizer.decode(end, false).trim_end().ends_with(think::OPEN)
    }

    /// The tools whose calls are looked for: none without tools, where none is wanted, and where the format is not known.
    fn wanted(&self, prompt: &ChatPrompt, choice: &ToolChoice) -> Result<Option<Wanted>, ServiceError> {
        let offered = prompt.tools.as_ref().map(Offered::new).transpose()?.filter(|o| !o.is_empty());
        let Some(offered) = offered else {
            if choice.is_forced() {
                return Err(ServiceError::invalid("tool_choice", "asks for a call, and there are no tools"));
            }
            return Ok(None);
        };
        if let ToolChoice::Function(name) = choice
            && !offered.has(name)
        {
            let reason = format!("{name:?} is not among the tools");
            return Err(ServiceError::invalid("tool_choice.function.name", &reason));
        }
        let format = match (self.tool_parser, prompt.chat_template.as_deref()) {
            (ToolParser::Off, _) if choice.is_forced() => {
                let reason = "asks for a call, and the server reads none (--tool-call-parser)";
                return Err(ServiceError::invalid("tool_choice", reason));
            }
            (ToolParser::Off, _) => None,
            // a model that must call is held to a form, and Hermes' is the one there is a grammar of
            _ if choice.is_forced() => Some(ToolFormat::Hermes),
            (ToolParser::Format(format), _) => Some(format),
            (ToolParser::Auto, Some(template)) => ToolFormat::of_template(template),
            (ToolParser::Auto, None) => self.tool_format,
        };
        Ok(format.filter(|_| *choice != ToolChoice::None).map(|format| Wanted { offered, format }))
    }

    /// Masks where tools are offered: an answer is calls where they are forced, and calls or the caller's format
    /// otherwise.
    fn tool_masks(&self, job: &ChatJob, Wanted { offered, format }: &Wanted) -> Result<Masks, ServiceError> {
        let (answer, options) = (&job.answer, &job.options);
        let forced = answer.tool_choice.is_forced();
        let schema = if forced { None } else { format_schema(options)? };
        if !forced && schema.is_none() {
            return Ok(Masks::default());
        }
        if *format != ToolFormat::Hermes {
            let reason = "is combined with tools in Hermes' format only (--tool-call-parser hermes); set tool_choice to \
                          \"none\"";
            return Err(ServiceError::invalid(FORMAT, reason));
        }
        let calls = calls(offered, &answer.tool_choice)?;
        let parallel = answer.parallel_tool_calls && !matches!(answer.tool_choice, ToolChoice::Function(_));
        let lark = tools::grammar(calls.iter().map(|(_, call)| call), parallel, schema.as_ref());
        let field = if schema.is_some() { FORMAT } else { TOOLS };
        self.masks(Grammar::Lark(lark), options, 1, field).map_err(|error| {
            // each on its own, so that the field that is wrong is named
            let parts = schema.into_iter().map(|schema| (FORMAT.to_owned(), schema)).chain(calls);
            let mut wrong = parts.filter_map(|(field, schema)| {
                let masks = self.grammars.masks(&self.tokenizer, &self.stop_tokens, Grammar::Json(schema), 1);
                Some(ServiceError::unfollowed(field, &masks.err()?))
            });
            wrong.next().unwrap_or(error)
        })
    }

    fn masks(
        &self,
        grammar: Grammar,
        options: &GenerateOptions,
        prompts: usize,
        field: &'static str,
    ) -> Result<Masks, ServiceError> {
        if options.ignore_eos {
            let reason = "ends its answer by itself; leave ignore_eos out";
            return Err(ServiceError::invalid(field, reason));
        }
        let n = prompts * options.n;
        let masks = self.grammars.masks(&self.tokenizer, &self.stop_tokens, grammar, n);
        let each = masks.map_err(|e| ServiceError::unfollowed(field, &e))?.into();
        Ok(Masks { each, field })
    }
}

/// What answers must look like, fit to be compiled; none for any text.
fn format_schema(options: &GenerateOptions) -> Result<Option<Value>, ServiceError> {
    let Some(mut schema) = options.format.schema() else { return Ok(None) };
    grammar::fit(&mut schema).map_err(|e| ServiceError::unfollowed(FORMAT, &e))?;
    Ok(Some(schema))
}

/// For each tool that may be called: the field of its parameters, and the schema of a call, fit to be compiled.
fn calls(offered: &Offered, choice: &ToolChoice) -> Result<Vec<(String, Value)>, ServiceError> {
    let (mut calls, mut parts) = (Vec::new(), 0);
    for (i, (name, parameters)) in offered.iter().enumerate() {
        if matches!(choice, ToolChoice::Function(only) if only != name) {
            continue;
        }
        let field = format!("{TOOLS}[{i}].function.parameters");
        let mut call = tools::call_schema(name, parameters);
        match grammar::fit(&mut call) {
            Ok(n) => parts += n,
            Err(e) => return Err(ServiceError::unfollowed(field, &e)),
        }
        calls.push((field, call));
    }
    grammar::few_enough(parts).map_err(|e| ServiceError::unfollowed(TOOLS, &e))?;
    Ok(calls)
}
