//! Tables of questions made by hand, where every row's numbers are known.

use super::super::tests::{blank, noise, set_all};
use super::*;

/// Four chunks, the relevant one at `relevant`; two layers of two heads. L0H1 ranks it first, L1H0 last, the others give
/// all chunks the same; BM25 ranks it second.
fn question(number: usize, relevant: usize) -> TestQuestion {
    let labels: Vec<u32> = (0..4).map(|c| u32::from(c == relevant)).collect();
    let scores = |of: fn(bool) -> f32| (0..4).map(|c| of(c == relevant)).collect::<Vec<f32>>();
    let mut record = blank(&format!("q{number}"), 4, 4, Some(&labels));
    set_all(&mut record, 1, &scores(|is| if is { 0.9 } else { 0.1 }));
    set_all(&mut record, 2, &scores(|is| if is { 0.1 } else { 0.9 }));
    record.observation.icr = scores(|is| if is { 0.5 } else { -0.5 });
    record.observation.qr = (0..4).flat_map(|_| record.observation.icr.clone()).collect();
    let mut bm25 = vec![0.0; 4];
    bm25[relevant] = 1.0;
    bm25[(relevant + 1) % 4] = 2.0;
    TestQuestion { record, bm25 }
}

/// Two questions with the relevant chunk first, one each with it second, third, fourth.
fn questions() -> Vec<TestQuestion> {
    [0, 0, 1, 2, 3].iter().enumerate().map(|(i, &relevant)| question(i, relevant)).collect()
}

fn options(head: &str) -> JudgeOptions {
    let set = Some(("mine@1".to_owned(), vec![head.parse().unwrap()], Method::default()));
    JudgeOptions { set, n_heads: 2, k: 2, seed: 1 }
}

fn row<'a>(judgement: &'a Judgement, name: &str) -> &'a Row {
    let found = judgement.rows.iter().find(|row| row.name.starts_with(name));
    found.unwrap_or_else(|| panic!("no row {name} in {:?}", names(judgement)))
}

fn names(judgement: &Judgement) -> Vec<&str> {
    judgement.rows.iter().map(|row| row.name.as_str()).collect()
}

fn heads(row: &Row) -> String {
    row.heads.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// AUROC, recall, nDCG, MRR.
fn means(row: &Row) -> [f64; 4] {
    let m = row.metrics;
    [m.auroc, m.recall, m.ndcg, m.mrr].map(|i| i.mean)
}

fn close(got: [f64; 4], want: [f64; 4]) {
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?} is not {want:?}");
}

#[test]
fn every_row_is_what_its_scores_say() {
    let judgement = judge(&questions(), &[], &options("L0H1")).unwrap();
    assert_eq!(
        names(&judgement),
        [
            "mine@1, last/query_free/entropy",
            "random heads, last/query_free/entropy",
            "in-context reranking (ICR)",
            "BM25",
            "retrieval order",
            "oracle: the labels"
        ]
    );
    assert_eq!((judgement.questions, judgement.calibration, judgement.k), (5, 0, 2));
    assert_eq!(judgement.left_out, []);
    for perfect in ["mine@1", "in-context", "oracle"] {
        close(means(row(&judgement, perfect)), [1.0; 4]);
        let auroc = row(&judgement, perfect).metrics.auroc;
        assert_eq!((auroc.low, auroc.high), (1.0, 1.0));
    }
    assert_eq!(heads(row(&judgement, "mine@1")), "L0H1");
    assert_eq!(row(&judgement, "in-context").note, "all 4");
    let groups: Vec<Group> = judgement.rows.iter().map(|row| row.group).collect();
    assert_eq!(groups[..3], [Group::Set, Group::Random, Group::Baseline]);
    // second of four, always
    close(means(row(&judgement, "BM25")), [2.0 / 3.0, 1.0, 1.0 / 3_f64.log2(), 0.5]);
    // at 1, 1, 2, 3, 4
    let order = [
        (1.0 + 1.0 + 2.0 / 3.0 + 1.0 / 3.0) / 5.0,
        3.0 / 5.0,
        (2.0 + 1.0 / 3_f64.log2()) / 5.0,
        (2.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0) / 5.0,
    ];
    close(means(row(&judgement, "retrieval order")), order);
    let interval = row(&judgement, "retrieval order").metrics.auroc;
    assert!(interval.low < interval.mean && interval.mean < interval.high, "{interval:?}");

    let wrong = judge(&questions(), &[], &options("L1H0")).unwrap();
    assert_eq!(row(&wrong, "mine@1").metrics.auroc.mean, 0.0);
    // all alike: half of the pairs, and ranks are those of retrieval
    let alike = judge(&questions(), &[], &options("L0H0")).unwrap();
    close(means(row(&alike, "mine@1")), [0.5, order[1], order[2], order[3]]);
}

#[test]
fn the_difference_to_bm25_is_that_of_the_same_questions() {
    let over = |head| judge(&questions(), &[], &options(head)).unwrap().over_bm25.unwrap();
    let better = over("L0H1");
    assert!((better.mean - 1.0 / 3.0).abs() < 1e-12);
    assert!((better.high - better.low).abs() < 1e-12, "the same on every question: {better:?}");
    assert!((over("L1H0").mean + 2.0 / 3.0).abs() < 1e-12);
    let without = judge(&questions(), &[], &JudgeOptions { set: None, ..options("L0H1") }).unwrap();
    assert_eq!((without.over_bm25, without.length_bias, without.lengths.len()), (None, None, 0));
    assert_eq!(
        names(&without)[0],
        "in-context reranking (ICR)",
        "no set, no row of it and none of random ones"
    );
}

#[test]
fn random_heads_are_a_mean_over_sets_with_their_spread() {
    // of four heads one has 1, one 0, two a half
    let judgement = judge(&questions(), &[], &options("L0H1")).unwrap();
    let random = row(&judgement, "random heads");
    assert_eq!((random.note.as_str(), random.group, random.heads.len()), ("20 sets of 1", Group::Random, 0));
    let counts = |head: usize| (0..20).filter(|&d| permutation(4, 1, d)[0] == head).count() as f64;
    let (right, wrong) = (counts(1), counts(2));
    assert!(right > 0.0 && wrong > 0.0, "a seed that shows something");
    let mean = (right + (20.0 - right - wrong) / 2.0) / 20.0;
    let auroc = random.metrics.auroc;
    assert!((auroc.mean - mean).abs() < 1e-12, "{auroc:?}");
    assert!(right >= 2.0 && wrong >= 2.0, "the outermost one of twenty may be left out");
    assert_eq!((auroc.low, auroc.high), (0.0, 1.0), "never below 0 or above 1");
    assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0], 0.5), 1.5);
    assert_eq!([quantile(&[4.0], 0.05), quantile(&[0.0, 10.0], 0.05)], [4.0, 0.5]);

    let mut alike = questions();
    for test in &mut alike {
        (0..4).for_each(|head| set_all(&mut test.record, head, &[0.4, 0.3, 0.2, 0.1]));
    }
    let judgement = judge(&alike, &[], &options("L0H1")).unwrap();
    let auroc = row(&judgement, "random heads").metrics.auroc;
    assert!((auroc.high - auroc.low).abs() < 1e-12, "heads alike have no spread: {auroc:?}");
}

fn calibration(n: usize, answers: bool) -> Vec<Record> {
    let mut next = noise(5);
    let of = |i: usize| {
        let mut record = question(100 + i, i % 4).record;
        for head in [0, 3] {
            set_all(&mut record, head, &[next(), next(), next(), next()]);
        }
        record.observation.qr[8..12].fill(9.0); // L1H0: a bad head that QRHead falls for
        record.observation.answer_mass = answers.then(|| vec![0.1, 0.2, 0.3, 0.9]);
        record
    };
    (0..n).map(of).collect()
}

#[test]
fn heads_are_chosen_on_the_calibration_records_only() {
    let judgement = judge(&questions(), &calibration(12, true), &options("L0H1")).unwrap();
    assert_eq!((judgement.questions, judgement.calibration), (5, 12));
    assert_eq!(judgement.left_out, []);
    let paper = row(&judgement, "paper: by answer mass, last/query_free/entropy");
    assert_eq!(heads(paper), "L1H1 L1H0", "as the answers say, however bad");
    assert!(heads(row(&judgement, "by QRHead's score, ")).starts_with("L1H0"));
    let searched = row(&judgement, "search, ");
    assert_eq!((heads(searched), searched.metrics.auroc.mean), ("L0H1".to_owned(), 1.0));
    let by_method: Vec<&Row> = judgement.rows.iter().filter(|r| r.name.starts_with("by AUROC, ")).collect();
    let want: Vec<String> = methods().map(|m| format!("by AUROC, {m}")).collect();
    assert_eq!(by_method.iter().map(|r| r.name.clone()).collect::<Vec<_>>(), want, "one row per method");
    assert!(by_method.iter().all(|r| heads(r) == "L0H1" && r.metrics.auroc.mean == 1.0));
    assert!(by_method.iter().all(|r| r.group == Group::Method) && searched.group == Group::Criterion);
    let qr = row(&judgement, "QRHead");
    assert_eq!((qr.note.as_str(), qr.heads.len()), ("top 4", 4), "sixteen, or all there are");
    assert_eq!(judgement.rows.len(), 1 + 3 + want.len() + 6);
    let again = judge(&questions(), &calibration(12, true), &options("L0H1")).unwrap();
    assert_eq!(again, judgement, "a seed, a table");
}

#[test]
fn rows_that_the_calibration_cannot_give_are_told() {
    let no_answers = judge(&questions(), &calibration(12, false), &options("L0H1")).unwrap();
    let [(name, why)] = &no_answers.left_out[..] else { panic!("{:?}", no_answers.left_out) };
    assert!(name.starts_with("paper") && why.contains("no input (of 12)"), "{name}: {why}");
    assert!(!names(&no_answers).iter().any(|n| n.starts_with("paper")));

    let few = judge(&questions(), &calibration(3, true), &options("L0H1")).unwrap();
    let left: Vec<&str> = few.left_out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, ["search", "by AUROC"], "each once");
    assert!(few.left_out[1].1.contains("3 different questions"), "{:?}", few.left_out);
    row(&few, "paper");

    let mut unlabelled = calibration(12, true);
    unlabelled.iter_mut().for_each(|r| r.labels = None);
    let unlabelled = judge(&questions(), &unlabelled, &options("L0H1")).unwrap();
    row(&unlabelled, "paper");
    assert!(!names(&unlabelled).contains(&"QRHead"));
    assert_eq!(unlabelled.left_out.len(), 3, "{:?}", unlabelled.left_out);
}

#[test]
fn without_questions_there_is_nothing_to_judge() {
    assert_eq!(judge(&[], &calibration(12, true), &options("L0H1")), Err(JudgeError::NoQuestions));
    let beyond = judge(&questions(), &[], &options("L2H0")).unwrap_err();
    assert!(
        matches!(beyond, JudgeError::Judged(JudgedError::NoSuchHead { head: 4, n_heads: 4 })),
        "{beyond}"
    );
}

#[test]
fn length_bias_has_the_sign_of_the_correlation_among_other_chunks() {
    let with = |scores: [f32; 4], relevant: usize| {
        let mut test = question(0, relevant);
        test.record.observation.chunk_lens = vec![10, 20, 30, 40];
        set_all(&mut test.record, 0, &scores);
        let judgement = judge(&[test], &[], &options("L0H0")).unwrap();
        assert_eq!(judgement.lengths[2], (30, f64::from(scores[2]), relevant == 2));
        judgement.length_bias
    };
    // the relevant chunk would say the opposite, and is not asked
    assert_eq!(with([0.1, 0.2, 0.3, 0.0], 3), Some(1.0));
    assert_eq!(with([0.3, 0.2, 0.1, 0.9], 3), Some(-1.0));
    assert_eq!(with([0.5; 4], 3), None, "scores alike say nothing");
    let mut pair = vec![question(0, 3), question(1, 3)];
    for (test, scores) in pair.iter_mut().zip([[0.1, 0.2, 0.3, 0.0], [0.1, 0.3, 0.2, 0.0]]) {
        test.record.observation.chunk_lens = vec![10, 20, 30, 40];
        set_all(&mut test.record, 0, &scores);
    }
    let mean = judge(&pair, &[], &options("L0H0")).unwrap().length_bias.unwrap();
    assert!((mean - 0.75).abs() < 1e-12, "of 1 and ½: {mean}");
}

#[test]
fn orders_are_compared_by_auroc_and_by_what_comes_first() {
    let labels = vec![vec![1, 0, 0], vec![0, 0, 1]];
    let right = vec![vec![0.9, 0.2, 0.1], vec![0.1, 0.2, 0.9]];
    let one = order_sensitivity(&[right.clone(), right.clone(), right.clone()], &labels, 2).unwrap();
    assert_eq!(one, OrderSensitivity { orders: 3, auroc: 1.0, deviation: 0.0, overlap: 1.0, averaged: 1.0 });
    // the second order turns the first question around: AUROC ½ in place of 1, and of its first two chunks one stays
    let other = vec![vec![0.1, 0.2, 0.9], vec![0.1, 0.2, 0.9]];
    let two = order_sensitivity(&[right.clone(), other], &labels, 2).unwrap();
    assert_eq!((two.orders, two.auroc, two.overlap), (2, 0.75, 0.75));
    assert_eq!(
        two.averaged,
        (0.75 + 1.0) / 2.0,
        "summed, the first question's relevant chunk ties with another"
    );
    assert!((two.deviation - 0.125_f64.sqrt()).abs() < 1e-12, "{two:?}");
    // more than there are
    assert_eq!(order_sensitivity(&[right.clone(), right.clone()], &labels, 9).unwrap().overlap, 1.0);
    let alone = order_sensitivity(&[right], &labels, 2).unwrap();
    assert_eq!((alone.deviation, alone.overlap), (0.0, 1.0));
    assert!(order_sensitivity(&[vec![vec![0.0; 2]; 2]], &labels, 2).is_err());
}
