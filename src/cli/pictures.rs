//! The pictures of studies and evaluations: from what was found to what is drawn.

use super::terminal::count;
use crate::{
    ids::HeadRef,
    plot::{self, Bar, BarGroup, BarKind, Bars, Chance, Distributions, Heatmap, Picture, Scatter, Stability},
    study::{
        find::{Criterion, Findings},
        folder::Identity,
        judge::{Group, Judgement, Row},
    },
};

/// What the heads' values are, in percent.
pub(super) fn value_name(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::AnswerMass => "attention on the answer, %",
        Criterion::QrHead => "attention on relevant chunks, less the null query's, %",
        Criterion::Auroc => "AUROC, %",
    }
}

/// Heads one after the other; of many the first.
fn names(heads: &[HeadRef]) -> String {
    const MOST: usize = 16;
    let named: Vec<String> = heads.iter().take(MOST).map(ToString::to_string).collect();
    let more = if heads.len() > MOST { format!(" and {} more", heads.len() - MOST) } else { String::new() };
    named.join(" ") + &more
}

/// What the heads' values depend on, and how many inputs they are a mean of.
fn basis(found: &Findings) -> String {
    let inputs = count(found.inputs, "input");
    match found.criterion {
        Criterion::Auroc => format!("Each head alone, by {}, mean over {inputs}.", found.method),
        Criterion::AnswerMass | Criterion::QrHead => {
            format!("Mean over {inputs}. Criterion: {}.", found.criterion)
        }
    }
}

/// Every head's value.
pub(super) fn heatmap(found: &Findings, identity: &Identity) -> Heatmap {
    Heatmap {
        title: format!("{}: {}", identity.model, value_name(found.criterion)),
        subtitle: format!("{} Outlined: the {} chosen.", basis(found), count(found.heads.len(), "head")),
        value_name: value_name(found.criterion).to_owned(),
        chance: (found.criterion == Criterion::Auroc).then_some(Chance { value: 50.0, best: 100.0 }),
        values: found.heat.iter().map(|v| 100.0 * v).collect(),
        n_heads: identity.n_heads,
        marked: found.heads.clone(),
    }
}

fn stability(found: &Findings, identity: &Identity) -> Stability {
    let spread = |s: &crate::study::find::HeadSpread| plot::HeadSpread {
        head: s.head,
        mean: 100.0 * s.value.mean,
        low: 100.0 * s.value.low,
        high: 100.0 * s.value.high,
        top_frequency: s.top_frequency,
    };
    Stability {
        title: format!("{}: the best heads, and how sure they are", identity.model),
        subtitle: format!("{} Whiskers: 95 % over inputs.", basis(found)),
        value_name: value_name(found.criterion).to_owned(),
        heads: found.best.iter().map(spread).collect(),
        k: found.heads.len(),
        gap: found.gap.map_or(f64::NAN, |gap| 100.0 * gap),
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
        let subtitle = format!(
            "{}, by {}. These heads were chosen on these {}, which flatters them; chunks of all questions together.",
            names(&found.heads),
            found.method,
            count(found.inputs, "input")
        );
        pictures.push((
            "scores",
            Box::new(distributions((relevant.clone(), others.clone()), subtitle, identity)),
        ));
    }
    pictures
}

fn distributions(
    (relevant, others): (Vec<f64>, Vec<f64>),
    subtitle: String,
    identity: &Identity,
) -> Distributions {
    Distributions {
        title: format!("{}: scores of relevant and other chunks", identity.model),
        subtitle,
        score_name: "score".into(),
        groups: vec![("relevant".into(), relevant), ("others".into(), others)],
    }
}

/// A row's bar: what ranks, and below it the method.
fn bar(row: &Row) -> Bar {
    let auroc = &row.metrics.auroc;
    let [value, low, high] = [auroc.mean, auroc.low, auroc.high].map(|v| 100.0 * v);
    let (label, detail) = row.name.split_once(", ").unwrap_or((&row.name, ""));
    let (label, detail) = if row.group == Group::Method { (detail, "") } else { (label, detail) };
    let kind = match row.group {
        Group::Set => BarKind::Main,
        Group::Random => BarKind::Odd,
        Group::Criterion | Group::Method | Group::Baseline => BarKind::Plain,
    };
    Bar { label: label.to_owned(), detail: detail.to_owned(), value, low, high, kind }
}

/// The rows of some groups, the best first.
fn bars(name: String, judged: &Judgement, groups: &[Group]) -> BarGroup {
    let rows = judged.rows.iter().filter(|row| groups.contains(&row.group));
    let mut bars: Vec<Bar> = rows.map(bar).collect();
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    BarGroup { name, bars }
}

fn aurocs(judged: &Judgement, identity: &Identity) -> Bars {
    let others = count(judged.calibration, "other input");
    Bars {
        title: format!("{}: how well scores rank", identity.model),
        subtitle: format!("AUROC on {}; within groups the best first.", count(judged.questions, "question")),
        groups: vec![
            bars(String::new(), judged, &[Group::Set]),
            bars(format!("heads chosen on {others}"), judged, &[Group::Criterion]),
            bars(format!("heads chosen by AUROC on {others}, a row per method"), judged, &[Group::Method]),
            bars("to compare with".into(), judged, &[Group::Random, Group::Baseline]),
        ],
        unit: "AUROC, %; whiskers: 95 % over questions".into(),
        mark: Some((50.0, "chance".into())),
        odd: "random heads: the whisker holds nine tenths of the random sets".into(),
    }
}

/// The table's AUROCs, the scores of relevant and other chunks, and scores against lengths.
pub(super) fn of_judgement(judged: &Judgement, identity: &Identity) -> Vec<(&'static str, Box<dyn Picture>)> {
    let mut pictures: Vec<(&str, Box<dyn Picture>)> = vec![("auroc", Box::new(aurocs(judged, identity)))];
    if let Some(set) = judged.rows.iter().find(|row| row.group == Group::Set) {
        let of = |wanted: bool| {
            judged.lengths.iter().filter(|c| c.2 == wanted).map(|&(_, score, _)| score).collect::<Vec<_>>()
        };
        let heads = format!("{}: {}.", set.name, names(&set.heads));
        let questions = count(judged.questions, "question");
        let subtitle = format!("{heads} Chunks of all {questions} together.");
        pictures.push(("scores", Box::new(distributions((of(true), of(false)), subtitle, identity))));
        pictures.push(("lengths", Box::new(lengths(judged, &heads, identity))));
    }
    pictures
}

fn lengths(judged: &Judgement, heads: &str, identity: &Identity) -> Scatter {
    let bias = judged.length_bias.map_or(String::new(), |rho| {
        format!(" Within a question, length and score of the others: ρ = {rho:.2} (Spearman, mean).")
    });
    let point = |&(n, score, relevant): &(usize, f64, bool)| (n as f64, score, usize::from(!relevant));
    Scatter {
        title: format!("{}: score and length of chunks", identity.model),
        subtitle: format!("{heads} {}.{bias}", count(judged.questions, "question")),
        x_name: "length, tokens".into(),
        y_name: "score".into(),
        points: judged.lengths.iter().map(point).collect(),
        groups: vec!["relevant".into(), "others".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{eval::bootstrap::Interval, study::judge::Measured};

    fn row(name: &str, group: Group, auroc: f64) -> Row {
        let interval = Interval { mean: auroc, low: auroc - 0.05, high: auroc };
        let metrics = Measured { auroc: interval, recall: interval, ndcg: interval, mrr: interval };
        Row { name: name.into(), heads: Vec::new(), note: String::new(), group, metrics }
    }

    #[test]
    fn rows_are_sorted_within_their_groups_and_keep_their_names() {
        let rows = vec![
            row("mine@1, last/none/sum", Group::Set, 0.6),
            row("by AUROC, last/none/sum", Group::Method, 0.5),
            row("by AUROC, query_mean/null_query/scaled_sum", Group::Method, 0.7),
            row("random heads, last/none/sum", Group::Random, 0.5),
            row("BM25", Group::Baseline, 0.65),
        ];
        let judged = Judgement {
            questions: 1,
            calibration: 9,
            k: 3,
            rows,
            left_out: Vec::new(),
            over_bm25: None,
            lengths: Vec::new(),
            length_bias: None,
        };
        let identity = crate::study::folder::Identity {
            format: 2,
            kind: crate::study::folder::Kind::Evaluation,
            model: "m".into(),
            weights: String::new(),
            rope: String::new(),
            n_layers: 1,
            n_heads: 1,
            prompt_hash: String::new(),
            tokenizer_hash: String::new(),
            compute: String::new(),
            methods: Vec::new(),
        };
        let picture = aurocs(&judged, &identity);
        let labels: Vec<Vec<(&str, &str)>> = picture
            .groups
            .iter()
            .map(|g| g.bars.iter().map(|b| (b.label.as_str(), b.detail.as_str())).collect())
            .collect();
        assert_eq!(labels[0], [("mine@1", "last/none/sum")]);
        assert!(labels[1].is_empty());
        assert_eq!(labels[2], [("query_mean/null_query/scaled_sum", ""), ("last/none/sum", "")]);
        assert_eq!(labels[3], [("BM25", ""), ("random heads", "last/none/sum")]);
        let kinds = [&picture.groups[0].bars[0], &picture.groups[3].bars[1]].map(|bar| bar.kind);
        assert_eq!(kinds, [BarKind::Main, BarKind::Odd]);
        assert!(picture.subtitle.contains("on 1 question;"), "{}", picture.subtitle);
    }
}
