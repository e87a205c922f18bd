//! qrae: one set of frozen weights that generates for an agent and scores the chunks it retrieved.

pub mod cli;
pub mod engine;
pub mod http;
pub mod hub;
pub mod ids;
pub mod kv;
pub mod model;
pub mod ops;
pub mod prompt;
pub mod sched;
pub mod score;
pub mod service;
pub mod text;
