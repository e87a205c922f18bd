//! The KV pool against naive twins: never a wrong hit, no hit missed without a reason, no block lost.
//!
//! What a block physically holds is simulated beside the pool, exactly (whole token chains, no hashes).

#![allow(clippy::unwrap_used)] // a test may panic, in its helpers too

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher},
};

use proptest::prelude::*;
use qrae::{
    ids::{BlockId, Depth, TokenId},
    kv::{BLOCK_SIZE, BlockHasher, KvPool, Salt, blocks_for},
};

/// Blocks that differ late, early or not at all, and a partial one: prompts that share prefixes often.
fn prompts() -> impl Strategy<Value = Vec<TokenId>> {
    (prop::collection::vec(0..3u32, 0..5), 1..BLOCK_SIZE).prop_map(|(kinds, tail)| {
        let mut tokens: Vec<TokenId> = kinds.into_iter().flat_map(block).collect();
        tokens.resize(tokens.len() + tail, 0);
        tokens
    })
}

fn block(kind: u32) -> Vec<TokenId> {
    let mut tokens = vec![0; BLOCK_SIZE];
    tokens[if kind == 1 { BLOCK_SIZE - 1 } else { 0 }] = kind;
    tokens
}

fn salts() -> impl Strategy<Value = Salt> {
    prop_oneof![Just(Salt::none()), Just(Salt::new("a"))]
}

fn depths() -> impl Strategy<Value = Depth> {
    (1..4u16).prop_map(Depth)
}

/// Keeps one bit of the real hash: nearly every pair of contents collides, or not, by chance.
#[derive(Debug, Default)]
struct OneBit(BlockHasher);

struct OneBitHasher(<BlockHasher as BuildHasher>::Hasher);

impl BuildHasher for OneBit {
    type Hasher = OneBitHasher;
    fn build_hasher(&self) -> OneBitHasher {
        OneBitHasher(self.0.build_hasher())
    }
}

impl Hasher for OneBitHasher {
    fn finish(&self) -> u64 {
        self.0.finish() & 1
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A sequence takes what is cached, then fresh blocks for the rest.
    Start {
        salt: Salt,
        tokens: Vec<TokenId>,
        depth: Depth,
        limit: usize,
    },
    /// The n-th live sequence publishes what it has.
    Publish {
        nth: usize,
        n_computed: usize,
    },
    /// The n-th live sequence is forked: its full blocks get another holder.
    Fork {
        nth: usize,
    },
    /// The n-th live sequence ends.
    Release {
        nth: usize,
    },
    ClearCache,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let start = (salts(), prompts(), depths(), 0..200usize)
        .prop_map(|(salt, tokens, depth, limit)| Op::Start { salt, tokens, depth, limit });
    let op = prop_oneof![
        6 => start,
        6 => (any::<usize>(), 0..200usize).prop_map(|(nth, n_computed)| Op::Publish { nth, n_computed }),
        1 => any::<usize>().prop_map(|nth| Op::Fork { nth }),
        5 => any::<usize>().prop_map(|nth| Op::Release { nth }),
        1 => Just(Op::ClearCache),
    ];
    prop::collection::vec(op, 1..80)
}

/// What a block physically holds: everything up to its last token, and how deep it was computed.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    salt: Salt,
    chain: Vec<TokenId>,
    depth: Depth,
}

#[derive(Clone, Debug)]
struct Live {
    salt: Salt,
    tokens: Vec<TokenId>,
    depth: Depth,
    table: Vec<BlockId>,
}

/// The pool, its live sequences, and what is truly in the blocks and was ever published.
struct World<S> {
    pool: KvPool<S>,
    live: Vec<Live>,
    memory: BTreeMap<BlockId, Content>,
    published: Vec<Content>,
}

impl<S: BuildHasher> World<S> {
    fn new(n_blocks: usize, hasher: S) -> Self {
        let pool = KvPool::with_hasher(n_blocks, hasher);
        Self { pool, live: Vec::new(), memory: BTreeMap::new(), published: Vec::new() }
    }

    fn run(&mut self, ops: Vec<Op>) {
        for op in ops {
            self.apply(op);
        }
        while !self.live.is_empty() {
            self.apply(Op::Release { nth: 0 });
        }
        assert_eq!(self.pool.stats().in_use, 0);
    }

    /// Does one thing and checks everything. Returns the number of blocks that a start found cached.
    fn apply(&mut self, op: Op) -> usize {
        let mut n_matched = 0;
        match op {
            Op::Start { salt, tokens, depth, limit } => n_matched = self.start(salt, tokens, depth, limit),
            Op::ClearCache => self.pool.clear_cache(),
            Op::Publish { .. } | Op::Fork { .. } | Op::Release { .. } if self.live.is_empty() => {}
            Op::Publish { nth, n_computed } => self.publish(nth, n_computed),
            Op::Fork { nth } => {
                let mut fork = self.live[nth % self.live.len()].clone();
                let n_full = fork.tokens.len() / BLOCK_SIZE;
                fork.tokens.truncate(n_full * BLOCK_SIZE);
                fork.table.truncate(n_full);
                self.pool.retain(&fork.table);
                self.live.push(fork);
            }
            Op::Release { nth } => {
                let gone = self.live.swap_remove(nth % self.live.len());
                self.pool.release(&gone.table);
            }
        }
        self.check();
        n_matched
    }

    /// Returns the number of matched blocks.
    fn start(&mut self, salt: Salt, tokens: Vec<TokenId>, depth: Depth, limit: usize) -> usize {
        let mut table = self.pool.match_prefix(&salt, &tokens, depth, limit);
        let n_matched = table.len();
        assert!(n_matched * BLOCK_SIZE <= limit.min(tokens.len()), "more was matched than allowed");
        for (i, block) in table.iter().enumerate() {
            let held = &self.memory[block];
            assert_eq!(
                (&held.salt, &held.chain[..]),
                (&salt, &tokens[..(i + 1) * BLOCK_SIZE]),
                "a wrong hit"
            );
            assert!(held.depth >= depth, "a hit too shallow");
            let known = self.published.iter().any(|content| content == held);
            assert!(known, "a hit that was never published");
        }
        let before = self.pool.stats();
        let needed = blocks_for(tokens.len()) - n_matched;
        match self.pool.allocate(needed) {
            Ok(fresh) => {
                assert_eq!(fresh.iter().collect::<BTreeSet<_>>().len(), needed, "a block given twice");
                for (i, &block) in fresh.iter().enumerate() {
                    let held =
                        self.live.iter().any(|live| live.table.contains(&block)) || table.contains(&block);
                    assert!(!held, "{block:?} was given away while it is held");
                    assert!(!self.pool.is_registered(block), "{block:?} is fresh but cached");
                    let end = tokens.len().min((n_matched + i + 1) * BLOCK_SIZE);
                    let content = Content { salt: salt.clone(), chain: tokens[..end].to_vec(), depth };
                    self.memory.insert(block, content);
                }
                table.extend(fresh);
                self.live.push(Live { salt, tokens, depth, table });
            }
            Err(error) => {
                assert_eq!((error.needed, error.available), (needed, before.free + before.cached));
                assert!(needed > error.available, "refused though there is room");
                assert_eq!(self.pool.stats(), before, "a refusal changed something");
                self.pool.release(&table);
            }
        }
        n_matched
    }

    fn publish(&mut self, nth: usize, n_computed: usize) {
        let live = &self.live[nth % self.live.len()];
        let n_computed = n_computed.min(live.tokens.len());
        self.pool.publish(&live.salt, &live.tokens, &live.table, n_computed, live.depth);
        let full = &live.table[..n_computed / BLOCK_SIZE];
        self.published.extend(full.iter().map(|block| self.memory[block].clone()));
    }

    fn check(&self) {
        self.pool.check().unwrap();
        let stats = self.pool.stats();
        assert_eq!(stats.free + stats.cached + stats.in_use, stats.total);
        for block in (0..stats.total).map(|number| BlockId(u32::try_from(number).unwrap())) {
            let holders = self.live.iter().filter(|live| live.table.contains(&block)).count();
            assert_eq!(self.pool.ref_count(block) as usize, holders, "holders of {block:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_hit_is_wrong_and_no_block_is_lost_under_pressure(ops in ops(), n_blocks in 1..20usize) {
        World::new(n_blocks, BlockHasher::default()).run(ops);
    }

    #[test]
    fn no_hit_is_wrong_when_hashes_collide(ops in ops(), n_blocks in 1..20usize) {
        World::new(n_blocks, OneBit::default()).run(ops);
    }

    /// With room for everything, a lookup finds exactly what the naive twin finds: the longest prefix each of
    /// whose blocks was published deep enough.
    #[test]
    fn with_room_every_possible_hit_is_found(ops in ops()) {
        let mut world = World::new(1000, BlockHasher::default());
        let mut twin: Vec<Content> = Vec::new();
        for op in ops {
            let mut expected = 0;
            match &op {
                Op::Start { salt, tokens, depth, limit } => {
                    let cached = |n: &usize| {
                        let chain = &tokens[..n * BLOCK_SIZE];
                        let holds = |c: &Content| c.salt == *salt && c.chain.starts_with(chain) && c.depth >= *depth;
                        twin.iter().any(holds)
                    };
                    expected = (1..=*limit.min(&tokens.len()) / BLOCK_SIZE).take_while(cached).count();
                }
                Op::Publish { nth, n_computed } if !world.live.is_empty() => {
                    let live = &world.live[nth % world.live.len()];
                    let n_full = *n_computed.min(&live.tokens.len()) / BLOCK_SIZE;
                    let chain = live.tokens[..n_full * BLOCK_SIZE].to_vec();
                    twin.push(Content { salt: live.salt.clone(), chain, depth: live.depth });
                }
                Op::ClearCache => twin.clear(),
                _ => {}
            }
            prop_assert_eq!(world.apply(op), expected);
        }
    }

    /// Under pressure the cache holds exactly what a naive cache holds that evicts, among the chains nothing
    /// hangs below, the one used least recently.
    #[test]
    fn eviction_is_least_recently_used_from_the_leaves(prompts in prop::collection::vec(prompts(), 1..60), n_blocks in 5..14usize) {
        let mut world = World::new(n_blocks, BlockHasher::default());
        // Cached chains and when they were used.
        let mut twin: Vec<(Vec<TokenId>, usize)> = Vec::new();
        for (now, tokens) in prompts.into_iter().enumerate() {
            let chains: Vec<_> = (1..=tokens.len() / BLOCK_SIZE).map(|n| tokens[..n * BLOCK_SIZE].to_vec()).collect();
            let expected = chains.iter().take_while(|&chain| twin.iter().any(|(c, _)| c == chain)).count();
            for (chain, used) in &mut twin {
                if tokens.starts_with(chain) {
                    *used = now;
                }
            }
            // The partial block needs room too.
            while twin.len() + blocks_for(tokens.len()) - expected > n_blocks {
                let leaf = |chain: &[TokenId]| !twin.iter().any(|(c, _)| c.len() > chain.len() && c.starts_with(chain));
                let evictable = (0..twin.len()).filter(|&i| leaf(&twin[i].0) && twin[i].1 < now);
                let oldest = evictable.min_by_key(|&i| twin[i].1).unwrap();
                twin.remove(oldest);
            }
            twin.extend(chains.into_iter().skip(expected).map(|chain| (chain, now)));

            prop_assert_eq!(world.start(Salt::none(), tokens, Depth(1), usize::MAX), expected);
            world.apply(Op::Publish { nth: 0, n_computed: usize::MAX });
            world.apply(Op::Release { nth: 0 });
            prop_assert_eq!(world.pool.stats().cached, twin.len());
        }
    }
}
