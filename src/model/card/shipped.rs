//! The data files that ship inside the program. `tests/data_files.rs` fails when a file is not listed here.

use super::ModelCard;
use crate::score::heads::RawHeadSet;

/// Name and text of each listed file; the name is the file's name without `.toml`.
macro_rules! files {
    ($folder:literal: $($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../", $folder, "/", $name, ".toml")))),+]
    };
}

const CARDS: &[(&str, &str)] = files!["models":
    "qwen2.5-coder-0.5b-instruct",
    "qwen2.5-coder-1.5b-instruct",
    "smollm2-135m-instruct",
];

const HEAD_SETS: &[(&str, &str)] = files!["heads":
    "deepdiver-7b.published",
    "literesearcher-4b.published",
    "openpangu-2.0-flash.published",
    "openresearcher-30b.published",
    "qwen2.5-coder-0.5b-instruct",
    "qwen2.5-coder-1.5b-instruct",
    "smollm2-135m-instruct",
    "webseer-14b.published",
];

/// The model cards that ship, ascending by id.
#[must_use]
pub fn shipped_cards() -> Vec<ModelCard> {
    let card = |&(name, text): &(&str, &str)| {
        ModelCard::parse(name, text).expect("a shipped card is valid: this is a bug")
    };
    CARDS.iter().map(card).collect()
}

/// The head sets that ship, ascending by name; each still has to be checked against the loaded model.
#[must_use]
pub fn shipped_head_sets() -> Vec<RawHeadSet> {
    let set = |&(name, text): &(&str, &str)| {
        RawHeadSet::parse(name, text).expect("a shipped head set is valid: this is a bug")
    };
    HEAD_SETS.iter().map(set).collect()
}
