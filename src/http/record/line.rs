//! One line of the log for each request, with target `qrae::request`: at level info, for what watches the server at debug.

use std::time::Duration;

use super::{Facts, Telling, finish};
use crate::engine::Phases;

/// Writes the event with the fields that are known.
macro_rules! event {
    ($level:ident, $telling:ident, $facts:ident) => {
        tracing::event!(
            target: "qrae::request",
            parent: None,
            tracing::Level::$level,
            request_id = $telling.id(),
            trace_id = $telling.trace_id(),
            method = $telling.method,
            route = $telling.route.as_ref().map_or("unmatched", |route| route.as_str()),
            path = $telling.route.is_none().then_some($telling.path.as_str()),
            status = $telling.status.map(|status| status.as_u16()),
            error = $facts.error,
            cancelled = !$telling.whole,
            seconds = micros($telling.begin.elapsed()),
            model = $facts.model.as_deref(),
            operation = $facts.operation,
            stream = $facts.stream,
            queries = $facts.queries,
            chunks = $facts.chunks,
            prompt_tokens = $facts.prompt_tokens,
            cached_tokens = $facts.cached_tokens,
            computed_tokens = $facts.computed_tokens,
            completion_tokens = $facts.completion_tokens,
            finish_reasons = $facts.finish_reasons(),
            queue_seconds = $facts.queue().map(micros),
            prefill_seconds = $facts.prefill().map(micros),
            "{}",
            if $telling.whole { "answered" } else { "cancelled" }
        )
    };
}

pub(super) fn tell(telling: &Telling, facts: &Facts) {
    if telling.quiet {
        event!(DEBUG, telling, facts);
    } else {
        event!(INFO, telling, facts);
    }
}

/// Seconds, as fine as anybody wants to read.
fn micros(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

impl Facts {
    /// Of all choices in order, with commas between; None where nothing is generated.
    fn finish_reasons(&self) -> Option<String> {
        let names: Vec<&str> = self.finishes.iter().copied().map(finish).collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// How long the engine let it wait.
    pub(super) fn queue(&self) -> Option<Duration> {
        self.phases.iter().map(Phases::queue).reduce(|sum, more| sum + more)
    }

    /// How long its prompts took.
    pub(super) fn prefill(&self) -> Option<Duration> {
        self.phases.iter().map(Phases::prefill).reduce(|sum, more| sum + more)
    }
}
