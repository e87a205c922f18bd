//! Localizing and evaluating end to end: the built program on a model in which it is known which head looks for answers.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "localize/bad_input.rs"]
mod bad_input;
#[path = "localize/evaluate.rs"]
mod evaluate;
#[path = "localize/find.rs"]
mod find;
#[path = "localize/planted.rs"]
mod planted;
#[path = "common/program.rs"]
mod program;
#[path = "localize/support.rs"]
mod support;
