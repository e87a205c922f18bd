//! One step on the device: copy blocks, run the batch, read attention rows. A failure is pinned on the item that causes
//! it.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::jobs::{Jobs, Reading};
use crate::{
    model::{Batch, BatchItem, Captured, Decoder, Output},
    ops::{AttentionRows, Cpu, KvStore, RowQuery},
    sched::{StepItem, StepPlan},
};

/// What one item yielded.
#[derive(Debug, Default)]
pub(super) struct ItemResult {
    /// `[vocab]`, where wanted.
    pub(super) logits: Option<Vec<f32>>,
    /// Per layer with wanted heads: indices of the heads, and their rows, `[reads][heads]`.
    pub(super) rows: Vec<(Vec<usize>, AttentionRows)>,
}

/// The device's side of the engine.
pub(super) struct Device {
    pub(super) decoder: Box<dyn Decoder>,
    pub(super) kv: KvStore,
    pub(super) cpu: Cpu,
}

impl Device {
    /// Runs `plan`; one result per item. When the pass over all items fails, each runs again alone (writing the same KV
    /// to the same slots), so that only those fail that cannot run.
    pub(super) fn run(&mut self, plan: &StepPlan, jobs: &Jobs) -> Vec<Result<ItemResult, String>> {
        let copy = |&(from, to): &_| self.kv.copy_block(from, to).map_err(|e| e.to_string());
        let copied = plan.copies.iter().try_for_each(copy);
        if let Err(reason) = copied {
            return plan.items.iter().map(|_| Err(reason.clone())).collect();
        }
        match guarded(|| self.pass(&plan.items, jobs)) {
            Ok(results) => results.into_iter().map(Ok).collect(),
            Err(reason) if plan.items.len() == 1 => vec![Err(reason)],
            Err(_) => {
                let mut alone = |item: &StepItem| {
                    let mut results = guarded(|| self.pass(std::slice::from_ref(item), jobs))?;
                    results.pop().ok_or_else(|| "a pass over one item gave no result".to_owned())
                };
                plan.items.iter().map(&mut alone).collect()
            }
        }
    }
}

/// Runs `f`; a panic becomes an error. What a failed pass half wrote is never read: its blocks are not published and
/// their sequence is dropped.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(message(&*panic)))
}

impl Device {
    fn pass(&mut self, items: &[StepItem], jobs: &Jobs) -> Result<Vec<ItemResult>, String> {
        let batch = Batch::new(items.iter().map(|item| batch_item(item, jobs)).collect());
        let out = self.decoder.forward(&self.cpu, &batch, &mut self.kv).map_err(|e| e.to_string())?;
        let mut results: Vec<ItemResult> = items.iter().map(|_| ItemResult::default()).collect();
        let wanting =
            batch.items().iter().zip(&mut results).filter(|(item, _)| item.output == Output::Logits);
        for ((_, result), logits) in wanting.zip(out.logits) {
            result.logits = Some(logits);
        }
        for captured in out.captured {
            let item = &items[captured.item];
            let reading = jobs.reading(item).ok_or("rows of a sequence that reads none")?;
            let rows = self.rows(&captured, item, &reading)?;
            results[captured.item].rows.push((captured.heads, rows));
        }
        Ok(results)
    }

    fn rows(&self, c: &Captured, item: &StepItem, reading: &Reading<'_>) -> Result<AttentionRows, String> {
        let spec = self.decoder.spec();
        let group = spec.n_heads / spec.n_kv_heads;
        let kv_heads: Vec<usize> =
            c.heads.iter().map(|&h| usize::from(reading.heads[h].head) / group).collect();
        let query = RowQuery {
            kv_heads: &kv_heads,
            table: &item.table,
            candidates: reading.candidates,
            visible: reading.visible.as_deref(),
        };
        self.kv.attention_rows(&self.cpu, c.layer, &c.queries, &query).map_err(|e| e.to_string())
    }
}

fn batch_item(item: &StepItem, jobs: &Jobs) -> BatchItem {
    BatchItem {
        tokens: item.tokens.clone(),
        first_position: item.start,
        table: item.table.clone(),
        depth: item.depth,
        output: jobs.output(item),
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic: {}", text.unwrap_or("without a message"))
}
