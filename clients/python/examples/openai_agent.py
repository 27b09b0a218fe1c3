"""An agent with the OpenAI SDK whose tools are governed by Placet.

Usage: openai_agent.py TASK [RUN]; OPENAI_API_KEY, OPENAI_BASE_URL and MODEL say which model, PLACET_URL and PLACET_TOKEN which Placet.
"""

import os
import sys
import uuid

from openai import OpenAI

import placet

TURNS_MAX = 20


def main(task: str, run_id: str) -> str:
    model = OpenAI()
    run = placet.Client().open_run(run_id, safety_mode="destructive")
    messages = [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        offer = run.tools()
        completion = model.chat.completions.create(
            model=os.environ.get("MODEL", "gpt-4o-mini"),
            messages=messages,
            tools=offer["tools"],
            tool_choice=offer["tool_choice"],
        )
        answer = completion.choices[0].message
        if not answer.tool_calls:
            return answer.content or ""
        messages.append(answer.model_dump(exclude_none=True))
        # The same id for the same answer: what is sent again acts once.
        messages += run.execute(answer.tool_calls, batch_id=completion.id, wait_s=300)
    return "no answer within the turns that it has"


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else f"run-{uuid.uuid4()}"))
