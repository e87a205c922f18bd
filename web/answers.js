// The question answered twice: from all chunks, and from the best ones. One after the other, so that times compare.

import * as api from './api.js';
import { asProblem, view as problemView } from './problem.js';
import { byId, count, el, seconds, several, show } from './dom.js';
import { cutText } from './spans.js';
import { get, set, watch } from './state.js';
import { shownOrder, windowsOf } from './ranking.js';

const MAX_TOKENS = 96;

let running = null;

/** `say(text)` reaches who hears the page. Gives what shortcuts call. */
export function startAnswers(say) {
  const stop = () => running?.abort();
  const start = () => {
    if (get().scored === null) return;
    byId('answers').scrollIntoView({ block: 'start' });
    both(say);
  };
  const parts = frame(start, stop);
  watch(['scored', 'keep', 'send'], (state) => state.scored && controls(parts, state));
  watch(['scored', 'answers'], (state) => {
    // other chunks were scored meanwhile
    if (state.answers === null) running?.abort();
    const busy = state.answers?.running ?? false;
    parts.go.hidden = busy;
    parts.stop.hidden = !busy;
    show(parts.panels, panel('full', state.answers?.full), panel('filtered', state.answers?.filtered));
    show(parts.saved, saving(state.answers));
  });
  return { start, stop };
}

function frame(start, stop) {
  const keep = el('input', { type: 'range', id: 'keep', min: 1, step: 1, on: { input: (e) => set({ keep: Number(e.target.value) }) } });
  const keepOut = el('output', { for: 'keep' });
  const send = el('select', { id: 'send', on: { change: (e) => set({ send: e.target.value }) } },
    el('option', { value: 'chunks' }, 'whole chunks'), el('option', { value: 'spans' }, 'only the underlined sentences'));
  const parts = {
    keep, keepOut, send,
    go: el('button', { type: 'button', id: 'answer', class: 'primary', on: { click: start } }, 'Answer both ', el('kbd', {}, 'a')),
    stop: el('button', { type: 'button', id: 'answer-stop', hidden: true, on: { click: stop } }, 'Stop ', el('kbd', {}, 'Esc')),
    panels: el('div', { class: 'panels' }),
    saved: el('p', { class: 'saved', role: 'status' }),
  };
  show(byId('answers'),
    el('div', { class: 'title-row' }, el('h2', { id: 'answers-title' }, 'Answers'),
      el('p', { class: 'quiet' }, 'by the same model, one after the other so that their times compare')),
    el('div', { class: 'answer-controls' },
      el('div', { class: 'keep' }, el('label', { for: 'keep' }, 'Keep the best ', keepOut), keep),
      el('label', { class: 'option' }, el('span', {}, 'and send of them'), send), parts.go, parts.stop),
    parts.panels, parts.saved);
  return parts;
}

function controls({ keep, keepOut, send }, state) {
  const n = state.scored.chunks.length;
  keep.max = String(n);
  keep.value = String(state.keep);
  keepOut.textContent = `${state.keep} of ${n}`;
  send.value = state.send;
}

/** Texts of the chunks that are sent, in the order they came in. */
function selection() {
  const { scored: { chunks }, keep, send } = get();
  const best = new Set(shownOrder().slice(0, keep));
  const kept = chunks.flatMap((chunk, i) => (best.has(i) ? [{ chunk, windows: windowsOf(i) }] : []));
  const text = ({ chunk, windows }) => (send === 'spans' ? { ...chunk, text: cutText(chunk.text, windows) } : chunk);
  return { all: chunks, kept: kept.map(text) };
}

/** The prompt of `qrae demo`. */
function prompt(question, chunks) {
  const listed = chunks.map(({ title, text }, i) => `[${i + 1}] ${title ? `${title}: ` : ''}${text}`).join('\n\n');
  return `Search results:\n\n${listed}\n\nAnswer in one sentence, using only the search results above.\nQuestion: ${question}`;
}

async function both(say) {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const { scored, send } = get();
  const { all, kept } = selection();
  const what = send === 'spans' ? `Sentences of the best ${kept.length}` : `The best ${kept.length}`;
  const fresh = (title) => ({ title, phase: 'waiting', text: '', problem: null });
  set({ answers: { full: fresh(`All ${several(all.length, 'chunk')}`), filtered: fresh(what), running: true } });
  for (const [side, chunks] of [['full', all], ['filtered', kept]]) {
    if (running !== mine || !get().answers) return;
    await answer(side, prompt(scored.question, chunks), mine);
  }
  if (running !== mine || !get().answers) return;
  running = null;
  set({ answers: { ...get().answers, running: false } });
  say('Both answers are there');
}

/** One answer, into the state piece by piece. */
async function answer(side, content, mine) {
  const change = (fields) => {
    if (running === mine && get().answers) set({ answers: { ...get().answers, [side]: { ...get().answers[side], ...fields } } });
  };
  if (mine.signal.aborted) return change({ phase: 'stopped' });
  const body = {
    messages: [{ role: 'user', content }], temperature: 0, max_tokens: MAX_TOKENS,
    // a cache of its own, so that each answer pays for its own prompt
    cache_salt: crypto.randomUUID?.() ?? String(Math.random()),
  };
  const begin = performance.now();
  const passed = () => (performance.now() - begin) / 1000;
  change({ phase: 'reading' });
  try {
    let [text, first] = ['', null];
    for await (const { choices, usage } of api.chat(body, mine.signal)) {
      const piece = choices[0]?.delta?.content ?? '';
      if (piece !== '') {
        first ??= passed();
        text += piece;
        change({ phase: 'writing', text, first });
      }
      if (choices[0]?.finish_reason) change({ finish: choices[0].finish_reason });
      if (usage) change({ usage });
    }
    return change({ phase: 'done', total: passed() });
  } catch (error) {
    return change(error.name === 'AbortError' ? { phase: 'stopped' } : { phase: 'failed', problem: asProblem(error) });
  }
}

const WORDS = { waiting: 'waits for its turn', reading: 'reads its prompt …', stopped: 'stopped' };

function panel(side, state) {
  const title = state?.title ?? { full: 'All chunks', filtered: 'The best' }[side];
  const node = el('article', { class: 'panel', id: `answer-${side}`, data: { phase: state?.phase ?? 'none' } }, el('h3', {}, title));
  if (!state) {
    node.append(el('p', { class: 'quiet' }, 'Not asked yet.'));
    return node;
  }
  if (state.text !== '') node.append(el('p', { class: 'answer-text' }, state.text));
  if (WORDS[state.phase]) node.append(el('p', { class: 'quiet' }, WORDS[state.phase]));
  if (state.problem) node.append(problemView(state.problem, null));
  if (state.usage && state.phase === 'done') node.append(facts(state));
  return node;
}

function facts({ usage, first, total, finish }) {
  const rate = first !== null && total > first && usage.completion_tokens > 1
    ? `${Math.round((usage.completion_tokens - 1) / (total - first))} tokens/s` : '';
  return el('p', { class: 'facts' },
    el('span', { class: 'fact' }, `${count(usage.prompt_tokens)} prompt tokens`),
    first !== undefined && el('span', { class: 'fact' }, `first word after ${seconds(first)}`),
    rate && el('span', { class: 'fact' }, rate),
    finish === 'length' && el('span', { class: 'flag' }, `cut after ${MAX_TOKENS} tokens`));
}

function saving(answers) {
  if (answers?.full.phase !== 'done' || answers.filtered.phase !== 'done') return null;
  const [full, filtered] = [answers.full, answers.filtered];
  const less = Math.round(100 * (1 - filtered.usage.prompt_tokens / full.usage.prompt_tokens));
  return less > 0 ? `The second answer had ${less} % fewer tokens to read.` : 'Both answers had as many tokens to read.';
}
