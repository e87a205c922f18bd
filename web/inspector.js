// The line that says everything of the word that is pointed at.

import { byId, el, show } from './dom.js';
import { evenShare } from './ranking.js';
import { pieces, strongest } from './spans.js';
import { watch } from './state.js';

export function startInspector() {
  let marked = null;
  watch(['pointed', 'scored', 'head'], ({ pointed, scored, head }) => {
    marked?.classList.remove('pointed');
    marked = pointed?.node ?? null;
    marked?.classList.add('pointed');
    const node = byId('inspector');
    if (!scored || !pointed) {
      return show(node, el('span', { class: 'quiet' }, 'Point at a word, or go to a text with Tab and on with ← →, to see how each head responds to it.'));
    }
    return show(node, ...view(scored, pointed, head));
  });
}

function view({ chunks, answer: { results, heads } }, { chunk, piece }, shown) {
  const even = evenShare(results);
  const whole = chunks[chunk].text;
  const { from, to, text, tokens } = pieces(whole, results[chunk].explain ?? [])[piece];
  const times = (head) => strongest(tokens, head) / even;
  const most = Math.max(1, ...heads.map((_, head) => times(head)));
  const fact = (name, head) => {
    const bar = el('i', {});
    bar.style.width = `${(100 * times(head)) / most}%`;
    return el('span', { class: head === shown ? 'head-fact shown' : 'head-fact' },
      el('span', {}, name), el('span', { class: 'head-bar', 'aria-hidden': 'true' }, bar), el('b', {}, `${times(head).toFixed(1)}×`));
  };
  return [
    el('span', { class: 'word' },
      el('span', {}, /\s/.test(text[0]) ? '' : /\S*$/.exec(whole.slice(Math.max(0, from - 40), from))[0]),
      text.trim() || '␣',
      el('span', {}, /\s$/.test(text) ? '' : /^\S*/.exec(whole.slice(to, to + 40))[0])),
    el('span', { class: 'quiet' }, tokens.length === 0 ? 'was not scored' : 'responds, in even shares'),
    tokens.length > 0 && el('span', { class: 'head-facts' }, fact('mean', -1), heads.map(fact)),
  ];
}
