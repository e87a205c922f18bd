//! Scores as JSON and as tables.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use console::truncate_str;
use serde_json::{Value, json};

use crate::{
    cli::{
        highlight,
        terminal::{Screen, thousands},
    },
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
    /// One line of JSON: the answer of `POST /v1/qrae/score`.
    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let answer = self.answer;
        let per_query: Vec<Value> = answer.queries.iter().map(|q| self.results(q)).collect();
        let (key, results) = match <[Value; 1]>::try_from(per_query) {
            Ok([only]) => ("results", only),
            Err(all) => ("queries", all.into_iter().map(|results| json!({"results": results})).collect()),
        };
        let line = json!({
            "object": "qrae.score",
            "model": self.model.id,
            key: results,
            "heads": answer.heads,
            "head_set": answer.head_set,
            "prompt_hash": self.model.prompt_hash,
            "statistic": answer.method.statistic,
            "control": answer.method.control,
            "read": answer.method.read,
            "usage": {
                "prompt_tokens": answer.usage.prompt_tokens,
                "cached_tokens": answer.usage.cached_tokens,
                "computed_tokens": answer.usage.computed_tokens,
            },
            "timings": {
                "tokenize": answer.timings.tokenize,
                "queue": answer.timings.queue,
                "prefill": answer.timings.prefill,
                "score": answer.timings.score,
            },
        });
        writeln!(out, "{line}")
    }

    fn results(&self, query: &QueryScores) -> Value {
        let best_first = best_first(query);
        best_first.map(|(index, scored)| self.result(index, scored)).collect()
    }

    fn result(&self, index: usize, scored: &ScoredChunk) -> Value {
        let heads = self.answer.heads.iter().zip(&scored.score.heads);
        let heads: Vec<Value> =
            heads.map(|(head, part)| json!({"head": head, "score": part.score, "mass": part.mass})).collect();
        let mut result = json!({
            "index": index,
            "id": self.job.chunks[index].id,
            "score": scored.score.value,
            "rank": scored.rank,
            "tokens": scored.tokens,
            "tokens_scored": scored.score.n_tokens,
            "flags": flags(scored),
            "heads": heads,
        });
        if let Some(tokens) = &scored.explained {
            let token = |t: &crate::service::score::TokenResponse| {
                let span = t.span.map(|s| [s.start, s.end]);
                json!({"span": span, "response": t.response, "heads": t.per_head})
            };
            result["explain"] = tokens.iter().map(token).collect();
        }
        result
    }

    /// Per query a table, best first, and what made the scores.
    pub(super) fn tables(&self, out: &mut impl Write, screen: Screen) -> io::Result<()> {
        for (text, query) in self.job.queries.iter().zip(&self.answer.queries) {
            writeln!(out, "{}", screen.bold(text))?;
            writeln!(out, "{}", self.table(query, screen))?;
            if self.job.explain {
                self.explanations(out, query, screen)?;
            }
        }
        let answer = self.answer;
        let heads: Vec<String> = answer.heads.iter().map(ToString::to_string).collect();
        let made = format!(
            "{} · {} · {} · {} tokens computed, {} from cache, {:.2} s",
            answer.head_set,
            heads.join(" "),
            answer.method,
            thousands(answer.usage.computed_tokens),
            thousands(answer.usage.cached_tokens),
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
            let room = screen.width.saturating_sub(26 + flags.len()).max(16);
            let name = first_words(&self.job.chunks[index], index);
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
        let total = query.chunks.iter().flat_map(|c| c.explained.iter().flatten()).map(|t| t.response).sum();
        writeln!(out, "\nResponding words: {}", highlight::legend(screen))?;
        for (index, scored) in best_first(query) {
            let chunk = &self.job.chunks[index];
            writeln!(
                out,
                "{:>4}  {}",
                scored.rank,
                screen.bold(&first_words(&Chunk { text: String::new(), ..chunk.clone() }, index))
            )?;
            let words = highlight::words(&chunk.text, scored.explained.as_deref().unwrap_or_default());
            highlight::print(out, screen, &words, total, 6)?;
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

/// What a reader knows the chunk by: title or id, and the text's beginning, on one line.
fn first_words(chunk: &Chunk, index: usize) -> String {
    let name = [&chunk.title, &chunk.id].into_iter().flatten().find(|name| !name.is_empty());
    let text = chunk.text.split_whitespace().take(24).collect::<Vec<_>>().join(" ");
    match (name, text.is_empty()) {
        (Some(name), true) => name.clone(),
        (Some(name), false) => format!("{name}: {text}"),
        (None, true) => format!("chunk {index}"),
        (None, false) => text,
    }
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
