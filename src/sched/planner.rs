//! How a step is chosen: decodes, then running prefills, then waiting sequences.
//!
//! Owns the policy of `mod.rs`. Must not know what a step computes. Tests: `tests.rs` and
//! `tests/sched_props.rs`.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use super::{
    plan::{StepItem, StepPlan},
    scheduler::Scheduler,
    sequence::Arrival,
};
use crate::{
    ids::BlockId,
    kv::{BLOCK_SIZE, blocks_for},
};

/// A plan in the making.
struct Draft {
    /// Tokens that still fit the step.
    budget: usize,
    /// Of those, what prefills may take for now: to generate, to score.
    shares: [usize; 2],
    copies: Vec<(BlockId, BlockId)>,
    /// For each sequence of the step, the end of its item.
    ends: BTreeMap<Arrival, usize>,
    preempted: bool,
    /// Waiting sequences were let in: from now on nobody is preempted, or who has just come might go.
    admitted: bool,
}

/// What a starting sequence takes over. The blocks are referenced.
struct Prefix {
    blocks: Vec<BlockId>,
    /// Number of tokens taken over.
    len: usize,
    /// The parent's block that holds the tokens after the last full block.
    partial: Option<BlockId>,
}

impl Scheduler {
    /// Chooses the next step and gives its items their blocks. Never empty unless the scheduler is idle. Each
    /// plan must be settled before the next one is made.
    #[must_use]
    pub fn plan(&mut self) -> StepPlan {
        let budget = self.config.max_batched_tokens;
        let mut draft = Draft {
            budget,
            shares: [budget; 2],
            copies: Vec::new(),
            ends: BTreeMap::new(),
            preempted: false,
            admitted: false,
        };
        self.plan_running(&mut draft, true);
        if !draft.ends.is_empty() {
            draft.budget = draft.budget.min(self.config.prefill_beside_decode);
        }
        // first to each kind of prefill its half, then what one of them leaves
        if self.both_prefill() && draft.budget > 1 {
            draft.shares = [draft.budget.div_ceil(2), draft.budget / 2];
            self.plan_prefills(&mut draft);
        }
        draft.shares = [draft.budget; 2];
        self.plan_prefills(&mut draft);
        self.write_plan(draft)
    }

    /// Whether some sequence prefills, or will, to generate, and some to score.
    fn both_prefill(&self) -> bool {
        let prefills = |arrival: &&Arrival| !self.seq(**arrival).is_decode();
        let scores = self.running.iter().chain(&self.waiting).filter(prefills).map(|a| self.seq(*a).scores());
        let (mut some, mut all) = (false, true);
        scores.for_each(|scores| (some, all) = (some | scores, all & scores));
        some && !all
    }

    fn plan_prefills(&mut self, draft: &mut Draft) {
        self.plan_running(draft, false);
        // Who was just preempted would come straight back.
        if !draft.preempted {
            self.admit(draft);
        }
    }

    /// Plans the running decodes or the running prefills, in order of arrival.
    fn plan_running(&mut self, draft: &mut Draft, decodes: bool) {
        let wanted = |arrival: &Arrival| self.seq(*arrival).is_decode() == decodes;
        let planned: Vec<Arrival> = self.running.iter().copied().filter(wanted).collect();
        for arrival in planned {
            // An older one may have preempted it.
            if draft.budget > 0 && self.running.contains(&arrival) {
                self.plan_item(arrival, draft);
            }
        }
    }

    /// Gives a running sequence its next tokens, after those it has in this step: as many as budget, share, chunk and
    /// memory allow. Without memory one block is taken from younger sequences, or it is preempted itself, unless it has
    /// tokens already or somebody was let in.
    fn plan_item(&mut self, arrival: Arrival, draft: &mut Draft) {
        let seq = self.seq(arrival);
        let (n_blocks, scores) = (seq.table.len(), usize::from(seq.scores()));
        let planned = draft.ends.get(&arrival).copied();
        let start = planned.unwrap_or(seq.computed);
        let chunk = self.config.prefill_chunk.saturating_sub(start - seq.computed);
        let wish = (seq.tokens.len() - start).min(chunk).min(draft.budget).min(draft.shares[scores]);
        let fits = ((n_blocks + self.pool.available()) * BLOCK_SIZE).saturating_sub(start);
        let may_preempt = planned.is_none() && !draft.admitted;
        let n = if fits == 0 && may_preempt { wish.min(BLOCK_SIZE) } else { wish.min(fits) };
        let end = start + n;
        if n > 0 && self.extend_table(arrival, blocks_for(end).saturating_sub(n_blocks), draft) {
            draft.ends.insert(arrival, end);
            draft.budget -= n;
            draft.shares[scores] -= n;
        }
    }

    /// Gives a running sequence `n` more blocks. False if it was preempted instead.
    fn extend_table(&mut self, arrival: Arrival, n: usize, draft: &mut Draft) -> bool {
        loop {
            if let Ok(blocks) = self.pool.allocate(n) {
                self.seq_mut(arrival).table.extend(blocks);
                return true;
            }
            if self.drop_parents() {
                continue;
            }
            let youngest = *self.running.last().expect("the sequence itself runs: this is a bug");
            self.preempt(youngest, draft);
            if youngest == arrival {
                return false;
            }
        }
    }

    /// Takes a running sequence's blocks, and its item of this step. It keeps its tokens, and its full blocks
    /// stay cached while nobody needs the space.
    fn preempt(&mut self, arrival: Arrival, draft: &mut Draft) {
        self.publish(arrival);
        let seq = self.seq_mut(arrival);
        if let Some(end) = draft.ends.remove(&arrival) {
            draft.budget += end - seq.computed;
        }
        let table = std::mem::take(&mut seq.table);
        seq.computed = 0;
        seq.restart = true;
        self.pool.release(&table);
        self.running.remove(&arrival);
        self.waiting.insert(arrival);
        self.preemptions += 1;
        draft.preempted = true;
    }

    /// Lets finished sequences go though forks wait for them; what is full of their blocks stays cached, so
    /// the forks lose little. False if there are none.
    fn drop_parents(&mut self) -> bool {
        let parents = std::mem::take(&mut self.finished);
        for &arrival in &parents {
            self.remove(arrival);
        }
        !parents.is_empty()
    }

    /// Starts waiting sequences in order of arrival, passing over those whose kind has no place or no share left.
    /// Only into budget that is left when all running sequences have their items, so there are never more of them
    /// than a step has tokens.
    fn admit(&mut self, draft: &mut Draft) {
        draft.admitted = true;
        let mut running = [0; 2];
        self.running.iter().for_each(|arrival| running[usize::from(self.seq(*arrival).scores())] += 1);
        let mut candidate = self.waiting.first().copied();
        while let Some(arrival) = candidate {
            // a kind of which nothing runs has one place more, so that the other kind's long ones do not hold it up
            let full = running[0] + running[1] >= self.config.max_sequences;
            if draft.budget == 0 || full && running[0].min(running[1]) > 0 {
                break;
            }
            let scores = usize::from(self.seq(arrival).scores());
            let may = (!full || running[scores] == 0) && draft.shares[scores] > 0;
            if may && self.may_start(arrival) {
                let Some(prefix) = self.reserve(arrival) else { break };
                self.start(arrival, prefix, draft);
                self.plan_item(arrival, draft);
                running[scores] += 1;
            }
            candidate = self.waiting.range((Excluded(arrival), Unbounded)).next().copied();
        }
    }

    /// Whether the sequence has no fork parent to wait for. A parent that has just (re)started serves no fork
    /// yet: its own blocks may be copied in this very step.
    fn may_start(&self, arrival: Arrival) -> bool {
        self.seq(arrival).fork.is_none_or(|(parent, at)| {
            let ready = self.finished.contains(&parent) || self.running.contains(&parent);
            let parent = self.seq(parent);
            ready && !parent.restart && parent.computed >= at
        })
    }

    /// Takes what the sequence can start from, if the pool holds the rest of its tokens besides what the
    /// running sequences still need.
    fn reserve(&mut self, arrival: Arrival) -> Option<Prefix> {
        loop {
            let prefix = self.take_prefix(arrival);
            let others = self.running.iter().map(|&other| self.seq(other));
            let promised: usize = others.map(|seq| seq.demand(seq.table.len())).sum();
            if promised + self.seq(arrival).demand(prefix.blocks.len()) <= self.pool.available() {
                return Some(prefix);
            }
            self.pool.release(&prefix.blocks);
            // Nobody who runs will make room; then finished parents are all that stands in the way.
            if !self.running.is_empty() || !self.drop_parents() {
                return None;
            }
        }
    }

    /// References what the sequence can start from: its fork parent's blocks, or cached ones.
    fn take_prefix(&mut self, arrival: Arrival) -> Prefix {
        let seq = self.seq(arrival);
        if let Some((parent, at)) = seq.fork.filter(|&(_, at)| at <= seq.reusable()) {
            let parent = self.seq(parent);
            if parent.tokens[..at] == seq.tokens[..at] {
                let n_full = at / BLOCK_SIZE;
                let blocks = parent.table[..n_full].to_vec();
                let partial = (at % BLOCK_SIZE != 0).then(|| parent.table[n_full]);
                self.pool.retain(&blocks);
                return Prefix { blocks, len: at, partial };
            }
        }
        let blocks = self.match_cached(arrival);
        Prefix { len: blocks.len() * BLOCK_SIZE, blocks, partial: None }
    }

    /// Makes a waiting sequence a running one.
    fn start(&mut self, arrival: Arrival, prefix: Prefix, draft: &mut Draft) {
        let copy = prefix.partial.map(|from| {
            let fresh = self.pool.allocate(1).expect("the block was reserved: this is a bug");
            (from, fresh[0])
        });
        self.unlink(arrival);
        self.waiting.remove(&arrival);
        self.running.insert(arrival);
        let seq = self.seq_mut(arrival);
        seq.table = prefix.blocks;
        seq.table.extend(copy.map(|(_, to)| to));
        seq.computed = prefix.len;
        seq.n_cached.get_or_insert(prefix.len);
        draft.copies.extend(copy);
    }

    fn write_plan(&mut self, draft: Draft) -> StepPlan {
        let mut items = Vec::with_capacity(draft.ends.len());
        for (arrival, end) in draft.ends {
            let seq = self.seq_mut(arrival);
            seq.n_planned += end - seq.computed;
            items.push(StepItem {
                seq: seq.id,
                start: seq.computed,
                end,
                tokens: seq.tokens[seq.computed..end].to_vec(),
                table: seq.table.clone(),
                depth: seq.depth,
                last: end == seq.tokens.len(),
                restart: seq.restart,
            });
        }
        items.sort_by_key(|item| Reverse(item.depth));
        StepPlan { copies: draft.copies, items }
    }
}
