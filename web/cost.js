// What scoring took: tokens that were computed, cached or shared, and where the time went.

import { byId, count, el, seconds, show } from './dom.js';
import { watch } from './state.js';

const KINDS = [
  ['computed', 'Computed for this request'],
  ['cached', 'Found in the cache of earlier requests'],
  ['shared', 'Read once for both the question and its control'],
];

export function startCost() {
  watch(['scored'], ({ scored }) => scored && show(byId('cost'), ...view(scored)));
}

function view({ answer: { usage, timings }, seconds: whole }) {
  const tokens = {
    computed: usage.computed_tokens,
    cached: usage.prompt_tokens_details.cached_tokens,
    shared: usage.prompt_tokens_details.shared_tokens,
  };
  const bar = el('div', { class: 'tokens-bar', 'aria-hidden': 'true' });
  const parts = KINDS.map(([kind, title]) => {
    const part = el('span', { class: `tokens-${kind}` });
    part.style.flexGrow = String(tokens[kind]);
    bar.append(part);
    return el('span', { class: 'fact', title }, el('i', { class: `swatch tokens-${kind}` }), `${count(tokens[kind])} ${kind}`);
  });
  const time = (name, ms, title) => el('span', { class: 'fact', title }, `${name} ${seconds(ms / 1000)}`);
  return [
    el('p', { class: 'cost-lead' }, el('b', {}, seconds(whole)), ` for ${count(usage.prompt_tokens)} tokens`),
    bar,
    el('p', { class: 'facts' }, parts),
    el('p', { class: 'facts' },
      time('tokenise', timings.tokenize_ms, 'Laying out and tokenising the prompt'),
      time('wait', timings.queue_ms, 'Waiting for the engine'),
      time('prefill', timings.prefill_ms, 'In the engine'),
      time('score', timings.score_ms, 'From attention rows to scores')),
  ];
}
