//! What a study says in the terminal.

use std::{
    io::{self, Write},
    time::Duration,
};

use comfy_table::{Table, presets};

use super::super::{
    args::DEFAULT_MODEL,
    pictures,
    terminal::{Screen, count, quoted, thousands},
};
use crate::{
    eval::bootstrap::Interval,
    plot::Picture,
    study::{
        find::{Criterion, Findings},
        folder::Folder,
    },
};

/// Methods of a search that are shown.
const METHODS: usize = 5;

/// Shows everything. `model` is the model as it was named; the folder says it where it was not.
pub(super) fn print(
    found: &Findings,
    folder: &Folder,
    took: Duration,
    model: Option<&str>,
) -> anyhow::Result<()> {
    let (mut out, screen) = (io::stdout().lock(), Screen::stdout());
    let heatmap = pictures::heatmap(found, folder.identity());
    writeln!(out, "{}", heatmap.terminal(screen.width, screen.colour))?;
    writeln!(out, "{}", table(found))?;
    if !found.methods.is_empty() {
        writeln!(out, "\n{}", methods(found))?;
    }
    writeln!(out)?;
    let root = folder.root().display().to_string();
    let model = model.unwrap_or(&folder.identity().model);
    let flags = format!("{} --head-set {}", model_flag(model), quoted(&format!("{root}/heads.toml")));
    for line in statements(found, &flags) {
        writeln!(out, "{line}")?;
    }
    let heads: Vec<String> = found.heads.iter().map(ToString::to_string).collect();
    writeln!(out, "\n{} {}  {}", screen.bold("heads"), screen.green(&heads.join(" ")), found.method)?;
    writeln!(
        out,
        "{}, {:.0} s; head set, pictures and numbers are in {}",
        count(found.inputs, "input"),
        took.as_secs_f64(),
        quoted(&root)
    )?;
    writeln!(out, "try it: qrae score{flags} --query '…' chunks.jsonl")?;
    Ok(())
}

/// ` --model …`, unless it is the one that is used without it.
fn model_flag(model: &str) -> String {
    if model == DEFAULT_MODEL { String::new() } else { format!(" --model {}", quoted(model)) }
}

fn table(found: &Findings) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let k = format!("in the top {} of resampled inputs", found.heads.len());
    let value = match found.criterion {
        Criterion::QrHead => "QRHead's score, %",
        Criterion::AnswerMass | Criterion::Auroc => pictures::value_name(found.criterion),
    };
    table.set_header(["", "head", value, "95 % interval", &k]);
    let decimals = if found.criterion == Criterion::Auroc { 1 } else { 2 };
    for spread in &found.best {
        let chosen = if found.heads.contains(&spread.head) { "✓" } else { "" };
        let Interval { mean, low, high } = spread.value;
        let [mean, low, high] = [mean, low, high].map(|v| format!("{:.decimals$}", 100.0 * v));
        table.add_row([
            chosen.to_owned(),
            spread.head.to_string(),
            mean,
            format!("{low} – {high}"),
            format!("{:.0} %", 100.0 * spread.top_frequency),
        ]);
    }
    table
}

/// The best methods of a search.
fn methods(found: &Findings) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let title = format!("best of {} methods", found.methods.len());
    table.set_header(["", &title, "heads", "AUROC held out, %", "standard error"]);
    for worth in found.methods.iter().take(METHODS) {
        let chosen = if worth.method == found.method { "✓" } else { "" };
        table.add_row([
            chosen.to_owned(),
            worth.method.to_string(),
            worth.k.to_string(),
            format!("{:.1}", 100.0 * worth.auroc),
            format!("{:.1}", 100.0 * worth.standard_error),
        ]);
    }
    table
}

/// How firm the choice is, and what it is worth. `flags` name model and head set for other commands.
fn statements(found: &Findings, flags: &str) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(rho) = found.split_half {
        told.push(format!("random halves of the inputs order the heads alike: Spearman's ρ = {rho:.2}"));
    }
    told.extend(gap(found));
    let percent =
        |i: &Interval| format!("{:.1} ({:.1} – {:.1})", 100.0 * i.mean, 100.0 * i.low, 100.0 * i.high);
    if let Some(auroc) = &found.auroc {
        told.push(format!("AUROC of these heads on the inputs they were chosen on: {}", percent(auroc)));
    }
    match (&found.held_out, &found.auroc) {
        (Some(held_out), _) => {
            let same = match found.unanimous {
                true => " (the same heads were chosen without them)",
                false if found.auroc == found.held_out => {
                    " (not the same heads were chosen without them, but they rank alike)"
                }
                false => "",
            };
            told.push(format!(
                "AUROC on inputs that had no part in the choice: {}{same}",
                percent(held_out)
            ));
            told.extend(chance(found, held_out));
        }
        (None, Some(_)) => told.push(
            "too few labelled questions to hold any out, so what the heads are worth on others is not known"
                .into(),
        ),
        (None, None) => told.push(format!(
            "what the heads are worth is not known without labels; with labelled data: qrae eval LABELLED{flags}"
        )),
    }
    told
}

/// How far the last head chosen is from the next, where the highest means were taken.
fn gap(found: &Findings) -> Option<String> {
    let gap = found.gap.filter(|_| found.criterion != Criterion::Auroc)?;
    let told = format!("the last head chosen is {:.2} points above the next", 100.0 * gap);
    let Some(bound) = found.bound else { return Some(told) };
    let inputs = count(found.inputs, "input");
    let are = if found.inputs == 1 { "is" } else { "are" };
    Some(match found.bound_inputs {
        _ if gap > 2.0 * bound => format!("{told}, which {inputs} prove (Hoeffding's bound, 95 %)"),
        Some(needed) => format!(
            "{told}; {inputs} {are} too few for a guarantee that it is better: {} would be needed (Hoeffding's bound, 95 %)",
            thousands(needed)
        ),
        None => format!("{told}, so either may be the better one"),
    })
}

/// Says so where held-out questions are ranked no better than by chance.
fn chance(found: &Findings, held_out: &Interval) -> Option<String> {
    let what_to_do = if found.methods.is_empty() {
        "try --search, which also chooses the method"
    } else {
        "give more questions, or another model"
    };
    (held_out.low <= 0.5)
        .then(|| format!("that is no better than chance (50) on questions held out: {what_to_do}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{eval::select::Growth, score::Method, study::find::MethodWorth};

    fn at(mean: f64) -> Option<Interval> {
        Some(Interval { mean, low: mean - 0.1, high: mean + 0.1 })
    }

    fn found(criterion: Criterion) -> Findings {
        Findings {
            criterion,
            growth: Some(Growth::Ranked),
            method: Method::default(),
            heads: vec!["L1H2".parse().unwrap()],
            inputs: 30,
            heat: vec![0.5; 8],
            best: Vec::new(),
            split_half: None,
            bound: None,
            bound_inputs: None,
            gap: Some(0.02),
            auroc: at(0.8),
            held_out: at(0.7),
            unanimous: false,
            methods: Vec::new(),
            curve: None,
            scores: (Vec::new(), Vec::new()),
        }
    }

    fn told(found: &Findings) -> String {
        statements(found, " --model m --head-set s/heads.toml").join("\n")
    }

    #[test]
    fn chance_is_called_chance() {
        let good = found(Criterion::Auroc);
        assert!(!told(&good).contains("chance"), "{}", told(&good));
        let mut bad = Findings { held_out: at(0.55), ..good };
        assert!(told(&bad).contains("no better than chance (50)") && told(&bad).contains("try --search"));
        let method = Method::default();
        bad.methods = vec![MethodWorth { method, k: 1, auroc: 0.6, standard_error: 0.1 }];
        assert!(told(&bad).contains("more questions") && !told(&bad).contains("--search"), "{}", told(&bad));
    }

    #[test]
    fn what_is_not_known_is_told_with_its_reason() {
        let few = Findings { held_out: None, ..found(Criterion::QrHead) };
        assert!(told(&few).contains("too few labelled questions") && !told(&few).contains("qrae eval"));
        let unlabelled = Findings { auroc: None, ..few };
        let said = told(&unlabelled);
        assert!(said.contains("qrae eval LABELLED --model m --head-set s/heads.toml"), "{said}");
        let same = Findings { unanimous: true, ..found(Criterion::QrHead) };
        assert!(told(&same).contains("70.0 (60.0 – 80.0) (the same heads"), "{}", told(&same));
        let alike = Findings { held_out: at(0.8), unanimous: false, ..same };
        assert!(told(&alike).contains("but they rank alike"), "{}", told(&alike));
    }

    #[test]
    fn the_bound_is_in_words_and_only_where_it_holds() {
        let qr = told(&found(Criterion::QrHead));
        assert!(qr.contains("2.00 points above the next") && !qr.contains("Hoeffding"), "{qr}");
        assert!(!told(&found(Criterion::Auroc)).contains("points above"));
        let mass = |gap, bound_inputs| {
            told(&Findings { bound: Some(0.2), bound_inputs, gap: Some(gap), ..found(Criterion::AnswerMass) })
        };
        let few = mass(0.1, Some(1500));
        assert!(
            few.contains("30 inputs are too few for a guarantee") && few.contains("1,500 would be"),
            "{few}"
        );
        assert!(mass(0.5, Some(20)).contains("50.00 points above the next, which 30 inputs prove"));
        assert!(mass(0.0, None).contains("either may be the better"));
    }

    #[test]
    fn the_model_is_named_where_it_must_be() {
        assert_eq!(model_flag(DEFAULT_MODEL), "");
        assert_eq!(model_flag("my models/a.gguf"), " --model 'my models/a.gguf'");
    }

    #[test]
    fn numbers_are_percent_and_five_methods_are_shown() {
        let head = "L1H2".parse().unwrap();
        let spread = crate::study::find::HeadSpread { head, value: at(0.8458).unwrap(), top_frequency: 0.5 };
        let mut found = Findings { best: vec![spread], ..found(Criterion::Auroc) };
        let shown = table(&found).to_string();
        assert!(shown.contains("84.6") && shown.contains("74.6 – 94.6") && shown.contains("✓"), "{shown}");
        let all = crate::eval::observation::methods();
        found.methods =
            all.map(|method| MethodWorth { method, k: 3, auroc: 0.75, standard_error: 0.021 }).collect();
        let shown = methods(&found).to_string();
        assert_eq!((shown.matches("75.0").count(), shown.matches("2.1").count()), (5, 5), "{shown}");
        assert!(shown.contains("best of 24 methods"), "{shown}");
    }
}
