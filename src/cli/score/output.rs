//! Scores as JSON and as tables.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use console::truncate_str;
use serde_json::Value;

use crate::{
    cli::{
        highlight,
        terminal::{Screen, harmless, thousands},
    },
    http::score_json,
    prompt::layout::Chunk,
    service::{
        ServedModel,
        score::{QueryScores, ScoreAnswer, ScoreJob, ScoredChunk},
    },
};

/// What was asked and what came of it.
pub(super) struct Shown<'a> {
    pub(super) model: &'a ServedModel,
    pub(super) job: &'a ScoreJob,
    pub(super) answer: &'a ScoreAnswer,
}

impl Shown<'_> {
    /// One line of JSON: the answer of `POST /v1/qrae/score`. Results are in the order of the chunks.
    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let ids: Vec<Option<Value>> = self.job.chunks.iter().map(|c| c.id.clone().map(Value::from)).collect();
        let many = self.answer.queries.len() > 1;
        writeln!(out, "{}", Value::Object(score_json(self.model, self.answer, &ids, many)))
    }

    /// Per query a table, best first, and what made the scores.
    pub(super) fn tables(&self, out: &mut impl Write, screen: Screen) -> io::Result<()> {
        for (text, query) in self.job.queries.iter().zip(&self.answer.queries) {
            writeln!(out, "{}", screen.bold(&harmless(text)))?;
            writeln!(out, "{}", self.table(query, screen))?;
            if self.job.explain {
                self.explanations(out, query, screen)?;
            }
        }
        let answer = self.answer;
        let heads: Vec<String> = answer.heads.iter().map(ToString::to_string).collect();
        let orders =
            if answer.orders > 1 { format!("mean of {} orders · ", answer.orders) } else { String::new() };
        let made = format!(
            "{} · {} · {} · {orders}{} tokens computed, {} cached, {} shared, {:.2} s",
            answer.head_set,
            heads.join(" "),
            answer.method,
            thousands(answer.usage.computed_tokens),
            thousands(answer.usage.cached_tokens),
            thousands(answer.usage.shared_tokens),
            answer.timings.prefill
        );
        writeln!(out, "{}\n", screen.dim(&made))
    }

    fn table(&self, query: &QueryScores, screen: Screen) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["rank", "score", "tokens", "chunk"]);
        for column in 0..3 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for (index, scored) in best_first(query) {
            let flags = flags(scored).iter().map(|flag| format!(" ({flag})")).collect::<String>();
            let room = screen.width.saturating_sub(25 + flags.len()).max(16);
            let name = first_words(&self.job.chunks[index]);
            table.add_row([
                scored.rank.to_string(),
                format!("{:.4}", scored.score.value),
                scored.tokens.to_string(),
                format!("{}{flags}", truncate_str(&name, room, "…")),
            ]);
        }
        table.trim_fmt()
    }

    fn explanations(&self, out: &mut impl Write, query: &QueryScores, screen: Screen) -> io::Result<()> {
        let floor = highlight::floor(query);
        writeln!(out, "\nWords that respond: {}", highlight::legend(screen))?;
        for (index, scored) in best_first(query) {
            let chunk = &self.job.chunks[index];
            let title = screen.bold(&harmless(name(chunk).unwrap_or_default()));
            writeln!(out, "{:>5}  {title}", scored.rank)?;
            let words = highlight::words(&chunk.text, scored.explained.as_deref().unwrap_or_default());
            let look = highlight::Look { screen, indent: 7, faint: false };
            highlight::print(out, look, &words, floor)?;
        }
        writeln!(out)
    }
}

/// The chunks with their index in the request, by rank.
fn best_first(query: &QueryScores) -> impl Iterator<Item = (usize, &ScoredChunk)> {
    let mut chunks: Vec<_> = query.chunks.iter().enumerate().collect();
    chunks.sort_by_key(|(_, scored)| scored.rank);
    chunks.into_iter()
}

/// What a reader knows the chunk by.
fn name(chunk: &Chunk) -> Option<&str> {
    [&chunk.title, &chunk.id].into_iter().flatten().find(|name| !name.is_empty()).map(String::as_str)
}

/// The name and the text's beginning, on one line.
fn first_words(chunk: &Chunk) -> String {
    let text = chunk.text.split_whitespace().take(24).collect::<Vec<_>>().join(" ");
    let whole = match name(chunk) {
        Some(name) => format!("{name}: {text}"),
        None => text,
    };
    harmless(&whole).into_owned()
}

fn flags(scored: &ScoredChunk) -> Vec<&'static str> {
    let flags = scored.score.flags;
    let all = [
        ("empty", flags.empty),
        ("single_token", flags.single_token),
        ("no_response", flags.no_response),
        ("truncated", scored.truncated),
    ];
    all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
}
