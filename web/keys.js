// Shortcuts. Single keys work outside fields only, and can be switched off.

import { byId, el, show } from './dom.js';
import { keep, openHelp, switchTheme } from './dialogs.js';
import { get, set } from './state.js';

const MOD = /mac|iphone|ipad/i.test(navigator.platform) ? '⌘' : 'Ctrl';

/** `acts`: submit, load, focus, cancel, answer. */
export function startKeys(acts) {
  const single = {
    '/': ['go to the question', acts.focus],
    e: ['load the example', acts.load],
    s: ['score', acts.submit],
    '[': ['previous head', () => turn(-1)],
    ']': ['next head', () => turn(1)],
    a: ['answer from all chunks and from the best', acts.answer],
    t: ['switch between light and dark', switchTheme],
    '?': ['these shortcuts', openHelp],
  };
  help(single);
  const switched = byId('single-keys');
  switched.checked = stored() !== 'off';
  switched.addEventListener('change', () => keep('qrae.keys', switched.checked ? 'on' : 'off'));

  document.addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]') || event.defaultPrevented) return;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      acts.submit();
    } else if (event.key === 'Escape') {
      acts.cancel();
    } else if (switched.checked && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target) && single[event.key]) {
      event.preventDefault();
      single[event.key][1]();
    }
  });
}

/** Whether letters belong to the element. */
const typing = (node) => node.matches?.('textarea, select, input:not([type=radio], [type=checkbox], [type=range])') ?? false;

function turn(step) {
  const { scored, head } = get();
  if (!scored) return;
  const n = scored.answer.heads.length + 1;
  set({ head: ((head + 1 + step + n) % n) - 1 });
}

function help(single) {
  for (const node of document.querySelectorAll('kbd[data-mod]')) node.textContent = `${MOD} ${node.textContent}`;
  const rows = [
    [`${MOD} Enter`, 'score, also from a field'], ['Esc', 'cancel'],
    ...Object.entries(single).map(([key, [what]]) => [key, what]), ['← →', 'in a chunk’s text: word by word'],
  ];
  show(byId('help-list'), rows.map(([key, what]) => [el('dt', {}, el('kbd', {}, key)), el('dd', {}, what)]).flat());
}

function stored() {
  try {
    return localStorage.getItem('qrae.keys');
  } catch {
    return null;
  }
}
