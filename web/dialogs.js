// The two dialogs (key, shortcuts) and the theme.

import { byId, el, show } from './dom.js';

/** Asks for a key; null when none is given. `wrong`: one was sent and refused. */
export function askForKey(wrong) {
  const dialog = byId('key-dialog');
  const field = byId('key');
  const code = (text) => el('code', {}, text);
  show(byId('key-told'), wrong
    ? 'The key that was sent is none of this server’s. Enter another one.'
    : ['Enter one of the keys it was started with: ', code('--api-key'), ', ', code('QRAE_API_KEY'), ', or a line of ', code('--api-key-file'), '.']);
  byId('key-told').classList.toggle('wrong', wrong);
  field.value = '';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'given' ? field.value.trim() : null);
      field.value = '';
    }, { once: true });
  });
}

export function startDialogs() {
  byId('key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (byId('key').value.trim() !== '') byId('key-dialog').close('given');
  });
  byId('key-cancel').addEventListener('click', () => byId('key-dialog').close(''));
  byId('help-open').addEventListener('click', openHelp);
  byId('help-close').addEventListener('click', () => byId('help').close());
  byId('theme').addEventListener('click', switchTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
  nameTheme();
}

export const openHelp = () => byId('help').showModal();

const isDark = () => {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
};

/** The button names the theme it leads to. */
function nameTheme() {
  const next = isDark() ? 'light' : 'dark';
  byId('theme').textContent = next === 'dark' ? 'Dark' : 'Light';
  byId('theme').setAttribute('aria-label', `Switch to the ${next} theme`);
}

export function switchTheme() {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  keep('qrae.theme', theme);
  nameTheme();
}

/** Remembered where the browser lets us. */
export function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it holds until the page is left
  }
}
