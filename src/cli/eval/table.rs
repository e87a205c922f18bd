//! The table of an evaluation: in the terminal, as Markdown, as JSON; and its pictures.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::super::pictures;
use crate::{
    eval::bootstrap::Interval,
    study::{
        folder::{Identity, write_whole},
        judge::{Judgement, OrderSensitivity, Row},
    },
};

/// Everything an evaluation says.
pub(super) struct Report<'a> {
    pub(super) judgement: &'a Judgement,
    pub(super) order: Option<OrderSensitivity>,
    pub(super) identity: &'a Identity,
    pub(super) data: &'a Path,
    /// Inputs that chose the head set at hand, where its file says so.
    pub(super) set_inputs: Option<u32>,
}

impl Report<'_> {
    /// table.md, table.json and pictures.
    pub(super) fn write(&self, out: &Path) -> anyhow::Result<()> {
        let put = |name: &str, bytes: &[u8]| write_whole(&out.join(name), bytes);
        put("table.md", self.markdown().as_bytes())?;
        put("table.json", serde_json::to_string_pretty(&self.json())?.as_bytes())?;
        for (name, picture) in pictures::of_judgement(self.judgement, self.identity) {
            put(&format!("{name}.svg"), picture.svg().as_bytes())?;
            put(&format!("{name}.png"), &picture.png()?)?;
        }
        Ok(())
    }

    pub(super) fn print(&self, as_json: bool, out: &Path) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        if as_json {
            writeln!(stdout, "{}", self.json())?;
            return Ok(());
        }
        writeln!(stdout, "{}", self.table())?;
        for line in self.statements() {
            writeln!(stdout, "{line}")?;
        }
        writeln!(stdout, "table and pictures are in {}", out.display())?;
        Ok(())
    }

    fn head(&self) -> [String; 6] {
        let k = self.judgement.k;
        ["what ranks", "heads", "AUROC", &format!("R@{k}"), &format!("nDCG@{k}"), "MRR"].map(str::to_owned)
    }

    fn cells(row: &Row) -> [String; 6] {
        let m = &row.metrics;
        let cell =
            |i: &Interval| format!("{:.1} ({:.0}–{:.0})", 100.0 * i.mean, 100.0 * i.low, 100.0 * i.high);
        [row.name.clone(), row.heads.clone(), cell(&m.auroc), cell(&m.recall), cell(&m.ndcg), cell(&m.mrr)]
    }

    /// The rows at a glance; heads and the other intervals are in the files.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let [name, _, auroc, recall, ndcg, mrr] = self.head();
        table.set_header([name, auroc, recall, ndcg, mrr]);
        for row in &self.judgement.rows {
            let m = &row.metrics;
            let [_, _, auroc, ..] = Self::cells(row);
            let mean = |i: &Interval| format!("{:.1}", 100.0 * i.mean);
            table.add_row([row.name.clone(), auroc, mean(&m.recall), mean(&m.ndcg), mean(&m.mrr)]);
        }
        for column in 1..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
        }
        table
    }

    fn statements(&self) -> Vec<String> {
        let j = self.judgement;
        let mut told = vec![format!(
            "{} questions measured, {} others chose the heads; percent, with 95 % intervals over questions",
            j.questions, j.calibration
        )];
        told.extend(j.left_out.iter().map(|(name, why)| format!("no row {name:?}: {why}")));
        if let Some(over) = &j.over_bm25 {
            told.push(format!(
                "the head set's AUROC is {:+.1} over BM25's ({:+.1} to {:+.1}, same questions)",
                100.0 * over.mean,
                100.0 * over.low,
                100.0 * over.high
            ));
        }
        if let Some(order) = &self.order {
            told.push(format!(
                "over {} orders of the chunks: AUROC {:.1}, deviation {:.1}; two orders share {:.0} % of the first {}",
                order.orders,
                100.0 * order.auroc,
                100.0 * order.deviation,
                100.0 * order.overlap,
                j.k
            ));
        }
        if let Some(bias) = j.length_bias {
            told.push(format!(
                "length bias: among chunks that are not relevant, score and length correlate by ρ = {bias:.2} (Spearman)"
            ));
        }
        told
    }

    /// The table for a page.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.head().join(" | "), "---|".repeat(6));
        for row in &self.judgement.rows {
            let _ = writeln!(text, "| {} |", Self::cells(row).join(" | "));
        }
        for line in self.statements() {
            let _ = write!(text, "\n- {line}");
        }
        text + "\n"
    }

    fn json(&self) -> Value {
        let interval = |i: &Interval| json!({"mean": i.mean, "low": i.low, "high": i.high});
        let row = |row: &Row| {
            let m = &row.metrics;
            json!({"name": row.name, "heads": row.heads, "auroc": interval(&m.auroc), "recall": interval(&m.recall),
                   "ndcg": interval(&m.ndcg), "mrr": interval(&m.mrr)})
        };
        let order = |o: &OrderSensitivity| json!({"orders": o.orders, "auroc": o.auroc, "deviation": o.deviation, "overlap": o.overlap});
        let j = self.judgement;
        json!({
            "model": self.identity.model, "compute": self.identity.compute, "data": self.data.display().to_string(),
            "prompt_hash": self.identity.prompt_hash, "questions": j.questions, "calibration": j.calibration, "cut": j.k,
            "head_set_inputs": self.set_inputs,
            "rows": j.rows.iter().map(row).collect::<Vec<_>>(),
            "left_out": j.left_out.iter().map(|(name, why)| json!({"name": name, "reason": why})).collect::<Vec<_>>(), "over_bm25": j.over_bm25.as_ref().map(interval),
            "order": self.order.as_ref().map(order), "length_bias": j.length_bias,
        })
    }
}
