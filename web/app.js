// The page's beginning: makes the views, finds out what the server serves, and scores.

import * as api from './api.js';
import { asProblem, view as problemView } from './problem.js';
import { byId, count, el, several, show } from './dom.js';
import { get, set, watch } from './state.js';
import { startAsk } from './ask.js';
import { startAnswers } from './answers.js';
import { startCost } from './cost.js';
import { askForKey, startDialogs } from './dialogs.js';
import { startInspector } from './inspector.js';
import { startKeys } from './keys.js';
import { startMethod } from './method.js';
import { startRanking } from './ranking.js';

const RETRY = 1000; // milliseconds between looks at a server that loads its model

let running = null;

/** Says something to who hears the page instead of seeing it. */
const say = (text) => { byId('live').textContent = text; };

async function connect() {
  try {
    const [{ data: [model] }, { data: sets }] = [await api.models(), await api.headSets()];
    set({ server: { phase: 'ready', id: model.id, length: model.max_model_len, compute: model.qrae.compute }, sets, problem: null });
  } catch (error) {
    const problem = asProblem(error);
    const phase = { loading: 'loading' }[problem.code] ?? (problem.status === 401 ? 'locked' : 'down');
    set({ server: { phase }, problem: phase === 'loading' ? null : { problem, again: connect } });
    if (phase === 'loading') setTimeout(connect, RETRY);
  }
  byId('forget').hidden = !api.hasKey();
}

/** What of the options goes into a request. */
function method({ head_set, heads, statistic, control, read, orders }) {
  const named = heads.trim().split(/[\s,]+/).filter((head) => head !== '');
  const choice = named.length > 0 ? { heads: named } : head_set && { head_set };
  return {
    ...choice, ...(statistic && { statistic }), ...(control && { control }), ...(read && { read }), ...(orders > 1 && { orders }),
  };
}

/** Scores question and chunks; what ran before is given up. `of` are those to score, the fields' without it. */
async function score(of) {
  const { question, chunks } = of ?? { question: get().question.trim(), chunks: get().parsed.chunks };
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const options = get().options;
  set({ scoring: true, problem: null });
  say(`Scoring ${several(chunks.length, 'chunk')}`);
  const begin = performance.now();
  try {
    const answer = await api.score({ query: question, chunks, explain: true, ...method(options) }, mine.signal);
    const { scored, head, keep } = get();
    const same = scored?.chunks.length === chunks.length;
    set({
      scored: { question, chunks, answer, seconds: (performance.now() - begin) / 1000 },
      head: String(scored?.answer.heads) === String(answer.heads) ? head : -1,
      keep: same ? keep : Math.ceil(chunks.length / 2),
      answers: same && scored.question === question && scored.chunks === chunks ? get().answers : null,
      pointed: null,
    });
    const best = answer.results.find((result) => result.rank === 1);
    say(`Scored ${several(chunks.length, 'chunk')}${best ? `; first is ${chunks[best.index].title ?? `chunk ${best.index + 1}`}` : ''}`);
  } catch (error) {
    if (error.name === 'AbortError') return;
    set({ problem: { problem: asProblem(error), again: () => score(of) } });
  } finally {
    if (running === mine) {
      running = null;
      set({ scoring: false });
    }
    byId('forget').hidden = !api.hasKey();
  }
}

/** What was scored last, under the options as they are now. */
const rescore = () => get().scored && score(get().scored);

function cancel() {
  running?.abort();
  running = null;
  set({ scoring: false });
}

const WORDS = {
  connecting: 'connecting', loading: 'the model is being loaded', locked: 'locked: a key is wanted', down: 'no answer',
};

watch(['server'], ({ server }) => {
  const node = byId('server');
  node.dataset.phase = server.phase;
  if (server.phase !== 'ready') return show(node, el('span', { class: 'dot' }), WORDS[server.phase]);
  return show(node, el('span', { class: 'dot' }), el('b', {}, server.id),
    el('span', { class: 'quiet' }, ` ${server.compute} · up to ${count(server.length)} tokens`));
});

watch(['problem'], ({ problem }) => {
  show(byId('problem'), problem && problemView(problem.problem, problem.again));
  if (problem) byId('problem').scrollIntoView({ block: 'nearest' });
});

watch(['scoring', 'scored', 'problem'], ({ scoring, scored, problem }) => {
  byId('empty').hidden = scoring || scored !== null || problem !== null;
  byId('waiting').hidden = !scoring;
  byId('waiting-text').textContent = 'The model reads the chunks …';
  byId('scored').hidden = scored === null;
  byId('scored').classList.toggle('busy', scoring);
  byId('scored').setAttribute('aria-busy', String(scoring));
});

api.onKeyWanted(askForKey);
byId('cancel').addEventListener('click', cancel);
byId('forget').addEventListener('click', () => {
  api.forgetKey();
  byId('forget').hidden = true;
});
startDialogs();
const ask = startAsk(score);
startMethod(rescore);
startCost();
startRanking();
startInspector();
const answers = startAnswers(say);
startKeys({ ...ask, cancel: () => { cancel(); answers.stop(); }, answer: answers.start });
connect();
