"""Scores several questions at once with the async client; the server batches them.

Run a server (`qrae serve`), set QRAE_BASE_URL and QRAE_API_KEY where they are not the defaults, then this file.
"""

import asyncio

from _articles import ARTICLES, QUESTION

from qrae import AsyncClient, Chunk

QUESTIONS = [QUESTION, "When does the ferry leave?", "How does a lens bend light?"]


async def main() -> None:
    """Asks, and prints the best article for each question."""
    chunks = [Chunk(title=title, text=text) for title, text in ARTICLES]
    async with AsyncClient() as client:
        await client.wait_until_ready()
        answers = await asyncio.gather(*(client.score(question, chunks) for question in QUESTIONS))
    for question, scores in zip(QUESTIONS, answers, strict=True):
        best = scores.ranked()[0]
        print(f"{question}  {ARTICLES[best.index][0]} ({best.score:.4f})")


asyncio.run(main())
