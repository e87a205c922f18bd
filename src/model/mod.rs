//! (being written)

pub mod card;
