// Responses of tokens → pieces of text, shades, sentences, what a gate keeps. Pure: knows no page. Tests: tests/page.
//
// The server counts characters as Unicode scalar values, JavaScript in UTF-16: all indices here are JavaScript's, made
// from the server's in `pieces` alone. A head is its index, -1 for the mean over all.

/** A token's response in a head. */
export const response = (token, head) => (head < 0 ? token.response : token.per_head[head]);

/**
 * A chunk's text cut at its tokens, with nothing left out. Tokens that share characters (parts of one letter) are one
 * piece; `tokens` is empty for a piece that no token was scored in.
 */
export function pieces(text, tokens) {
  const at = [0];
  for (const letter of text) at.push(at.at(-1) + letter.length);
  const cut = [];
  let end = 0;
  for (const token of tokens) {
    const from = at[Math.min(token.start, at.length - 1)];
    const to = at[Math.min(token.end, at.length - 1)];
    if (to <= from) continue; // of the title alone
    const last = cut.at(-1);
    if (from < end && last) {
      last.tokens.push(token);
      if (to > last.to) Object.assign(last, { to, text: text.slice(last.from, to) });
    } else {
      if (from > end) cut.push({ from: end, to: from, text: text.slice(end, from), tokens: [] });
      cut.push({ from, to, text: text.slice(from, to), tokens: [token] });
    }
    end = Math.max(end, to);
  }
  if (end < text.length) cut.push({ from: end, to: text.length, text: text.slice(end), tokens: [] });
  return cut;
}

/** The strongest response in a piece. */
export const strongest = (tokens, head) => tokens.reduce((most, token) => Math.max(most, response(token, head)), 0);

/** Responses from which a shade begins, in even shares: what each token would get if attention were spread evenly. */
export const SHADES = [1, 2, 4, 8, 16, 32];

/** 0 (none) to 6. */
export const shade = (value, even) => SHADES.filter((least) => value >= least * even).length;

const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' });

/** The sentences of a text, `{from, to}`, with nothing left out between them. */
export const sentences = (text) =>
  Array.from(segmenter.segment(text), ({ index, segment }) => ({ from: index, to: index + segment.length }));

/**
 * What a gate keeps of a chunk: the fewest sentences that hold `share` of its response mass, neighbours joined to
 * windows. A piece counts for the sentence its last character is in.
 * @returns {{from: number, to: number}[]} in the order of the text
 */
export function gate(text, cut, head, share) {
  const parts = sentences(text).map((part) => ({ ...part, mass: 0 }));
  let i = 0;
  for (const piece of cut) {
    while (piece.to > parts[i].to) i += 1;
    for (const token of piece.tokens) parts[i].mass += response(token, head);
  }
  const wanted = share * parts.reduce((sum, part) => sum + part.mass, 0);
  const kept = new Set();
  let held = 0;
  // the sort is stable: of equals the earlier is kept
  for (const part of [...parts].sort((a, b) => b.mass - a.mass)) {
    if (held >= wanted * (1 - 1e-9) || part.mass === 0) break;
    kept.add(part);
    held += part.mass;
  }
  const windows = [];
  for (const part of parts.filter((one) => kept.has(one))) {
    const last = windows.at(-1);
    if (last?.to === part.from) last.to = part.to;
    else windows.push({ from: part.from, to: part.to });
  }
  return windows;
}

/** Whether a piece ends in one of the windows. */
export const inside = (piece, windows) => windows.some(({ from, to }) => piece.to > from && piece.to <= to);

/** The text of windows, what lies between them as an ellipsis. */
export const cutText = (text, windows) => windows.map(({ from, to }) => text.slice(from, to).trim()).join(' … ');

/** A chunk's score in a head, of the server's answer. */
export const scoreIn = (result, head) => (head < 0 ? result.score : result.heads[head].score);

/** Indices of the results, the best first; equals keep the order they came in. */
export function ranking(results, head) {
  if (head < 0) return [...results.keys()].sort((a, b) => results[a].rank - results[b].rank);
  return [...results.keys()].sort((a, b) => scoreIn(results[b], head) - scoreIn(results[a], head) || a - b);
}
