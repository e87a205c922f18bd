//! The pictures of studies and evaluations: from what was found to what is drawn.

use crate::{
    plot::{self, Bar, Bars, Distributions, Heatmap, Picture, Scatter, Stability},
    study::{
        find::{Criterion, Findings},
        folder::Identity,
        judge::Judgement,
    },
};

/// What the heads' values are.
pub(super) fn value_name(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::AnswerMass => "attention on the answer",
        Criterion::QrHead => "attention on relevant chunks",
        Criterion::Auroc => "AUROC",
    }
}

/// Every head's value.
pub(super) fn heatmap(found: &Findings, identity: &Identity) -> Heatmap {
    let value = value_name(found.criterion);
    Heatmap {
        title: format!("{}: {value}, {} inputs", identity.model, found.inputs),
        value_name: value.to_owned(),
        values: found.heat.clone(),
        n_heads: identity.n_heads,
        marked: found.heads.clone(),
    }
}

fn stability(found: &Findings, identity: &Identity) -> Stability {
    let spread = |s: &crate::study::find::HeadSpread| plot::HeadSpread {
        head: s.head,
        mean: s.value.mean,
        low: s.value.low,
        high: s.value.high,
        top_frequency: s.top_frequency,
    };
    Stability {
        title: format!("{}: the best heads over {} inputs", identity.model, found.inputs),
        value_name: value_name(found.criterion).to_owned(),
        heads: found.best.iter().map(spread).collect(),
        k: found.heads.len(),
        bound: Some(found.bound),
        gap: found.gap.unwrap_or(f64::NAN),
    }
}

/// Heatmap, stability and, where there are labels, the scores of relevant and other chunks; each with a file's name.
pub(super) fn of_findings(found: &Findings, identity: &Identity) -> Vec<(&'static str, Box<dyn Picture>)> {
    let mut pictures: Vec<(&str, Box<dyn Picture>)> = vec![
        ("heatmap", Box::new(heatmap(found, identity))),
        ("stability", Box::new(stability(found, identity))),
    ];
    let (relevant, others) = &found.scores;
    if !relevant.is_empty() {
        pictures.push(("scores", Box::new(distributions(relevant.clone(), others.clone(), identity))));
    }
    pictures
}

fn distributions(relevant: Vec<f64>, others: Vec<f64>, identity: &Identity) -> Distributions {
    Distributions {
        title: format!("{}: scores of chunks", identity.model),
        score_name: "score".into(),
        groups: vec![("relevant".into(), relevant), ("others".into(), others)],
    }
}

/// A row's name as far as a picture has room: of most rows that is their method.
fn short(name: &str) -> String {
    name.strip_prefix("by AUROC, ").unwrap_or(name).to_owned()
}

/// The table's AUROCs, the scores of relevant and other chunks, and scores against lengths.
pub(super) fn of_judgement(judged: &Judgement, identity: &Identity) -> Vec<(&'static str, Box<dyn Picture>)> {
    let bar = |(i, row): (usize, &crate::study::judge::Row)| {
        let auroc = &row.metrics.auroc;
        let [value, low, high] = [auroc.mean, auroc.low, auroc.high].map(|v| 100.0 * v);
        Bar { label: short(&row.name), value, low, high, highlight: i == 0 && !judged.lengths.is_empty() }
    };
    let bars = Bars {
        title: format!("{}: AUROC on {} questions", identity.model, judged.questions),
        rows: judged.rows.iter().enumerate().map(bar).collect(),
        unit: "%".into(),
    };
    let mut pictures: Vec<(&str, Box<dyn Picture>)> = vec![("auroc", Box::new(bars))];
    if !judged.lengths.is_empty() {
        let of = |wanted: bool| {
            judged.lengths.iter().filter(|c| c.2 == wanted).map(|&(_, score, _)| score).collect::<Vec<_>>()
        };
        pictures.push(("scores", Box::new(distributions(of(true), of(false), identity))));
        pictures.push((
            "lengths",
            Box::new(Scatter {
                title: format!("{}: score and length of chunks", identity.model),
                x_name: "tokens".into(),
                y_name: "score".into(),
                points: judged
                    .lengths
                    .iter()
                    .map(|&(n, s, relevant)| (n as f64, s, usize::from(!relevant)))
                    .collect(),
                groups: vec!["relevant".into(), "others".into()],
            }),
        ));
    }
    pictures
}
