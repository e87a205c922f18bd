//! Chat templates: Jinja as Hugging Face runs it, with limits.
//!
//! Owns the environment a model's template expects (trimmed blocks, Python's string methods, `tojson` as
//! Python prints it, `raise_exception`, `strftime_now`, `{% generation %}`) and the split of a rendered
//! prompt around a sentinel. Pure: the date is an input, a template cannot read files, and loops, recursion
//! and growing texts are limited (see `FUEL` for what is not). Must not know a tokenizer; special tokens
//! arrive as text. Tests are beside the code and in `tests/tokenizer_conformance.rs`.

mod clock;
mod json;

use std::sync::Arc;

pub use clock::CivilTime;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value as Jinja,
    syntax::SyntaxConfig,
    value::{Kwargs, Rest, Serde},
};
use serde_json::{Map, Value, json};

/// The ChatML template, for models that carry none: turns in `<|im_start|>role\n…<|im_end|>\n`.
pub const CHATML: &str = "\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}";

/// Work one rendering may do, in minijinja's fuel (an instruction, or 64 bytes created): enough for 10,000
/// messages, or some megabytes of text. What it does not cover: minijinja 3.1 charges nothing for joining
/// lists with `+` nor for printing the result, so a template that doubles a list 30 times is not stopped.
const FUEL: u64 = 2_000_000;
/// Nesting of blocks, macros and expressions.
const RECURSION: usize = 100;
/// Longest source compiled, in bytes. Real templates have up to some 30,000.
const MAX_SOURCE: usize = 1 << 18;
/// Stack of the thread a template is compiled or rendered on, in bytes; only what is touched costs memory.
/// The engine drops and prints nested values by recursion, at up to 500 bytes a level in release builds, and
/// a template can nest one level for 7 fuel, or one level of its own syntax for 2 bytes of source.
const STACK: usize = 1 << 29;
/// The name the template goes by in its environment.
const NAME: &str = "chat_template";

/// Why a template cannot be used, or refuses the messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is not a template.
    #[error("the chat template has a syntax error in line {line}: {reason}; give another template")]
    Syntax {
        /// One-based line.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The template called `raise_exception`: it does not take these messages.
    #[error("the chat template refuses these messages: {message}")]
    Raised {
        /// The template's own words.
        message: String,
    },
    /// The template failed on these messages.
    #[error("the chat template failed in line {line}: {reason}")]
    Failed {
        /// One-based line, 0 when unknown.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// The template did more work than any real one does.
    #[error("the chat template was stopped after {fuel} steps; it may be broken, or the messages too long")]
    TooMuchWork {
        /// The budget it used up.
        fuel: u64,
    },
    /// The rendered prompt does not hold the sentinel unchanged and exactly once.
    #[error(
        "the chat template shows a user message {count} times unchanged, expected once; a scoring prompt \
         cannot be laid out around it: give its head and tail in the model card"
    )]
    Sentinel {
        /// How often the sentinel was found. 0: left out or altered.
        count: usize,
    },
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// An array of messages, each with `role` and `content`.
    pub messages: &'a Value,
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// An array of tool definitions.
    pub tools: Option<&'a Value>,
    /// The text of the BOS token; undefined in the template when absent.
    pub bos_token: Option<&'a str>,
    /// The text of the EOS token; undefined in the template when absent.
    pub eos_token: Option<&'a str>,
    /// Further variables (`chat_template_kwargs`). They never replace the ones above.
    pub extra: Option<&'a Map<String, Value>>,
    /// What `strftime_now` formats. A template that asks for it without one fails.
    pub now: Option<CivilTime>,
}

impl Default for RenderInput<'_> {
    fn default() -> Self {
        Self {
            messages: &Value::Null,
            add_generation_prompt: false,
            tools: None,
            bos_token: None,
            eos_token: None,
            extra: None,
            now: None,
        }
    }
}

/// A compiled chat template. Cheap to clone; rendering needs no lock.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
}

impl ChatTemplate {
    /// Compiles a template. Fails with the line of a syntax error.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE {
            let reason = format!("it has {} bytes, at most {MAX_SOURCE} are compiled", source.len());
            return Err(TemplateError::Syntax { line: 0, reason });
        }
        let environment = on_deep_stack(|| Self::compile(source))??;
        Ok(Self { environment: Arc::new(environment) })
    }

    fn compile(source: &str) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().expect("the default delimiters are valid: this is a bug"));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_recursion_limit(RECURSION);
        environment.set_fuel(Some(FUEL));
        environment.set_debug(false);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, plain_generation(source)).map_err(|e| {
            TemplateError::Syntax {
                line: e.line().unwrap_or(0),
                reason: e.detail().map_or_else(|| e.to_string(), Into::into),
            }
        })?;
        Ok(environment)
    }

    /// Renders the prompt. Fails with the template's own words when it refuses the messages, and when it
    /// does more work than any real one.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        on_deep_stack(|| {
            // A clone shares the compiled template; the clock belongs to one rendering.
            let mut environment = Environment::clone(&self.environment);
            let now = input.now;
            environment.add_function("strftime_now", move |format: &str| match now {
                None => Err(failure("it asks for the date, and none was given")),
                Some(now) => now.format(format).map_err(|directive| {
                    failure(&format!("strftime_now does not know the directive {directive:?}"))
                }),
            });
            let template = environment.get_template(NAME).map_err(|e| error_of(&e))?;
            template.render(variables(input)).map_err(|e| error_of(&e))
        })?
    }

    /// Renders one user message whose content is `sentinel`, with the generation prompt, and returns what
    /// comes before and after it. Messages, tools and `add_generation_prompt` of `base` are not used.
    /// Fails unless the sentinel shows unchanged and exactly once.
    pub fn split_around(
        &self,
        sentinel: &str,
        base: &RenderInput<'_>,
    ) -> Result<(String, String), TemplateError> {
        let messages = json!([{"role": "user", "content": sentinel}]);
        let input = RenderInput { messages: &messages, add_generation_prompt: true, tools: None, ..*base };
        let rendered = self.render(&input)?;
        let count = rendered.matches(sentinel).count();
        match rendered.split_once(sentinel) {
            Some((before, after)) if count == 1 => Ok((before.into(), after.into())),
            _ => Err(TemplateError::Sentinel { count }),
        }
    }
}

/// Runs `work` where neither its depth nor a panic of the engine takes the server down.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, TemplateError> {
    let failed = |reason: String| TemplateError::Failed { line: 0, reason };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(|e| failed(format!("no thread: {e}")))?;
        thread.join().map_err(|_| failed("the template engine panicked".into()))
    })
}

fn variables(input: &RenderInput<'_>) -> Jinja {
    let mut all = Map::new();
    if let Some(extra) = input.extra {
        all.extend(extra.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    for (name, token) in [("bos_token", input.bos_token), ("eos_token", input.eos_token)] {
        if let Some(token) = token {
            all.insert(name.into(), token.into());
        }
    }
    all.insert("messages".into(), input.messages.clone());
    all.insert("tools".into(), input.tools.cloned().unwrap_or(Value::Null));
    all.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
    all.entry("documents").or_insert(Value::Null);
    Jinja::from(Serde(all))
}

/// Carries the words of `raise_exception` through the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

#[allow(clippy::needless_pass_by_value)] // the engine hands arguments over by value
fn raise_exception(args: Rest<Jinja>, _: Kwargs) -> Result<String, Error> {
    let message = args.first().map_or_else(String::new, ToString::to_string);
    Err(failure("raise_exception").with_source(Raised(message)))
}

fn failure(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.to_string())
}

fn error_of(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error;
    while let Some(e) = cause {
        if let Some(Raised(message)) = e.downcast_ref::<Raised>() {
            return TemplateError::Raised { message: message.clone() };
        }
        if let Some(inner) = e.downcast_ref::<Error>() {
            innermost = inner;
        }
        cause = e.source();
    }
    if innermost.kind() == ErrorKind::OutOfFuel {
        return TemplateError::TooMuchWork { fuel: FUEL };
    }
    let reason = match innermost.detail() {
        Some(detail) => format!("{}: {detail}", innermost.kind()),
        None => innermost.kind().to_string(),
    };
    TemplateError::Failed { line: innermost.line().or(error.line()).unwrap_or(0), reason }
}

/// Hugging Face marks the assistant's tokens with `{% generation %}…{% endgeneration %}`, which renders
/// its body and is unknown to the engine: written as a condition that always holds.
fn plain_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let inside = &rest[start + 2..start + length];
        let word = inside.trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start + 2]);
        match word {
            "generation" => out.push_str(&inside.replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&inside.replacen(word, "endif", 1)),
            _ => out.push_str(inside),
        }
        rest = &rest[start + length..];
    }
    out + rest
}

#[cfg(test)]
mod tests;
