// A subset of Markdown, read into plain objects; nothing in it is ever markup, and HTML is text.

const DEEPEST = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|$)/;
const DASHES = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const INLINE = new RegExp(
  [
    /\\(?<escaped>[!-/:-@[-`{-~])/,
    /(?<ticks>`+)(?<code>[^`](?:[^]{0,2000}?[^`])?)\k<ticks>(?!`)/,
    /(?<loud>\*\*|__)(?=\S)(?<strong>[^]{1,2000}?)(?<=\S)\k<loud>/,
    /(?<![\w*])(?<soft>[*_])(?=[^\s*_])(?<em>[^*_]{1,2000})(?<=\S)\k<soft>(?![\w*])/,
    /~~(?=\S)(?<gone>[^~]{1,2000})~~/,
    /!?\[(?<label>[^[\]]{1,500})\]\((?<href>https?:\/\/[^\s<>()]{1,2000})\)/,
    /(?<url>https?:\/\/[^\s<>()[\]"'`*]{1,2000})/,
  ]
    .map((one) => one.source)
    .join("|"),
  "gu",
);

/** Blocks of a text; each has its kind and its `source`, which tells whether it changed. */
export function blocks(text, depth = 0) {
  const lines = text.split("\n");
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const { block, next } = blockAt(lines, at, depth);
    found.push({ ...block, source: lines.slice(at, next).join("\n") });
    at = next;
  }
  return found;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { block: { kind: "heading", level: heading[1].length, text: heading[2] }, next: at + 1 };
  if (RULE.test(line)) return { block: { kind: "rule" }, next: at + 1 };
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, [, mark, language]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], mark)) end += 1;
  const block = { kind: "code", language, text: lines.slice(at + 1, end).join("\n"), open: end >= lines.length };
  return { block, next: Math.min(end + 1, lines.length) };
}

function closes(line, mark) {
  const text = line.trim();
  return text.length >= mark.length && text === mark[0].repeat(text.length);
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { block: { kind: "quote", blocks: blocks(inner.join("\n"), depth + 1) }, next: end };
}

function list(lines, at, depth) {
  const [, , mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  for (let item = itemOf(lines[end], ordered); item; item = itemOf(lines[end] ?? "", ordered)) {
    const { inner, next } = within(lines, end, item);
    items.push(blocks(inner, depth + 1));
    end = next;
  }
  return { block: { kind: "list", ordered, start: ordered ? parseInt(mark, 10) : 0, items }, next: end };
}

function itemOf(line, ordered) {
  const item = RULE.test(line) ? null : ITEM.exec(line);
  return item && /\d/.test(item[2]) === ordered ? item : null;
}

/** The text of an item: its line, and what follows further in, or without a blank line between. */
function within(lines, at, item) {
  const width = item[1].length + item[2].length + 1;
  const inner = [lines[at].slice(item[0].length)];
  let next = at + 1;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    const further = /^ */.exec(line)[0].length >= Math.min(width, 2) && line.trim();
    const after = lines.slice(next).find((one) => one.trim()) ?? "";
    const goesOn = line.trim() ? further || continues(line, inner) : /^ {2}/.test(after);
    if (!goesOn) break;
    inner.push(line.slice(Math.min(width, /^ */.exec(line)[0].length)));
  }
  if (next < lines.length && !lines[next].trim() && ITEM.test(lines[next + 1] ?? "")) next += 1;
  return { inner: inner.join("\n"), next };
}

function continues(line, inner) {
  return inner.at(-1).trim() && !starts(line) && !ITEM.test(line);
}

function starts(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function isTable(lines, at) {
  return lines[at].includes("|") && (lines[at + 1] ?? "").includes("-") && DASHES.test(lines[at + 1] ?? "")
    && cells(lines[at]).length === cells(lines[at + 1]).length;
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  return { block: { kind: "table", head: cells(lines[at]), rows }, next: end };
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  const ends = (line) => !line.trim() || starts(line) || (depth < DEEPEST && ITEM.test(line));
  while (end < lines.length && !ends(lines[end])) end += 1;
  return { block: { kind: "paragraph", text: lines.slice(at, end).join("\n") }, next: end };
}

/** Parts of a line: text, code, strong, em, gone and links to http; strong, em and gone hold parts. */
export function inline(text, depth = 0) {
  const parts = [];
  let at = 0;
  const plain = (value) => {
    if (!value) return;
    if (parts.at(-1)?.kind === "text") parts.at(-1).text += value;
    else parts.push({ kind: "text", text: value });
  };
  for (const found of depth < DEEPEST ? text.matchAll(INLINE) : []) {
    plain(text.slice(at, found.index));
    const { part, rest } = partOf(found.groups, depth);
    if (part.kind === "text") plain(part.text);
    else parts.push(part);
    plain(rest);
    at = found.index + found[0].length;
  }
  plain(text.slice(at));
  return parts;
}

function partOf({ escaped, code: inner, strong, em, gone, label, href, url }, depth) {
  if (escaped !== undefined) return { part: { kind: "text", text: escaped } };
  if (inner !== undefined) return { part: { kind: "code", text: inner.trim() || inner } };
  if (strong !== undefined) return { part: { kind: "strong", parts: inline(strong, depth + 1) } };
  if (em !== undefined) return { part: { kind: "em", parts: inline(em, depth + 1) } };
  if (gone !== undefined) return { part: { kind: "gone", parts: inline(gone, depth + 1) } };
  if (label !== undefined) return { part: { kind: "link", href, parts: [{ kind: "text", text: label }] } };
  const [, kept, rest] = /^(.*?)([.,;:!?]*)$/s.exec(url);
  return { part: { kind: "link", href: kept, parts: [{ kind: "text", text: kept }] }, rest };
}
