// The API's description as a page: routes, fields, examples and answers, from /openapi.json.

import { description, onKeyWanted } from './api.js';
import { byId, el, show } from './dom.js';

/** Shows the form until a key is given. */
function askForKey(wrong) {
  const form = byId('key-form');
  form.hidden = false;
  byId('key-wrong').hidden = !wrong;
  byId('key').focus();
  return new Promise((resolve) => {
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      form.hidden = true;
      const key = byId('key').value;
      byId('key').value = '';
      resolve(key);
    }, { once: true });
  });
}

/** What a reference points to, and what it is called. */
function follow(all, schema) {
  const name = schema?.$ref?.split('/').pop();
  return name ? { name, schema: schema.$ref.slice(2).split('/').reduce((at, part) => at[part], all) } : { schema };
}

/** A schema's type in a few words. */
function kind(all, given) {
  const { name, schema } = follow(all, given ?? {});
  if (name) return name;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.anyOf) return schema.anyOf.map((one) => kind(all, one)).join(' | ');
  const types = [schema.type ?? 'any'].flat();
  return types.map((type) => (type === 'array' && schema.items ? `[${kind(all, schema.items)}]` : type)).join(' | ');
}

function limits({ minimum, maximum }) {
  if (minimum === undefined && maximum === undefined) return null;
  return `${minimum ?? '…'} to ${maximum ?? '…'}`;
}

function fields(all, given) {
  const { schema } = follow(all, given);
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => el('tr', {},
    el('td', {}, el('code', {}, name), schema.required?.includes(name) ? ' *' : null),
    el('td', {}, kind(all, field)), el('td', {}, limits(field)), el('td', {}, field.description)));
  return rows.length ? el('table', {}, el('tbody', {}, rows)) : el('p', {}, kind(all, given));
}

const json = (value) => el('pre', {}, el('code', {}, JSON.stringify(value, null, 2)));

function response(all, [status, given]) {
  const { schema: { description: text, content } } = follow(all, given);
  const shapes = Object.entries(content ?? {}).map(([type, { schema }]) => `${type}: ${kind(all, schema)}`);
  return el('tr', {}, el('td', {}, status), el('td', {}, text), el('td', {}, shapes.join(', ')));
}

function operation(all, path, method, described) {
  const body = described.requestBody?.content['application/json'];
  return el('details', {},
    el('summary', {}, el('code', {}, `${method.toUpperCase()} ${path}`), ` ${described.summary}`),
    body && [el('h3', {}, 'Body'), fields(all, body.schema)],
    body && Object.values(body.examples).flatMap(({ summary, value }) => [el('p', {}, summary ?? 'Example'), json(value)]),
    el('h3', {}, 'Answers'),
    el('table', {}, el('tbody', {}, Object.entries(described.responses).map((one) => response(all, one)))));
}

function schemas(all) {
  return Object.entries(all.components.schemas).map(([name, schema]) =>
    el('details', {}, el('summary', {}, el('code', {}, name)), fields(all, schema)));
}

async function start() {
  onKeyWanted(askForKey);
  const all = await description();
  const operations = Object.entries(all.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) =>
      ({ tag: described.tags[0], node: operation(all, path, method, described) })));
  const tags = [...new Set(operations.map(({ tag }) => tag))];
  show(byId('about'), `${all.info.description}. Version ${all.info.version}. * marks what a request must have.`);
  show(byId('operations'),
    tags.map((tag) => [el('h2', {}, tag), operations.filter((one) => one.tag === tag).map(({ node }) => node)]).flat(2),
    el('h2', {}, 'Shapes'), schemas(all));
}

start().catch((problem) => show(byId('about'), `${problem.message}. ${problem.todo ?? ''}`));
