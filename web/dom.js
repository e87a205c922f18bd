// Making elements. Texts become text nodes, never HTML: this file is the only one that makes elements.

/** An element. `props`: `class`, `on` (event handlers), `data`, and attributes; false and null leave one out. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === 'on') for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...there(children));
  return node;
}

const there = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false);

/** The element of `index.html` with this id. */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`index.html has no element ${id}`);
  return node;
}

/** Replaces what an element holds. */
export function show(node, ...children) {
  node.replaceChildren(...there(children));
}

const whole = new Intl.NumberFormat('en');

/** 1,234 */
export const count = (n) => whole.format(n);

/** `1 chunk`, `2 chunks` */
export const several = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

/** < 1 ms, 40 ms, 1.2 s, 85 s */
export function seconds(s) {
  if (s < 0.0005) return '< 1 ms';
  if (s < 0.0995) return `${Math.round(s * 1000)} ms`;
  return s < 9.95 ? `${s.toFixed(s < 0.995 ? 2 : 1)} s` : `${Math.round(s)} s`;
}
