//! Tells the user what is being fetched: one line per step and a bar per file, on stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Says what is going on. Silent (but logged) when progress is off; bars vanish when stderr is no terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporter {
    /// Whether to write to stderr.
    pub(super) progress: bool,
}

impl Reporter {
    /// One line about a step.
    pub(super) fn note(self, line: &str) {
        if self.progress {
            eprintln!("{line}");
        } else {
            tracing::info!("{line}");
        }
    }

    /// A bar over the bytes of one file; the length is set once it is known.
    pub(super) fn bytes_bar(self, label: &str) -> ProgressBar {
        self.bar(label, "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// A bar over packages whose sizes are not known beforehand: `position` of `total`, and bytes in the message.
    pub(super) fn count_bar(self, label: &str, total: usize) -> ProgressBar {
        let bar = self.bar(label, "{spinner} {pos} of {len} packages [{bar:24}] {msg} {elapsed}");
        bar.set_length(total as u64);
        bar
    }

    /// A sign of life while something of unknown length runs.
    pub(super) fn spinner(self, label: &str) -> ProgressBar {
        self.bar(label, "{spinner} {msg}")
    }

    fn bar(self, label: &str, template: &str) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let style =
            ProgressStyle::with_template(template).expect("a fixed template that parses: this is a bug");
        let bar = ProgressBar::no_length().with_style(style).with_message(label.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}
