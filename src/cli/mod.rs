//! The `qrae` command: what can be typed, and what is shown for it.
//!
//! Owns flags, progress, tables and colours, and the joining of hub, model cards and service. Must not know a tensor
//! or compute a score. Results go to stdout, everything about how they come to be to stderr.
//! Tests: in the parts and `tests/cli.rs`.

mod args;
mod demo;
mod eval;
mod failure;
mod highlight;
mod load;
mod localize;
mod logs;
mod model;
mod models;
mod pictures;
mod questions;
mod score;
mod serve;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use model::resolve_model;

const EXAMPLES: &str = "\
Examples:
  qrae demo                                  see what it does, on a small model
  qrae score request.json                    score the chunks of a file for its query
  qrae score --query 'Who?' chunks.jsonl     … of a file with one chunk per line
  qrae serve --api-key SECRET                the same over HTTP, and chats, on 127.0.0.1:8080
  qrae localize hotpot.json --search         find the heads a model is scored with
  qrae eval labelled.jsonl                   measure how well its scores rank
  qrae models list                           which models there are, and which are on this machine

Every flag can also be set by the variable shown beside it. RUST_LOG=info says more about what happens.";

/// One set of frozen weights that answers an LLM agent and tells it which of the retrieved chunks matter.
#[derive(Debug, Parser)]
#[command(name = "qrae", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Score(score::ScoreArgs),
    Serve(serve::ServeArgs),
    Localize(localize::LocalizeArgs),
    Eval(eval::EvalArgs),
    Models(models::ModelsArgs),
}

/// Reads the command line and does what it says. Failures are printed; usage errors end with code 2, others with 1.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = logs::start(&cli.command).and_then(|()| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Localize(args) => localize::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Models(args) => models::run(&args),
    });
    failure::report(outcome)
}
