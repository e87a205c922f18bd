"""Scores some articles for one question and shows which words respond.

Run a server (`qrae serve`), set QRAE_BASE_URL and QRAE_API_KEY where they are not the defaults, then this file.
"""

from _articles import ARTICLES, QUESTION

from qrae import Chunk, Client

with Client() as client:
    client.wait_until_ready()
    chunks = [Chunk(id=title, title=title, text=text) for title, text in ARTICLES]
    scores = client.score(QUESTION, chunks, explain=True)

print(QUESTION)
for result in scores.ranked():
    text = ARTICLES[result.index][1]
    strongest = sorted(result.explain or (), key=lambda token: -token.response)[:3]
    words = ", ".join(repr(text[token.start : token.end].strip()) for token in strongest if token.end > token.start)
    print(f"{result.rank}  {result.score:.4f}  {result.id}: {words}")
print(f"{scores.head_set}, {scores.usage.computed_tokens} tokens computed, {scores.timings.prefill_ms:.0f} ms")
