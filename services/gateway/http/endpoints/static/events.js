// Server-sent events as the gateway writes them: one line of data each, the last one [DONE]; lines with a colon are comments.

/** The events of a body, parsed; throws when it ends before [DONE]. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("The answer broke off: the connection to the gateway was lost.");
      const whole = (rest + value).split("\n\n");
      rest = whole.pop();
      for (const one of whole) {
        if (one.startsWith(":")) continue;
        const data = one.slice("data: ".length);
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // It may have failed, which its reader has been told.
  }
}
