"""The description of the API, where the server has one: requests made from it are answered as it says."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks as openapi_checks
from server import Server


def no_fault(context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """No 5xx, but where the time that the request gives itself is over."""
    if response.status_code != 504 or "X-Request-Timeout" not in case.headers:
        checks.not_a_server_error(context, response, case)


CHECKS = [
    no_fault,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
EXAMPLES = 8
"""Requests for each operation."""


@pytest.fixture(scope="module")
def short_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose answers end soon, whatever is asked for."""
    with Server(tmp_path_factory.mktemp("short") / "log", "--max-model-len", "256") as server:
        yield server


def unlike(description: dict, server: Server) -> list[str]:
    """What is answered otherwise than described, with the request that shows it; one entry at most per operation."""
    found = []
    for operation in schemathesis.openapi.from_dict(description).get_all_operations():
        operation = operation.ok()  # raises where the description itself is wrong

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=server.url, headers=server.headers, checks=CHECKS, timeout=60)

        try:
            ask()
        except (Exception, FailureGroup) as e:  # a group is no Exception
            found.append(f"{operation.label}: {e}")
    return found


def test_answers_are_as_described(short_server: Server) -> None:
    answer = httpx.get(f"{short_server.url}/openapi.json", headers=short_server.headers)
    if answer.status_code == 404:
        pytest.skip("this server has no /openapi.json")
    found = unlike(answer.raise_for_status().json(), short_server)
    assert not found, "\n\n".join(found)


def test_what_is_not_as_described_is_found(short_server: Server) -> None:
    def description(status: str, required: str) -> dict:
        content = {"application/json": {"schema": {"type": "object", "required": [required]}}}
        answer = {"description": "health", "content": content}
        paths = {"/health": {"get": {"responses": {status: answer}}}}
        return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}

    assert unlike(description("200", "status"), short_server) == []
    (status,) = unlike(description("201", "status"), short_server)
    (shape,) = unlike(description("200", "other"), short_server)
    assert "GET /health" in status
    assert "other" in shape
