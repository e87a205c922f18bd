//! The HTTP surface, in process on a tiny model with a tokenizer made here; what needs a socket runs on one.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "http/cancel.rs"]
mod cancel;
#[path = "common/collector.rs"]
mod collector;
#[path = "http/contexts.rs"]
mod contexts;
#[path = "http/edge.rs"]
mod edge;
#[path = "http/errors.rs"]
mod errors;
#[path = "http/gate.rs"]
mod gate;
#[path = "http/generate.rs"]
mod generate;
#[path = "http/log.rs"]
mod log;
#[path = "http/managed.rs"]
mod managed;
#[path = "http/must_not.rs"]
mod must_not;
#[path = "http/openapi.rs"]
mod openapi;
#[path = "http/ops.rs"]
mod ops;
#[path = "http/page.rs"]
mod page;
#[path = "http/prompts.rs"]
mod prompts;
#[path = "http/real.rs"]
mod real;
#[path = "http/rerank.rs"]
mod rerank;
#[path = "http/schemas.rs"]
mod schemas;
#[path = "http/score.rs"]
mod score;
#[path = "http/slow.rs"]
mod slow;
#[path = "http/support.rs"]
mod support;
#[path = "http/tools.rs"]
mod tools;
#[path = "http/traces.rs"]
mod traces;
