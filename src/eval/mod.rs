//! Labelled data, and what is computed on it offline: pure, texts in and values out.
//!
//! Knows no model, tokenizer, file or clock. Tests: beside each module.

pub mod answer;
pub mod data;
pub mod question;
