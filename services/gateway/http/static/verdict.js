// What two answers to one prompt show, one with speculation and one without.

/** One or two sentences; empty unless both came to their end. */
export function verdict(on, off, together) {
  if (!on.whole || !off.whole) return "";
  return `${compared(on.text, off.text)} ${faster(on.pace.perSecond, off.pace.perSecond, together)}`.trim();
}

function compared(one, other) {
  if (one === other) return "The texts are equal.";
  const size = Math.min(one.length, other.length);
  let same = 0;
  while (same < size && one[same] === other[same]) same += 1;
  return `The texts differ from character ${same + 1} on.`;
}

function faster(on, off, together) {
  if (!on || !off) return "";
  const times = `On had ${(on / off).toFixed(2)} times the tokens per second`;
  return together ? `${times}, while both shared the gateway.` : `${times}.`;
}
