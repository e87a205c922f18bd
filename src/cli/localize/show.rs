//! What a study says in the terminal.

use std::{
    io::{self, Write},
    time::Duration,
};

use comfy_table::{Table, presets};

use super::super::{pictures, terminal::Screen};
use crate::{
    eval::bootstrap::Interval,
    plot::Picture,
    study::{
        find::{Criterion, Findings},
        folder::Folder,
    },
};

pub(super) fn print(found: &Findings, folder: &Folder, took: Duration, screen: Screen) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let identity = folder.identity();
    let heatmap = pictures::heatmap(found, identity);
    writeln!(out, "{}", heatmap.terminal(screen.width, screen.colour))?;
    writeln!(out, "{}", table(found))?;
    writeln!(out)?;
    for line in statements(found) {
        writeln!(out, "{line}")?;
    }
    let heads: Vec<String> = found.heads.iter().map(ToString::to_string).collect();
    writeln!(out, "\n{} {}  {}", screen.bold("heads"), screen.green(&heads.join(" ")), found.method)?;
    let root = folder.root().display();
    writeln!(
        out,
        "{} inputs, {:.0} s; head set, pictures and numbers are in {root}",
        found.inputs,
        took.as_secs_f64()
    )?;
    writeln!(out, "try it: qrae score --head-set {root}/heads.toml --query '…' chunks.jsonl")?;
    Ok(())
}

fn table(found: &Findings) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let k = format!("in top {} of resampled inputs", found.heads.len());
    table.set_header(["", "head", pictures::value_name(found.criterion), "95 % interval", &k]);
    for spread in &found.best {
        let chosen = if found.heads.contains(&spread.head) { "✓" } else { "" };
        let Interval { mean, low, high } = spread.value;
        table.add_row([
            chosen.to_owned(),
            spread.head.to_string(),
            format!("{mean:.4}"),
            format!("{low:.4} – {high:.4}"),
            format!("{:.0} %", 100.0 * spread.top_frequency),
        ]);
    }
    table
}

/// How firm the choice is, and what it is worth.
fn statements(found: &Findings) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(rho) = found.split_half {
        told.push(format!("random halves of the inputs order the heads alike: Spearman's ρ = {rho:.2}"));
    }
    if found.criterion != Criterion::Auroc
        && let Some(gap) = found.gap
    {
        told.push(format!(
            "the last head chosen is {gap:.4} above the next; with {} inputs means are sure to {:.3} (Hoeffding, 95 %)",
            found.inputs, found.bound
        ));
    }
    let percent =
        |i: &Interval| format!("{:.1} ({:.1} – {:.1})", 100.0 * i.mean, 100.0 * i.low, 100.0 * i.high);
    if let Some(auroc) = &found.auroc {
        told.push(format!("AUROC of these heads on the inputs they were chosen on: {}", percent(auroc)));
    }
    match &found.held_out {
        Some(held_out) => {
            told.push(format!("AUROC on inputs that had no part in the choice: {}", percent(held_out)))
        }
        None => told.push("no labels, so what the heads are worth is not known: try qrae eval".into()),
    }
    told
}
