//! Criteria on observations made by hand, where it is known which heads must win.

use super::super::tests::{blank, noise, set, set_all};
use super::*;
use crate::score::{Control, Read, Statistic};

const OTHER: Method =
    Method { statistic: Statistic::Sum, control: Control::NullQuery, read: Read::QueryMean };

fn by(criterion: Criterion) -> FindOptions {
    FindOptions {
        criterion,
        k: None,
        method: Method::default(),
        growth: Growth::Ranked,
        search: false,
        seed: 7,
    }
}

fn heads(found: &Findings) -> Vec<String> {
    found.heads.iter().map(ToString::to_string).collect()
}

/// Records of two layers of three heads whose answer gets these masses.
fn answered(masses: &[[f32; 6]]) -> Vec<Record> {
    let of = |(i, mass): (usize, &[f32; 6])| {
        let mut record = blank(&format!("q{i}"), 6, 2, None);
        record.observation.answer_mass = Some(mass.to_vec());
        record
    };
    masses.iter().enumerate().map(of).collect()
}

/// Labelled records of four chunks: `head` ranks the relevant one first under `method`, the others by chance.
fn labelled(n: usize, head: usize, method: Method) -> Vec<Record> {
    let mut next = noise(3);
    let of = |i: usize| {
        let relevant = i % 4;
        let labels: Vec<u32> = (0..4).map(|c| u32::from(c == relevant)).collect();
        let mut record = blank(&format!("q{i}"), 6, 4, Some(&labels));
        for other in 0..6 {
            methods().for_each(|m| set(&mut record, m, other, &[next(), next(), next(), next()]));
        }
        let planted: Vec<f32> = (0..4).map(|c| next() + f32::from(u8::from(c == relevant))).collect();
        set(&mut record, method, head, &planted);
        record
    };
    (0..n).map(of).collect()
}

#[test]
fn the_head_with_most_attention_on_the_answer_comes_first() {
    let rows: Vec<[f32; 6]> = (0..8)
        .map(|i| {
            let low = 0.0625 * (i % 2) as f32;
            [0.125, low, 0.25, low, 0.5 + low, 0.125]
        })
        .collect();
    let mut records = answered(&rows);
    records.push(blank("without an answer", 6, 2, None));
    let found = find(&records, 3, &by(Criterion::AnswerMass)).unwrap();
    assert_eq!(heads(&found), ["L1H1", "L0H2"]);
    assert_eq!((found.inputs, found.method, found.criterion), (8, Method::default(), Criterion::AnswerMass));
    assert_eq!(found.heat, [0.125, 0.03125, 0.25, 0.03125, 0.53125, 0.125]);
    assert_eq!(found.gap, Some(0.125));
    assert!((found.bound.unwrap() - ((2.0 * 6.0_f64 / 0.05).ln() / 16.0).sqrt()).abs() < 1e-12);
    assert_eq!(found.bound_inputs, Some(702), "2 · ln 240 / 0.125² is 701.5");
    // ties in the order of the heads
    let best: Vec<String> = found.best.iter().map(|s| s.head.to_string()).collect();
    assert_eq!(best, ["L1H1", "L0H2", "L0H0", "L1H2", "L0H1", "L1H0"]);
    let first = found.best[0];
    assert!((first.value.mean, first.top_frequency) == (0.53125, 1.0));
    assert!(0.5 <= first.value.low && first.value.low < first.value.high && first.value.high <= 0.5625);
    assert_eq!(found.best[2].value, Interval { mean: 0.125, low: 0.125, high: 0.125 });
    assert_eq!(found.best[2].top_frequency, 0.0);
    // what needs labels is not there
    assert_eq!((found.auroc, found.held_out, &found.curve), (None, None, &None));
    assert_eq!(found.scores, (vec![], vec![]));
    assert_eq!(find(&records, 3, &by(Criterion::AnswerMass)).unwrap(), found, "a seed, a result");
}

#[test]
fn k_heads_are_chosen_and_ties_go_to_the_lower_head() {
    let records = answered(&[[0.1, 0.3, 0.3, 0.2, 0.3, 0.0]; 3]);
    let of = |k| find(&records, 3, &FindOptions { k: Some(k), ..by(Criterion::AnswerMass) });
    assert_eq!(heads(&of(1).unwrap()), ["L0H1"]);
    assert_eq!((of(1).unwrap().gap, of(1).unwrap().bound_inputs), (Some(0.0), None));
    assert_eq!(heads(&of(4).unwrap()), ["L0H1", "L0H2", "L1H1", "L1H0"]);
    let all = of(6).unwrap();
    assert_eq!((heads(&all).len(), all.gap), (6, None));
    for k in [0, 7] {
        let refused = of(k).unwrap_err();
        assert_eq!(refused, FindError::TooMany { k, n_heads: 6 });
        assert!(refused.to_string().contains(&format!("--k {k} heads")), "{refused}");
    }
    assert_eq!(check_k(None, 0), Ok(()));
}

#[test]
fn qrhead_sums_over_relevant_chunks_and_may_be_negative() {
    let mut records = vec![
        blank("a", 2, 3, Some(&[1, 0, 2])),
        blank("b", 2, 2, Some(&[0, 1])),
        blank("alike", 2, 2, Some(&[1, 1])),
        blank("unknown", 2, 2, None),
    ];
    records[0].observation.qr = vec![0.5, 9.0, 0.25, -0.5, 0.0, 0.25];
    records[1].observation.qr = vec![9.0, 0.25, 9.0, -0.25];
    records[2].observation.qr = vec![99.0; 4];
    records[3].observation.qr = vec![99.0; 4];
    let found = find(&records, 2, &FindOptions { k: Some(1), ..by(Criterion::QrHead) }).unwrap();
    assert_eq!((heads(&found), found.inputs), (vec!["L0H0".to_owned()], 2));
    assert_eq!(found.heat, [0.5, -0.25], "(0.75 + 0.25) / 2 and (−0.25 − 0.25) / 2");
    assert_eq!((found.bound, found.bound_inputs), (None, None), "the bound is for values in 0 to 1");
}

#[test]
fn the_head_that_ranks_best_is_chosen() {
    let mut records = labelled(20, 4, Method::default());
    records.push(blank("unknown", 6, 4, None));
    let found = find(&records, 3, &by(Criterion::Auroc)).unwrap();
    assert_eq!((heads(&found), found.inputs, found.method), (vec!["L1H1".to_owned()], 20, Method::default()));
    assert_eq!((found.heat[4], found.best[0].head.to_string().as_str()), (1.0, "L1H1"));
    assert!(found.heat.iter().enumerate().all(|(h, a)| h == 4 || *a < 0.8), "{:?}", found.heat);
    assert_eq!((found.auroc.unwrap().mean, found.held_out.unwrap().mean), (1.0, 1.0));
    let curve = found.curve.as_ref().unwrap();
    assert_eq!((curve.auroc.len(), curve.auroc[0]), (6, 1.0), "at most as many as there are heads");
    let (relevant, others) = &found.scores;
    assert_eq!((relevant.len(), others.len()), (20, 60));
    assert!(relevant.iter().all(|s| *s >= 1.0) && others.iter().all(|s| *s < 1.0));

    let two = find(&records, 3, &FindOptions { k: Some(2), ..by(Criterion::Auroc) }).unwrap();
    assert_eq!(
        (two.heads.len(), two.heads[0], two.curve.as_ref().unwrap().auroc.len()),
        (2, found.heads[0], 2)
    );
    let held_out = two.held_out.unwrap();
    assert!(0.0 <= held_out.low && held_out.low <= held_out.mean && held_out.high <= 1.0, "{held_out:?}");
}

#[test]
fn greedy_growth_prefers_heads_that_complete_each_other() {
    // heads 0 and 1 know the first 20 questions, head 2 the last 10; who does not know says the opposite, faintly
    let of = |i: usize| {
        let mut record = blank(&format!("q{i}"), 6, 2, Some(&[1, 0]));
        let says = |knows| if knows { [1.0, 0.0] } else { [0.0, 0.1] };
        [i < 20, i < 20, i >= 20]
            .into_iter()
            .enumerate()
            .for_each(|(h, knows)| set_all(&mut record, h, &says(knows)));
        record
    };
    let records: Vec<Record> = (0..30).map(of).collect();
    let grown = |growth| {
        let options = FindOptions { k: Some(2), growth, ..by(Criterion::Auroc) };
        let found = find(&records, 3, &options).unwrap();
        (heads(&found), found.auroc.unwrap().mean)
    };
    assert_eq!(grown(Growth::Ranked), (vec!["L0H0".to_owned(), "L0H1".to_owned()], 20.0 / 30.0));
    assert_eq!(grown(Growth::Greedy), (vec!["L0H0".to_owned(), "L0H2".to_owned()], 1.0));
}

#[test]
fn a_search_finds_the_method_and_tells_heads_by_it() {
    let records = labelled(20, 2, OTHER);
    let found = find(&records, 3, &FindOptions { search: true, ..by(Criterion::Auroc) }).unwrap();
    assert_eq!((heads(&found), found.method), (vec!["L0H2".to_owned()], OTHER));
    // the heatmap is of the method that was found, not of the one that was asked before
    assert_eq!((found.heat[2], found.best[0].head.to_string().as_str()), (1.0, "L0H2"));
    assert_eq!(found.best[0].top_frequency, 1.0);
    assert_eq!((found.auroc.unwrap().mean, found.held_out.unwrap().mean), (1.0, 1.0));
    assert_eq!(found.curve.as_ref().unwrap().auroc[0], 1.0);
    // every method is told, the one that won first
    assert_eq!(
        (found.methods.len(), found.methods[0].method, found.methods[0].k),
        (methods().count(), OTHER, 1)
    );
    assert_eq!((found.methods[0].auroc, found.methods[0].standard_error), (1.0, 0.0));
    assert!(found.methods.windows(2).all(|pair| pair[0].auroc >= pair[1].auroc));
    assert!(found.methods[1].auroc < 1.0, "{:?}", found.methods[1]);
    assert!(found.unanimous, "nineteen choose what twenty choose");
    assert!(find(&records, 3, &by(Criterion::Auroc)).unwrap().methods.is_empty(), "nothing was searched");
}

#[test]
fn choices_that_hang_on_one_input_are_not_unanimous() {
    let mut rows = vec![[0.5, 0.4, 0.1, 0.1, 0.1, 0.1]; 4];
    let of = |rows: &[[f32; 6]]| {
        find(&answered(rows), 3, &FindOptions { k: Some(1), ..by(Criterion::AnswerMass) }).unwrap()
    };
    assert!(of(&rows).unanimous);
    assert!(!of(&rows[..1]).unanimous, "one input has no others");
    rows[2][1] = 0.85;
    let found = of(&rows);
    assert_eq!(heads(&found), ["L0H1"]);
    assert!(!found.unanimous, "without the third L0H0 wins");
    // the order they are chosen in does not count
    let two = FindOptions { k: Some(2), ..by(Criterion::AnswerMass) };
    assert!(find(&answered(&rows), 3, &two).unwrap().unanimous);
}

#[test]
fn labels_of_chance_are_worth_nothing_held_out() {
    let mut records = labelled(40, 0, OTHER);
    for (i, record) in records.iter_mut().enumerate() {
        let mut next = noise(100 + i as u32);
        set_all(record, 0, &[next(), next(), next(), next()]);
    }
    let found = find(&records, 3, &FindOptions { search: true, ..by(Criterion::Auroc) }).unwrap();
    let (seen, held_out) = (found.auroc.unwrap(), found.held_out.unwrap());
    assert!(seen.mean > held_out.mean + 0.05, "{seen:?} {held_out:?}");
    assert!((held_out.mean - 0.5).abs() < 0.15, "{held_out:?}");
}

/// AUROC of each record by the heads that are best on the others, from the definition.
fn leave_one_out(records: &[Record], k: usize) -> Vec<f64> {
    let of = |left: usize| {
        let mean = |head: usize| {
            let others = records.iter().enumerate().filter(|(i, _)| *i != left);
            others.map(|(_, r)| f64::from(r.observation.answer_mass.as_ref().unwrap()[head])).sum::<f64>()
        };
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by(|&a, &b| mean(b).total_cmp(&mean(a)));
        let judged = records[left].judged(Method::default()).unwrap();
        auroc(&judged.set_score(&order[..k]).unwrap(), judged.labels()).unwrap()
    };
    (0..records.len()).map(of).collect()
}

#[test]
fn held_out_inputs_have_no_part_in_the_choice() {
    for seed in 0..20 {
        let mut next = noise(seed);
        let mut records = labelled(6, 0, OTHER);
        for record in &mut records {
            record.observation.answer_mass = Some((0..6).map(|_| next()).collect());
        }
        for k in 1..=3 {
            let found = find(&records, 3, &FindOptions { k: Some(k), ..by(Criterion::AnswerMass) }).unwrap();
            let want = leave_one_out(&records, k);
            let mean = want.iter().sum::<f64>() / want.len() as f64;
            assert!((found.held_out.unwrap().mean - mean).abs() < 1e-12, "seed {seed}, k {k}: {want:?}");
        }
    }
    // one input decides, and is not believed about itself
    let masses: [[f32; 6]; 3] =
        [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.3, 0.0, 0.0, 0.0, 0.0], [0.0, 0.3, 0.0, 0.0, 0.0, 0.0]];
    let mut records = answered(&masses);
    for record in &mut records {
        record.labels = Some(vec![1, 0]);
        set_all(record, 0, &[1.0, 0.0]); // right
        set_all(record, 1, &[0.0, 1.0]); // wrong
    }
    let found = find(&records, 3, &FindOptions { k: Some(1), ..by(Criterion::AnswerMass) }).unwrap();
    assert_eq!((heads(&found), found.auroc.unwrap().mean), (vec!["L0H0".to_owned()], 1.0));
    assert!((found.held_out.unwrap().mean - 2.0 / 3.0).abs() < 1e-12, "{:?}", found.held_out);
    // a single input has no others
    records.truncate(1);
    let one = find(&records, 3, &FindOptions { k: Some(1), ..by(Criterion::AnswerMass) }).unwrap();
    assert_eq!((one.held_out, one.auroc.unwrap().mean, one.split_half), (None, 1.0, None));
}

#[test]
fn what_inputs_lack_is_told_with_what_to_do() {
    let alike = blank("alike", 6, 2, Some(&[1, 1]));
    let none = blank("none", 6, 2, Some(&[0, 0]));
    let unknown = blank("unknown", 6, 2, None);
    let records = [alike, none, unknown];
    for (criterion, lacks, advice) in [
        (Criterion::AnswerMass, "its answer in a chunk", "--criterion auroc"),
        (Criterion::QrHead, "both relevant and other chunks", "--criterion answer_mass"),
        (Criterion::Auroc, "both relevant and other chunks", "--criterion answer_mass"),
    ] {
        for records in [&records[..], &[]] {
            let error = find(records, 3, &by(criterion)).unwrap_err();
            assert_eq!(error, FindError::Nothing { inputs: records.len(), lacks, criterion });
            let told = error.to_string();
            assert!(
                told.contains(advice) && told.contains(&format!("criterion {criterion} needs")),
                "{told}"
            );
        }
    }
    let few = labelled(4, 0, OTHER);
    for options in [by(Criterion::Auroc), FindOptions { k: Some(1), ..by(Criterion::Auroc) }] {
        let error = find(&few, 3, &options).unwrap_err();
        let needed = if options.k.is_some() { 5 } else { 7 };
        assert_eq!(error, FindError::TooFew { usable: 4, needed });
        let told = error.to_string();
        assert!(
            told.contains(&format!("add {}", needed - 4)) && told.contains("--criterion qrhead"),
            "{told}"
        );
    }
    let mut wild = labelled(8, 0, OTHER);
    wild[3].labels = Some(vec![99, 0, 0, 0]);
    let error = find(&wild, 3, &by(Criterion::Auroc)).unwrap_err();
    assert!(matches!(error, FindError::Judged(JudgedError::Label { label: 99, .. })), "{error}");
}

#[test]
fn criteria_have_their_names() {
    for (name, criterion) in
        [("answer_mass", Criterion::AnswerMass), ("qrhead", Criterion::QrHead), ("auroc", Criterion::Auroc)]
    {
        assert_eq!(name.parse::<Criterion>().unwrap(), criterion);
        assert_eq!(criterion.to_string(), name);
    }
    let told = "mass".parse::<Criterion>().unwrap_err().to_string();
    assert!(told.contains("answer_mass") && told.contains("auroc"), "{told}");
}
