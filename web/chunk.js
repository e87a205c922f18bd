// One chunk: its rank, score, and text, shaded piece by piece.

import { el, several } from './dom.js';
import { set } from './state.js';
import { gate, inside, pieces, response, scoreIn, shade, strongest } from './spans.js';

/** A chunk's element, and what changes it. `even` is the even share of attention. */
export function chunkView(index, chunk, result, even) {
  const explain = result.explain ?? [];
  const cut = pieces(chunk.text, explain);
  // the space before a word is no part of what is shaded
  const spaces = cut.map((piece) => el('span', {}, /^\s*/.exec(piece.text)[0]));
  const nodes = cut.map((piece, i) => el('span', { data: { piece: i } }, piece.text.trimStart()));
  const ofTitle = explain.filter((token) => token.in_title);
  const title = el('h3', { class: 'chunk-title', id: `chunk-${index}` }, el('span', {}, chunk.title || `Chunk ${index + 1}`));
  const text = el('p', {
    class: 'chunk-text', tabindex: 0, role: 'group', 'aria-labelledby': `chunk-${index}`,
    'aria-description': 'Arrow keys go from word to word',
  }, nodes.flatMap((one, i) => [spaces[i], one]));
  const place = el('span', { class: 'rank' });
  const bar = el('span', {});
  const score = el('span', { class: 'score' });
  const moved = el('span', { class: 'quiet' });
  const node = el('li', { class: 'chunk' },
    el('div', { class: 'chunk-head' }, place, title, el('span', { class: 'bar', 'aria-hidden': 'true' }, bar), score),
    el('p', { class: 'chunk-facts quiet' }, link(chunk.url), several(result.tokens, 'token'), flags(result.flags), moved),
    text);
  let windows = [];
  pointing(text, nodes, index);

  return {
    node,
    windows: () => windows,
    rank({ rank, overall, head, most, kept }) {
      const value = scoreIn(result, head);
      place.textContent = String(rank);
      score.textContent = value.toFixed(4);
      bar.style.width = `${most > 0 ? (100 * value) / most : 0}%`;
      node.classList.toggle('dropped', !kept);
      moved.textContent = head >= 0 && overall !== rank ? `rank ${overall} over all heads` : '';
    },
    /** Shades, and what a gate keeps: how many tokens of how many, in how many windows. */
    paint({ head, share }) {
      windows = gate(chunk.text, cut, head, share);
      const kept = { tokens: 0, of: 0, windows: windows.length };
      let before = { is: true, level: 0 };
      cut.forEach((piece, i) => {
        const is = inside(piece, windows);
        const level = shade(strongest(piece.tokens, head), even);
        const gap = !is && (before.is || i === 0);
        nodes[i].className = `r${level}${is ? ' kept' : ''}${gap ? ' gap' : ''}`;
        spaces[i].className = `r${Math.min(level, before.level)}${is && before.is && i > 0 ? ' kept' : ''}`;
        before = { is, level };
        kept.of += piece.tokens.length;
        if (is) kept.tokens += piece.tokens.length;
      });
      const most = ofTitle.reduce((max, token) => Math.max(max, response(token, head)), 0);
      title.firstChild.className = `r${shade(most, even)}`;
      return kept;
    },
  };
}

/** Only addresses of the web become links. */
function link(url) {
  if (!url) return null;
  if (!/^https?:\/\//i.test(url)) return el('span', {}, url);
  return el('a', { href: url, rel: 'noopener noreferrer', target: '_blank' }, url.replace(/^https?:\/\//i, ''));
}

const FLAGS = {
  empty: 'empty', single_token: 'a single token', no_response: 'no response', truncated: 'cut to its first tokens',
};

const flags = (set_) => Object.entries(FLAGS).filter(([name]) => set_[name]).map(([, words]) => el('span', { class: 'flag' }, words));

/** The piece under mouse, finger or cursor keys is told to the state. */
function pointing(text, nodes, index) {
  let at = -1;
  const point = (piece) => {
    at = piece;
    set({ pointed: { chunk: index, piece, node: nodes[piece] } });
  };
  const under = (event) => {
    const piece = event.target.dataset?.piece;
    if (piece !== undefined) point(Number(piece));
  };
  text.addEventListener('pointerover', under);
  text.addEventListener('click', under);
  text.addEventListener('focus', () => at < 0 && nodes.length > 0 && text.matches(':focus-visible') && point(0));
  text.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || nodes.length === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    point(Math.min(nodes.length - 1, Math.max(0, at + step)));
  });
}
