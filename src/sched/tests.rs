//! Examples of the scheduler, with exact plans and block numbers.

use super::*;
use crate::{
    ids::{BlockId, Depth, SeqId, TokenId},
    kv::{KvPool, PoolStats, Salt},
};

const DEPTH: Depth = Depth(9);

fn scheduler(n_blocks: usize, max_batched_tokens: usize, prefill_chunk: usize) -> Scheduler {
    let config = SchedConfig {
        max_batched_tokens,
        prefill_chunk,
        prefill_beside_decode: max_batched_tokens,
        max_sequences: 16,
    };
    Scheduler::new(config, KvPool::new(n_blocks))
}

/// A chat: `n` prompt tokens `0, 1, 2, …` and up to `max_new` generated ones.
fn chat(id: u64, n: u32, max_new: usize) -> NewSequence {
    NewSequence {
        id: SeqId(id),
        tokens: (0..n).collect(),
        salt: Salt::none(),
        depth: DEPTH,
        recompute_from: usize::MAX,
        want: Want::NextTokens { max_new },
        fork: None,
        reuse: true,
    }
}

/// A score whose rows are read from position `read` on.
fn rows(id: u64, n: u32, read: usize) -> NewSequence {
    NewSequence { recompute_from: read, want: Want::Rows, ..chat(id, n, 0) }
}

fn fork(parent: u64, at: usize, child: NewSequence) -> NewSequence {
    NewSequence { fork: Some(Fork { parent: SeqId(parent), at }), ..child }
}

fn ids(numbers: &[u32]) -> Vec<BlockId> {
    numbers.iter().copied().map(BlockId).collect()
}

/// The plan's items as `(sequence, start, end)`.
fn ranges(plan: &StepPlan) -> Vec<(u64, usize, usize)> {
    plan.items.iter().map(|item| (item.seq.0, item.start, item.end)).collect()
}

/// Settles: sequences in `done` finish at their last item, others get `token`.
fn settle(sched: &mut Scheduler, plan: &StepPlan, token: TokenId, done: &[u64]) {
    let next = |item: &StepItem| if done.contains(&item.seq.0) { Next::Finish } else { Next::Token(token) };
    let next: Vec<_> =
        plan.items.iter().filter(|item| item.last).map(|item| (item.seq, next(item))).collect();
    sched.settle(plan, &next);
    sched.pool().check().unwrap();
}

/// Plans and settles once; returns the plan.
fn step(sched: &mut Scheduler, token: TokenId, done: &[u64]) -> StepPlan {
    let plan = sched.plan();
    settle(sched, &plan, token, done);
    plan
}

#[test]
fn a_long_prompt_beside_a_chat_comes_in_small_pieces() {
    let config = SchedConfig {
        max_batched_tokens: 256,
        prefill_chunk: 128,
        prefill_beside_decode: 10,
        max_sequences: 16,
    };
    let mut sched = Scheduler::new(config, KvPool::new(64));
    sched.add(chat(1, 5, 3)).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 5)]);
    sched.add(rows(2, 300, 290)).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 5, 6), (2, 0, 10)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[1])), [(1, 6, 7), (2, 10, 20)]);
    // the chat is over: whole chunks again
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(2, 20, 148)]);
}

#[test]
fn a_chat_from_prompt_to_end() {
    let mut sched = scheduler(8, 256, 20);
    sched.add(chat(1, 33, 8)).unwrap();
    let item = |start: usize, tokens: Vec<TokenId>, table: &[u32], last, restart| StepItem {
        seq: SeqId(1),
        start,
        end: start + tokens.len(),
        tokens,
        table: ids(table),
        depth: DEPTH,
        last,
        restart,
    };
    // The prompt in chunks, with blocks only for what is computed...
    assert_eq!(step(&mut sched, 0, &[]).items, [item(0, (0..20).collect(), &[0], false, true)]);
    assert_eq!(step(&mut sched, 70, &[]).items, [item(20, (20..33).collect(), &[0, 1], true, false)]);
    // ...then a token a step, each fed with what came out of the step before.
    assert_eq!(step(&mut sched, 71, &[]).items, [item(33, vec![70], &[0, 1], true, false)]);
    assert_eq!(sched.counts(), Counts { running: 1, waiting: 0, preemptions: 0 });
    assert_eq!(step(&mut sched, 72, &[1]).items, [item(34, vec![71], &[0, 1], true, false)]);
    assert!(sched.is_idle());
    assert_eq!(sched.pool().stats(), PoolStats { total: 8, free: 7, cached: 1, in_use: 0 });
}

#[test]
fn decodes_come_before_prefills_and_prefills_in_order_of_arrival() {
    let mut sched = scheduler(64, 50, 32);
    sched.add(chat(1, 10, 8)).unwrap();
    step(&mut sched, 7, &[]);
    for id in 2..=4 {
        sched.add(rows(id, 60, 0)).unwrap();
    }
    // 1 of 50 tokens for the decode, a chunk of 32 for the first prefill, the rest for the second.
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 10, 11), (2, 0, 32), (3, 0, 17)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[2])), [(1, 11, 12), (2, 32, 60), (3, 17, 38)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[3])), [(1, 12, 13), (3, 38, 60), (4, 0, 27)]);
}

/// Without the prefix cache, so that every token is computed.
fn alone(seq: NewSequence) -> NewSequence {
    NewSequence { reuse: false, ..seq }
}

#[test]
fn chats_and_scores_that_prefill_share_a_step_by_halves() {
    let mut sched = scheduler(64, 50, 32);
    (1..=3).for_each(|id| sched.add(alone(rows(id, 60, 0))).unwrap());
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 32), (2, 0, 18)], "alone they have it all");
    // a chat comes last and starts at once: half of the step is its, and the scores ahead of it have the other half
    sched.add(alone(chat(4, 40, 8))).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 32, 57), (4, 0, 25)]);
    // it needs less than its half now, and what is left goes to the scores in their order
    assert_eq!(ranges(&step(&mut sched, 7, &[1])), [(1, 57, 60), (2, 18, 50), (4, 25, 40)]);
    // it decodes: its one token first, all else to the scores
    assert_eq!(ranges(&step(&mut sched, 7, &[2])), [(2, 50, 60), (3, 0, 32), (4, 40, 41)]);
}

#[test]
fn a_burst_of_chats_does_not_stop_a_score_either() {
    let mut sched = scheduler(64, 50, 32);
    (1..=3).for_each(|id| sched.add(alone(chat(id, 60, 8))).unwrap());
    sched.add(alone(rows(4, 40, 0))).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 25), (4, 0, 25)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[4])), [(1, 25, 57), (2, 0, 3), (4, 25, 40)]);
    // a step of one token is not cut
    let mut sched = scheduler(64, 1, 32);
    sched.add(alone(rows(1, 2, 0))).unwrap();
    sched.add(alone(chat(2, 1, 1))).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 1)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[1])), [(1, 1, 2)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[2])), [(2, 0, 1)]);
}

#[test]
fn a_kind_of_which_nothing_runs_has_one_place_more() {
    let config =
        SchedConfig { max_batched_tokens: 50, prefill_chunk: 4, prefill_beside_decode: 50, max_sequences: 2 };
    let sched = || Scheduler::new(config, KvPool::new(64));
    let starts = |plan: &StepPlan| plan.items.iter().map(|item| item.seq.0).collect::<Vec<_>>();
    // long answers hold both places and more wait: the first score starts, the second waits for it, chats for a place
    let mut chats = sched();
    (1..=4).for_each(|id| chats.add(alone(chat(id, 3, 99))).unwrap());
    (5..=6).for_each(|id| chats.add(alone(rows(id, 6, 0))).unwrap());
    assert_eq!(starts(&step(&mut chats, 7, &[])), [1, 2, 5]);
    assert_eq!(chats.counts(), Counts { running: 3, waiting: 3, preemptions: 0 });
    assert_eq!(starts(&step(&mut chats, 7, &[5])), [1, 2, 5]);
    assert_eq!(starts(&step(&mut chats, 7, &[1])), [1, 2, 6]);
    // there were three: the place that is given back is the score's until it is done
    assert_eq!(starts(&step(&mut chats, 7, &[6])), [2, 6]);
    assert_eq!(starts(&step(&mut chats, 7, &[])), [2, 3]);
    // and the other way round
    let mut scores = sched();
    (1..=3).for_each(|id| scores.add(alone(rows(id, 6, 0))).unwrap());
    (4..=5).for_each(|id| scores.add(alone(chat(id, 3, 99))).unwrap());
    assert_eq!(starts(&step(&mut scores, 7, &[])), [1, 2, 4]);
    assert_eq!(scores.counts(), Counts { running: 3, waiting: 2, preemptions: 0 });
}

#[test]
fn deeper_items_come_first_in_a_plan() {
    let mut sched = scheduler(64, 256, 256);
    for (id, depth) in [(1, 3), (2, 9), (3, 3), (4, 9)] {
        sched.add(NewSequence { depth: Depth(depth), ..chat(id, 5, 1) }).unwrap();
    }
    assert_eq!(ranges(&sched.plan()), [(2, 0, 5), (4, 0, 5), (1, 0, 5), (3, 0, 5)]);
}

#[test]
fn a_cached_prefix_is_taken_up_to_the_first_read_position() {
    let mut sched = scheduler(8, 256, 256);
    sched.add(rows(1, 100, 70)).unwrap();
    step(&mut sched, 0, &[1]);
    assert_eq!(sched.pool().stats().cached, 3);

    // Read positions from 70 on: blocks 0 and 1 are taken, block 2 is computed again.
    sched.add(rows(2, 100, 70)).unwrap();
    let plan = sched.plan();
    assert_eq!(ranges(&plan), [(2, 64, 100)]);
    assert_eq!(plan.items[0].table, ids(&[0, 1, 3, 4]));
    assert_eq!((sched.cached_tokens(SeqId(2)), sched.computed_tokens(SeqId(2))), (Some(64), Some(36)));
    settle(&mut sched, &plan, 0, &[2]);
    assert_eq!(sched.cached_tokens(SeqId(2)), None);

    // A prompt that is cached as a whole still computes its last token, here with its block.
    sched.add(chat(3, 96, 1)).unwrap();
    assert_eq!(ranges(&step(&mut sched, 0, &[3])), [(3, 64, 96)]);
    // Whoever does not want to reuse, does not; nor does another salt, nor a deeper one.
    sched.add(NewSequence { reuse: false, ..chat(4, 96, 1) }).unwrap();
    sched.add(NewSequence { salt: Salt::new("mine"), ..chat(5, 96, 1) }).unwrap();
    assert_eq!(ranges(&step(&mut sched, 0, &[4, 5])), [(4, 0, 96), (5, 0, 96)]);
    sched.add(NewSequence { depth: Depth(10), ..chat(6, 96, 1) }).unwrap();
    assert_eq!(ranges(&step(&mut sched, 0, &[6])), [(6, 0, 96)]);
}

#[test]
fn a_fork_amid_a_block_copies_it_first() {
    let mut sched = scheduler(16, 256, 256);
    sched.add(rows(1, 80, 75)).unwrap();
    // Shares 70 tokens, then goes its own way: 2 full blocks and 6 tokens of the third.
    let mut other = rows(2, 90, 70);
    other.tokens[70..].fill(500);
    sched.add(fork(1, 70, other)).unwrap();

    let first = step(&mut sched, 0, &[1]);
    assert_eq!(ranges(&first), [(1, 0, 80)], "the fork waits for its parent");
    assert_eq!(sched.pool().stats().in_use, 3, "the parent is done but waits for its fork");
    assert!(!sched.is_idle());

    let plan = sched.plan();
    assert_eq!(plan.copies, [(BlockId(2), BlockId(3))]);
    assert_eq!(ranges(&plan), [(2, 70, 90)]);
    assert_eq!(plan.items[0].table, ids(&[0, 1, 3]));
    assert!(plan.items[0].restart && plan.items[0].last);
    assert_eq!(sched.cached_tokens(SeqId(2)), Some(70));
    settle(&mut sched, &plan, 0, &[2]);
    assert!(sched.is_idle());
    assert_eq!(sched.pool().stats().in_use, 0);
}

#[test]
fn a_fork_starts_as_soon_as_its_parent_is_far_enough() {
    let mut sched = scheduler(16, 64, 32);
    sched.add(rows(1, 96, 95)).unwrap();
    sched.add(fork(1, 64, rows(2, 70, 64))).unwrap();
    sched.add(rows(3, 10, 0)).unwrap();
    assert_eq!(ranges(&step(&mut sched, 0, &[3])), [(1, 0, 32), (3, 0, 10)], "3 passes 2, which waits for 1");
    assert_eq!(ranges(&step(&mut sched, 0, &[])), [(1, 32, 64)]);
    let plan = step(&mut sched, 0, &[1, 2]);
    assert_eq!(ranges(&plan), [(1, 64, 96), (2, 64, 70)]);
    assert_eq!(plan.copies, [], "an aligned fork copies nothing");
    assert_eq!(plan.items[1].table[..2], plan.items[0].table[..2]);
    assert!(sched.is_idle());
}

#[test]
fn a_fork_of_a_fork_waits_until_the_copy_is_made() {
    let mut sched = scheduler(16, 256, 256);
    sched.add(rows(1, 50, 49)).unwrap();
    sched.add(fork(1, 40, rows(2, 50, 49))).unwrap();
    sched.add(fork(2, 36, rows(3, 50, 49))).unwrap();
    step(&mut sched, 0, &[1]);
    // Block 2 is written by the first copy; a copy from it in the same step would depend on their order.
    assert_eq!(step(&mut sched, 0, &[2]).copies, [(BlockId(1), BlockId(2))]);
    assert_eq!(step(&mut sched, 0, &[3]).copies, [(BlockId(2), BlockId(1))]);
    assert!(sched.is_idle());
}

#[test]
fn no_more_sequences_run_than_can_decode_in_one_step() {
    let mut sched = scheduler(16, 2, 2);
    for id in 1..=3 {
        sched.add(chat(id, 1, 8)).unwrap();
    }
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 1), (2, 0, 1)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[2])), [(1, 1, 2), (2, 1, 2)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 2, 3), (3, 0, 1)]);
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 3, 4), (3, 1, 2)]);
}

#[test]
fn a_fork_that_cannot_share_starts_on_its_own() {
    let start_of_fork = |parent: NewSequence, child: NewSequence| {
        let mut sched = scheduler(16, 256, 256);
        sched.add(parent).unwrap();
        sched.add(fork(1, 40, child)).unwrap();
        step(&mut sched, 0, &[1, 2]);
        let plan = if sched.is_idle() { return 0 } else { step(&mut sched, 0, &[2]) };
        assert!(sched.is_idle());
        plan.items[0].start
    };
    assert_eq!(start_of_fork(rows(1, 50, 0), rows(2, 50, 45)), 40);
    // It waits for the parent but must compute from 35 on: the parent's cached block is what it gets.
    assert_eq!(start_of_fork(rows(1, 50, 0), rows(2, 50, 35)), 32);
    let shallow = NewSequence { depth: Depth(3), ..rows(1, 50, 0) };
    assert_eq!(start_of_fork(shallow, rows(2, 50, 45)), 0);
    assert_eq!(start_of_fork(rows(1, 50, 0), NewSequence { salt: Salt::new("b"), ..rows(2, 50, 45) }), 0);
    let mut differs = rows(2, 50, 45);
    differs.tokens[39] = 500;
    assert_eq!(start_of_fork(rows(1, 50, 0), differs), 32, "one token differs: only the cache helps");
    assert_eq!(start_of_fork(rows(1, 39, 0), rows(2, 50, 45)), 32, "the parent ends before the fork");
}

#[test]
fn a_fork_whose_parent_is_cancelled_starts_on_its_own() {
    let mut sched = scheduler(16, 64, 32);
    sched.add(rows(1, 96, 95)).unwrap();
    sched.add(fork(1, 64, rows(2, 70, 64))).unwrap();
    step(&mut sched, 0, &[]);
    let plan = sched.plan();
    sched.cancel(SeqId(1));
    sched.cancel(SeqId(1));
    assert_eq!(sched.pool().stats(), PoolStats { total: 16, free: 15, cached: 1, in_use: 0 });
    settle(&mut sched, &plan, 0, &[]);
    assert_eq!(ranges(&step(&mut sched, 0, &[])), [(2, 32, 64)]);
    // Cancelling the only fork of a finished parent lets the parent go.
    sched.fail(SeqId(2));
    sched.add(chat(3, 10, 1)).unwrap();
    sched.add(fork(3, 9, chat(4, 10, 1))).unwrap();
    step(&mut sched, 0, &[3]);
    assert_eq!(sched.pool().stats().in_use, 1);
    sched.cancel(SeqId(4));
    assert!(sched.is_idle());
    assert_eq!(sched.pool().stats().in_use, 0);
}

#[test]
fn several_samples_of_one_prompt_share_it() {
    let mut sched = scheduler(16, 256, 256);
    sched.add(chat(1, 40, 4)).unwrap();
    for id in 2..=3 {
        sched.add(fork(1, usize::MAX, chat(id, 40, 4))).unwrap();
    }
    step(&mut sched, 100, &[]);
    let plan = step(&mut sched, 101, &[]);
    assert_eq!(ranges(&plan), [(1, 40, 41), (2, 39, 40), (3, 39, 40)]);
    assert_eq!(plan.copies, [(BlockId(1), BlockId(2)), (BlockId(1), BlockId(3))]);
    let tables: Vec<_> = plan.items.iter().map(|item| item.table.clone()).collect();
    assert_eq!(tables, [ids(&[0, 1]), ids(&[0, 2]), ids(&[0, 3])]);
}

#[test]
fn the_youngest_is_preempted_and_comes_back_with_what_it_has() {
    let mut sched = scheduler(6, 256, 256);
    sched.add(chat(1, 60, 40)).unwrap();
    let mut other = chat(2, 40, 40);
    other.tokens.fill(9);
    sched.add(other).unwrap();
    // Three blocks each, until 1 needs its fourth for position 96.
    for _ in 0..37 {
        step(&mut sched, 7, &[]);
    }
    assert_eq!(sched.counts(), Counts { running: 2, waiting: 0, preemptions: 0 });
    assert_eq!(sched.pool().stats().in_use, 6);
    let plan = step(&mut sched, 7, &[]);
    assert_eq!(ranges(&plan), [(1, 96, 97)]);
    assert_eq!(plan.items[0].table, ids(&[0, 1, 4, 5]), "block 5 was the third one of 2");
    assert_eq!(sched.counts(), Counts { running: 1, waiting: 1, preemptions: 1 });
    // 2 needs one block besides its two full ones, which are cached: it waits.
    assert_eq!(ranges(&step(&mut sched, 7, &[1])), [(1, 97, 98)]);
    // What it had generated is not lost. Tokens 40..64 come from the cache, those after are computed again.
    let plan = step(&mut sched, 7, &[2]);
    assert_eq!(ranges(&plan), [(2, 64, 77)]);
    assert_eq!(plan.items[0].tokens, [7; 13]);
    assert!(plan.items[0].restart && plan.items[0].last);
    assert!(sched.is_idle());
}

#[test]
fn preempted_rows_start_again_at_or_before_the_first_read_position() {
    let mut sched = scheduler(5, 64, 32);
    sched.add(chat(1, 63, 40)).unwrap();
    step(&mut sched, 7, &[]);
    step(&mut sched, 7, &[]);
    let mut score = rows(2, 64, 20);
    score.tokens.fill(9);
    sched.add(score).unwrap();
    // Both fit when 2 starts.
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 63, 64), (2, 0, 32)]);
    // Two blocks are taken from outside; then 1 takes the block that 2 has.
    let taken = sched.pool_mut().allocate(2).unwrap();
    let plan = step(&mut sched, 7, &[]);
    assert_eq!(ranges(&plan), [(1, 64, 65)]);
    assert_eq!(sched.counts(), Counts { running: 1, waiting: 1, preemptions: 1 });
    sched.pool_mut().release(&taken);
    step(&mut sched, 7, &[1]);
    let plan = step(&mut sched, 7, &[2]);
    assert_eq!(ranges(&plan)[0], (2, 0, 32), "the rows of 20..32 are read anew");
    assert!(plan.items[0].restart);
}

#[test]
fn nobody_starts_into_blocks_that_the_running_need() {
    let mut sched = scheduler(6, 256, 32);
    sched.add(chat(1, 100, 20)).unwrap();
    sched.add(chat(2, 60, 1)).unwrap();
    // 1 has one block and needs 3 more; then 2 are left, and 2 needs just that many.
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 0, 32), (2, 0, 32)]);
    sched.add(NewSequence { salt: Salt::new("b"), ..chat(3, 10, 1) }).unwrap();
    assert_eq!(ranges(&step(&mut sched, 7, &[2])).len(), 2, "3 must wait: nothing is left for it");
    assert_eq!(ranges(&step(&mut sched, 7, &[])), [(1, 64, 96), (3, 0, 10)]);
}

#[test]
fn a_finished_parent_gives_way_before_anybody_is_preempted() {
    let mut sched = scheduler(4, 256, 256);
    sched.add(chat(1, 32, 64)).unwrap();
    sched.add(NewSequence { salt: Salt::new("b"), ..rows(2, 40, 0) }).unwrap();
    // The fork does not fit beside its parent and 1.
    sched.add(fork(2, 39, NewSequence { salt: Salt::new("b"), ..rows(3, 128, 127) })).unwrap();
    step(&mut sched, 7, &[2]);
    assert_eq!(sched.pool().stats().in_use, 3);
    for _ in 0..33 {
        step(&mut sched, 7, &[]);
    }
    assert_eq!(sched.pool().stats(), PoolStats { total: 4, free: 0, cached: 1, in_use: 3 });
    assert_eq!(sched.counts(), Counts { running: 1, waiting: 1, preemptions: 0 });
    step(&mut sched, 7, &[1]);
    assert_eq!(
        ranges(&step(&mut sched, 7, &[3])),
        [(3, 32, 128)],
        "the parent's full block was still cached"
    );
    assert!(sched.is_idle());
}

#[test]
fn what_cannot_be_computed_is_refused_with_the_numbers() {
    let mut sched = scheduler(2, 256, 256);
    assert_eq!(sched.add(chat(1, 0, 5)), Err(AddError::Empty(SeqId(1))));
    assert_eq!(sched.add(chat(1, 60, 5)), Err(AddError::TooLong { needed: 3, total: 2 }));
    assert!(matches!(sched.add(chat(1, 60, usize::MAX)), Err(AddError::TooLong { .. })));
    sched.add(chat(1, 60, 4)).unwrap();
    assert_eq!(sched.add(rows(1, 5, 0)), Err(AddError::Duplicate(SeqId(1))));
    let message = AddError::TooLong { needed: 3, total: 2 }.to_string();
    assert!(message.contains("need 3 KV blocks") && message.contains("pool has 2"), "{message}");
}

#[test]
fn a_plan_settled_late_or_twice_changes_nothing_more() {
    let mut sched = scheduler(8, 256, 16);
    sched.add(rows(1, 64, 0)).unwrap();
    let plan = step(&mut sched, 0, &[]);
    settle(&mut sched, &plan, 0, &[]);
    assert_eq!(ranges(&sched.plan()), [(1, 16, 32)]);
    sched.cancel(SeqId(1));
    // Another sequence under the same name has not run yet: the old plan is not its own.
    sched.add(rows(1, 64, 0)).unwrap();
    settle(&mut sched, &plan, 0, &[]);
    assert_eq!(ranges(&sched.plan()), [(1, 0, 16)]);
}

#[test]
fn a_last_item_without_an_outcome_is_planned_again() {
    let mut sched = scheduler(8, 256, 256);
    sched.add(chat(1, 32, 2)).unwrap();
    let plan = sched.plan();
    sched.settle(&plan, &[]);
    assert_eq!(sched.plan(), plan);
}
