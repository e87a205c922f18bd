//! The scheduler against a shadow memory: whatever is added, cancelled, failed or preempted, every position that
//! an item reads holds that sequence's own token, after the same tokens before it, deep enough; and everybody
//! finishes.
//!
//! The shadow stands for the device: one cell for each slot of each block. A cell names the exact history of its
//! token (a node of a tree of all token sequences, one root for each salt) and the depth it was computed to.

#![allow(clippy::unwrap_used)] // a test may panic, in its helpers too

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use qrae::{
    ids::{BlockId, Depth, SeqId, TokenId},
    kv::{BLOCK_SIZE, KvPool, Salt, blocks_for},
    sched::{AddError, Fork, NewSequence, Next, SchedConfig, Scheduler, StepItem, StepPlan, Want},
};

/// A node of the tree of all token sequences; equal exactly when salt and all tokens up to it are.
type History = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    history: History,
    depth: Depth,
}

/// What would be in device memory, and the tree that gives histories their names.
#[derive(Default)]
struct Shadow {
    cells: Vec<[Option<Cell>; BLOCK_SIZE]>,
    tree: BTreeMap<(History, TokenId), History>,
}

impl Shadow {
    fn histories(&mut self, salt: &Salt, tokens: &[TokenId]) -> Vec<History> {
        // Roots are numbered 0 and 1; the tree's nodes follow.
        let mut node = usize::from(*salt != Salt::none());
        let mut child = |token: &TokenId| {
            let fresh = self.tree.len() + 2;
            node = *self.tree.entry((node, *token)).or_insert(fresh);
            node
        };
        tokens.iter().map(&mut child).collect()
    }

    fn cell(&mut self, table: &[BlockId], position: usize) -> &mut Option<Cell> {
        &mut self.cells[table[position / BLOCK_SIZE].0 as usize][position % BLOCK_SIZE]
    }
}

/// What the test knows of a sequence, on its own account.
struct Live {
    new: NewSequence,
    arrival: usize,
    tokens: Vec<TokenId>,
    histories: Vec<History>,
    /// Generates this many tokens, then finishes.
    n_new: usize,
    seed: u32,
    /// Positions `0..computed` are in its blocks. `None`: it is not running.
    computed: Option<usize>,
    /// Positions whose rows were captured since the last restart.
    captured: (usize, usize),
    n_planned: usize,
    started: bool,
}

impl Live {
    /// How many leading tokens may come from elsewhere.
    fn reusable(&self) -> usize {
        let all_but_last = self.tokens.len() - 1;
        let in_prompt = self.tokens.len() == self.new.tokens.len();
        if in_prompt { self.new.recompute_from.min(all_but_last) } else { all_but_last }
    }

    fn is_decode(&self) -> bool {
        self.tokens.len() > self.new.tokens.len() && self.computed == Some(self.tokens.len() - 1)
    }
}

/// What happened, to show that the tests see what they are about.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    finished: usize,
    cancelled: usize,
    refused: usize,
    preempted: usize,
    preempted_rows: usize,
    cached_starts: usize,
    cached_restarts: usize,
    copies: usize,
    shared_aligned: usize,
}

struct World {
    sched: Scheduler,
    config: SchedConfig,
    n_blocks: usize,
    shadow: Shadow,
    live: BTreeMap<SeqId, Live>,
    n_added: usize,
    events: Events,
}

#[derive(Clone, Debug)]
struct Newcomer {
    tokens: Vec<TokenId>,
    salt: bool,
    depth: u16,
    recompute_from: usize,
    /// Generates this many tokens and was allowed so many more; or wants rows.
    generate: Option<(usize, usize)>,
    /// Forks the n-th live sequence at this share of the parent's prompt, with its tokens up to there
    /// (or, rarely, with others).
    fork: Option<(usize, f64, bool)>,
    reuse: bool,
    seed: u32,
}

#[derive(Clone, Debug)]
enum Op {
    Add(Newcomer),
    Steps(usize),
    Cancel(usize),
    Fail(usize),
    /// A step during which a sequence is cancelled and, perhaps, another one added under its id.
    CancelInFlight(usize, Option<Newcomer>),
    ClearCache,
}

fn newcomers() -> impl Strategy<Value = Newcomer> {
    let kinds = prop::collection::vec(0..3u32, 0..7);
    let tokens = (kinds, 1..45usize).prop_map(|(kinds, tail)| {
        let block =
            |kind: u32| (0..BLOCK_SIZE).map(move |i| if kind == 2 { u32::from(i == 31) } else { kind });
        let mut tokens: Vec<TokenId> = kinds.into_iter().flat_map(block).collect();
        tokens.resize(tokens.len() + tail, 1);
        tokens
    });
    let recompute_from = prop_oneof![2 => 0..250usize, 1 => Just(usize::MAX)];
    let generate = prop::option::weighted(0.7, (1..160usize, 0..10usize));
    let fork = prop::option::weighted(0.4, (any::<usize>(), 0.0..1.2f64, prop::bool::weighted(0.9)));
    let rest = (any::<bool>(), 1..4u16, prop::bool::weighted(0.8), 0..2u32);
    (tokens, recompute_from, generate, fork, rest).prop_map(
        |(tokens, recompute_from, generate, fork, (salt, depth, reuse, seed))| Newcomer {
            tokens,
            salt,
            depth,
            recompute_from,
            generate,
            fork,
            reuse,
            seed,
        },
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => newcomers().prop_map(Op::Add),
        8 => (1..40usize).prop_map(Op::Steps),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Fail),
        1 => (any::<usize>(), prop::option::of(newcomers())).prop_map(|(nth, new)| Op::CancelInFlight(nth, new)),
        1 => Just(Op::ClearCache),
    ];
    prop::collection::vec(op, 1..50)
}

fn configs() -> impl Strategy<Value = (SchedConfig, usize)> {
    // Slow prefills give decodes the time to grow into each other.
    let budget = prop_oneof![1..12usize, 1..150usize];
    let chunk = prop_oneof![1..4usize, 1..80usize];
    (budget, chunk, 2..8usize, 5..13usize).prop_map(
        |(max_batched_tokens, prefill_chunk, max_sequences, n_blocks)| {
            (
                SchedConfig {
                    max_batched_tokens,
                    prefill_chunk,
                    prefill_beside_decode: prefill_chunk,
                    max_sequences,
                },
                n_blocks,
            )
        },
    )
}

impl World {
    fn new(config: SchedConfig, n_blocks: usize) -> Self {
        Self {
            sched: Scheduler::new(config, KvPool::new(n_blocks)),
            config,
            n_blocks,
            shadow: Shadow { cells: vec![[None; BLOCK_SIZE]; n_blocks], ..Shadow::default() },
            live: BTreeMap::new(),
            n_added: 0,
            events: Events::default(),
        }
    }

    /// Does all of it, then steps until everybody is done.
    fn run(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Add(new) => self.add(SeqId(self.n_added as u64), &new),
                Op::Steps(n) => (0..n).for_each(|_| self.step(None)),
                Op::Cancel(nth) => self.leave(nth, Scheduler::cancel),
                Op::Fail(nth) => self.leave(nth, Scheduler::fail),
                Op::CancelInFlight(nth, new) => self.step(Some((nth, new))),
                Op::ClearCache => self.sched.pool_mut().clear_cache(),
            }
            self.check();
        }
        let mut steps = 0;
        while !self.live.is_empty() {
            self.step(None);
            steps += 1;
            assert!(steps < 20_000, "livelock: {:?}", self.sched.counts());
        }
        self.check();
        assert!(self.sched.is_idle());
        assert_eq!(self.sched.pool().stats().in_use, 0);
        assert_eq!(self.sched.plan(), StepPlan::default(), "nothing is left to do");
    }

    /// The sequence to add. A fork takes its parent's tokens up to where it forks, or pretends to.
    fn compose(&self, id: SeqId, from: &Newcomer) -> NewSequence {
        let (mut tokens, mut salt) =
            (from.tokens.clone(), if from.salt { Salt::new("a") } else { Salt::none() });
        let parent = from.fork.filter(|_| !self.live.is_empty()).map(|(nth, share, honest)| {
            let parent = self.live.values().nth(nth % self.live.len()).unwrap();
            // Beyond the prompt, a fork may wait for tokens that are yet to be generated.
            let at = (parent.new.tokens.len() as f64 * share) as usize;
            if honest {
                let n_same = at.min(parent.tokens.len());
                tokens.splice(..n_same.min(tokens.len() - 1), parent.tokens[..n_same].iter().copied());
                salt = parent.new.salt.clone();
            }
            Fork { parent: parent.new.id, at }
        });
        let want = from.generate.map_or(Want::Rows, |(n, slack)| Want::NextTokens { max_new: n + slack });
        NewSequence {
            id,
            tokens,
            salt,
            depth: Depth(from.depth),
            recompute_from: from.recompute_from,
            want,
            fork: parent,
            reuse: from.reuse,
        }
    }

    fn add(&mut self, id: SeqId, from: &Newcomer) {
        let new = self.compose(id, from);
        let max_new = from.generate.map_or(0, |(n_new, slack)| n_new + slack);
        let (needed, total) = (blocks_for(new.tokens.len() + max_new), self.n_blocks);
        self.n_added += 1;
        if needed > total {
            assert_eq!(self.sched.add(new), Err(AddError::TooLong { needed, total }));
            self.events.refused += 1;
            return;
        }
        assert_eq!(self.sched.add(new.clone()), Ok(()));
        assert_eq!(self.sched.add(new.clone()), Err(AddError::Duplicate(id)));
        let live = Live {
            histories: self.shadow.histories(&new.salt, &new.tokens),
            arrival: self.n_added,
            n_new: from.generate.map_or(0, |(n_new, _)| n_new),
            tokens: new.tokens.clone(),
            new,
            seed: from.seed,
            computed: None,
            captured: (0, 0),
            n_planned: 0,
            started: false,
        };
        self.live.insert(id, live);
    }

    fn leave(&mut self, nth: usize, how: fn(&mut Scheduler, SeqId)) {
        let Some(&id) = self.live.keys().nth(nth % self.live.len().max(1)) else { return };
        self.live.remove(&id);
        how(&mut self.sched, id);
        how(&mut self.sched, id);
        self.events.cancelled += 1;
    }

    /// Plan, forward, settle.
    fn step(&mut self, cancel: Option<(usize, Option<Newcomer>)>) {
        let preemptions = self.sched.counts().preemptions;
        let plan = self.sched.plan();
        self.check();
        assert_eq!(plan.items.is_empty(), self.live.is_empty(), "somebody can always advance");
        self.check_shape(&plan);
        self.check_slots(&plan);
        self.check_order(&plan, self.sched.counts().preemptions - preemptions);
        self.account(&plan);
        self.forward(&plan);
        let next = self.outcomes(&plan);
        if let Some((nth, new)) = cancel {
            let id = self.live.keys().nth(nth % self.live.len().max(1)).copied();
            self.leave(nth, Scheduler::cancel);
            if let (Some(id), Some(new)) = (id, new) {
                self.add(id, &new);
            }
        }
        self.settle(&plan, &next);
    }

    /// The plan is well formed and within the limits.
    fn check_shape(&self, plan: &StepPlan) {
        let n_tokens: usize = plan.items.iter().map(|item| item.end - item.start).sum();
        assert!(n_tokens <= self.config.max_batched_tokens, "{n_tokens} tokens are over budget");
        let counts = self.sched.counts();
        let scores = |(id, live): (&SeqId, &Live)| {
            self.sched.is_running(*id).then_some(usize::from(live.new.want == Want::Rows))
        };
        let mut running = [0; 2];
        self.live.iter().filter_map(scores).for_each(|kind| running[kind] += 1);
        let beside = usize::from(running[0].min(running[1]) == 1);
        assert_eq!(running[0] + running[1], counts.running);
        assert!(counts.running <= self.config.max_sequences + beside, "{running:?} run");
        let key = |item: &StepItem| (std::cmp::Reverse(item.depth), self.live[&item.seq].arrival);
        assert!(plan.items.is_sorted_by(|a, b| key(a) < key(b)), "items are out of order, or one came twice");
        for item in &plan.items {
            let live = &self.live[&item.seq];
            assert!(item.start < item.end && item.end <= live.tokens.len());
            assert!(item.end - item.start <= self.config.prefill_chunk);
            assert_eq!(item.tokens, live.tokens[item.start..item.end]);
            assert_eq!(item.table.len(), blocks_for(item.end), "blocks only for what is computed");
            assert_eq!((item.depth, item.last), (live.new.depth, item.end == live.tokens.len()));
        }
    }

    /// What is written is written by one item only, into blocks that nobody else can see.
    fn check_slots(&self, plan: &StepPlan) {
        let pool = self.sched.pool();
        let private = |block: BlockId| pool.ref_count(block) == 1 && !pool.is_registered(block);
        let mut written = BTreeSet::new();
        for item in &plan.items {
            for &block in &item.table[item.start / BLOCK_SIZE..] {
                assert!(private(block), "{block:?} is written but shared or cached");
                assert!(written.insert(block), "{block:?} is written twice");
            }
        }
        let sources: BTreeSet<BlockId> = plan.copies.iter().map(|&(from, _)| from).collect();
        let targets: BTreeSet<BlockId> = plan.copies.iter().map(|&(_, to)| to).collect();
        assert_eq!(targets.len(), plan.copies.len(), "a copy onto a copy");
        assert!(sources.is_disjoint(&targets), "copies depend on their order");
        for &(from, to) in &plan.copies {
            let starts_in =
                |item: &&StepItem| item.restart && item.table.get(item.start / BLOCK_SIZE) == Some(&to);
            let item = plan.items.iter().find(starts_in).expect("the copy is for a fork");
            assert!(item.start % BLOCK_SIZE != 0 && pool.ref_count(from) > 0);
        }
    }

    /// Decodes advance, the youngest are preempted, nobody overtakes its own kind.
    fn check_order(&self, plan: &StepPlan, n_preempted: u64) {
        let item_of = |id: &SeqId| plan.items.iter().find(|item| item.seq == *id);
        let was = |live: &Live| live.computed.is_some();
        let is = |id: &SeqId| self.sched.is_running(*id);
        let all = || self.live.iter();
        let preempted: Vec<_> =
            all().filter(|(id, live)| was(live) && !is(id)).map(|(_, l)| l.arrival).collect();
        let stayed = all().filter(|(id, live)| was(live) && is(id)).map(|(_, live)| live.arrival).max();
        let scores = |live: &Live| live.new.want == Want::Rows;
        let admitted: Vec<_> =
            all().filter(|(id, live)| !was(live) && is(id)).map(|(_, l)| (l.arrival, scores(l))).collect();
        assert_eq!(preempted.len() as u64, n_preempted);
        for &victim in &preempted {
            assert!(stayed < Some(victim), "an older sequence was preempted for a younger one");
        }
        assert!(preempted.is_empty() || admitted.is_empty(), "a start in the step of a preemption");
        for (id, live) in all() {
            if live.is_decode() && is(id) {
                let item = item_of(id).expect("a running decode advances in every step");
                assert_eq!((item.start, item.last), (live.tokens.len() - 1, true));
            }
            let waits_for_parent = live.new.fork.is_some() && !live.started;
            if !was(live) && !is(id) && !waits_for_parent {
                // by its own kind; the other may have a half of the step that this one's kind has used up
                let mut same = admitted.iter().filter(|other| other.1 == scores(live));
                assert!(same.all(|other| other.0 < live.arrival), "{id:?} was overtaken");
            }
            assert!(item_of(id).is_none() || is(id));
        }
    }

    /// Follows where each sequence is; restarts are announced and early enough.
    fn account(&mut self, plan: &StepPlan) {
        for (id, live) in &mut self.live {
            if live.computed.is_some() && !self.sched.is_running(*id) {
                live.computed = None;
                self.events.preempted += 1;
                self.events.preempted_rows += usize::from(live.new.want == Want::Rows);
            }
        }
        self.events.copies += plan.copies.len();
        for item in &plan.items {
            let live = self.live.get_mut(&item.seq).unwrap();
            assert_eq!(item.restart, live.computed.is_none(), "restart is told exactly when it happens");
            if item.restart {
                assert!(item.start <= live.reusable(), "positions that must be computed were skipped");
                if !live.started {
                    assert_eq!(self.sched.cached_tokens(item.seq), Some(item.start));
                    let forked = live.new.fork.is_some_and(|fork| fork.at == item.start);
                    self.events.cached_starts += usize::from(item.start > 0);
                    self.events.shared_aligned += usize::from(forked && item.start % BLOCK_SIZE == 0);
                } else {
                    self.events.cached_restarts += usize::from(item.start > 0);
                }
                live.captured = (item.start, item.start);
                live.started = true;
            } else {
                assert_eq!(Some(item.start), live.computed, "a gap or a repetition");
            }
            assert_eq!(item.start, live.captured.1);
            live.captured.1 = item.end;
            live.computed = Some(item.start);
            live.n_planned += item.end - item.start;
            assert_eq!(self.sched.computed_tokens(item.seq), Some(live.n_planned));
        }
    }

    /// What the device would do, and that each item reads its own past before and after.
    fn forward(&mut self, plan: &StepPlan) {
        let before: Vec<_> = self.shadow.cells.clone();
        for &(from, to) in &plan.copies {
            self.shadow.cells[to.0 as usize] = before[from.0 as usize];
        }
        // What is about to be written must not pass for something written, whatever was there before.
        for item in &plan.items {
            let capacity = item.table.len() * BLOCK_SIZE;
            (item.start..capacity).for_each(|position| *self.shadow.cell(&item.table, position) = None);
        }
        plan.items.iter().for_each(|item| self.check_past(item, item.start));
        for item in &plan.items {
            for position in item.start..item.end {
                let history = self.live[&item.seq].histories[position];
                *self.shadow.cell(&item.table, position) = Some(Cell { history, depth: item.depth });
            }
        }
        plan.items.iter().for_each(|item| self.check_past(item, item.end));
    }

    /// Positions `0..end` of the item's table hold the sequence's own tokens, deep enough.
    fn check_past(&mut self, item: &StepItem, end: usize) {
        for position in 0..end {
            let cell = *self.shadow.cell(&item.table, position);
            let history = self.live[&item.seq].histories[position];
            let right = cell.is_some_and(|cell| cell.history == history && cell.depth >= item.depth);
            assert!(
                right,
                "{:?} reads {cell:?} at {position}, wants {history} at {:?}",
                item.seq, item.depth
            );
        }
    }

    fn outcomes(&self, plan: &StepPlan) -> Vec<(SeqId, Next)> {
        let outcome = |item: &StepItem| {
            let live = &self.live[&item.seq];
            if live.new.want == Want::Rows {
                let (from, to) = live.captured;
                assert!(from <= live.new.recompute_from, "rows are missing");
                assert_eq!(to, live.tokens.len());
                return Next::Finish;
            }
            let n_generated = live.tokens.len() - live.new.tokens.len() + 1;
            // Equal prompts go on alike for a while.
            let token = u32::from(n_generated % 40 > 20) * live.seed;
            if n_generated == live.n_new { Next::Finish } else { Next::Token(token) }
        };
        plan.items.iter().filter(|item| item.last).map(|item| (item.seq, outcome(item))).collect()
    }

    fn settle(&mut self, plan: &StepPlan, next: &[(SeqId, Next)]) {
        self.sched.settle(plan, next);
        for item in &plan.items {
            // Cancelled in flight, and perhaps another one under its name, which has not started.
            let Some(live) = self.live.get_mut(&item.seq).filter(|live| live.computed.is_some()) else {
                continue;
            };
            live.computed = Some(item.end);
            match next.iter().find(|(id, _)| *id == item.seq) {
                Some((_, Next::Token(token))) => {
                    live.tokens.push(*token);
                    live.histories = self.shadow.histories(&live.new.salt, &live.tokens);
                }
                Some((_, Next::Finish)) => {
                    self.live.remove(&item.seq);
                    self.events.finished += 1;
                }
                None => {}
            }
        }
        self.check();
    }

    /// Nothing is lost; and what is free holds nothing.
    fn check(&mut self) {
        let pool = self.sched.pool();
        pool.check().unwrap();
        let stats = pool.stats();
        assert_eq!((stats.free + stats.cached + stats.in_use, stats.total), (self.n_blocks, self.n_blocks));
        assert!(stats.in_use == 0 || !self.sched.is_idle());
        let counts = self.sched.counts();
        assert_eq!(counts.running + counts.waiting, self.live.len());
        for (block, cells) in (0..).map(BlockId).zip(&mut self.shadow.cells) {
            if pool.ref_count(block) == 0 && !pool.is_registered(block) {
                cells.fill(None);
            }
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_sequence_reads_its_own_past_and_finishes((config, n_blocks) in configs(), ops in ops()) {
        World::new(config, n_blocks).run(ops);
    }
}

/// The property above would hold of a scheduler that is never in trouble. These worlds are.
#[test]
fn the_random_worlds_are_eventful() {
    let mut runner = TestRunner::deterministic();
    let mut sum = Events::default();
    for _ in 0..300 {
        let ((config, n_blocks), ops) = (configs(), ops()).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(config, n_blocks);
        world.events = sum;
        world.run(ops);
        sum = world.events;
    }
    let least = [sum.finished, sum.cancelled, sum.refused, sum.preempted, sum.cached_starts, sum.copies];
    assert!(least.iter().all(|&n| n >= 50), "{sum:?}");
    assert!(sum.preempted_rows >= 1 && sum.cached_restarts >= 10 && sum.shared_aligned >= 10, "{sum:?}");
}
