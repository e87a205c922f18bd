//! Examples of the pool, with exact block numbers.

use std::hash::{BuildHasher, Hasher};

use super::{BLOCK_SIZE, BlockHasher, KvPool, OutOfBlocks, PoolStats, Salt};
use crate::ids::{BlockId, Depth, TokenId};

const SHALLOW: Depth = Depth(3);
const DEEP: Depth = Depth(9);

/// `n` blocks of tokens, all equal to `token`.
fn blocks_of(token: TokenId, n: usize) -> Vec<TokenId> {
    vec![token; n * BLOCK_SIZE]
}

fn ids(numbers: &[u32]) -> Vec<BlockId> {
    numbers.iter().copied().map(BlockId).collect()
}

/// Computes `tokens` in fresh blocks, publishes and releases them.
fn cache<S: BuildHasher>(pool: &mut KvPool<S>, tokens: &[TokenId], depth: Depth) -> Vec<BlockId> {
    let table = pool.allocate(super::blocks_for(tokens.len())).unwrap();
    pool.publish(&Salt::none(), tokens, &table, tokens.len(), depth);
    pool.release(&table);
    pool.check().unwrap();
    table
}

/// What the cache holds of `tokens`, without keeping it.
fn hit<S: BuildHasher>(pool: &mut KvPool<S>, tokens: &[TokenId], depth: Depth) -> Vec<BlockId> {
    let matched = pool.match_prefix(&Salt::none(), tokens, depth, tokens.len());
    pool.release(&matched);
    pool.check().unwrap();
    matched
}

#[test]
fn a_cached_prefix_is_shared_block_by_block() {
    let mut pool = KvPool::new(8);
    let mut tokens = blocks_of(1, 2);
    tokens.extend([7; 10]);

    let first = pool.allocate(3).unwrap();
    assert_eq!(first, ids(&[0, 1, 2]));
    pool.publish(&Salt::none(), &tokens, &first, tokens.len(), DEEP);
    assert_eq!(pool.stats(), PoolStats { total: 8, free: 5, cached: 0, in_use: 3 });

    // While the first sequence still runs, a second one with the same start takes its full blocks...
    tokens.truncate(2 * BLOCK_SIZE);
    tokens.extend([8; 20]);
    let matched = pool.match_prefix(&Salt::none(), &tokens, DEEP, tokens.len());
    assert_eq!(matched, ids(&[0, 1]));
    assert_eq!((pool.ref_count(BlockId(0)), pool.ref_count(BlockId(2))), (2, 1));

    // ...and when both are gone, full blocks stay cached and the partial one is free again.
    pool.release(&first);
    pool.release(&matched);
    assert_eq!(pool.stats(), PoolStats { total: 8, free: 6, cached: 2, in_use: 0 });
    pool.check().unwrap();
}

#[test]
fn a_match_stops_at_the_limit_at_other_tokens_and_at_shallow_blocks() {
    let mut pool = KvPool::new(8);
    let tokens = blocks_of(1, 3);
    cache(&mut pool, &tokens, SHALLOW);
    let mut matched = |limit| {
        let blocks = pool.match_prefix(&Salt::none(), &tokens, SHALLOW, limit);
        pool.release(&blocks);
        blocks.len()
    };
    assert_eq!([0, 31, 32, 63, 64, 95, 96, 1000].map(&mut matched), [0, 0, 1, 1, 2, 2, 3, 3]);

    let mut other = tokens.clone();
    other[BLOCK_SIZE] = 2;
    assert_eq!(hit(&mut pool, &other, SHALLOW), ids(&[0]));
    // The last block's tokens are cached, but not after these.
    assert_eq!(hit(&mut pool, &other[BLOCK_SIZE..], SHALLOW), []);
    assert_eq!(hit(&mut pool, &tokens, DEEP), []);
}

#[test]
fn only_computed_full_blocks_are_published() {
    let mut pool = KvPool::new(8);
    let tokens = blocks_of(1, 3);
    let table = pool.allocate(3).unwrap();
    pool.publish(&Salt::none(), &tokens, &table, 2 * BLOCK_SIZE - 1, DEEP);
    assert_eq!(hit(&mut pool, &tokens, DEEP), ids(&[0]));
    assert!(!pool.is_registered(BlockId(1)));
}

#[test]
fn salts_never_share() {
    let mut pool = KvPool::new(8);
    let tokens = blocks_of(1, 1);
    for (salt, block) in [(Salt::none(), 0), (Salt::new(""), 1), (Salt::new("a"), 2)] {
        assert_eq!(pool.match_prefix(&salt, &tokens, DEEP, 32), []);
        let table = pool.allocate(1).unwrap();
        pool.publish(&salt, &tokens, &table, 32, DEEP);
        assert_eq!(pool.match_prefix(&salt, &tokens, DEEP, 32), ids(&[block]));
    }
    pool.check().unwrap();
}

#[test]
fn a_deeper_block_replaces_an_equal_shallower_one() {
    let mut pool = KvPool::new(8);
    let tokens = blocks_of(1, 2);
    assert_eq!(cache(&mut pool, &tokens, SHALLOW), ids(&[0, 1]));
    let reader = pool.match_prefix(&Salt::none(), &tokens, SHALLOW, 32);
    assert_eq!(reader, ids(&[0]));

    // A deep sequence cannot use them and computes its own, of which only the first is finished yet.
    assert_eq!(pool.match_prefix(&Salt::none(), &tokens, DEEP, 64), []);
    let deep = pool.allocate(2).unwrap();
    assert_eq!(deep, ids(&[2, 3]));
    pool.publish(&Salt::none(), &tokens, &deep, 32, DEEP);
    assert_eq!(hit(&mut pool, &tokens, DEEP), ids(&[2]));
    assert_eq!(hit(&mut pool, &tokens, SHALLOW), ids(&[2, 1]), "the shallow tail hangs below the deep head");

    // The replaced block is its reader's own now, and free when the reader leaves.
    pool.release(&reader);
    assert_eq!(pool.stats(), PoolStats { total: 8, free: 5, cached: 1, in_use: 2 });

    // The other way round, a shallow newcomer stays private.
    pool.publish(&Salt::none(), &tokens, &deep, 64, DEEP);
    pool.release(&deep);
    assert_eq!(cache(&mut pool, &tokens, SHALLOW), ids(&[0, 1]));
    assert_eq!(hit(&mut pool, &tokens, SHALLOW), ids(&[2, 3]));
}

#[test]
fn the_least_recently_used_chain_is_evicted_first_and_from_its_end() {
    let mut pool = KvPool::new(6);
    let [a, b, c] = [1, 2, 3].map(|token| blocks_of(token, 2));
    for chain in [&a, &b, &c] {
        cache(&mut pool, chain, DEEP);
    }
    assert_eq!(pool.stats(), PoolStats { total: 6, free: 0, cached: 6, in_use: 0 });
    hit(&mut pool, &a, DEEP);

    // b is the oldest now: its second block goes first, then its first one, then c's second one.
    let mut held = pool.allocate(1).unwrap();
    assert_eq!(held, ids(&[3]));
    assert_eq!(hit(&mut pool, &b, DEEP), ids(&[2]));
    hit(&mut pool, &c, DEEP);
    hit(&mut pool, &a, DEEP);
    held.extend(pool.allocate(2).unwrap());
    assert_eq!(held, ids(&[3, 2, 5]));
    assert_eq!(hit(&mut pool, &b, DEEP), []);
    assert_eq!(hit(&mut pool, &c, DEEP), ids(&[4]));
    assert_eq!(hit(&mut pool, &a, DEEP), ids(&[0, 1]));

    // All or nothing: what cannot be had evicts nothing.
    assert_eq!(pool.allocate(4), Err(OutOfBlocks { needed: 4, available: 3 }));
    assert_eq!(hit(&mut pool, &a, DEEP), ids(&[0, 1]));
    pool.check().unwrap();
}

#[test]
fn an_idle_block_above_held_ones_is_evicted_last() {
    let mut pool = KvPool::new(4);
    let tokens = blocks_of(1, 2);
    // Two sequences compute the same start; the first registers it, the second what comes after.
    let (first, second) = (pool.allocate(1).unwrap(), pool.allocate(2).unwrap());
    pool.publish(&Salt::none(), &tokens, &first, 32, DEEP);
    pool.publish(&Salt::none(), &tokens, &second, 64, DEEP);
    pool.release(&first);
    cache(&mut pool, &blocks_of(2, 1), DEEP);
    assert_eq!(pool.stats(), PoolStats { total: 4, free: 0, cached: 2, in_use: 2 });

    // Something hangs below block 0, so block 3 goes first although it was used later.
    assert_eq!(pool.allocate(1).unwrap(), ids(&[3]));
    assert!(pool.is_registered(second[1]));
    assert_eq!(pool.allocate(1).unwrap(), ids(&[0]));
    assert!(!pool.is_registered(second[1]), "a chain without its start is of no use to anybody");
    assert_eq!(pool.ref_count(second[1]), 1);
    pool.check().unwrap();
}

#[test]
fn clearing_the_cache_leaves_held_blocks_alone() {
    let mut pool = KvPool::new(4);
    let tokens = blocks_of(1, 2);
    cache(&mut pool, &tokens, DEEP);
    let held = pool.match_prefix(&Salt::none(), &tokens, DEEP, 32);
    pool.clear_cache();
    pool.check().unwrap();
    assert_eq!(pool.stats(), PoolStats { total: 4, free: 3, cached: 0, in_use: 1 });
    assert_eq!(hit(&mut pool, &tokens, DEEP), []);
    pool.release(&held);
    assert_eq!(pool.stats().free, 4);
}

#[test]
fn forks_hold_blocks_together() {
    let mut pool = KvPool::new(2);
    let table = pool.allocate(1).unwrap();
    pool.retain(&table);
    pool.release(&table);
    assert_eq!(pool.stats().in_use, 1);
    pool.release(&table);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
#[should_panic(expected = "a released block is held: this is a bug")]
fn releasing_twice_is_noticed() {
    let mut pool = KvPool::new(2);
    let table = pool.allocate(1).unwrap();
    pool.release(&table);
    pool.release(&table);
}

/// Hashes everything to the same number.
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

impl BuildHasher for Constant {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Self
    }
}

#[test]
fn a_hash_collision_costs_a_miss_and_never_a_wrong_hit() {
    let mut pool = KvPool::with_hasher(8, Constant);
    let (a, b) = (blocks_of(1, 2), blocks_of(2, 2));
    assert_eq!(cache(&mut pool, &a, DEEP), ids(&[0, 1]));
    assert_eq!(hit(&mut pool, &b, DEEP), [], "b hashes like a but is not a");
    cache(&mut pool, &b, DEEP);
    assert_eq!(hit(&mut pool, &b, DEEP), [], "a has the place");
    assert_eq!(hit(&mut pool, &a, DEEP), ids(&[0, 1]));
    pool.clear_cache();
    cache(&mut pool, &b, DEEP);
    assert_eq!(hit(&mut pool, &b, DEEP).len(), 2);

    let mut pool = KvPool::with_hasher(8, BlockHasher::default());
    cache(&mut pool, &a, DEEP);
    cache(&mut pool, &b, DEEP);
    assert_eq!(hit(&mut pool, &b, DEEP).len(), 2, "with a real hash both have a place");
}
