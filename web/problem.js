// What went wrong, in words that say what to do.

import { el } from './dom.js';

export class Problem extends Error {
  /** `todo` says what the reader can do; `id` is the request's. */
  constructor(title, { message = '', todo = '', status = 0, code = null, id = null } = {}) {
    super(message || title);
    Object.assign(this, { title, todo, status, code, id, told: message });
  }
}

/** The problem an answer of the server tells of. */
export function ofAnswer(status, error, id) {
  const code = error?.code ?? null;
  const [title, todo] = explain(status, code, error?.param ?? null);
  return new Problem(title, { message: error?.message ?? `The server answered ${status}.`, todo, status, code, id });
}

function explain(status, code, param) {
  if (code === 'loading') return ['The model is still being loaded', 'This page goes on by itself once it is there.'];
  if (code === 'context_length_exceeded') {
    return ['That is more than the model takes', 'Use fewer or shorter chunks, or start the server with a larger --max-model-len.'];
  }
  if (status === 404 && param === 'head_set') {
    return ['This model has no head set to score with', 'Name some under “other heads”, such as L16H7 L13H0, or serve a model that has a set: qrae models list.'];
  }
  switch (status) {
    case 400: case 404: case 422: return ['The server refused this request', 'Change what the message names and try again.'];
    case 413: return ['That is too much text for one request', 'Use fewer chunks, or start the server with a larger --max-body-bytes.'];
    case 429: return ['The server has all it can do', 'Wait a moment and try again.'];
    case 503: return ['The server cannot use its model', 'Its log says why; it probably has to be started again.'];
    default: return ['The server failed on this request', 'Its log says more. If it happens again, report it.'];
  }
}

/** What `fetch` says when nobody answers. */
export function ofSilence() {
  return new Problem('The server does not answer', {
    message: `Nothing at ${location.origin} took the request.`,
    todo: 'Look whether qrae serve still runs, start it if not, and try again.',
  });
}

/** Any error as a problem. */
export const asProblem = (error) =>
  error instanceof Problem ? error
    : new Problem('This page failed', { message: String(error?.message ?? error), todo: 'Reload it. If it happens again, report it.' });

/** How a problem is shown. */
export function view(problem, again) {
  return el('div', { class: 'problem' },
    el('strong', {}, problem.title),
    problem.told && el('p', { class: 'problem-told' }, problem.told),
    el('p', {}, problem.todo),
    problem.id && problem.status >= 500 && el('p', { class: 'quiet' }, `Request ${problem.id}`),
    again && el('button', { type: 'button', class: 'small', on: { click: again } }, 'Try again'));
}
