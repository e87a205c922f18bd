// What was pasted → chunks. Pure: knows no page. Tests: tests/page.

/**
 * The chunks in a text, whatever of these it is: JSON (a list of chunks, or a whole scoring request), JSON lines, parts
 * between lines of `---`, or paragraphs. A first line `# …` is a title.
 * @returns {{chunks: object[], question: string|null, form: string, wrong: string|null}}
 */
export function parse(text) {
  const trimmed = text.trim();
  const none = { chunks: [], question: null, form: '', wrong: null };
  if (trimmed === '') return none;
  if (/^[[{]/.test(trimmed)) {
    const read = ofJson(trimmed) ?? ofLines(trimmed);
    if (read) return { ...none, ...read };
  }
  const ruled = /^[ \t]*-{3,}[ \t]*$/m.test(trimmed);
  const parts = trimmed.split(ruled ? /^[ \t]*-{3,}[ \t]*$/m : /\n[ \t]*\n/);
  const chunks = parts.map((part) => part.trim()).filter((part) => part !== '').map(titled);
  return { ...none, chunks, form: ruled ? 'between lines of ---' : 'one per paragraph' };
}

function titled(part) {
  const [, title, text] = /^# +([^\n]+)\n+([^]*)$/.exec(part) ?? [];
  return title === undefined ? { text: part } : { title: title.trim(), text };
}

function ofJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const list = Array.isArray(value) ? value : value.chunks ?? value.snippets ?? (value.text === undefined ? null : [value]);
  if (!Array.isArray(list)) return { form: 'JSON', wrong: 'This JSON holds no list of chunks; give a list, or an object with “chunks”.' };
  const question = [value.query, value.question].find((q) => typeof q === 'string') ?? null;
  return checked(list, 'JSON', question);
}

function ofLines(text) {
  try {
    return checked(text.split('\n').filter((line) => line.trim() !== '').map((line) => JSON.parse(line)), 'JSON lines', null);
  } catch {
    return null;
  }
}

function checked(list, form, question) {
  const chunks = list.map((item) => (typeof item === 'string' ? { text: item } : item));
  const bad = chunks.findIndex((chunk) => typeof chunk?.text !== 'string');
  if (bad >= 0) return { form, wrong: `Chunk ${bad + 1} has no “text”; a chunk is a text, or an object with text and perhaps title and url.` };
  const kept = ({ title, url, text }) => ({
    ...(typeof title === 'string' && { title }), ...(typeof url === 'string' && { url }), text,
  });
  return { chunks: chunks.map(kept), form, question };
}

/** Chunks as they can be pasted again. */
export function written(chunks) {
  if (chunks.some((chunk) => chunk.url !== undefined)) return JSON.stringify(chunks, null, 1);
  return chunks.map(({ title, text }) => (title ? `# ${title}\n${text}` : text)).join('\n\n---\n\n');
}
