//! Seeded draws of questions and orders. Tests: below.

use super::draw::Draw;

/// Stream of the draw of questions; streams of orders count from 0.
const QUESTIONS: u64 = u64::MAX;

/// `n` of the items, drawn without replacement, in the order they were given; all when there are no more than `n`.
#[must_use]
pub fn sample<T>(items: Vec<T>, n: usize, seed: u64) -> Vec<T> {
    sample_where(items, n, seed, |_| true)
}

/// `n` of the items that can be used, likewise. Items take their turn whether they can be used or not: who can use more
/// of them draws the same ones but for those.
#[must_use]
pub fn sample_where<T>(items: Vec<T>, n: usize, seed: u64, usable: impl Fn(&T) -> bool) -> Vec<T> {
    let mut drawn = vec![false; items.len()];
    let order = Draw::new(seed, QUESTIONS).permutation(items.len());
    for i in order.into_iter().filter(|&i| usable(&items[i])).take(n) {
        drawn[i] = true;
    }
    items.into_iter().zip(drawn).filter_map(|(item, drawn)| drawn.then_some(item)).collect()
}

/// The `number`-th random order of `0..n`.
#[must_use]
pub fn permutation(n: usize, seed: u64, number: u64) -> Vec<usize> {
    Draw::new(seed, number).permutation(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_size_its_order_and_its_seed() {
        let of = |n, seed| sample((0..100).collect(), n, seed);
        assert_eq!((of(7, 1).len(), of(7, 1)), (7, of(7, 1)));
        assert_ne!(of(7, 1), of(7, 2));
        assert!(of(50, 1).is_sorted());
        assert_eq!(of(1000, 1), (0..100).collect::<Vec<_>>());
        assert!(of(0, 1).is_empty());
    }

    #[test]
    fn what_cannot_be_used_changes_no_other_draw() {
        for seed in 0..50 {
            let usable = |i: &usize| !i.is_multiple_of(5);
            let (all, some) =
                (sample((0..100).collect(), 30, seed), sample_where((0..100).collect(), 30, seed, usable));
            assert_eq!(some.len(), 30);
            assert!(some.is_sorted() && some.iter().all(usable));
            assert!(all.iter().filter(|i| usable(i)).all(|i| some.contains(i)), "{all:?} {some:?}");
        }
        assert_eq!(sample_where((0..10).collect(), 30, 1, |i| *i < 3), [0, 1, 2]);
    }

    #[test]
    fn every_item_is_drawn_about_as_often() {
        let mut times = [0; 10];
        for seed in 0..2000 {
            sample((0..10).collect(), 3, seed).into_iter().for_each(|i: usize| times[i] += 1);
        }
        assert!(times.iter().all(|t| (500..700).contains(t)), "{times:?}");
        let mut order = permutation(9, 3, 1);
        assert_ne!(order, permutation(9, 3, 2));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..9));
    }
}
