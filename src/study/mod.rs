//! Studies: a model observed on labelled questions, kept in a folder, and what is concluded from it.
//!
//! `folder` (observations on disk), `find` (head sets), `judge` (how well scores rank). Joins `eval`'s arithmetic with files; knows no tensor and prints nothing.

pub mod find;
pub mod folder;
pub mod judge;
