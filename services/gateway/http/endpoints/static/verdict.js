// What two answers to one prompt show, one with speculation and one without.

export const ROUNDS = 2;
export const SHORT = 96;
const LEAST = 16;
const APART = 1.25;

/** Whether the texts are one; empty unless both came to their end. */
export function compared(on, off) {
  if (!on.whole || !off.whole) return "";
  const [one, other] = [on.text, off.text];
  if (one === other) return "The texts are equal.";
  const size = Math.min(one.length, other.length);
  let same = 0;
  while (same < size && one[same] === other[same]) same += 1;
  return `The texts differ from character ${same + 1} on.`;
}

/** One sentence about short runs in turn, each {on, off} of paces; a ratio is claimed only where they agree. */
export function faster(runs) {
  const told = runs.flatMap(({ on, off }) => [on, off]);
  if (told.length < 2 * ROUNDS || told.some(({ tokens, perSecond }) => tokens < LEAST || !perSecond)) {
    return "The answer is too short to compare speeds.";
  }
  const ratios = runs.map(({ on, off }) => on.perSecond / off.perSecond);
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)];
  const how = `Measured with ${runs.length} short runs of each, one at a time, from the first tokens on:`;
  if (most / least > APART) {
    return `${how} they disagree, ${least.toFixed(2)} and ${most.toFixed(2)} times, so no ratio is given.`;
  }
  const mean = (side) => runs.reduce((sum, run) => sum + run[side].perSecond, 0) / runs.length;
  return `${how} ${mean("on").toFixed(0)} tokens per second with speculation, ${mean("off").toFixed(0)} without, ${
    said(mean("on") / mean("off"))
  }.`;
}

function said(ratio) {
  if (ratio > 1.02) return `so it was ${ratio.toFixed(2)} times as fast`;
  return ratio < 0.98 ? `so it was slower here, ${ratio.toFixed(2)} times the speed` : "so it made no difference";
}
