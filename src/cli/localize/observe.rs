//! Runs questions through the model and keeps what is seen, telling how far it is.

use std::{
    collections::HashSet,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::super::{load::Ready, terminal::tell};
use crate::{eval::question::Question, service::ServiceError, study::folder::Folder, text::shown};

/// Where stderr is no terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Observes the inputs that are not in the folder yet. Those that the model cannot read are left out and counted; gives
/// what to say about them where they are all there is.
///
/// # Errors
/// When the engine fails or an observation cannot be kept.
pub(in super::super) fn observe(
    ready: &Ready,
    folder: &Folder,
    inputs: &[&Question],
) -> anyhow::Result<Option<String>> {
    let mut seen = HashSet::new();
    let inputs: Vec<&Question> = inputs.iter().filter(|q| seen.insert(q.content_hash())).copied().collect();
    let missing: Vec<&Question> = inputs.iter().filter(|q| !folder.has(q)).copied().collect();
    let before = inputs.len() - missing.len();
    if before > 0 {
        let (all, root) = (inputs.len(), folder.root().display());
        tell(format_args!(
            "{before} of {all} inputs were observed before, in {root}; new: {}",
            missing.len()
        ));
    }
    let (mut long, mut bad) = (Vec::new(), Vec::new());
    let mut progress = Progress::begin(missing.len());
    for question in missing {
        let told = |error: &ServiceError| shown_error(question, error);
        match ready.model.observe(question) {
            Ok(observed) => folder.keep(question, &observed.observation)?,
            Err(error @ (ServiceError::TooLong { .. } | ServiceError::TextTooLong { .. })) => {
                long.push(told(&error));
            }
            Err(error @ ServiceError::Invalid { .. }) => bad.push(told(&error)),
            Err(error) => return Err(error).with_context(|| format!("question {}", shown(&question.id))),
        }
        progress.step();
    }
    progress.end();
    Ok(left_out(&long, &bad, inputs.len()))
}

fn shown_error(question: &Question, error: &ServiceError) -> String {
    format!("question {}: {error}", shown(&question.id))
}

/// Says how many of `all` inputs are left out and why; gives that back instead where nothing is left.
fn left_out(long: &[String], bad: &[String], all: usize) -> Option<String> {
    let mut told = Vec::new();
    for (these, why, advice) in [
        (long, "are too long for the model", "give shorter ones, or raise --max-model-len"),
        (bad, "have nothing the model could read", "give chunks with text"),
    ] {
        if let Some(first) = these.first() {
            told.push((format!("{} of {all} inputs {why} ({first})", these.len()), advice));
        }
    }
    if all > 0 && long.len() + bad.len() == all {
        let told: Vec<String> = told.iter().map(|(what, advice)| format!("{what}; {advice}")).collect();
        return Some(told.join("; "));
    }
    told.iter().for_each(|(what, _)| tell(format_args!("{what}; they are left out")));
    None
}

/// How far it is: a bar in a terminal, elsewhere a line now and then.
struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

impl Progress {
    fn begin(total: usize) -> Self {
        if total == 0 {
            return Self { bar: ProgressBar::hidden(), lines: None };
        }
        tell("interrupt at any time: what was observed is kept, and the same command goes on from there");
        if !io::stderr().is_terminal() {
            let lines = Lines { total, done: 0, begin: Instant::now(), next: LINE_EVERY };
            return Self { bar: ProgressBar::hidden(), lines: Some(lines) };
        }
        let style = ProgressStyle::with_template("observing {wide_bar} {pos}/{len} inputs, {eta} left")
            .expect("a fixed template: this is a bug");
        let bar = ProgressBar::new(total as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, lines: None }
    }

    fn step(&mut self) {
        self.bar.inc(1);
        if let Some(lines) = &mut self.lines
            && let Some(line) = lines.step(lines.begin.elapsed())
        {
            tell(line);
        }
    }

    fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// Lines of progress.
struct Lines {
    total: usize,
    done: usize,
    begin: Instant,
    /// When the next line is due, from the beginning.
    next: Duration,
}

impl Lines {
    /// One more is done, `elapsed` after the beginning; the line that is due.
    fn step(&mut self, elapsed: Duration) -> Option<String> {
        self.done += 1;
        if elapsed < self.next || self.done >= self.total {
            return None;
        }
        self.next = elapsed + LINE_EVERY;
        let left = elapsed.as_secs_f64() / self.done as f64 * (self.total - self.done) as f64;
        Some(format!("observed {} of {} inputs, {left:.0} s left", self.done, self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_ten_seconds() {
        let mut lines = Lines { total: 30, done: 0, begin: Instant::now(), next: LINE_EVERY };
        let told: Vec<String> = (1..=30).filter_map(|i| lines.step(Duration::from_secs(4 * i))).collect();
        assert_eq!(told.len(), 9, "{told:?}");
        assert_eq!(told[0], "observed 3 of 30 inputs, 108 s left");
        assert_eq!(told[8], "observed 27 of 30 inputs, 12 s left");
    }

    #[test]
    fn what_is_left_out_is_told_with_one_example() {
        let of = |n: usize| (0..n).map(|i| format!("question q{i}: why")).collect::<Vec<_>>();
        assert_eq!(left_out(&of(2), &[], 3), None);
        assert_eq!(left_out(&[], &[], 0), None);
        let told = left_out(&of(1), &of(2), 3).unwrap();
        assert!(
            told.contains("1 of 3 inputs are too long for the model (question q0: why); give shorter"),
            "{told}"
        );
        assert!(told.contains("2 of 3 inputs have nothing the model could read"), "{told}");
        let question = Question { id: "a\u{1b}[31m".into(), ..Question::default() };
        let told = shown_error(&question, &ServiceError::invalid("chunks", "why"));
        assert_eq!(told, "question a\\u{1b}[31m: chunks: why");
    }
}
