// How chunks are scored, and which head is looked at.

import { byId, el, show } from './dom.js';
import { get, set, watch } from './state.js';

const CHOICES = {
  statistic: ['entropy', 'sum', 'breadth', 'scaled_sum'],
  control: ['query_free', 'null_query', 'none'],
  read: ['last', 'query_mean'],
};

/** What the server does where neither the head set nor the request says. */
const PAPER = { statistic: 'entropy', control: 'query_free', read: 'last' };

const TITLES = {
  statistic: 'What is computed from the responses of a chunk’s tokens',
  control: 'What is subtracted from the attention under the question',
  read: 'Where the question’s attention is read',
  orders: 'Score the chunks in several orders and average: slower, ranks better',
  head_set: 'The heads that are read',
  heads: 'Heads to read instead of the set’s, such as L16H7 L13H0',
};

/** `rescore()` scores again under the options as they are. */
export function startMethod(rescore) {
  const heads = el('div', { class: 'heads', role: 'radiogroup', 'aria-label': 'Head that is shown' });
  const options = byId('options');
  show(byId('method'), heads);

  const choose = (name, value) => {
    if (get().options[name] === value) return;
    set({ options: { ...get().options, [name]: value } });
    rescore();
  };
  watch(['sets', 'server'], ({ sets, server }) => {
    show(options, ...fields(sets, choose));
    const first = sets.find((one) => one.default);
    reflect(options, server.phase === 'ready' ? first?.method ?? PAPER : {});
  });
  watch(['scored'], ({ scored }) => scored && show(heads, ...radios(scored.answer.heads)));
  watch(['scored', 'head'], ({ head }) => {
    for (const input of heads.querySelectorAll('input')) input.checked = Number(input.value) === head;
  });
  watch(['scored'], ({ scored }) => scored && reflect(options, scored.answer.method));
}

function radios(heads) {
  return ['all heads', ...heads].map((name, i) => el('label', { class: 'head' },
    el('input', { type: 'radio', name: 'head', value: i - 1, on: { change: () => set({ head: i - 1 }) } }),
    el('span', {}, name)));
}

function fields(sets, choose) {
  const select = (name, choices) => el('label', { class: 'option', title: TITLES[name] },
    el('span', {}, name.replace('_', ' ')),
    el('select', { id: `option-${name}`, on: { change: (event) => choose(name, event.target.value) } },
      choices.map(([value, text]) => el('option', { value }, text))));
  const plain = (list) => list.map((word) => [word, word]);
  const orders = el('label', { class: 'option', title: TITLES.orders },
    el('span', {}, 'orders'),
    el('select', { id: 'option-orders', on: { change: (event) => choose('orders', Number(event.target.value)) } },
      [1, 2, 3, 4].map((n) => el('option', { value: n }, n))));
  const heads = el('label', { class: 'option wide', title: TITLES.heads },
    el('span', {}, 'other heads'),
    el('input', { id: 'option-heads', placeholder: 'L16H7 L13H0', spellcheck: 'false', autocomplete: 'off',
      on: { change: (event) => choose('heads', event.target.value.trim()) } }));
  const many = sets.length > 1;
  return [
    ...Object.entries(CHOICES).map(([name, words]) => select(name, plain(words))), orders,
    many && select('head_set', sets.map(({ id, default: first }) => [first ? '' : id, id])), heads,
  ];
}

/** Shows the method in use, whoever chose it. */
function reflect(options, method) {
  for (const name of Object.keys(CHOICES)) {
    const select = options.querySelector(`#option-${name}`);
    if (select) select.value = method[name] ?? '';
  }
}
