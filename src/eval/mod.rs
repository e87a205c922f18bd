//! Labelled questions, and what heads are worth on them: data read, metrics with their uncertainty, and heads chosen
//! without fooling oneself.
//!
//! Owns questions and the forms they come in, answers in chunks, what one question shows of every head (`observation`),
//! judged questions, ranking metrics, bootstrap intervals, the BM25 baseline, the choice of heads and method with an honest
//! estimate of what the choice is worth, and the stability of head rankings. Must not know models, a model's tokenizer,
//! files, clocks or threads' runtimes; every random draw comes from a seed the caller passes, so equal inputs give equal
//! bits on any machine and with any number of threads. Tests: beside each file, `select/tests.rs` for choices.

pub mod answer;
pub mod bm25;
pub mod bootstrap;
pub mod data;
mod draw;
pub mod judged;
pub mod metrics;
pub mod observation;
pub mod question;
pub mod sample;
pub mod select;
pub mod stability;
