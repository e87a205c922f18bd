//! What a study leaves behind: the head set, the run record, numbers and pictures.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use super::super::{pictures, terminal::tell};
use crate::{
    eval::bootstrap::Interval,
    ids::HeadRef,
    prompt::template::CivilTime,
    score::heads::{Provenance, RawHeadSet},
    study::{
        find::{Findings, MethodWorth},
        folder::{Folder, Identity, write_whole},
    },
    text::shown,
};

/// Writes everything into the study's folder, in place of what an earlier choice left there.
pub(super) fn write(folder: &Folder, found: &Findings, data: &str, seed: u64) -> anyhow::Result<()> {
    let (root, identity) = (folder.root(), folder.identity());
    let set = head_set(identity, found, data, seed);
    if let Some(told) = replaced(root, &set) {
        tell(told);
    }
    let put = |name: &str, bytes: &[u8]| write_whole(&root.join(name), bytes);
    put("heads.toml", set.to_toml().as_bytes())?;
    put("heatmap.csv", heatmap_csv(found, identity.n_heads).as_bytes())?;
    let record = serde_json::to_string_pretty(&record(identity, found, &set, data, seed))?;
    put("run.json", record.as_bytes())?;
    remove_pictures(root);
    for (name, picture) in pictures::of_findings(found, identity) {
        put(&format!("{name}.svg"), picture.svg().as_bytes())?;
        put(&format!("{name}.png"), &picture.png()?)?;
    }
    Ok(())
}

/// Which head set goes, where it is another one.
fn replaced(root: &Path, new: &RawHeadSet) -> Option<String> {
    let file = root.join("heads.toml");
    let old = RawHeadSet::parse("heads", &fs::read_to_string(&file).ok()?).ok()?;
    let chosen = |set: &RawHeadSet| {
        let from = &set.provenance;
        (set.heads.clone(), set.method, from.n, from.criterion.clone(), from.data.clone())
    };
    let (heads, method, n, criterion, data) = chosen(&old);
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let (heads, method) = (heads.join(" "), method.map(|m| format!(" {m}")).unwrap_or_default());
    let n = n.map(|n| format!(", {n} inputs")).unwrap_or_default();
    let (data, criterion) = (shown(&data), shown(&criterion));
    let told =
        format!("{} is replaced, which had {heads}{method} by {criterion} of {data}{n}", file.display());
    (chosen(&old) != chosen(new)).then_some(told)
}

/// Removes every picture that localize or eval makes: a run makes those it has the numbers for, and the rest would be of
/// an earlier one.
pub(in super::super) fn remove_pictures(root: &Path) {
    for name in ["heatmap", "stability", "scores", "auroc", "lengths"] {
        for kind in ["svg", "png"] {
            let _ = fs::remove_file(root.join(format!("{name}.{kind}"))); // most often there is none
        }
    }
}

fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let CivilTime { year, month, day, .. } = CivilTime::from_unix(seconds);
    format!("{year:04}-{month:02}-{day:02}")
}

/// As many digits as a number of such inputs deserves.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

fn head_set(identity: &Identity, found: &Findings, data: &str, seed: u64) -> RawHeadSet {
    let values: BTreeMap<HeadRef, f64> =
        found.best.iter().map(|spread| (spread.head, rounded(spread.value.mean))).collect();
    RawHeadSet {
        name: "heads".into(),
        format: 1,
        model: Some(identity.model.clone()),
        n_layers: identity.n_layers,
        n_heads: identity.n_heads,
        heads: found.heads.clone(),
        published: false,
        provisional: false,
        prompt_hash: Some(identity.prompt_hash.clone()),
        tokenizer_hash: Some(identity.tokenizer_hash.clone()),
        method: Some(found.method),
        provenance: Provenance {
            data: data.to_owned(),
            criterion: found.criterion.to_string(),
            n: u32::try_from(found.inputs).ok(),
            seed: Some(seed),
            date: Some(today()),
            auroc: found.auroc.map(|i| rounded(i.mean)),
            held_out_auroc: found.held_out.map(|i| rounded(i.mean)),
            compute: Some(identity.compute.clone()),
            note: None,
            values,
        },
    }
}

fn heatmap_csv(found: &Findings, n_heads: usize) -> String {
    let row = |(layer, values): (usize, &[f64])| {
        let values: Vec<String> = values.iter().map(|v| format!("{v:.6}")).collect();
        format!("{layer},{}\n", values.join(","))
    };
    let head: Vec<String> = (0..n_heads).map(|h| format!("H{h}")).collect();
    let rows: String = found.heat.chunks_exact(n_heads).enumerate().map(row).collect();
    format!("layer,{}\n{rows}", head.join(","))
}

fn interval(i: &Interval) -> serde_json::Value {
    json!({"mean": i.mean, "low": i.low, "high": i.high})
}

fn method_worth(m: &MethodWorth) -> serde_json::Value {
    json!({"method": m.method.to_string(), "k": m.k, "held_out_auroc": m.auroc, "standard_error": m.standard_error})
}

fn record(
    identity: &Identity,
    found: &Findings,
    set: &RawHeadSet,
    data: &str,
    seed: u64,
) -> serde_json::Value {
    let best: Vec<_> = found
        .best
        .iter()
        .map(|s| json!({"head": s.head, "value": interval(&s.value), "top_frequency": s.top_frequency}))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "date": set.provenance.date,
        "model": identity.model,
        "compute": identity.compute,
        "prompt_hash": identity.prompt_hash,
        "tokenizer_hash": identity.tokenizer_hash,
        "data": data,
        "seed": seed,
        "inputs": found.inputs,
        "criterion": found.criterion,
        "growth": found.growth,
        "method": found.method.to_string(),
        "heads": found.heads,
        "auroc": found.auroc.as_ref().map(interval),
        "held_out_auroc": found.held_out.as_ref().map(interval),
        "curve": found.curve.as_ref().map(|c| json!({"auroc": c.auroc, "standard_error": c.standard_error})),
        "best": best,
        "split_half": found.split_half,
        "same_without_held_out": found.unanimous,
        "methods": found.methods.iter().map(method_worth).collect::<Vec<_>>(),
        "hoeffding_bound": found.bound,
        "hoeffding_inputs": found.bound_inputs,
        "boundary_gap": found.gap,
        "heatmap": found.heat.chunks_exact(identity.n_heads).collect::<Vec<_>>(),
    })
}
