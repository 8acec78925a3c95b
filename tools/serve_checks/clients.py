# SPDX-License-Identifier: Apache-2.0
"""The calls that agents and load generators make, with the clients that make them: OpenAI's,
LangChain's, LiteLLM's and Anthropic's, and raw requests of lm-eval and SGLang's benchmark. Each call
is a row of docs/reference/serve_calls.md."""

import json
import logging
import os
import re

import anthropic
import jsonschema
import openai
import pydantic

from serve_checks import server as serving
from serve_checks.server import Server, events_of

# LiteLLM fetches nothing.
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HF_HUB_OFFLINE="1")

MODEL = "llama-3.2-3b"
SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
HI = [{"role": "user", "content": "What is the weather in Bonn?"}]

WEATHER = {"type": "object", "required": ["city", "days"], "additionalProperties": False,
           "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]},
                          "days": {"type": "integer", "minimum": 1, "maximum": 7}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather.",
                                           "parameters": WEATHER}},
         {"type": "function", "function": {"name": "now"}}]
NAMED = {"type": "function", "function": {"name": "weather"}}

# Schemas of agents, and of what JSON Schema has beside.
SCHEMAS = {
    "text": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "nested": {"type": "object", "required": ["steps", "answer"], "properties": {
        "steps": {"type": "array", "minItems": 2, "items": {
            "type": "object", "required": ["explanation", "output"], "additionalProperties": False,
            "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}}}},
        "answer": {"type": "string"}}},
    "references": {"$defs": {"node": {"type": "object", "required": ["value"], "properties": {
        "value": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
                                                        {"type": "null"}]}}}},
        "$ref": "#/$defs/node"},
    "limits": {"type": "object", "required": ["i", "x", "s", "l", "e", "c", "b", "n"], "properties": {
        "i": {"type": "integer", "exclusiveMinimum": 3, "maximum": 9},
        "x": {"type": "number", "minimum": 0.1, "maximum": 0.2},
        "s": {"type": "string", "minLength": 5, "maxLength": 12},
        "l": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4,
              "uniqueItems": True},
        "e": {"enum": ["a", "\"b\"", None]}, "c": {"const": {"k": [1]}}, "b": {"type": "boolean"},
        "n": {"type": ["string", "null"]}}},
    "formats": {"type": "object", "required": ["d", "t", "m", "u"], "properties": {
        "d": {"type": "string", "format": "date"}, "t": {"type": "string", "format": "date-time"},
        "m": {"type": "string", "format": "email"}, "u": {"type": "string", "format": "uuid"}}},
    "all": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
                      {"required": ["a"]}]},
    "one": {"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
                      {"type": "string"}]},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
              "items": False, "minItems": 2},
}


class Person(pydantic.BaseModel):
    name: str
    age: int
    tags: list[str]


class Calls:
    """Runs calls by name. A call returns what is wrong, or None."""

    def __init__(self, faults):
        self.faults = faults
        self.num_calls = 0

    def run(self, name, call):
        self.num_calls += 1
        try:
            wrong = call()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        self.faults.expect(wrong is None, f"{name}: {wrong}")


def matches(pattern, text):
    """What is wrong, or None."""
    return None if re.fullmatch(pattern, text) else f"{text!r} is not {pattern}"


def fits(schema, text):
    """What is wrong with a text that should be JSON of a schema."""
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{error} in {serving.short(text)}"
    return None


# ---- OpenAI's client: chats ----


def check_chats(client, calls):
    def create(**fields):
        return client.chat.completions.create(model=MODEL, messages=HI, max_tokens=120, **fields)

    def message_of(**fields):
        return create(**fields).choices[0]

    def called(choice_of, **fields):
        choice = message_of(tools=TOOLS, tool_choice=choice_of, **fields)
        call = choice.message.tool_calls[0]
        expected = "stop" if choice_of is NAMED else "tool_calls"
        if choice.finish_reason != expected:
            return f"finish_reason {choice.finish_reason}"
        schema = WEATHER if call.function.name == "weather" else {"type": "object"}
        return fits(schema, call.function.arguments)

    def streamed(**fields):
        name, arguments, reasons = "", "", []
        for chunk in create(stream=True, **fields):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            reasons.append(chunk.choices[0].finish_reason)
        if reasons[-1] != "tool_calls":
            return f"finish_reason {reasons[-1]}"
        return fits(WEATHER if name == "weather" else {"type": "object"}, arguments)

    for choice in ("none", "auto"):
        calls.run(f"chat tools, tool_choice {choice}", lambda: None if message_of(
            tools=TOOLS, tool_choice=choice).message.content else "no content")
    calls.run("chat tools alone",
              lambda: None if message_of(tools=TOOLS).message.content else "no content")
    for seed in range(6):
        calls.run("chat tool_choice required", lambda: called("required", seed=seed))
    calls.run("chat tool_choice named", lambda: called(NAMED))
    calls.run("chat tool_choice allowed_tools", lambda: called(
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}))
    calls.run("chat tool_choice required, streamed",
              lambda: streamed(tools=TOOLS, tool_choice="required"))
    calls.run("chat json_object", lambda: fits({"type": "object"}, message_of(
        response_format={"type": "json_object"}).message.content))
    for name, schema in SCHEMAS.items():
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        for seed in range(3):
            calls.run(f"chat json_schema {name}", lambda: fits(
                schema, message_of(response_format=form, seed=seed).message.content))
    calls.run("chat parse", lambda: None if client.chat.completions.parse(
        model=MODEL, messages=HI, response_format=Person,
        max_tokens=120).choices[0].message.parsed.name is not None else "no name")
    def continued(**extra):
        turns = [*HI, {"role": "assistant", "content": "The weather is"}]

        def num_prompt_tokens(**fields):
            return client.chat.completions.create(
                model=MODEL, messages=turns, max_tokens=2, extra_body=fields).usage.prompt_tokens
        # Without the end of the turn and the head of the next one.
        return None if num_prompt_tokens(**extra) < num_prompt_tokens() - 3 else "a longer prompt"
    calls.run("chat continue_final_message", lambda: continued(continue_final_message=True))
    calls.run("chat continue_final_message without add_generation_prompt", lambda: continued(
        continue_final_message=True, add_generation_prompt=False))
    calls.run("chat prompt_logprobs", lambda: None if len(create(
        extra_body={"prompt_logprobs": 1}).prompt_logprobs) > 10 else "few")
    for effort in ("minimal", "low", "medium", "high"):
        calls.run(f"chat reasoning_effort {effort}", lambda: None if create(
            reasoning_effort=effort, max_completion_tokens=100).choices[0].message.reasoning_content
            else "no reasoning_content")
    calls.run("chat logprobs", lambda: None if [len(entry.top_logprobs) for entry in message_of(
        logprobs=True, top_logprobs=3, extra_body={"ignore_eos": True}).logprobs.content]
        == [3] * 120 else "wrong counts")
    calls.run("chat logit_bias", lambda: None if message_of(logit_bias={"65": 5}) else "")
    calls.run("chat vLLM structured_outputs", lambda: fits(SCHEMAS["limits"], message_of(
        extra_body={"structured_outputs": {"json": SCHEMAS["limits"]}}).message.content))
    calls.run("chat vLLM guided_json", lambda: fits(SCHEMAS["text"], message_of(
        extra_body={"guided_json": SCHEMAS["text"]}).message.content))
    calls.run("chat vLLM guided_regex", lambda: matches("(yes|no){2}", message_of(
        extra_body={"guided_regex": "(yes|no){2}"}).message.content))
    calls.run("chat vLLM guided_choice", lambda: None if message_of(
        extra_body={"guided_choice": ["yes", "no"]}).message.content in ("yes", "no") else "other")
    calls.run("chat chat_template_kwargs", lambda: None if message_of(
        extra_body={"chat_template_kwargs": {"thinking": True}}) else "")
    calls.run("chat return_token_ids", lambda: None if message_of(
        extra_body={"return_token_ids": True}).token_ids else "no token_ids")
    check_turns(client, calls)


def check_turns(client, calls):
    """A conversation with calls, as agents send it back."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turns = [{"role": "system", "content": "Be brief."},
             {"role": "user", "name": "ada", "content": [{"type": "text", "text": "Weather?"}]},
             {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c1", "content": "rain"}]
    calls.run("chat of a tool's result", lambda: None if client.chat.completions.create(
        model=MODEL, messages=turns, tools=TOOLS, max_tokens=9).usage.prompt_tokens > 40
        else "a short prompt")

    def same():
        found = [client.chat.completions.create(
            model=MODEL, messages=turns, tools=TOOLS, tool_choice="required", seed=5,
            max_tokens=90).choices[0].message.tool_calls[0].function for _ in range(2)]
        return None if found[0] == found[1] else f"{found[0]} and {found[1]}"
    calls.run("chat again with the same seed", same)


# ---- OpenAI's client: completions, responses ----


def check_completions(client, calls):
    def create(**fields):
        return client.completions.create(model=MODEL, **{"prompt": "Once upon", **fields})

    def echoed():
        # lm-eval's: the log probabilities of a prompt.
        choice = create(prompt=list(b"Once upon"), max_tokens=1, echo=True, logprobs=1, seed=1,
                        temperature=0).choices[0]
        logprobs = choice.logprobs
        if (len(logprobs.tokens), logprobs.token_logprobs[0], logprobs.top_logprobs[0]) != (
                10, None, None):
            return f"{logprobs}"
        return None if all(x < 0 for x in logprobs.token_logprobs[1:]) else "no probabilities"

    calls.run("completion echo with logprobs", echoed)
    calls.run("completion echo, max_tokens 0", lambda: None if create(
        max_tokens=0, echo=True, logprobs=1).choices[0].text == "Once upon" else "another text")
    calls.run("completion echo, streamed", lambda: None if "".join(
        chunk.choices[0].text for chunk in create(max_tokens=3, echo=True, stream=True)
    ).startswith("Once upon") else "no echo")
    calls.run("completion logprobs", lambda: None if len(create(
        max_tokens=5, logprobs=2, extra_body={"ignore_eos": True}).choices[0].logprobs.tokens) == 5
        else "wrong count")
    calls.run("completion prompt_logprobs", lambda: None if create(
        prompt=list(b"Once upon"), max_tokens=2, extra_body={"prompt_logprobs": 2}
    ).choices[0].prompt_logprobs[1][str(ord("n"))]["rank"] == 1 else "not the likeliest")
    calls.run("completion suffix",
              lambda: None if create(suffix="end", max_tokens=2).usage.prompt_tokens == 12 else "")
    for text in ("Once", ["Once", "upon"], [1, 2], [[1], [2, 3]]):
        calls.run(f"embeddings {text}", lambda: None if 0.99 < sum(x * x for x in client.embeddings
                  .create(model=MODEL, input=text, dimensions=64).data[0].embedding) < 1.01 else "")
    calls.run("completion logit_bias", lambda: None if create(logit_bias={"5": 1}) else "")


def check_responses(client, calls):
    tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}

    def create(**fields):
        return client.responses.create(model=MODEL, **{"input": "Hi", **fields})

    calls.run("response of a text", lambda: None if create().output_text else "no text")
    calls.run("response with instructions", lambda: None if create(
        instructions="Be brief.", max_output_tokens=30, store=False).output_text else "no text")

    def items():
        called = create(tools=[tool], tool_choice="required").output[-1]
        wrong = fits(WEATHER, called.arguments)
        if wrong:
            return wrong
        turns = [{"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
                 called.model_dump(exclude_none=True),
                 {"type": "function_call_output", "call_id": called.call_id, "output": "rain"}]
        return None if create(input=turns, tools=[tool]).output_text else "no text"
    calls.run("response of items, with a call and its output", items)
    calls.run("response tool_choice named", lambda: fits(WEATHER, create(
        tools=[tool], tool_choice={"type": "function", "name": "weather"}).output[-1].arguments))
    calls.run("response with reasoning", lambda: None if [item.type for item in create(
        reasoning={"effort": "medium"}).output] == ["reasoning", "message"] else "other items")
    calls.run("response parse", lambda: None if client.responses.parse(
        model=MODEL, input="Hi", text_format=Person).output_parsed.name is not None else "no name")
    calls.run("response with logprobs", lambda: None if create(
        include=["message.output_text.logprobs"], top_logprobs=2
        ).output[0].content[0].logprobs else "none")

    def streamed(expected, **fields):
        events, kinds = list(create(stream=True, **fields)), []
        for number, event in enumerate(events):
            if event.sequence_number != number:
                return f"event {number} has {event.sequence_number}"
            if not kinds or kinds[-1] != event.type:
                kinds.append(event.type)
        kinds = [kind.removeprefix("response.") for kind in kinds]
        return None if kinds == expected else f"{kinds}"
    begin, end = ["created", "in_progress", "output_item.added"], ["output_item.done", "completed"]
    text = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
    calls.run("response of a text, streamed", lambda: streamed(begin + text + end))
    call = ["function_call_arguments.delta", "function_call_arguments.done"]
    calls.run("response of a call, streamed", lambda: streamed(
        begin + call + end, tools=[tool], tool_choice="required"))

    def helper():
        with client.responses.stream(model=MODEL, input="Hi") as stream:
            stream.until_done()
            return None if stream.get_final_response().output_text else "no text"
    calls.run("response by the client's stream helper", helper)
    calls.run("response without a hosted tool", lambda: None if create(
        tools=[{"type": "web_search"}]).output_text else "no text")
    for fields in ({"previous_response_id": "resp_1"}, {"tools": [{"type": "what"}]}):
        calls.run(f"response refused: {fields}", lambda: refused(
            openai.BadRequestError, lambda: create(**fields)))


def refused(kind, call):
    try:
        call()
    except kind as error:
        text = str(error)
        return None if "\n" not in text else f"several lines: {text}"
    return "is not refused"


# ---- Anthropic's client ----


def check_messages(client, calls):
    tool = {"name": "weather", "description": "Tells the weather.", "input_schema": WEATHER}

    def create(**fields):
        return client.messages.create(**{"model": MODEL, "max_tokens": 120, "messages": HI, **fields})

    calls.run("message", lambda: None if create(system="Be brief.").content[0].text else "no text")
    calls.run("message with system blocks and stop_sequences", lambda: None if create(
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["a"], extra_body={"temperature": 1.0, "top_k": 5}).stop_reason == "stop_sequence" else "other")
    calls.run("message max_tokens",
              lambda: None if create(max_tokens=2).stop_reason == "max_tokens" else "other")

    def used(**choice):
        answer = create(tools=[tool], tool_choice=choice)
        block = answer.content[-1]
        if (answer.stop_reason, block.type) != ("tool_use", "tool_use"):
            return f"{answer.stop_reason}, {block.type}"
        return fits(WEATHER, json.dumps(block.input))
    calls.run("message tool_choice any", lambda: used(type="any"))
    calls.run("message tool_choice tool", lambda: used(type="tool", name="weather"))
    calls.run("message tool_choice auto", lambda: None if create(
        tools=[tool], tool_choice={"type": "auto"}).content else "nothing")
    calls.run("message with thinking", lambda: None if [block.type for block in create(
        thinking={"type": "enabled", "budget_tokens": 1024}).content] == ["thinking", "text"]
        else "other blocks")
    turns = [*HI, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "So.", "signature": "s"},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bonn"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                                      "content": [{"type": "text", "text": "rain"}]}]}]
    calls.run("message of a tool's result",
              lambda: None if create(messages=turns, tools=[tool]).content[0].text else "no text")

    def streamed(kinds, **fields):
        with client.messages.stream(model=MODEL, max_tokens=120, messages=HI, **fields) as stream:
            found = [event.type for event in stream]
            final = stream.get_final_message()
        if found[0] != "message_start" or found[-1] != "message_stop":
            return f"{found}"
        blocks = [block.type for block in final.content]
        return None if blocks == kinds else f"{blocks}"
    calls.run("message, streamed", lambda: streamed(["text"]))
    calls.run("message with a tool's use, streamed", lambda: streamed(
        ["tool_use"], tools=[tool], tool_choice={"type": "any"}))
    calls.run("message with thinking, streamed", lambda: streamed(
        ["thinking", "text"], thinking={"type": "enabled", "budget_tokens": 1024}))
    calls.run("count_tokens", lambda: None if client.messages.count_tokens(
        model=MODEL, messages=HI).input_tokens > 10 else "few")
    calls.run("message refused: a document", lambda: refused(
        anthropic.BadRequestError, lambda: create(messages=[
            {"role": "user", "content": [{"type": "document", "source": {}}]}])))


# ---- LangChain, LiteLLM ----


def check_langchain(url, calls):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str, days: int) -> str:
        """Tells the weather."""
        return f"{city} {days}"

    def chat(**fields):
        return ChatOpenAI(model=MODEL, base_url=url, api_key="none", max_tokens=150, max_retries=0,
                          **fields)
    calls.run("LangChain invoke", lambda: None if chat().invoke("Hi").content else "no content")
    calls.run("LangChain stream", lambda: None if "".join(
        str(chunk.content) for chunk in chat().stream("Hi")) else "no content")
    calls.run("LangChain bind_tools, any", lambda: None if chat().bind_tools(
        [weather], tool_choice="any").invoke("Hi").tool_calls[0]["name"] == "weather" else "other")
    calls.run("LangChain bind_tools, by name", lambda: None if chat().bind_tools(
        [weather], tool_choice="weather").invoke("Hi").tool_calls else "no call")
    for method in ("json_schema", "function_calling", "json_mode"):
        schema = Person if method != "json_mode" else None
        calls.run(f"LangChain with_structured_output {method}", lambda: None if chat(
            ).with_structured_output(schema, method=method).invoke("JSON, please") else "nothing")
    calls.run("LangChain responses",
              lambda: None if chat(use_responses_api=True).invoke("Hi").content else "no content")
    calls.run("LangChain logprobs", lambda: None if chat().bind(logprobs=True).invoke(
        "Hi").response_metadata["logprobs"] else "none")


def check_litellm(url, calls):
    import litellm
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)

    def complete(**fields):
        return litellm.completion(model="openai/" + MODEL, messages=HI, api_base=url,
                                  api_key="none", max_tokens=120, **fields)
    calls.run("LiteLLM completion",
              lambda: None if complete().choices[0].message.content else "no content")
    calls.run("LiteLLM tools", lambda: fits(WEATHER, complete(
        tools=TOOLS, tool_choice=NAMED).choices[0].message.tool_calls[0].function.arguments))
    calls.run("LiteLLM response_format", lambda: None if complete(
        response_format=Person).choices[0].message.content else "no content")
    calls.run("LiteLLM stream", lambda: None if "".join(
        chunk.choices[0].delta.content or "" for chunk in complete(stream=True)) else "no content")
    calls.run("LiteLLM responses", lambda: None if litellm.responses(
        model="openai/" + MODEL, input="Hi", api_base=url, api_key="none").output else "no output")
    calls.run("LiteLLM anthropic", lambda: None if litellm.completion(
        model="anthropic/" + MODEL, messages=HI, api_base=url.removesuffix("/v1"), api_key="none",
        max_tokens=50).choices[0].message.content else "no content")


# ---- raw requests ----


def check_native(server, calls):
    """What SGLang's bench_serving asks by default, and its other endpoints."""
    def generate(**fields):
        status, _, body = server.ask("POST", "/generate", {
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True},
            "stream": False, "lora_path": None, "return_logprob": False,
            "return_routed_experts": False, "logprob_start_len": -1, **fields})
        return status, body

    def one(**fields):
        status, body = generate(**fields)
        answer = json.loads(body)
        return None if (status, answer["meta_info"]["completion_tokens"],
                        len(answer["output_ids"])) == (200, 6, 6) else f"{status} {answer}"
    calls.run("/generate text", lambda: one(text="Hello"))
    calls.run("/generate input_ids", lambda: one(input_ids=[1, 2, 3]))
    calls.run("/generate logprobs", lambda: one(text="a", return_logprob=True, top_logprobs_num=2))

    def prompted():
        status, body = generate(input_ids=[1, 2, 3], return_logprob=True, logprob_start_len=0)
        found = json.loads(body)["meta_info"]["input_token_logprobs"]
        return None if (status, [entry[1] for entry in found]) == (200, [1, 2, 3]) else f"{found}"
    calls.run("/generate logprob_start_len 0", prompted)

    def streamed():
        status, body = generate(text="Hello", stream=True)
        events = events_of(body)
        counts = [event["meta_info"]["completion_tokens"] for event in events]
        texts = [event["text"] for event in events]
        grows = all(b.startswith(a) for a, b in zip(texts, texts[1:]))
        return None if (status, counts, grows) == (200, [1, 2, 3, 4, 5, 6], True) else f"{events}"
    calls.run("/generate, streamed", streamed)

    def several():
        status, body = generate(text=["a", "b"])
        return None if status == 200 and len(json.loads(body)) == 2 else f"{status}"
    calls.run("/generate of a list", several)
    calls.run("/generate json_schema", lambda: fits(SCHEMAS["text"], json.loads(generate(
        text="a", sampling_params={"max_new_tokens": 60, "json_schema":
                                   json.dumps(SCHEMAS["text"])})[1])["text"]))
    calls.run("/generate regex", lambda: matches("a+b", json.loads(generate(
        text="a", sampling_params={"regex": "a+b"})[1])["text"]))
    for path, key in (("/get_model_info", "model_path"), ("/model_info", "is_generation"),
                      ("/get_server_info", "max_total_num_tokens"), ("/server_info", "version")):
        calls.run(path, lambda: None if key in json.loads(server.ask("GET", path)[2]) else "lacks")
    for method, path in (("GET", "/health_generate"), ("POST", "/flush_cache"),
                         ("GET", "/flush_cache")):
        calls.run(f"{method} {path}",
                  lambda: None if server.ask(method, path)[0] == 200 else "refused")


def check_refusals(server, calls):
    """Each is one clear line."""
    chat = {"messages": HI}
    for path, body in (
            ("/v1/embeddings", {"input": "a", "encoding_format": "text"}), ("/v1/embeddings", {}),
            ("/v1/chat/completions", {**chat, "tool_choice": "required"}),
            ("/v1/chat/completions", {**chat, "tools": TOOLS, "tool_choice": "always"}),
            ("/v1/chat/completions", {**chat, "tools": [{"type": "web"}]}),
            ("/v1/chat/completions", {**chat, "guided_regex": "a("}),
            ("/v1/chat/completions", {**chat, "guided_json": {"type": "string", "pattern": "a("}}),
            ("/v1/chat/completions", {**chat, "guided_json": {"$ref": "#"}}),
            ("/v1/chat/completions", {**chat, "guided_json": {"type": "what"}}),
            ("/v1/chat/completions", {**chat, "reasoning_effort": "much"}),
            ("/v1/responses", {}), ("/v1/responses", {"input": [{"type": "item_reference"}]}),
            ("/v1/messages", {"max_tokens": 5}), ("/v1/messages", {"messages": HI}),
            ("/generate", {"text": "a", "sampling_params": {"regex": "a("}}),
            ("/generate", {"text": "a", "input_ids": [1]}),
            ("/generate", {"text": 5}), ("/generate", {"text": "a", "what": 1})):
        def one():
            status, _, answer = server.ask("POST", path, body)
            message = json.loads(answer)["error"]["message"]
            good = status in (400, 404) and message and "\n" not in message
            return None if good else f"{status} {message}"
        calls.run(f"{path} refused: {serving.short(body, 80)}", one)


def check(program, faults, options):
    del options
    calls = Calls(faults)
    sets = ["workload.output_tokens={value: 110}"]
    with Server(program, SCENARIO, variant="budget", sets=sets, speed=20) as server:
        url = server.url + "/v1"
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
        check_chats(client, calls)
        check_completions(client, calls)
        check_responses(client, calls)
        check_messages(anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0,
                                           timeout=60), calls)
        check_langchain(url, calls)
        check_litellm(url, calls)
        check_native(server, calls)
        check_refusals(server, calls)
    faults.say(f"{calls.num_calls} calls")
