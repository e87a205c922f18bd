//! Random draws that depend on their seed alone: own arithmetic on ChaCha8's stream, so that no release of
//! a random-number library changes a published number.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// One of 2^64 independent streams of a seed. Work that is split over threads takes one stream per piece.
pub(super) struct Draw(ChaCha8Rng);

impl Draw {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// An even draw from `0..n`, `n > 0`: the high half of a 128-bit product, uneven by less than `n` in 2^64.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Any order of `0..n` with equal chance (Fisher and Yates).
    pub(super) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even() {
        let mut draw = Draw::new(1, 0);
        let mut counts = [0_u32; 7];
        (0..70_000).for_each(|_| counts[draw.below(7)] += 1);
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 400), "{counts:?}");
        assert_eq!(draw.below(1), 0);
    }

    #[test]
    fn every_order_comes_equally_often() {
        let mut draw = Draw::new(2, 0);
        let mut counts = std::collections::BTreeMap::new();
        (0..24_000).for_each(|_| *counts.entry(draw.permutation(4)).or_insert(0_u32) += 1);
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|&c| c.abs_diff(1_000) < 150), "{counts:?}");
        assert_eq!((draw.permutation(0), draw.permutation(1)), (vec![], vec![0]));
    }

    #[test]
    fn seeds_and_streams_differ_and_reproduce() {
        let first = |seed, stream| Draw::new(seed, stream).permutation(50);
        assert_eq!(first(3, 1), first(3, 1));
        assert_ne!(first(3, 1), first(3, 2));
        assert_ne!(first(3, 1), first(4, 1));
    }

    #[test]
    fn the_stream_is_the_one_published_numbers_were_made_with() {
        assert_eq!(Draw::new(42, 0).permutation(8), [4, 7, 0, 1, 3, 2, 6, 5]);
    }
}
