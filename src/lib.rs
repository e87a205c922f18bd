//! qrae: one set of frozen weights that generates for an agent and scores the chunks it retrieved.
//!
//! ARCHITECTURE.md is the map; the modules below are listed from the edge inward.

pub mod cli;
pub mod http;

pub mod hub;
pub mod plot;
pub mod service;
pub mod store;
pub mod study;

pub mod engine;
pub mod model;
pub mod ops;
pub mod text;

pub mod context;
pub mod eval;
pub mod gate;
pub mod kv;
pub mod prompt;
pub mod sched;
pub mod score;
pub mod transcript;

pub mod ids;
