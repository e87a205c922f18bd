//! Servers whose engine a test holds in its hand: one that runs a pass when it is told to, and one that says what a
//! script says. Both are the tiny model but for that.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use axum::Router;
use qrae::{
    engine::{EngineConfig, EngineHandle},
    ids::TokenId,
    model::{Batch, BatchItem, Compute, Decoder, DecoderSpec, ForwardOutput, Output, load},
    ops::{Cpu, KvFloat, KvStore, OpError},
    sched::SchedConfig,
    service::{LoadOptions, ServedModel},
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::support::*;

/// Most prompt tokens of a step in which something decodes.
pub const SHARE: usize = 64;

/// A prompt with this character makes the pass panic that computes it.
pub const PANIC: &str = "\u{7f}";

/// The character's token: the tiny model's first tokens are the bytes.
const PANIC_TOKEN: TokenId = 0x7f;

/// What one pass computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Answers that get their next token.
    pub answers: usize,
    /// Tokens of prompts to be answered.
    pub prompts: usize,
    /// Tokens of scoring prompts.
    pub scored: usize,
}

impl Pass {
    fn of(items: &[BatchItem], n_layers: usize) -> Self {
        let mut pass = Self::default();
        for item in items {
            let n = item.tokens.len();
            if usize::from(item.depth.0) < n_layers {
                pass.scored += n;
            } else if n == 1 && item.output == Output::Logits {
                pass.answers += 1;
            } else {
                pass.prompts += n;
            }
        }
        pass
    }
}

/// Stands before every pass.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    let_through: usize,
    begun: Vec<Pass>,
    done: usize,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The pass that stands before the gate, once there is one. What the engine says of itself holds for it.
    pub async fn next(&self) -> Pass {
        let mut pass = None;
        soon("a pass begins", || {
            let state = self.state();
            pass = state.begun.get(state.done).copied();
            pass.is_some()
        })
        .await;
        pass.unwrap()
    }

    /// Lets the next pass through and waits until it is done.
    pub async fn step(&self) -> Pass {
        let pass = self.next().await;
        let done = self.state().done;
        self.state().let_through += 1;
        self.changed.notify_all();
        soon("the pass ends", || self.state().done > done).await;
        pass
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.state().open = true;
        self.changed.notify_all();
    }

    /// Passes that were begun.
    pub fn passes(&self) -> usize {
        self.state().begun.len()
    }

    fn enter(&self, pass: Pass) {
        let mut state = self.state();
        state.begun.push(pass);
        while !state.open && state.let_through == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.let_through = state.let_through.saturating_sub(1);
    }
}

/// The tiny decoder behind a gate.
struct Gated {
    decoder: Box<dyn Decoder>,
    gate: Arc<Gate>,
}

impl Decoder for Gated {
    fn spec(&self) -> &DecoderSpec {
        self.decoder.spec()
    }

    fn kv_float(&self) -> KvFloat {
        self.decoder.kv_float()
    }

    fn forward(&mut self, cpu: &Cpu, batch: &Batch, kv: &mut KvStore) -> Result<ForwardOutput, OpError> {
        self.gate.enter(Pass::of(batch.items(), self.spec().n_layers));
        // in prompts only: a generated token may be any
        let planted = |item: &BatchItem| item.tokens.len() > 1 && item.tokens.contains(&PANIC_TOKEN);
        let panics = batch.items().iter().any(planted);
        let out = if panics { None } else { Some(self.decoder.forward(cpu, batch, kv)) };
        self.gate.state().done += 1;
        out.expect("planted panic")
    }
}

/// The tiny decoder's sizes, and answers from a script: one at a time.
struct Scripted {
    spec: DecoderSpec,
    script: Vec<TokenId>,
    said: usize,
}

impl Decoder for Scripted {
    fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    fn kv_float(&self) -> KvFloat {
        KvFloat::F32
    }

    fn forward(&mut self, _: &Cpu, batch: &Batch, _: &mut KvStore) -> Result<ForwardOutput, OpError> {
        let mut logits = Vec::new();
        for item in batch.items().iter().filter(|item| item.output == Output::Logits) {
            // an answer begins after a prompt, which has more than one token
            self.said = if item.tokens.len() > 1 { 0 } else { self.said + 1 };
            let next = self.script.get(self.said).copied().unwrap_or(IM_END);
            let mut of_item = vec![0.0; self.spec.vocab];
            of_item[next as usize] = 100.0;
            logits.push(of_item);
        }
        Ok(ForwardOutput { logits, captured: Vec::new() })
    }
}

fn decoder() -> Box<dyn Decoder> {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qwen3");
    load::folder(&golden, None, Compute::default()).unwrap()
}

fn with_engine(
    mut model: ServedModel,
    decoder: Box<dyn Decoder>,
    max_sequences: usize,
    prefix_cache: bool,
) -> ServedModel {
    let sched = SchedConfig {
        max_batched_tokens: 1024,
        prefill_chunk: 512,
        prefill_beside_decode: SHARE,
        max_sequences,
    };
    let config = EngineConfig { kv_blocks: 512, sched, threads: 1, prefix_cache, early_exit: true };
    model.engine = EngineHandle::start(decoder, &config).unwrap();
    model
}

/// The tiny model behind a gate, which runs as many sequences at once.
pub fn gated(max_sequences: usize) -> (Arc<Gate>, ServedModel) {
    let gate = Arc::new(Gate::default());
    let decoder = Gated { decoder: decoder(), gate: Arc::clone(&gate) };
    (gate, with_engine(model(), Box::new(decoder), max_sequences, true))
}

/// A server that answers everything with this text, byte by byte, one request and choice at a time.
pub fn scripted(text: &str, options: LoadOptions) -> Router {
    let script = text.bytes().map(TokenId::from).collect();
    let decoder = Scripted { spec: decoder().spec().clone(), script, said: 0 };
    // a prompt of which all but one token is found would look like the next token of an answer
    served(with_engine(loaded(options), Box::new(decoder), 8, false))
}

/// Sends a request that is waited for later.
pub fn spawn_post(app: &Router, path: &'static str, body: Value) -> JoinHandle<Answer> {
    let app = app.clone();
    tokio::spawn(async move { post(&app, path, &body).await })
}
