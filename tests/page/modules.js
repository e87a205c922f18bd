// The pure modules of the page, on cases worked by hand. Run in the browser by ./run; the value is a list of failures.
(async () => {
  const [{ parse, written }, spans] = await Promise.all([import('/web/chunks.js'), import('/web/spans.js')]);
  const failures = [];
  const same = (what, got, wanted) => {
    if (JSON.stringify(got) !== JSON.stringify(wanted)) failures.push(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
  };
  const texts = (text) => parse(text).chunks.map((chunk) => (chunk.title ? [chunk.title, chunk.text] : chunk.text));

  same('nothing', parse(' \n'), { chunks: [], question: null, form: '', wrong: null });
  same('paragraphs', texts('one\nline\n\n\n two \n'), ['one\nline', 'two']);
  same('ruled', texts('# T\na\n\nb\n---\nc\n  ----  \n'), [['T', 'a\n\nb'], 'c']);
  same('a title alone is a text', texts('# T'), ['# T']);
  same('list', texts('["a", {"title": "T", "text": "b", "score": 3}]'), ['a', ['T', 'b']]);
  same('request', parse('{"query": "q", "chunks": ["a"]}').question, 'q');
  same('lines', texts('{"text": "a"}\n\n{"title": "T", "text": "b"}'), ['a', ['T', 'b']]);
  same('not JSON', texts('[1] a note\n\n{b}'), ['[1] a note', '{b}']);
  same('wrong', [parse('[{"title": "x"}]').wrong !== null, parse('{"a": 1}').wrong !== null, parse('[7]').chunks], [true, true, []]);
  same('text that is no text', parse('{"text": 7}').wrong !== null, true);
  const there = [{ title: 'T', text: 'a\n\nb' }, { text: 'c' }];
  same('written and read again', parse(written(there)).chunks, there);
  same('with addresses', parse(written([{ text: 'a', url: 'u' }])).chunks, [{ url: 'u', text: 'a' }]);

  const token = (start, end, response, per_head = [response]) => ({ start, end, in_title: false, response, per_head });
  const cut = (text, tokens) => spans.pieces(text, tokens).map((piece) => [piece.text, piece.tokens.length]);
  same('no tokens', cut('ab', []), [['ab', 0]]);
  same('gaps', cut('a bc d', [token(0, 1, 1), token(2, 3, 1), token(3, 4, 1)]), [['a', 1], [' ', 0], ['b', 1], ['c', 1], [' d', 0]]);
  same('scalar values', cut('😀é日x', [token(0, 1, 1), token(1, 2, 1), token(3, 4, 1)]), [['😀', 1], ['é', 1], ['日', 0], ['x', 1]]);
  same('parts of one letter', cut('a😀b', [token(0, 1, 1), token(1, 2, 1), token(1, 2, 1), token(1, 3, 1)]), [['a', 1], ['😀b', 3]]);
  same('of the title', cut('ab', [token(0, 0, 9), token(0, 2, 1)]), [['ab', 1]]);
  same('over the end', cut('ab', [token(0, 9, 1)]), [['ab', 1]]);
  same('strongest', spans.strongest([token(0, 1, 1, [0, 5]), token(1, 2, 3, [4, 2])], 1), 5);
  same('mean', spans.strongest([token(0, 1, 1, [0, 5]), token(1, 2, 3, [4, 2])], -1), 3);
  same('shades', [0, 0.99, 1, 2, 31.9, 32, 999].map((times) => spans.shade(times * 0.01, 0.01)), [0, 0, 1, 2, 5, 6, 6]);

  // a sentence a token: masses 1, 6, 3, 0
  const four = 'One. Two. Three. Four.';
  const ends = [0, 5, 10, 17, 22];
  const tokens = [1, 6, 3, 0].map((mass, i) => token(ends[i], ends[i + 1], mass, [mass, 7 - mass]));
  const kept = (share, head = -1, of = tokens) =>
    spans.cutText(four, spans.gate(four, spans.pieces(four, of), head, share));
  same('sentences', spans.sentences(four).map(({ from, to }) => four.slice(from, to)), ['One. ', 'Two. ', 'Three. ', 'Four.']);
  same('a bit', kept(0.1), 'Two.');
  same('just enough', kept(0.6), 'Two.');
  same('more: neighbours are one window', kept(0.61), 'Two. Three.');
  same('all of the mass', kept(1), 'One. Two. Three.');
  same('another head', kept(0.6, 1), 'One. … Four.');
  same('no response', kept(1, -1, tokens.map((one) => ({ ...one, response: 0 }))), '');
  same('a token over a border counts where it ends', kept(0.5, -1, [token(4, 9, 1)]), 'Two.');
  same('empty', spans.gate('', [], -1, 0.5), []);

  const results = [{ score: 1, rank: 2, heads: [{ score: 5 }, { score: 2 }] }, { score: 3, rank: 1, heads: [{ score: 5 }, { score: 4 }] }];
  same('ranking', [-1, 0, 1].map((head) => spans.ranking(results, head)), [[1, 0], [0, 1], [1, 0]]);

  const { ofAnswer } = await import('/web/problem.js');
  const todo = (status, error) => ofAnswer(status, error, null).todo;
  same('no head set', todo(404, { param: 'head_set', code: 'not_found' }).includes('other heads'), true);
  same('too long', todo(400, { code: 'context_length_exceeded' }).includes('--max-model-len'), true);
  same('too much', todo(413, {}).includes('--max-body-bytes'), true);

  // a chat whose bytes come one by one, letters cut in the middle
  const { chat } = await import('/web/api.js');
  const real = window.fetch;
  const answering = async (body, status = 200) => {
    const bytes = new TextEncoder().encode(body);
    const stream = new ReadableStream({ start(to) { for (const byte of bytes) to.enqueue(new Uint8Array([byte])); to.close(); } });
    window.fetch = () => Promise.resolve(new Response(stream, { status }));
    const got = [];
    try {
      for await (const event of chat({}, null)) got.push(event.t);
    } catch (error) {
      got.push(`${error.title}: ${error.told}`);
    }
    window.fetch = real;
    return got;
  };
  same('events', await answering(': a comment\n\ndata: {"t": "é😀"}\n\ndata: {"t": "b\\n\\n"}\n\ndata: [DONE]\n\n'), ['é😀', 'b\n\n']);
  same('broken off', (await answering('data: {"t": 1}\n\ndata: {"t"'))[1].startsWith('The answer broke off'), true);
  same('failed on the way', (await answering('data: {"error": {"message": "m"}}\n\n')), ['The server failed on this request: m']);
  same('too busy', (await answering('{"error": {"message": "m"}}', 429)), ['The server has all it can do: m']);
  same('no JSON at all', (await answering('<html>', 502)), ['The server failed on this request: The server answered 502.']);
  return failures;
})()
