"""OpenAI's Python client: models, chats, completions, streams, log-probabilities, errors."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from server import MODEL, Server

ASK = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.v1, api_key=server.key, max_retries=0, timeout=60) as client:
        yield client


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert model.object == "model"
    assert model.max_model_len >= 2048  # as vLLM has it
    assert 1.6e9 < model.created < 1e11, "seconds"
    assert client.models.retrieve(MODEL) == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_chat(client: OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=24, temperature=0)
    (choice,) = reply.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage is not None
    assert 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None


def test_a_stream_says_what_the_whole_answer_says(client: OpenAI) -> None:
    ask = {"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**ask)
    options = {"include_usage": True}
    *pieces, last = client.chat.completions.create(**ask, stream=True, stream_options=options)
    assert pieces[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == whole.choices[0].message.content
    reasons = [p.choices[0].finish_reason for p in pieces]
    assert reasons == [None] * (len(pieces) - 1) + [whole.choices[0].finish_reason]
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert len({p.id for p in [*pieces, last]}) == 1


def test_no_usage_is_sent_that_was_not_asked_for(client: OpenAI) -> None:
    pieces = list(client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=4, stream=True))
    assert all(p.usage is None and p.choices for p in pieces)


def test_log_probabilities(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3
    )
    tokens = reply.choices[0].logprobs.content
    assert len(tokens) == reply.usage.completion_tokens
    for token in tokens:
        top = [t.logprob for t in token.top_logprobs]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)
        assert token.logprob == top[0], "greedy takes the likeliest"
        assert sum(map(math.exp, top)) <= 1 + 1e-5
    text = b"".join(bytes(token.bytes) for token in tokens).decode()
    assert text.startswith(reply.choices[0].message.content)


def test_what_a_research_agent_sends(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": "You search."}, *ASK],
        stop=["\n<tool_response>", "<tool_response>"],
        temperature=0.6,
        top_p=0.95,
        logprobs=True,
        max_tokens=12,
        presence_penalty=1.1,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}, "top_k": 20},
    )
    assert reply.choices[0].message.content
    # a token that ends the answer is counted and has no text
    textless = reply.usage.completion_tokens - len(reply.choices[0].logprobs.content)
    assert textless == (reply.choices[0].finish_reason == "stop")


def test_tools_are_taken(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": schema}}
    reply = client.chat.completions.create(model=MODEL, messages=ASK, tools=[tool], max_tokens=12, temperature=0)
    message = reply.choices[0].message
    assert message.content or message.tool_calls
    turn = [
        *ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "colours"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "red, green, blue"},
    ]
    client.chat.completions.create(model=MODEL, messages=turn, tools=[tool], max_tokens=4)


def test_a_tool_that_must_be_called_is_called(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"town": {"enum": ["Bern", "Basel"]}}, "required": ["town"]}
    tools = [
        {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": schema}}
        for name in ("weather", "mayor")
    ]
    mayor = {"type": "function", "function": {"name": "mayor"}}
    ask = {"model": MODEL, "messages": ASK, "tools": tools, "tool_choice": mayor, "max_tokens": 96, "temperature": 0}
    (choice,) = client.chat.completions.create(**ask).choices
    assert choice.finish_reason in ("tool_calls", "stop")  # OpenAI's word for a named function is stop
    (call,) = choice.message.tool_calls
    assert call.function.name == "mayor"
    assert json.loads(call.function.arguments)["town"] in ("Bern", "Basel")

    with client.chat.completions.stream(**ask) as stream:  # puts the pieces together as agents do
        streamed = stream.get_final_completion().choices[0].message
    assert [c.function.arguments for c in streamed.tool_calls] == [call.function.arguments]

    some = client.chat.completions.create(**ask | {"tool_choice": "required"}).choices[0].message
    assert some.tool_calls[0].function.name in ("weather", "mayor")
    none = client.chat.completions.create(**ask | {"tool_choice": "none", "max_tokens": 12}).choices[0].message
    assert none.content
    assert not none.tool_calls


def test_answers_keep_to_a_schema(client: OpenAI) -> None:
    class Town(BaseModel):
        name: Literal["Bern", "Basel"]
        large: bool

    reply = client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Town, max_tokens=64, temperature=0)
    assert reply.choices[0].message.parsed.name in ("Bern", "Basel")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ASK, response_format={"type": "xml"})
    assert caught.value.param == "response_format.type"


def test_completions_take_text_and_tokens(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=6, temperature=0)
    assert "four" in reply.choices[0].text
    ids = client.post("/tokenize", cast_to=object, body={"prompt": "One, two, three,"})["tokens"]
    same = client.completions.create(model=MODEL, prompt=ids, max_tokens=6, temperature=0)
    assert same.choices[0].text == reply.choices[0].text
    assert same.usage.prompt_tokens == len(ids)
    both = client.completions.create(model=MODEL, prompt=["One, two, three,", "A, B, C,"], max_tokens=6, temperature=0)
    assert [c.index for c in both.choices] == [0, 1]
    assert both.choices[0].text == reply.choices[0].text
    streamed = client.completions.create(
        model=MODEL, prompt="One, two, three,", max_tokens=6, temperature=0, stream=True
    )
    assert "".join(piece.choices[0].text for piece in streamed) == reply.choices[0].text


def test_completions_with_log_probabilities(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=4, temperature=0, logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert all(value <= 0 for value in logprobs.token_logprobs)
    assert all(len(top) >= 2 for top in logprobs.top_logprobs)
    assert logprobs.text_offset[0] == 0
    assert logprobs.text_offset == sorted(logprobs.text_offset)


def test_stop_strings_are_not_part_of_the_text(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=40, temperature=0, stop=" six")
    assert "five" in reply.choices[0].text
    assert "six" not in reply.choices[0].text
    assert reply.choices[0].finish_reason == "stop"


def test_a_seed_makes_choices_come_again(client: OpenAI) -> None:
    def texts(seed: int) -> list[str]:
        reply = client.completions.create(model=MODEL, prompt="Once", max_tokens=12, temperature=1, n=3, seed=seed)
        return [choice.text for choice in reply.choices]

    first = texts(7)
    assert first == texts(7)
    assert len(set(first)) > 1
    assert first != texts(8)


def test_refusals_are_the_exceptions_of_the_client(server: Server, client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ASK, temperature=9)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4", messages=ASK)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="word " * 20_000)
    assert long.value.code == "context_length_exceeded"
    with (
        OpenAI(base_url=server.v1, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_many_at_once_get_what_each_gets_alone(server: Server, client: OpenAI) -> None:
    prompts = [f"{word}, " for word in ("One, two", "Red, green", "Paris, London", "January, February")]

    async def together() -> list[str]:
        async with AsyncOpenAI(base_url=server.v1, api_key=server.key, timeout=60) as many:
            ask = [many.completions.create(model=MODEL, prompt=p, max_tokens=10, temperature=0) for p in prompts]
            return [reply.choices[0].text for reply in await asyncio.gather(*ask)]

    alone = [client.completions.create(model=MODEL, prompt=p, max_tokens=10, temperature=0) for p in prompts]
    assert asyncio.run(together()) == [reply.choices[0].text for reply in alone]
