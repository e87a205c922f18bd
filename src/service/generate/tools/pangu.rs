//! openPangu's format: a list of JSON objects between two markers, which are control tokens of its vocabulary.

/// The markers of both generations, opening and closing.
pub(super) const MARKERS: [(&str, &str); 2] =
    [("[unused11]", "[unused12]"), ("<|tool_call_start|>", "<|tool_call_end|>")];
