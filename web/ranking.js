// The list of chunks, the best first, with the cut below those that are kept.

import { byId, count, el, several, show } from './dom.js';
import { chunkView } from './chunk.js';
import { get, set, watch } from './state.js';
import { ranking, scoreIn, SHADES } from './spans.js';

let views = [];

export function startRanking() {
  legend();
  byId('share').addEventListener('input', (event) => set({ share: Number(event.target.value) / 100 }));
  byId('only-kept').addEventListener('change', (event) => set({ onlyKept: event.target.checked }));
  watch(['scored'], ({ scored }) => {
    const even = scored ? evenShare(scored.answer.results) : 0;
    views = scored ? scored.chunks.map((chunk, i) => chunkView(i, chunk, scored.answer.results[i], even)) : [];
  });
  watch(['scored', 'head', 'keep'], (state) => state.scored && order(state));
  watch(['scored', 'head', 'share', 'onlyKept'], (state) => state.scored && gate(state));
  watch(['scored', 'head'], note);
}

/** What each token would get if attention were spread evenly over the tokens of all chunks. */
export function evenShare(results) {
  return 1 / Math.max(1, results.reduce((sum, result) => sum + result.tokens_scored, 0));
}

function order({ scored: { answer: { results } }, head, keep }) {
  const ranked = ranking(results, head);
  const most = Math.max(...results.map((result) => scoreIn(result, head)), 0);
  const list = ranked.map((index, i) => {
    const view = views[index];
    view.rank({ rank: i + 1, overall: results[index].rank, head, most, kept: i < keep });
    return view.node;
  });
  const cut = el('li', { class: 'cut', role: 'presentation' }, keep === 1 ? 'the best one is kept' : `the best ${count(keep)} are kept`);
  const focus = document.activeElement;
  show(byId('ranking'), list.slice(0, keep), keep < list.length && cut, list.slice(keep));
  // what is moved in the document loses the focus
  if (focus !== document.activeElement && byId('ranking').contains(focus)) focus.focus({ preventScroll: true });
}

function gate({ head, share, onlyKept }) {
  byId('share').value = String(Math.round(share * 100));
  byId('share-out').textContent = `${Math.round(share * 100)} %`;
  byId('only-kept').checked = onlyKept;
  byId('ranking').classList.toggle('only-kept', onlyKept);
  let [tokens, of, windows] = [0, 0, 0];
  for (const view of views) {
    const kept = view.paint({ head, share });
    tokens += kept.tokens;
    of += kept.of;
    windows += kept.windows;
  }
  byId('gate-note').textContent = of === 0 ? ''
    : `${count(tokens)} of ${count(of)} tokens (${Math.round((100 * tokens) / of)} %) in ${several(windows, 'span')}`;
}

function note({ scored, head }) {
  if (!scored) return;
  const { results, heads, head_set: set_, method, orders } = scored.answer;
  const by = head < 0 ? `${several(heads.length, 'head')} (${set_})` : `${heads[head]} alone`;
  const more = orders > 1 ? `, averaged over ${orders} orders` : '';
  byId('ranking-note').textContent = `${several(results.length, 'chunk')} by ${method.statistic} of ${by}${more}`;
}

function legend() {
  const swatches = ['<1', ...SHADES].map((least, i) =>
    el('span', { class: `r${i}` }, i === 0 ? '< 1' : i === SHADES.length ? `${least} +` : String(least)));
  show(byId('legend'),
    el('p', {}, 'Response of a word, in even shares'),
    el('div', { class: 'scale', role: 'img', 'aria-label': `Shades from pale to strong begin at ${SHADES.join(', ')} even shares` }, swatches),
    el('p', { class: 'quiet' }, 'An even share is what every token would get if attention were spread evenly. ',
      el('span', { class: 'kept' }, 'Underlined'), ': what a gate would keep.'));
}

/** The windows the gate keeps of a chunk, for the filtered answer. */
export const windowsOf = (index) => views[index].windows();

/** The shown order, as indices. */
export const shownOrder = () => ranking(get().scored.answer.results, get().head);
