//! What the demo prints.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use console::truncate_str;

use super::{answer::Answer, story::Story};
use crate::{
    cli::{
        highlight,
        load::Ready,
        terminal::{Flow, NO_BREAK, Screen, thousands},
    },
    hub::ModelFiles,
    score::Statistic,
    service::{
        ServedModel,
        score::{ScoreAnswer, ScoredChunk},
    },
};

/// Columns left of everything under a heading.
pub(super) const INDENT: usize = 3;
/// Columns of the longest bar in the ranking.
const BAR: usize = 12;

/// Where the demo is printed.
pub(super) struct Page<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) screen: Screen,
    pub(super) story: &'a Story,
}

impl<W: Write> Page<'_, W> {
    pub(super) fn opening(&mut self) -> io::Result<()> {
        writeln!(self.out)?;
        let n = self.story.snippets.len();
        self.say(&format!(
            "An agent has a question, and a search brought {n} results. Most of them do not help, but each one in the \
             prompt costs time and can lead the model astray. qrae sees which ones matter by looking into the model \
             that is to answer, while it reads: it does not have to write a word."
        ))
    }

    pub(super) fn model(&mut self, ready: &Ready) -> io::Result<()> {
        self.heading("Model")?;
        let licence = ready.card.as_ref().map_or_else(String::new, |card| format!(", {}", card.licence));
        let (ModelFiles::Gguf(path) | ModelFiles::Folder(path)) = &ready.files;
        self.say(&format!("{}{licence}, loaded in {}", ready.model.id, seconds(ready.took)))?;
        self.aside(&below_home(path))
    }

    pub(super) fn question(&mut self) -> io::Result<()> {
        self.heading("Question")?;
        let question = self.screen.bold(&self.story.question);
        writeln!(self.out, "{:INDENT$}{question}", "")?;
        self.say("Places and people are made up: no model knows the answer, it has to be read.")
    }

    pub(super) fn scoring(&mut self, model: &ServedModel, scores: &ScoreAnswer) -> io::Result<()> {
        self.heading("Scores")?;
        let spec = model.engine.spec();
        let heads: Vec<String> = scores.heads.iter().map(ToString::to_string).collect();
        let by = match scores.method.statistic {
            Statistic::ScaledSum => "how much of it the result gets, for its length",
            Statistic::Breadth => "the share of the result that gets some of it",
            Statistic::Entropy => "how evenly it spreads over the result",
            Statistic::Sum => "how much of it the result gets",
        };
        self.say(&format!(
            "The results, then the question, went through the model once; nothing was generated. In {} of its {} \
             attention heads ({}) qrae read how much attention the question adds to each word; a score is {by}.",
            heads.len(),
            spec.n_layers * spec.n_heads,
            heads.join(", "),
        ))?;
        let cost = format!(
            "{} tokens in {}",
            thousands(scores.usage.computed_tokens),
            seconds(Duration::from_secs_f64(scores.timings.prefill))
        );
        self.aside(&cost)
    }

    pub(super) fn ranking(&mut self, scores: &ScoreAnswer, kept: &[usize]) -> io::Result<()> {
        let (screen, story) = (self.screen, self.story);
        let best = scores.queries[0].chunks.iter().map(|c| c.score.value).fold(0.0, f64::max);
        let header = format!("rank   score  {:BAR$}    result", "");
        writeln!(self.out, "\n{:INDENT$}{}", "", screen.dim(&header))?;
        for (i, chunk) in by_rank(scores) {
            let is_kept = kept.contains(&i);
            let mark = if is_kept { screen.green("✓") } else { " ".into() };
            let full = if best > 0.0 { (chunk.score.value / best * BAR as f64).round() as usize } else { 0 };
            let bar = format!("{:<BAR$}", "▇".repeat(full));
            let bar = if is_kept { screen.green(&bar) } else { screen.dim(&bar) };
            let tells = if story.is_relevant(&story.snippets[i]) { "●" } else { " " };
            let title = story.snippets[i].title.as_deref().unwrap_or_default();
            let title = truncate_str(title, screen.width.saturating_sub(INDENT + BAR + 20), "…");
            let (rank, score) = (chunk.rank, chunk.score.value);
            writeln!(self.out, "{:INDENT$}{rank:>2} {mark}  {score:.4}  {bar}  {tells} {title}", "")?;
        }
        writeln!(self.out)?;
        self.say(&format!(
            "✓ kept: the better half.  ● tells a part of the answer (the model was not told).{}",
            self.missed(kept)
        ))
    }

    /// An honest word about what should have been kept and was not.
    fn missed(&self, kept: &[usize]) -> String {
        let missed: Vec<&str> = (0..)
            .zip(&self.story.snippets)
            .filter(|(i, s)| self.story.is_relevant(s) && !kept.contains(i))
            .filter_map(|(_, s)| s.title.as_deref())
            .collect();
        if missed.is_empty() { String::new() } else { format!(" Missed: {}.", missed.join(", ")) }
    }

    pub(super) fn texts(&mut self, scores: &ScoreAnswer, kept: &[usize]) -> io::Result<()> {
        self.heading("What responded")?;
        let legend = highlight::legend(self.screen);
        writeln!(self.out, "{:INDENT$}The words to which the question drew attention: {legend}", "")?;
        let floor = highlight::floor(&scores.queries[0]);
        for (i, chunk) in by_rank(scores) {
            let snippet = &self.story.snippets[i];
            let mark = if kept.contains(&i) { self.screen.green("✓") } else { " ".into() };
            let title = self.screen.bold(snippet.title.as_deref().unwrap_or_default());
            writeln!(self.out, "\n{:INDENT$}{} {mark} {title}", "", chunk.rank)?;
            let words = highlight::words(&snippet.text, chunk.explained.as_deref().unwrap_or_default());
            let look = highlight::Look { screen: self.screen, indent: INDENT + 4, faint: !kept.contains(&i) };
            highlight::print(self.out, look, &words, floor)?;
        }
        Ok(())
    }

    pub(super) fn answering(&mut self, results: usize, tokens: usize) -> io::Result<()> {
        let which = if results == self.story.snippets.len() {
            format!("all {results} results")
        } else {
            format!("the {results} kept results")
        };
        self.heading(&format!("Answer from {which} ({} prompt tokens)", thousands(tokens)))
    }

    pub(super) fn answer_cost(&mut self, answer: &Answer) -> io::Result<()> {
        let rest = answer.total.saturating_sub(answer.first_token);
        let cost = format!(
            "first token after {}, {} more in {}",
            seconds(answer.first_token),
            answer.new_tokens - 1,
            seconds(rest)
        );
        self.aside(&cost)
    }

    pub(super) fn closing(&mut self, scores: &ScoreAnswer, all: &Answer, kept: &Answer) -> io::Result<()> {
        self.heading("In short")?;
        let less = 100.0 * (1.0 - kept.prompt_tokens as f64 / all.prompt_tokens as f64);
        self.say(&format!(
            "With the better half the prompt is {less:.0}% shorter ({} tokens, not {}) and the first token comes after {}, \
             not {}. Scoring took {}, once; the shorter prompt pays off at every further step of the agent.",
            thousands(kept.prompt_tokens),
            thousands(all.prompt_tokens),
            seconds(kept.first_token),
            seconds(all.first_token),
            seconds(Duration::from_secs_f64(scores.timings.prefill)),
        ))?;
        let right = |answer: &Answer| self.story.is_answered_by(&answer.text);
        let word = &self.story.answer;
        let verdict = match (right(all), right(kept)) {
            (true, true) => format!("Both answers are right: {word}."),
            (true, false) => {
                format!("Only the answer from all results is right ({word}): too much was dropped.")
            }
            (false, true) => format!("Only the answer from the better half is right ({word})."),
            (false, false) => {
                format!("Neither answer is right ({word}): this model is too small for the question.")
            }
        };
        let verdict = self.screen.bold(&verdict);
        writeln!(self.out, "{:INDENT$}{verdict}", "")?;
        self.say("One question proves little, and the heads of a model this small are weak: try questions of your own.")
    }

    pub(super) fn what_next(&mut self, took: Duration) -> io::Result<()> {
        self.heading("Next")?;
        for (command, what) in [
            ("qrae score --query 'Who?' chunks.jsonl", "score your own texts"),
            ("qrae serve --api-key SECRET", "chats and scores over HTTP"),
            ("qrae models list", "other models"),
        ] {
            writeln!(self.out, "{:INDENT$}{command:<40} {}", "", self.screen.dim(what))?;
        }
        writeln!(
            self.out,
            "\n{:INDENT$}{}",
            "",
            self.screen.dim(&format!("The demo took {}.", seconds(took)))
        )
    }

    fn heading(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "\n{}", self.screen.bold(text))
    }

    /// One faint line that a reader may skip.
    fn aside(&mut self, text: &str) -> io::Result<()> {
        let text = text.replace(NO_BREAK, " ");
        writeln!(self.out, "{:INDENT$}{}", "", self.screen.dim(&text))
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        let mut flow = Flow::new(&mut *self.out, self.screen.width, INDENT);
        flow.push(text)?;
        flow.finish()
    }
}

fn by_rank(scores: &ScoreAnswer) -> impl Iterator<Item = (usize, &ScoredChunk)> {
    let mut chunks: Vec<_> = scores.queries[0].chunks.iter().enumerate().collect();
    chunks.sort_by_key(|(_, chunk)| chunk.rank);
    chunks.into_iter()
}

/// The path, with `~` for the home folder.
fn below_home(path: &Path) -> String {
    let home = dirs::home_dir();
    match home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1}{NO_BREAK}s", time.as_secs_f64())
}
