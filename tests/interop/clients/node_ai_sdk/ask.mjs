// Asks with the AI SDK and its provider @ai-sdk/openai-compatible; prints what it got as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "paceline", baseURL, apiKey });
const prompt = "hello";
const parameters = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const tools = {
  Weather: tool({
    description: "By town.",
    inputSchema: jsonSchema(parameters),
    execute: async ({ town }) => `21 in ${town}`,
  }),
};

async function refused(name, chosen) {
  try {
    await generateText({ model: chosen, prompt, maxRetries: 0 });
  } catch (error) {
    return [name, [APICallError.isInstance(error) && error.name, error.statusCode]];
  }
}

const chat = provider(model);
const whole = await generateText({ model: chat, prompt });
const able = await generateText({ model: chat, prompt, tools, stopWhen: stepCountIs(2) });
const streamed = streamText({ model: chat, prompt, tools, stopWhen: stepCountIs(2) });
const { toolName, input } = able.steps[0].toolCalls[0];
const [call] = (await streamed.steps)[0].toolCalls;
const schema = jsonSchema({ ...parameters, additionalProperties: false });
const strict = createOpenAICompatible({ name: "paceline", baseURL, apiKey, supportsStructuredOutputs: true });
const report = async (chosen) =>
  (await generateText({ model: chosen, prompt: "Report as JSON.", output: Output.object({ schema }) })).output.town;
const needed = await generateText({ model: chat, prompt, tools, toolChoice: "required" });
const stranger = createOpenAICompatible({ name: "paceline", baseURL, apiKey: "wrong" });
console.log(
  JSON.stringify({
    chat: whole.text,
    stream: await streamText({ model: chat, prompt }).text,
    counted: whole.usage.outputTokens,
    completion: (await generateText({ model: provider.completionModel(model), prompt: "def f():" })).text,
    completion_stream: await streamText({ model: provider.completionModel(model), prompt: "def f():" }).text,
    call: [toolName, input],
    streamed_call: [call.toolName, call.input],
    forms: [await report(chat), await report(strict(model)), needed.toolCalls[0].input.town],
    thought: able.steps[0].reasoningText,
    result: able.text,
    streamed_result: await streamed.text,
    errors: Object.fromEntries([await refused("key", stranger(model)), await refused("model", provider("other"))]),
  }),
);
