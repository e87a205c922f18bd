//! Whether and what a model is to call.

/// The caller's `tool_choice`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Answers are text, whatever is in them.
    None,
    /// The model may call.
    #[default]
    Auto,
    /// It must call something.
    Required,
    /// It must call this tool.
    Function(String),
}

impl ToolChoice {
    /// Whether an answer without a call would be wrong.
    pub(in crate::service) fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Function(_))
    }
}
