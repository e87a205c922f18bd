//! The table of an evaluation: in the terminal, as Markdown, as JSON; and its pictures.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::super::{pictures, terminal::count};
use crate::{
    eval::bootstrap::Interval,
    study::{
        folder::{Identity, write_whole},
        judge::{Group, Judgement, OrderSensitivity, Row},
    },
    text::shown_sentence,
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
        let of = if row.group == Group::Random { " of sets" } else { "" };
        let cell =
            |i: &Interval| format!("{:.1} ({:.0}–{:.0}{of})", 100.0 * i.mean, 100.0 * i.low, 100.0 * i.high);
        let heads: Vec<String> = row.heads.iter().map(ToString::to_string).collect();
        let heads = if row.note.is_empty() { heads.join(" ") } else { row.note.clone() };
        // a head set's name is that of a file
        [shown_sentence(&row.name), heads, cell(&m.auroc), cell(&m.recall), cell(&m.ndcg), cell(&m.mrr)]
    }

    /// The rows at a glance; heads and the other intervals are in the files.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let [name, _, auroc, recall, ndcg, mrr] = self.head();
        table.set_header([name, auroc, recall, ndcg, mrr]);
        for row in &self.judgement.rows {
            let m = &row.metrics;
            let [name, _, auroc, ..] = Self::cells(row);
            let mean = |i: &Interval| format!("{:.1}", 100.0 * i.mean);
            table.add_row([name, auroc, mean(&m.recall), mean(&m.ndcg), mean(&m.mrr)]);
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
            "{} measured; percent, with 95 % intervals over questions{}",
            count(j.questions, "question"),
            if j.rows.iter().any(|row| row.group == Group::Random) {
                ", of random heads from the 5th to the 95th percentile of the sets"
            } else {
                ""
            }
        )];
        told.push(self.whose_heads());
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
                "with the chunks in {} orders the head set's AUROC is {:.1} on average and differs by {:.1} (standard deviation) \
                 from order to order; each chunk's mean over them has {:.1} (score with --orders {}); of the first {} chunks of \
                 one order, {:.0} % are also first in another",
                order.orders,
                100.0 * order.auroc,
                100.0 * order.deviation,
                100.0 * order.averaged,
                order.orders,
                j.k,
                100.0 * order.overlap
            ));
        }
        if let Some(bias) = j.length_bias {
            told.push(format!(
                "length bias: among chunks that are not relevant, score and length correlate by ρ = {bias:.2} (Spearman; 0 is \
                 none, 1 the longer the higher)"
            ));
        }
        told
    }

    /// Which questions chose the heads of which rows.
    fn whose_heads(&self) -> String {
        let others = count(self.judgement.calibration, "other input");
        let set = self.judgement.rows.iter().any(|row| row.group == Group::Set);
        match (set, self.judgement.calibration > 0) {
            (true, true) => format!(
                "heads were chosen on {others} (--calibration); those of the first row are the head set's own, chosen where \
                 its file says"
            ),
            (false, true) => format!("heads were chosen on {others} (--calibration)"),
            (true, false) => "the first row's heads may have been chosen on these questions; --calibration FOLDER leaves a \
                              study's questions out, and gives more rows: heads chosen on them by every criterion"
                .into(),
            (false, false) => "more rows with --calibration FOLDER: heads chosen on a study's questions".into(),
        }
    }

    /// The table for a page.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.head().join(" | "), "---|".repeat(6));
        for row in &self.judgement.rows {
            let _ = writeln!(text, "| {} |", Self::cells(row).map(|cell| as_markdown(&cell)).join(" | "));
        }
        for line in self.statements() {
            let _ = write!(text, "\n- {}", as_markdown(&line));
        }
        text + "\n"
    }

    fn json(&self) -> Value {
        let interval = |i: &Interval| json!({"mean": i.mean, "low": i.low, "high": i.high});
        let of_sets = |i: &Interval| json!({"mean": i.mean, "p5_of_sets": i.low, "p95_of_sets": i.high});
        let row = |row: &Row| {
            let m = &row.metrics;
            let spread = |i: &Interval| if row.group == Group::Random { of_sets(i) } else { interval(i) };
            let note = (!row.note.is_empty()).then_some(&row.note);
            json!({"name": row.name, "heads": row.heads, "note": note, "auroc": spread(&m.auroc),
                   "recall": spread(&m.recall), "ndcg": spread(&m.ndcg), "mrr": spread(&m.mrr)})
        };
        let order = |o: &OrderSensitivity| json!({"orders": o.orders, "auroc": o.auroc, "deviation": o.deviation, "overlap": o.overlap, "averaged": o.averaged});
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

/// Text that stays text in a table of Markdown.
fn as_markdown(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::judge::Measured;

    fn row(name: &str, group: Group) -> Row {
        let interval = Interval { mean: 0.5, low: 0.25, high: 0.75 };
        let metrics = Measured { auroc: interval, recall: interval, ndcg: interval, mrr: interval };
        Row { name: name.into(), heads: vec!["L1H2".parse().unwrap()], note: String::new(), group, metrics }
    }

    fn judgement(calibration: usize, rows: Vec<Row>) -> Judgement {
        Judgement {
            questions: 1,
            calibration,
            k: 3,
            rows,
            left_out: Vec::new(),
            over_bm25: None,
            lengths: Vec::new(),
            length_bias: None,
        }
    }

    fn with<T>(judgement: &Judgement, of: impl Fn(&Report<'_>) -> T) -> T {
        let identity = Identity {
            format: 2,
            kind: crate::study::folder::Kind::Evaluation,
            model: "m".into(),
            weights: String::new(),
            rope: String::new(),
            n_layers: 2,
            n_heads: 3,
            prompt_hash: String::new(),
            tokenizer_hash: String::new(),
            compute: String::new(),
            methods: Vec::new(),
        };
        of(&Report {
            judgement,
            order: None,
            identity: &identity,
            data: Path::new("data.json"),
            set_inputs: None,
        })
    }

    #[test]
    fn names_of_files_stay_names() {
        let evil = judgement(0, vec![row("a|b\u{1b}[31m<i>@1, last/none/sum", Group::Set)]);
        let markdown = with(&evil, |report| report.markdown());
        let line = markdown.lines().nth(2).unwrap();
        assert!(line.contains("a\\|b\\\\u{1b}[31m&lt;i>@1"), "{line}");
        assert_eq!(line.matches('|').count() - line.matches("\\|").count(), 7, "six cells: {line}");
        let table = with(&evil, |report| report.table().to_string());
        assert!(!table.contains('\u{1b}') && table.contains("a|b"), "{table}");
    }

    #[test]
    fn random_rows_say_what_their_spread_is_of() {
        let mut random = row("random heads, last/none/sum", Group::Random);
        (random.heads, random.note) = (Vec::new(), "20 sets of 1".into());
        let judged = judgement(0, vec![row("mine@1, last/none/sum", Group::Set), random]);
        let json = with(&judged, |report| report.json());
        assert_eq!(json["rows"][1]["auroc"], json!({"mean": 0.5, "p5_of_sets": 0.25, "p95_of_sets": 0.75}));
        assert_eq!(json["rows"][0]["auroc"], json!({"mean": 0.5, "low": 0.25, "high": 0.75}));
        assert_eq!((&json["rows"][0]["heads"], &json["rows"][0]["note"]), (&json!(["L1H2"]), &Value::Null));
        assert_eq!(json["rows"][1]["note"], "20 sets of 1");
        let table = with(&judged, |report| report.table().to_string());
        assert_eq!(table.matches("(25–75 of sets)").count(), 1, "{table}");
        assert!(with(&judged, |report| report.statements())[0].contains("95th percentile of the sets"));
    }

    #[test]
    fn it_is_told_which_questions_chose_the_heads() {
        let set = || vec![row("mine@1, last/none/sum", Group::Set)];
        let told =
            |calibration, rows| with(&judgement(calibration, rows), |report| report.statements()).join("\n");
        let own = told(0, set());
        assert!(own.starts_with("1 question measured;"), "{own}");
        assert!(own.contains("may have been chosen on these questions; --calibration FOLDER"), "{own}");
        let both = told(34, set());
        assert!(
            both.contains("on 34 other inputs") && both.contains("first row are the head set's own"),
            "{both}"
        );
        assert!(
            told(0, vec![]).contains("more rows with --calibration") && !told(0, vec![]).contains("0 other")
        );
        assert!(told(1, vec![]).contains("on 1 other input (") && !told(1, vec![]).contains("first row"));
    }
}
