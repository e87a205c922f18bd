// The form on the left: question and chunks.

import * as api from './api.js';
import { asProblem, Problem } from './problem.js';
import { byId, several } from './dom.js';
import { parse, written } from './chunks.js';
import { get, set, watch } from './state.js';

/** `score()` scores what the form holds. Gives what shortcuts call. */
export function startAsk(score) {
  const question = byId('question');
  const chunks = byId('chunks');

  const changed = () => {
    const parsed = parse(chunks.value);
    // a pasted request brings its question
    if (parsed.question !== null && question.value.trim() === '') question.value = parsed.question;
    set({ question: question.value, parsed });
  };
  question.addEventListener('input', changed);
  chunks.addEventListener('input', changed);

  const submit = () => {
    changed();
    const missing = lacking(get());
    if (missing === null) {
      comeIntoView(byId('results'));
      return score();
    }
    (missing.field === 'question' ? question : chunks).focus();
    return set({ problem: { problem: missing.problem, again: null } });
  };
  const load = async () => {
    try {
      const story = await api.example();
      question.value = story.question;
      chunks.value = written(story.snippets.map(({ title, text }) => ({ title, text })));
      chunks.scrollTop = 0;
      changed();
      set({ problem: null });
    } catch (error) {
      set({ problem: { problem: asProblem(error), again: load } });
    }
  };

  byId('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  byId('example').addEventListener('click', load);
  byId('example-first').addEventListener('click', async () => {
    await load();
    byId('results').focus({ preventScroll: true }); // the button goes
    submit();
  });
  byId('rescore').addEventListener('click', submit);

  watch(['parsed'], ({ parsed }) => {
    const note = parsed.wrong ?? (parsed.chunks.length > 0 ? `${several(parsed.chunks.length, 'chunk')}, ${parsed.form}` : '');
    byId('chunks-count').textContent = note;
    byId('chunks-count').classList.toggle('wrong', parsed.wrong !== null);
    chunks.setAttribute('aria-invalid', String(parsed.wrong !== null));
  });
  watch(['parsed', 'question', 'scored'], ({ parsed, question: asked, scored }) => {
    const stale = scored !== null
      && (asked.trim() !== scored.question || JSON.stringify(parsed.chunks) !== JSON.stringify(scored.chunks));
    byId('stale').hidden = !stale;
  });
  changed();
  return { submit, load, focus: () => question.focus() };
}

/** Scrolls where what comes would not be seen: below the form on a narrow screen, or far above. */
function comeIntoView(node) {
  const { top } = node.getBoundingClientRect();
  if (top > 0.6 * innerHeight || top < -200) node.scrollIntoView({ block: 'start' });
}

/** What the form lacks, or null. */
function lacking({ question, parsed }) {
  if (question.trim() === '') {
    return { field: 'question', problem: new Problem('There is no question', { todo: 'Write one, or load the example.' }) };
  }
  if (parsed.wrong !== null) {
    return { field: 'chunks', problem: new Problem('The chunks cannot be read', { message: parsed.wrong, todo: 'Change them and score again.' }) };
  }
  if (parsed.chunks.length === 0) {
    return { field: 'chunks', problem: new Problem('There are no chunks', { todo: 'Paste some, or load the example.' }) };
  }
  return null;
}
