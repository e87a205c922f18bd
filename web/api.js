// Asking the server. Holds the key, which lives in this tab's session storage, and asks for one when it is wanted.

import { Problem, ofAnswer, ofSilence } from './problem.js';

const KEY = 'qrae.key';
let askForKey = null;
let asking = null;

/** `ask(wrong)` gives a key or null; `wrong` tells that one was sent and refused. */
export const onKeyWanted = (ask) => { askForKey = ask; };

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const forgetKey = () => sessionStorage.removeItem(KEY);

export const models = () => json('/v1/models');
export const headSets = () => json('/v1/head_sets');
export const description = () => json('/openapi.json');
export const example = () => json('/web/example.json');
export const score = (body, signal) => json('/v1/qrae/score', { body, signal });

/** The events of a chat as they come, each parsed. */
export async function* chat(body, signal) {
  const options = { body: { ...body, stream: true, stream_options: { include_usage: true } }, signal };
  const response = await send('/v1/chat/completions', options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Problem('The answer broke off', { todo: 'Look at the server’s log, and try again.' });
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue; // a comment that keeps the connection open
      const data = event.slice(6);
      if (data === '[DONE]') return;
      const parsed = JSON.parse(data);
      if (parsed.error) throw ofAnswer(500, parsed.error, response.headers.get('x-request-id'));
      yield parsed;
    }
  }
}

async function json(path, options) {
  const response = await send(path, options);
  return response.json();
}

/** The response, when it is a good one. */
async function send(path, { body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
    const init = { headers, signal };
    if (body !== undefined) {
      headers['Content-Type'] = 'application/json';
      Object.assign(init, { method: 'POST', body: JSON.stringify(body) });
    }
    let response;
    try {
      response = await fetch(path, init);
    } catch (error) {
      throw error.name === 'AbortError' ? error : ofSilence();
    }
    if (response.ok) return response;
    if (response.status !== 401) {
      const said = await response.json().catch(() => null);
      throw ofAnswer(response.status, said?.error, response.headers.get('x-request-id'));
    }
    // another request may have got a key in the meantime
    if (sessionStorage.getItem(KEY) === key) await getKey(key !== null);
  }
}

/** One question at a time, whoever asks. */
async function getKey(wrong) {
  asking ??= askForKey(wrong).finally(() => { asking = null; });
  const key = await asking;
  if (key === null) {
    throw new Problem('This server wants a key', {
      status: 401,
      todo: 'Try again and enter one of the keys it was started with (--api-key, QRAE_API_KEY or --api-key-file).',
    });
  }
  sessionStorage.setItem(KEY, key);
}
