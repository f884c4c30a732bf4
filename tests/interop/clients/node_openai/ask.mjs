// Asks with openai's client for node; prints what it got as JSON.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const messages = [{ role: "user", content: "hello" }];
const parameters = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const tools = [{ type: "function", function: { name: "Weather", description: "By town.", parameters } }];
const chats = client.chat.completions;

async function joined(stream, text) {
  let all = "";
  for await (const piece of stream) all += text(piece.choices[0]) ?? "";
  return all;
}

async function answered(message) {
  const told = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "21" };
  return (await chats.create({ model, messages: [...messages, message, told], tools })).choices[0].message.content;
}

function called(message) {
  const { name, arguments: given } = message.tool_calls[0].function;
  return [name, JSON.parse(given)];
}

async function refused(name, ask) {
  try {
    await ask();
  } catch (error) {
    return [name, [error.constructor.name, error.status, error.param ?? null]];
  }
}

const first = (await chats.create({ model, messages, tools })).choices[0].message;
const final = (await chats.stream({ model, messages, tools }).finalChatCompletion()).choices[0].message;
const run = { ...tools[0].function, parse: JSON.parse, function: ({ town }) => `21 in ${town}` };
const runner = chats.runTools({ model, messages, tools: [{ type: "function", function: run }] });
const whole = await chats.create({ model, messages });
const stranger = new OpenAI({ baseURL, apiKey: "wrong" });
console.log(
  JSON.stringify({
    chat: whole.choices[0].message.content,
    stream: await joined(await chats.create({ model, messages, stream: true }), (choice) => choice.delta.content),
    counted: whole.usage.completion_tokens,
    completion: (await client.completions.create({ model, prompt: "def f():" })).choices[0].text,
    completion_stream: await joined(
      await client.completions.create({ model, prompt: "def f():", stream: true }),
      (choice) => choice.text,
    ),
    call: called(first),
    streamed_call: called(final),
    result: await answered(first),
    streamed_result: await answered(final),
    run: await runner.finalContent(),
    errors: Object.fromEntries([
      await refused("key", () => stranger.chat.completions.create({ model, messages })),
      await refused("model", () => chats.create({ model: "other", messages })),
      await refused("option", () => chats.create({ model, messages, tools, tool_choice: { type: "function", function: { name: "other" } } })),
    ]),
  }),
);
