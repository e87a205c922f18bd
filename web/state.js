// The one state of the page. Views read it, and are told which of its fields changed.

const state = {
  server: { phase: 'connecting' }, // connecting, loading, ready, locked, down; with model and length when ready
  sets: [], // head sets of the model
  question: '',
  parsed: { chunks: [], question: null, form: '', wrong: null }, // of chunks.js
  options: { head_set: '', heads: '', statistic: '', control: '', read: '', orders: 1 },
  scoring: false,
  problem: null,
  scored: null, // { question, chunks, options, answer, seconds }
  head: -1, // index of the head that is shown, -1 for all
  sort: 'rank', // or given
  share: 0.6, // of a chunk's response mass that the gate keeps
  onlyKept: false,
  keep: 0, // chunks the filtered answer gets
  send: 'chunks', // or spans
  answers: null, // { full, filtered, running }
  pointed: null, // { chunk, piece }
};

const listeners = new Set();

export const get = () => state;

/** Changes fields; those that stay the same tell nobody. */
export function set(fields) {
  const changed = Object.keys(fields).filter((name) => !Object.is(state[name], fields[name]));
  if (changed.length === 0) return;
  Object.assign(state, fields);
  for (const { names, tell } of listeners) if (names.some((name) => changed.includes(name))) tell(state);
}

/** Calls `tell` now, and whenever one of these fields changed. */
export function watch(names, tell) {
  listeners.add({ names, tell });
  tell(state);
}
