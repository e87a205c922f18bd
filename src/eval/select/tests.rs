//! What choosing heads promises: planted heads are found, fast is equal to slow, and nothing measured on a question
//! was chosen with it.

use proptest::prelude::*;

use super::{validate::splits, *};
use crate::eval::{draw::Draw, metrics};

const CHUNKS: usize = 10;

/// Questions of ten chunks, two relevant; heads give noise of variance 1, and `planted` heads add their strength to
/// relevant chunks.
fn questions(n: usize, n_heads: usize, planted: &[(usize, f64)], seed: u64) -> Vec<Judged> {
    (0..n).map(|i| question(n_heads, planted, seed, i as u64)).collect()
}

/// The labels depend on `i` alone, so that several methods can have the same questions.
fn question(n_heads: usize, planted: &[(usize, f64)], seed: u64, i: u64) -> Judged {
    let mut labels = vec![0; CHUNKS];
    Draw::new(i, 5).permutation(CHUNKS)[..2].iter().for_each(|&chunk| labels[chunk] = 1);
    let mut draw = Draw::new(seed, i);
    let mut even = || draw.below(1 << 24) as f64 / f64::from(1 << 24);
    let mut scores: Vec<f64> =
        (0..n_heads * CHUNKS).map(|_| (0..12).map(|_| even()).sum::<f64>() - 6.0).collect();
    for &(head, strength) in planted {
        for chunk in 0..CHUNKS {
            scores[head * CHUNKS + chunk] += strength * f64::from(labels[chunk]);
        }
    }
    Judged::new(n_heads, scores.into_iter().map(|s| s as f32).collect(), labels).unwrap()
}

/// Macro AUROC of a head set, straight from the definitions.
fn set_auroc(questions: &[Judged], heads: &[usize]) -> f64 {
    let one = |q: &Judged| metrics::auroc(&q.set_score(heads).unwrap(), q.labels());
    metrics::Average::of(questions.iter().map(one)).mean.unwrap()
}

fn greedy(questions: &[Judged], pool: usize, k_max: usize) -> Result<Vec<Step>, SelectError> {
    grow(questions, &Plan { growth: Growth::Greedy, pool, k_max, ..Plan::default() })
}

/// Forward selection with nothing kept from step to step, over all heads.
fn forward_twin(questions: &[Judged], k_max: usize) -> Vec<Step> {
    let n_heads = questions[0].n_heads();
    let mut chosen: Vec<usize> = Vec::new();
    let mut steps = Vec::new();
    while steps.len() < k_max.min(n_heads) {
        let with = |head: usize| set_auroc(questions, &[chosen.as_slice(), &[head]].concat());
        let mut best = None;
        for head in (0..n_heads).filter(|head| !chosen.contains(head)) {
            let auroc = with(head);
            if best.is_none_or(|b: Step| auroc > b.auroc) {
                best = Some(Step { head, auroc });
            }
        }
        chosen.push(best.unwrap().head);
        steps.push(best.unwrap());
    }
    steps
}

fn pick(questions: &[Judged], part: &[usize]) -> Vec<Judged> {
    part.iter().map(|&q| questions[q].clone()).collect()
}

fn small() -> Plan {
    Plan { growth: Growth::Greedy, k_max: 4, pool: 20, folds: 4, repeats: 2, outer_repeats: 2, seed: 11 }
}

#[test]
fn ranked_growth_takes_the_heads_that_are_best_alone() {
    let questions = questions(40, 30, &[(21, 1.0), (7, 1.2), (3, 0.8)], 5);
    let plan = Plan { growth: Growth::Ranked, k_max: 6, ..small() };
    let steps = grow(&questions, &plan).unwrap();
    let alone = head_aurocs(&questions).unwrap();
    let heads: Vec<usize> = steps.iter().map(|s| s.head).collect();
    assert!(heads.is_sorted_by(|&a, &b| alone[a] > alone[b] || (alone[a] == alone[b] && a < b)), "{heads:?}");
    assert!((0..30).filter(|h| !heads.contains(h)).all(|h| alone[h] <= alone[heads[5]]));
    for (i, step) in steps.iter().enumerate() {
        assert!((step.auroc - set_auroc(&questions, &heads[..=i])).abs() < 1e-12, "{i}");
    }
    assert_eq!(grow(&questions, &Plan { k_max: 99, ..plan }).unwrap().len(), 30);
    let curve = cross_validate(&questions, &plan).unwrap();
    let found = search(&[("m", questions)], &plan).unwrap();
    assert_eq!((curve.auroc.len(), found.choice.heads()), (6, heads[..found.choice.steps.len()].to_vec()));
}

#[test]
fn planted_heads_are_found_first_among_noise() {
    let found = questions(60, 100, &[(41, 1.5), (7, 1.2)], 1);
    let alone = head_aurocs(&found).unwrap();
    assert!(alone[41] > 0.8 && alone[7] > 0.75, "{} {}", alone[41], alone[7]);
    assert!((0..100).filter(|h| ![41, 7].contains(h)).all(|h| (alone[h] - 0.5).abs() < 0.15));
    let steps = greedy(&found, 64, 3).unwrap();
    assert_eq!([steps[0].head, steps[1].head], [41, 7]);
    assert_eq!(steps[0].auroc, alone[41]);
    assert!(steps[1].auroc > steps[0].auroc + 0.03, "two heads average noise out: {steps:?}");
}

#[test]
fn a_head_that_complements_beats_a_better_one_that_repeats() {
    // head 0 knows the first 30 questions and head 2 the last 20; head 1 is head 0 again, but for one question more
    let made = |i: u64| {
        let strength = |known: bool| if known { 6.0 } else { 0.0 };
        let q = question(3, &[(0, strength(i < 30)), (2, strength(i >= 30))], 3, i);
        let mut scores = [q.head(0), q.head(0), q.head(2)].concat();
        if i == 30 {
            scores[CHUNKS..2 * CHUNKS].iter_mut().zip(q.labels()).for_each(|(s, &l)| *s += 20.0 * l as f32);
        }
        Judged::new(3, scores, q.labels().to_vec()).unwrap()
    };
    let questions: Vec<Judged> = (0..50).map(made).collect();
    let alone = head_aurocs(&questions).unwrap();
    assert!(alone[1] > alone[0] && alone[0] > alone[2]);
    let steps = greedy(&questions, 3, 2).unwrap();
    assert_eq!([steps[0].head, steps[1].head], [1, 2]);
    assert_eq!(greedy(&questions, 2, 9).unwrap().len(), 2, "a pool of two gives two steps");
    assert!(greedy(&questions, 2, 9).unwrap().iter().all(|step| step.head < 2));
}

/// Questions with few distinct scores, so that ties are common, and labels of every kind.
fn any_questions() -> impl Strategy<Value = Vec<Judged>> {
    (1_usize..6).prop_flat_map(|n_heads| {
        let chunk = (prop::collection::vec(-2_i8..3, n_heads), 0_u32..3);
        let question = prop::collection::vec(chunk, 1..7).prop_map(move |chunks| {
            let scores = (0..n_heads).flat_map(|h| chunks.iter().map(move |c| f32::from(c.0[h]) * 0.1));
            Judged::new(n_heads, scores.collect(), chunks.iter().map(|c| c.1).collect()).unwrap()
        });
        prop::collection::vec(question, 1..6)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn forward_selection_is_that_of_its_slow_twin(questions in any_questions(), k_max in 1_usize..7) {
        match greedy(&questions, 99, k_max) {
            Ok(steps) => prop_assert_eq!(steps, forward_twin(&questions, k_max)),
            Err(error) => {
                prop_assert_eq!(error, SelectError::NothingToTell { questions: questions.len() });
                prop_assert!(questions.iter().all(|q| metrics::auroc(&vec![0.0; q.labels().len()], q.labels()).is_none()));
            }
        }
    }
}

#[test]
fn cuts_hold_out_every_question_once_per_repeat() {
    let part = [2, 3, 5, 7, 11, 13, 17];
    let cut = splits(&part, 3, 4, Draw::new(1, 0));
    assert_eq!(cut.len(), 12);
    for repeat in cut.chunks(3) {
        let mut held: Vec<usize> = repeat.iter().flat_map(|s| s.held_out.clone()).collect();
        held.sort_unstable();
        assert_eq!(held, part);
        for split in repeat {
            assert!((2..=3).contains(&split.held_out.len()));
            assert!(split.held_out.is_sorted() && split.training.is_sorted());
            assert!(split.training.iter().all(|q| !split.held_out.contains(q)));
            assert_eq!(split.training.len() + split.held_out.len(), 7);
        }
    }
    let held = |i: usize| (0..3).map(|f| cut[3 * i + f].held_out.clone()).collect::<Vec<_>>();
    assert!((1..4).any(|i| held(i) != held(0)), "repeats cut differently");
}

#[test]
fn cross_validation_is_that_of_its_slow_twin() {
    let questions = questions(23, 12, &[(3, 0.8), (5, 0.6)], 4);
    let plan = Plan { pool: 12, ..small() };
    let mut held = vec![Vec::new(); 23];
    for split in splits(&(0..23).collect::<Vec<_>>(), plan.folds, plan.repeats, Draw::new(plan.seed, 0)) {
        let steps = forward_twin(&pick(&questions, &split.training), plan.k_max);
        let heads: Vec<usize> = steps.iter().map(|s| s.head).collect();
        for q in split.held_out {
            held[q].push((1..=4).map(|k| set_auroc(&questions[q..=q], &heads[..k])).collect::<Vec<_>>());
        }
    }
    let curve = cross_validate(&questions, &plan).unwrap();
    let error = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / 23.0;
        (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 22.0 / 23.0).sqrt()
    };
    let of = |k: usize| held.iter().map(|h| (h[0][k] + h[1][k]) / 2.0).collect::<Vec<f64>>();
    let best = (0..4).rfind(|&i| curve.auroc.iter().all(|&a| a <= curve.auroc[i])).unwrap();
    for k in 0..4 {
        assert!((curve.auroc[k] - of(k).iter().sum::<f64>() / 23.0).abs() < 1e-12);
        assert!((curve.standard_error[k] - error(&of(k))).abs() < 1e-12);
        let shortfall: Vec<f64> = of(best).iter().zip(of(k)).map(|(b, a)| b - a).collect();
        assert!((curve.shortfall_error[k] - error(&shortfall)).abs() < 1e-12);
    }
}

#[test]
fn the_smallest_set_within_one_standard_error_is_taken() {
    let k = |auroc: &[f64], shortfall_error: &[f64]| {
        let (auroc, shortfall_error) = (auroc.to_vec(), shortfall_error.to_vec());
        // as large as can be: it has no say
        Curve { standard_error: vec![1.0; auroc.len()], auroc, shortfall_error }.k()
    };
    assert_eq!(k(&[0.70, 0.78, 0.80, 0.79], &[0.09, 0.03, 0.0, 0.09]), 2);
    assert_eq!(k(&[0.70, 0.78, 0.80, 0.79], &[0.09, 0.01, 0.0, 0.09]), 3);
    assert_eq!(k(&[0.70, 0.78, 0.80, 0.79], &[0.11, 0.0, 0.0, 0.0]), 1);
    assert_eq!(k(&[0.75, 0.75], &[0.0, 0.0]), 1);
    assert_eq!(k(&[0.6, 0.7], &[0.05, 0.0]), 2);
}

#[test]
fn noise_looks_good_until_it_is_measured_honestly() {
    let mut sums = [0.0; 3];
    for seed in 0..5 {
        let method = |m: u64| (m, questions(40, 80, &[], 1_000 * seed + m));
        let methods: Vec<(u64, Vec<Judged>)> = (1..5).map(method).collect();
        let found =
            search(&methods, &Plan { repeats: 2, outer_repeats: 2, seed, ..Plan::default() }).unwrap();
        let best = methods.iter().map(|m| greedy(&m.1, 64, 8).unwrap()[7].auroc).fold(0.0, f64::max);
        assert!(best > 0.68, "seed {seed}: the best set of noise reaches {best} where it was chosen");
        let nested: Vec<f64> = found.nested.per_question.iter().map(|a| a.unwrap()).collect();
        assert!((nested.iter().sum::<f64>() / 40.0 - found.nested.auroc).abs() < 1e-12);
        sums.iter_mut()
            .zip([best, found.cross_validated, found.nested.auroc])
            .for_each(|(s, v)| *s += v / 5.0);
    }
    let [best, cross_validated, nested] = sums;
    // 200 questions in all: the standard error of a fair estimate is about 0.02
    assert!((nested - 0.5).abs() < 0.05, "nested {nested}");
    assert!(best > 0.7 && best > nested + 0.17, "best {best}, nested {nested}");
    assert!(cross_validated > nested + 0.01, "the best of four methods is flattered: {cross_validated}");
}

#[test]
fn the_nested_estimate_is_what_fresh_questions_confirm() {
    let weak = [(3, 0.9), (8, 0.8), (20, 0.7)];
    let methods = [
        ("noise", questions(60, 40, &[], 21)),
        ("signal", questions(60, 40, &weak, 22)),
        ("faint", questions(60, 40, &weak.map(|(h, s)| (h, s / 4.0)), 23)),
    ];
    let found = search(&methods, &Plan::default()).unwrap();
    assert_eq!(found.choice.method, "signal");
    assert!(weak.iter().any(|w| w.0 == found.choice.heads()[0]));
    assert_eq!(found.nested.choices.len(), 15);
    assert_eq!(found.curves.len(), 3);
    let k = found.choice.steps.len();
    assert_eq!((k, found.cross_validated), (found.curves[1].k(), found.curves[1].auroc[k - 1]));
    let fresh = set_auroc(&questions(1_500, 40, &weak, 99), &found.choice.heads());
    assert!((found.nested.auroc - fresh).abs() < 0.07, "nested {} fresh {fresh}", found.nested.auroc);
}

#[test]
fn what_is_held_out_has_no_say() {
    let made = |flip: &[usize]| {
        let turned = |(i, q): (usize, Judged)| {
            let scores =
                (0..10).flat_map(|h| q.head(h).iter().map(|s| if flip.contains(&i) { -s } else { *s }));
            Judged::new(10, scores.collect(), q.labels().to_vec()).unwrap()
        };
        [30, 31].map(|m| (m, questions(24, 10, &[(4, 2.0)], m).into_iter().enumerate().map(turned).collect()))
    };
    let plan = small();
    let outer = splits(&(0..24).collect::<Vec<_>>(), plan.folds, plan.outer_repeats, Draw::new(plan.seed, 1));
    let plain = search(&made(&[]), &plan).unwrap().nested;
    let first = &outer[0].held_out;
    let turned = search(&made(first), &plan).unwrap().nested;
    assert_eq!(turned.choices[0], plain.choices[0]);
    assert_ne!(turned.choices[1..4], plain.choices[1..4], "the other folds do choose with them");
    let mean = |n: &super::Nested<u64>| first.iter().map(|&q| n.per_question[q].unwrap()).sum::<f64>();
    assert!(mean(&turned) < mean(&plain), "and they are what fold 0 is measured on");
}

#[test]
fn the_order_of_chunks_does_not_matter() {
    let turned = |q: &Judged, i: usize| {
        let order = Draw::new(77, i as u64).permutation(CHUNKS);
        let scores = (0..q.n_heads()).flat_map(|h| order.iter().map(move |&c| q.head(h)[c]));
        Judged::new(q.n_heads(), scores.collect(), order.iter().map(|&c| q.labels()[c]).collect()).unwrap()
    };
    let plain = questions(20, 15, &[(2, 1.0)], 6);
    let other: Vec<Judged> = plain.iter().enumerate().map(|(i, q)| turned(q, i)).collect();
    assert_ne!(plain, other);
    assert_eq!(head_aurocs(&plain), head_aurocs(&other));
    assert_eq!(greedy(&plain, 9, 5), greedy(&other, 9, 5));
    assert_eq!(search(&[((), plain)], &small()), search(&[((), other)], &small()));
}

#[test]
fn questions_of_one_class_change_nothing_but_are_none() {
    let plain = questions(20, 8, &[(2, 1.0)], 7);
    let mut more = plain.clone();
    let dull = |label| Judged::new(8, questions(1, 8, &[], 1)[0].head(0).repeat(8), vec![label; 10]).unwrap();
    more.insert(0, dull(1));
    more.insert(9, dull(0));
    more.push(Judged::new(8, vec![], vec![]).unwrap());
    assert_eq!(cross_validate(&plain, &small()), cross_validate(&more, &small()));
    let (a, b) = (search(&[((), plain)], &small()).unwrap(), search(&[((), more)], &small()).unwrap());
    assert_eq!((a.choice, a.curves, a.nested.choices), (b.choice, b.curves, b.nested.choices));
    let mut b = b.nested.per_question;
    assert_eq!([b.pop().unwrap(), b.remove(9), b.remove(0)], [None; 3]);
    assert_eq!(a.nested.per_question, b);
}

#[test]
fn seeds_decide_and_threads_do_not() {
    let methods = [(0, questions(25, 30, &[(3, 0.4)], 8)), (1, questions(25, 30, &[(4, 0.4)], 9))];
    let of = |seed| search(&methods, &Plan { seed, ..small() }).unwrap();
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
    assert_eq!(pool(1).install(|| of(1)), pool(4).install(|| of(1)));
    assert_ne!(of(1).nested, of(2).nested);
    assert_ne!(of(1).curves, of(2).curves);
}

#[test]
fn what_cannot_be_chosen_from_is_refused() {
    let good = questions(10, 4, &[], 1);
    let ragged = vec![good[0].clone(), questions(1, 3, &[], 1)[0].clone()];
    let heads = SelectError::Heads { question: 1, n_heads: 3, expected: 4 };
    assert_eq!(head_aurocs(&ragged), Err(heads.clone()));
    assert_eq!(greedy(&ragged, 2, 2), Err(heads));
    assert_eq!(head_aurocs(&[]), Err(SelectError::NothingToTell { questions: 0 }));

    let setting = |plan: &Plan| cross_validate(&good, plan).unwrap_err();
    let error = |field, least| SelectError::Setting { field, value: least - 1, least };
    assert_eq!(setting(&Plan { k_max: 0, ..small() }), error("k_max", 1));
    assert_eq!(setting(&Plan { folds: 1, ..small() }), error("folds", 2));
    assert_eq!(setting(&Plan { repeats: 0, ..small() }), error("repeats", 1));
    assert_eq!(greedy(&good, 0, 2), Err(error("pool", 1)));

    let few = |needed| SelectError::TooFew { usable: needed - 1, needed, folds: 4 };
    assert_eq!(cross_validate(&good[..3], &small()), Err(few(4)));
    assert!(cross_validate(&good[..4], &small()).is_ok());
    assert_eq!(search(&[((), good[..5].to_vec())], &small()), Err(few(6)));
    assert!(search(&[((), good[..6].to_vec())], &small()).is_ok());

    let with = |other: Vec<Judged>| search(&[(0, good.clone()), (1, other)], &small()).unwrap_err();
    assert_eq!(search::<u8>(&[], &small()), Err(SelectError::NoMethods));
    assert_eq!(with(good[..9].to_vec()), SelectError::Questions { method: 1, found: 9, expected: 10 });
    let swapped = [&good[1..2], &good[0..1], &good[2..]].concat();
    assert_eq!(with(swapped), SelectError::Labels { method: 1, question: 0 });
}

#[test]
fn questions_that_ask_the_same_are_held_out_together_and_count_as_one() {
    let plain = questions(24, 10, &[(4, 0.7)], 12);
    let name = |i: usize| format!("q{i}");
    let asked: Vec<Judged> = plain.iter().enumerate().map(|(i, q)| q.clone().asking(&name(i))).collect();
    assert_eq!(search(&[((), plain)], &small()), search(&[((), asked.clone())], &small()), "all differ");

    // each again, some twice: the same units, so nothing changes but where the numbers are told
    let mut again: Vec<Judged> = asked.clone();
    again.extend(asked.iter().rev().cloned());
    again.extend(asked[3..9].iter().cloned());
    assert_eq!(head_aurocs(&again), head_aurocs(&asked));
    for growth in [Growth::Greedy, Growth::Ranked] {
        let plan = Plan { growth, ..small() };
        assert_eq!(cross_validate(&again, &plan), cross_validate(&asked, &plan));
        let (one, two) =
            (search(&[((), asked.clone())], &plan).unwrap(), search(&[((), again.clone())], &plan).unwrap());
        assert_eq!(
            (one.choice, one.nested.auroc, one.nested.choices),
            (two.choice, two.nested.auroc, two.nested.choices)
        );
        assert_eq!(two.nested.per_question[..24], one.nested.per_question[..]);
        assert!(two.nested.per_question[24..].iter().all(Option::is_none));
    }

    // two sides of one question: a unit's AUROC is their mean
    let turned = |q: &Judged| {
        Judged::new(10, (0..10).flat_map(|h| q.head(h).iter().map(|s| -s)).collect(), q.labels().to_vec())
    };
    let both: Vec<Judged> = asked
        .iter()
        .enumerate()
        .flat_map(|(i, q)| [q.clone(), turned(q).unwrap().asking(&name(i))])
        .collect();
    assert!(head_aurocs(&both).unwrap().iter().all(|a| (a - 0.5).abs() < 1e-12));
    // held out apart, one side would tell heads for the other: every estimate would be below one half
    assert!(cross_validate(&both, &small()).unwrap().auroc.iter().all(|a| (a - 0.5).abs() < 1e-12));

    let few = SelectError::TooFew { usable: 3, needed: 4, folds: 4 };
    assert_eq!(cross_validate(&both[..6], &small()), Err(few));
}
