//! Studies: a model observed on labelled questions, kept in a folder, and what is concluded from it.
//!
//! `folder` (observations on disk), `find` (head sets), `judge` (how well scores rank). Joins `eval`'s arithmetic with
//! files; knows no tensor and prints nothing. Tests: beside each; `tests.rs` makes their observations, and
//! `tests/localize.rs` runs all of it on a model with a planted head.

pub mod find;
pub mod folder;
pub mod judge;
#[cfg(test)]
mod tests;
