// From the form to requests, and from chunks to text.

const SEEDS = 2 ** 32;

/** What the form says; a seed that is left out is drawn, so that all answers of a turn have the same. */
export function chosen(form) {
  const value = (name) => form.elements[name].value.trim();
  const number = (name, otherwise) => (value(name) === "" ? otherwise : Number(value(name)));
  return {
    kind: value("kind"),
    mode: form.elements.mode.value,
    system: value("system"),
    quick: form.elements.quick.checked,
    tokens: number("tokens", undefined),
    temperature: number("temperature", undefined),
    seed: number("seed", crypto.getRandomValues(new Uint32Array(1))[0] % SEEDS),
  };
}

/** The request for an answer to messages, of which text to continue takes the last alone. */
export function request(model, messages, options, speculation) {
  const common = {
    model,
    stream: true,
    max_tokens: options.short && !(options.tokens < options.short) ? options.short : options.tokens,
    temperature: options.temperature,
    seed: options.seed,
    paceline: { drafts: true, speculation },
  };
  if (options.kind === "text") {
    return { path: "v1/completions", body: { ...common, prompt: messages.at(-1).content } };
  }
  const first = options.system ? [{ role: "system", content: options.system }] : [];
  const quick = options.quick ? { chat_template_kwargs: { enable_thinking: false } } : {};
  return { path: "v1/chat/completions", body: { ...common, ...quick, messages: [...first, ...messages] } };
}

/** What a chunk adds: text to read, text that the model only thought, tokens, and the end if it came. */
export function added(chunk) {
  const choice = chunk.choices[0] ?? {};
  return {
    text: choice.text ?? choice.delta?.content ?? "",
    thought: choice.delta?.reasoning_content ?? "",
    tokens: chunk.paceline?.tokens ?? [],
    end: choice.paceline?.finish_reason ?? "",
  };
}
