"""An agent with LangChain whose tools are governed by Placet.

Usage: langchain_agent.py TASK [RUN]; OPENAI_API_KEY, OPENAI_BASE_URL and MODEL say which model, PLACET_URL and PLACET_TOKEN which Placet.
"""

import os
import sys
import uuid

from langchain_openai import ChatOpenAI

import placet

TURNS_MAX = 20


def main(task: str, run_id: str) -> str:
    model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-4o-mini"))
    run = placet.Client().open_run(run_id, safety_mode="destructive")
    messages = [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        offer = run.tools()
        answer = model.bind_tools(offer["tools"], tool_choice=offer["tool_choice"]).invoke(messages)
        if not answer.tool_calls:
            return answer.text
        messages.append(answer)
        calls = [{"id": call["id"], "tool": call["name"], "args": call["args"]} for call in answer.tool_calls]
        # The same id for the same answer: what is sent again acts once.
        messages += run.execute(calls, batch_id=answer.id, wait_s=300)
    return "no answer within the turns that it has"


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else f"run-{uuid.uuid4()}"))
