//! Use cases: what a caller asks for in words becomes token ids for the engine, and back.
//!
//! Joins tokenizer, templates, prompt layout, head sets and scores around an engine handle. Knows no HTTP and no tensor.

mod admission;
pub mod contexts;
mod error;
pub mod generate;
mod heads;
mod limits;
pub mod load;
mod observe;
pub mod score;

pub use admission::{Admission, Permit};
pub use error::ServiceError;
pub use heads::HeadSets;
pub use load::{LoadOptions, ServedModel};
pub use observe::Observed;
