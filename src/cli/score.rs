//! `qrae score`: scores the chunks of a file.

mod input;
mod output;

use std::{
    io::{self, Read as _, Write},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context;
use clap::{Args, builder::FalseyValueParser};

pub(super) use input::InputError;
use input::Request;

use super::{
    args::{EngineArgs, ModelArgs},
    load,
    terminal::Screen,
};
use crate::{
    ids::HeadRef,
    kv::Salt,
    score::{Control, Method, Read, Statistic},
    service::{
        Admission,
        score::{HeadChoice, Orders, ScoreJob},
    },
};

const FORMS: &str = "\
FILE holds one of
  a request      {\"query\": \"Who?\", \"chunks\": [{\"id\": \"a\", \"title\": \"T\", \"text\": \"…\"}, …]}
                 (the body of POST /v1/qrae/score; `model` in it is not looked at)
  requests       several of them, one per line
  chunks         {\"text\": \"…\"} or \"…\" one per line, or an array of these, with --query

Examples:
  qrae score request.json
  qrae score --query 'Where was she born?' chunks.jsonl --explain
  jq -c '{query, chunks}' run.jsonl | qrae score --json - > scores.jsonl
  qrae score --method paper request.json                                    the paper's entropy, with the set's heads
  qrae score --model ./my-model --heads L16H7,L13H13 --statistic entropy request.json";

/// Score the chunks of a file for its query
///
/// Prints the chunks in order of their score, the highest (most relevant) first.
#[derive(Args, Debug)]
#[command(after_help = FORMS)]
pub(super) struct ScoreArgs {
    /// A JSON or JSON Lines file; - for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// The query, in place of the file's
    #[arg(long, env = "QRAE_QUERY", value_name = "TEXT")]
    query: Option<String>,
    /// What is computed per head: entropy, sum, breadth or scaled_sum [default: as the head set says]
    #[arg(long, env = "QRAE_STATISTIC", value_name = "NAME")]
    statistic: Option<Statistic>,
    /// What is subtracted: query_free, null_query or none [default: as the head set says]
    #[arg(long, env = "QRAE_CONTROL", value_name = "NAME")]
    control: Option<Control>,
    /// Where attention is read: last or query_mean [default: as the head set says]
    #[arg(long, env = "QRAE_READ", value_name = "NAME")]
    read: Option<Read>,
    /// All three at once: READ/CONTROL/STATISTIC, or `paper` for last/query_free/entropy
    #[arg(long, env = "QRAE_METHOD", value_name = "METHOD", conflicts_with_all = ["statistic", "control", "read"])]
    method: Option<Method>,
    /// Heads to read, layer and head counted from 0: L16H7,L13H13
    #[arg(
        long,
        env = "QRAE_HEADS",
        value_name = "HEADS",
        value_delimiter = ',',
        conflicts_with = "head_set"
    )]
    heads: Vec<HeadRef>,
    /// A head set's name, or a .toml file of one [default: the model's own]
    #[arg(long, env = "QRAE_HEAD_SET", value_name = "NAME|FILE")]
    head_set: Option<String>,
    /// Score the chunks in so many orders (theirs, then random ones) and average: steadier, better, and each
    /// costs a prefill [default: 1]
    #[arg(long, env = "QRAE_ORDERS", value_name = "1..8")]
    orders: Option<Orders>,
    /// Cut longer chunks at their end (and flag them)
    #[arg(long, env = "QRAE_MAX_TOKENS_PER_CHUNK", value_name = "N")]
    max_tokens_per_chunk: Option<NonZeroUsize>,
    /// Also show which words respond; refused over 3 million numbers (queries times tokens times heads plus 5)
    #[arg(long, env = "QRAE_EXPLAIN", value_parser = FalseyValueParser::new())]
    explain: bool,
    /// Print JSON as the server answers, one line per request, in place of tables
    #[arg(long, env = "QRAE_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(super) fn run(args: &ScoreArgs) -> anyhow::Result<()> {
    let (name, text) = read_input(args)?;
    let requests = input::parse(&name, &text, args.query.as_deref())?;
    let mut options = args.engine.options();
    options.head_set = args.head_set.as_ref().filter(|set| set.ends_with(".toml")).map(PathBuf::from);
    let model = Arc::new(load::load(&args.model, &options, true)?.model);
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("starting the runtime")?;
    let door = Admission::new(1);
    let screen = Screen::stdout();
    let mut out = io::stdout().lock();
    for request in &requests {
        let spinner = load::spinner(&format!("scoring {} chunks", request.chunks.len()));
        let job = job(args, request);
        let answer = runtime.block_on(model.score(job.clone(), door.enter()?));
        spinner.finish_and_clear();
        let answer = answer.with_context(|| format!("{name}, line {}", request.line))?;
        let shown = output::Shown { model: &model, job: &job, answer: &answer };
        if args.json {
            shown.json(&mut out)?
        } else {
            shown.tables(&mut out, screen)?
        }
        out.flush()?;
    }
    Ok(())
}

fn read_input(args: &ScoreArgs) -> anyhow::Result<(String, String)> {
    if args.file.as_os_str() == "-" {
        if console::user_attended() && io::IsTerminal::is_terminal(&io::stdin()) {
            eprintln!("reading stdin; end it with Ctrl-D (see qrae score --help)");
        }
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("stdin cannot be read")?;
        return Ok(("stdin".into(), text));
    }
    let name = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("{name} cannot be read"))?;
    Ok((name, text))
}

/// The request with the flags' choices on top of its own.
fn job(args: &ScoreArgs, request: &Request) -> ScoreJob {
    let named = |set: &String| match set.ends_with(".toml") {
        true => HeadChoice::Default, // the file is loaded as the model's only set
        false => HeadChoice::Named(set.clone()),
    };
    let of_flags = match (&args.heads[..], &args.head_set) {
        ([], None) => None,
        ([], Some(set)) => Some(named(set)),
        (heads, _) => Some(HeadChoice::Heads(heads.to_vec())),
    };
    let of_file = || match (&request.heads, &request.head_set) {
        (Some(heads), _) => HeadChoice::Heads(heads.clone()),
        (None, Some(set)) => HeadChoice::Named(set.clone()),
        (None, None) => HeadChoice::Default,
    };
    ScoreJob {
        queries: request.queries.clone(),
        chunks: request.chunks.clone(),
        heads: of_flags.unwrap_or_else(of_file),
        statistic: args.statistic.or(args.method.map(|m| m.statistic)).or(request.statistic),
        control: args.control.or(args.method.map(|m| m.control)).or(request.control),
        read: args.read.or(args.method.map(|m| m.read)).or(request.read),
        orders: args.orders.or(request.orders).unwrap_or_default(),
        max_tokens_per_chunk: args.max_tokens_per_chunk.or(request.max_tokens_per_chunk),
        explain: args.explain || request.explain,
        salt: Salt::none(),
    }
}
