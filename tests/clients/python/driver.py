"""The official Python SDK as the client of the built program: one life of a session, every step asserted.

It checks what a client sees; which bytes were sent is left to the other tests.

    python driver.py AGENT PROJECT     with HOME set to the agent's home

Prints one line of JSON and exits with 0 when every step was as it should be.
"""

import asyncio
import base64
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.meta import AGENT_METHODS
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    RequestPermissionResponse,
)

AGENT, PROJECT = sys.argv[1], Path(sys.argv[2])
TEXT_CHUNKS = 20_000
OUTPUT_BYTES = 1024 * 1024


def check(condition: object, what: str) -> None:
    """An assertion that no option of the interpreter removes."""
    if not condition:
        raise AssertionError(what)


def same(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {str(actual)[:2000]} instead of {str(expected)[:2000]}")


class Complaints(logging.Handler):
    """What the SDK could not make sense of: it logs that, and goes on without it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Editor:
    """The client: keeps what it sees, and answers as it was told to."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answer = "allow_once"
        self.agent: Any = None
        self.running = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        if update.session_update == "tool_call_update" and update.status == "in_progress":
            self.running.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        if self.answer == "cancel":
            await self.agent.cancel(session_id=session_id)
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = [option.option_id for option in options if option.kind == self.answer]
        same(len(chosen), 1, f"options of the kind {self.answer}")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen[0]))


async def with_agent(editor: Editor, work: Callable[[ClientSideConnection], Awaitable[Any]]) -> Any:
    """Runs a workflow against a fresh agent process, and checks that the process ends by itself when its input ends."""
    # Standard error goes where ours goes: a pipe that nobody reads could fill up. The limit of a line stays at the default
    # of asyncio, 64 KiB, as most programs leave it: longer ones reach the SDK in pieces.
    transport = {"stderr": None, "shutdown_timeout": 30.0}
    async with spawn_agent_process(editor, AGENT, transport_kwargs=transport) as (agent, process):
        hello = await agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="zeroclaw-python-driver", version="1.0.0"),
        )
        same(hello.protocol_version, PROTOCOL_VERSION, "protocol version")
        same(hello.agent_info and hello.agent_info.name, "zeroclaw-acp", "name of the agent")
        capabilities = hello.agent_capabilities
        check(capabilities and capabilities.load_session, "loading is not advertised")
        sessions = capabilities.session_capabilities
        check(sessions.list and sessions.close and sessions.resume, "list, close or resume is not advertised")
        result = await work(agent)
    same(process.returncode, 0, "exit code of the agent")
    return result


def text_of(updates: list[Any], kind: str) -> str:
    return "".join(update.content.text for update in updates if update.session_update == kind)


def said(chunks: int) -> str:
    return "".join(f"chunk {number} " for number in range(1, chunks + 1))


def calls(updates: list[Any]) -> dict[str, list[str]]:
    """The states that each tool call went through, in the order of the calls; output in between is no new state."""
    states: dict[str, list[str]] = {}
    for update in updates:
        if update.session_update == "tool_call":
            check(update.tool_call_id not in states, "a tool call was announced twice")
            states[update.tool_call_id] = [update.status or "pending"]
        elif update.session_update == "tool_call_update":
            known = states[update.tool_call_id]
            if update.status and update.status != known[-1]:
                known.append(update.status)
    return states


def ends(updates: list[Any]) -> list[str]:
    return [states[-1] for states in calls(updates).values()]


def history(updates: list[Any]) -> list[Any]:
    """What belongs to the conversation: the commands that are offered are a state of now."""
    return [update for update in updates if update.session_update != "available_commands_update"]


class Conversation:
    """The prompts of one session, as they were sent."""

    def __init__(self, editor: Editor, agent: ClientSideConnection, session: str) -> None:
        self.editor, self.agent, self.session = editor, agent, session
        self.prompts: list[str] = []

    async def turn(self, text: str, answer: str = "allow_once", stop: str = "end_turn") -> list[Any]:
        start = len(self.editor.updates)
        self.editor.answer = answer
        self.editor.running.clear()
        self.prompts.append(text)
        response = await self.agent.prompt(session_id=self.session, prompt=[text_block(text)])
        same(response.stop_reason, stop, f"end of `{text}`")
        return self.editor.updates[start:]


async def live(editor: Editor, agent: ClientSideConnection) -> Conversation:
    opened = await agent.new_session(cwd=str(PROJECT), mcp_servers=[])
    talk = Conversation(editor, agent, opened.session_id)

    seen = await talk.turn("/say 5")
    same(text_of(seen, "agent_message_chunk"), said(5), "text")
    same(editor.asked, [], "questions")

    seen = await talk.turn("/think hm\n/plan one; two\n/run echo hello > made.txt")
    check(any(update.session_update == "agent_thought_chunk" for update in seen), "no thought")
    plans = [len(update.entries) for update in seen if update.session_update == "plan"]
    same(plans, [2], "steps of the plan")
    states = calls(seen)[editor.asked[0].tool_call_id]
    same(states, ["pending", "in_progress", "completed"], "states of the permitted call")
    same((PROJECT / "made.txt").read_text(), "hello\n", "the file that was made")

    seen = await talk.turn("/run touch refused.txt", answer="reject_once")
    same(calls(seen)[editor.asked[1].tool_call_id], ["pending", "failed"], "states of the refused call")
    check(not (PROJECT / "refused.txt").exists(), "the refused command ran")

    seen = await talk.turn(f"/say {TEXT_CHUNKS}")
    same(text_of(seen, "agent_message_chunk"), said(TEXT_CHUNKS), "long text")

    seen = await talk.turn(f"/run head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' '\\001'")
    same(list(calls(seen).values()), [["pending", "in_progress", "completed"]], "states of the call with much output")

    seen = await talk.turn("/deliver big.bin")
    parts = [part for update in seen if update.session_update == "tool_call_update" for part in update.content or []]
    blobs = [part.content.resource.blob for part in parts if part.content.type == "resource"]
    delivered = [base64.b64decode(blob) for blob in blobs]
    check(delivered == [(PROJECT / "big.bin").read_bytes()], "the file was not delivered whole")

    seen = await talk.turn("/run touch cancelled.txt", answer="cancel", stop="cancelled")
    same(ends(seen), ["failed"], "end of the call that was cancelled while it was asked about")
    check(not (PROJECT / "cancelled.txt").exists(), "the cancelled command ran")

    async def cancel_when_running() -> None:
        await editor.running.wait()
        await agent.cancel(session_id=talk.session)

    cancelling = asyncio.create_task(cancel_when_running())
    seen = await talk.turn("/run sleep 3600", stop="cancelled")
    await cancelling
    same(ends(seen), ["failed"], "end of the call that was cancelled while it ran")

    same(text_of(await talk.turn("/say 1"), "agent_message_chunk"), said(1), "text after a cancel")
    await agent.close_session(session_id=talk.session)
    return talk


async def later(editor: Editor, agent: ClientSideConnection, before: Conversation) -> None:
    listed = await agent.list_sessions(cwd=str(PROJECT))
    found = [(session.session_id, session.cwd, session.title) for session in listed.sessions]
    same(found, [(before.session, str(PROJECT), "/say 5")], "list")

    await agent.load_session(session_id=before.session, cwd=str(PROJECT), mcp_servers=[])
    replayed = history(editor.updates)
    users = [update.content.text for update in replayed if update.session_update == "user_message_chunk"]
    same(users, before.prompts, "the user's messages of the replay")
    others = [update for update in replayed if update.session_update != "user_message_chunk"]
    same(others, history(before.editor.updates), "the replay")

    await agent.close_session(session_id=before.session)
    # The SDK names the method, but its client has no function for it.
    await agent._conn.send_request(AGENT_METHODS["session_delete"], {"sessionId": before.session})
    same((await agent.list_sessions(cwd=str(PROJECT))).sessions, [], "list after the deletion")
    try:
        await agent.load_session(session_id=before.session, cwd=str(PROJECT), mcp_servers=[])
    except RequestError as error:
        same(error.data["kind"], "session_not_found", "load after the deletion")
    else:
        raise AssertionError("a deleted session was loaded")


async def main() -> None:
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    first, second = Editor(), Editor()
    talk = await with_agent(first, lambda agent: live(first, agent))
    await with_agent(second, lambda agent: later(second, agent, talk))
    # The withdrawal of a question is a notification that this SDK does not know; the protocol says to pass over it.
    withdrawn = "Unhandled error while handling notification method=$/cancel_request"
    same(complaints.texts, [withdrawn], "complaints of the SDK")
    summary = {
        "prompts": len(talk.prompts),
        "permissions": len(first.asked),
        "live": len(first.updates),
        "replayed": len(second.updates),
    }
    print(json.dumps(summary))


asyncio.run(main())
