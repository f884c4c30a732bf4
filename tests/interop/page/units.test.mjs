// node --test units.test.mjs: functions of the page that need no browser. FOLDER is where the page's files are.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const folder = mkdtempSync(join(tmpdir(), "page-"));
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
for (const name of readdirSync(process.env.FOLDER)) copyFileSync(join(process.env.FOLDER, name), join(folder, name));
const { blocks, inline } = await import(join(folder, "markdown.js"));
const { Store, exported, messagesOf, titleOf } = await import(join(folder, "store.js"));
const { compared, faster } = await import(join(folder, "verdict.js"));

const ALPHABET = ["a", " ", "\n", "*", "_", "`", "```", "#", "-", ">", "1. ", "|", "~~", "[", "](http://x)", "\\", "<b>", "ü"];

/** Numbers from 0 to below `most`, the same ones each time. */
function drawn(seed) {
  let state = seed;
  return (most) => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return Math.floor((state / 2 ** 32) * most);
  };
}

/** All text in a tree of blocks or parts. */
function words(found) {
  if (Array.isArray(found)) return found.map(words).join("");
  if (found === null || typeof found !== "object") return "";
  const own = typeof found.text === "string" ? (found.kind === "paragraph" || found.kind === "heading" ? words(inline(found.text)) : found.text) : "";
  const cells = (found.head ?? []).concat(...(found.rows ?? [])).map((cell) => words(inline(cell))).join("");
  return own + cells + words(found.parts ?? []) + words(found.blocks ?? []) + words(found.items ?? []);
}

const kinds = (text) => blocks(text).map(({ kind }) => kind);

test("blocks are told apart", () => {
  const text = "# T\n\npara\ngraph\n\n- a\n- b\n  - c\n\n1. x\n2. y\n\n> q\n\n---\n\n|a|b|\n|-|-|\n|1|2|\n\n```js\nlet x;\n```\nend";
  assert.deepEqual(kinds(text), ["heading", "paragraph", "list", "list", "quote", "rule", "table", "code", "paragraph"]);
  const [, , list, ordered, , , table, code] = blocks(text);
  assert.equal(list.items.length, 2);
  assert.deepEqual(list.items[1].map(({ kind }) => kind), ["paragraph", "list"]);
  assert.deepEqual([ordered.ordered, ordered.start], [true, 1]);
  assert.deepEqual([table.head, table.rows], [["a", "b"], [["1", "2"]]]);
  assert.deepEqual([code.language, code.text, code.open], ["js", "let x;", false]);
});

test("code that is still written is code", () => {
  const [code] = blocks("```python\ndef f():\n    # no heading\n    return 1");
  assert.deepEqual([code.kind, code.text, code.open], ["code", "def f():\n    # no heading\n    return 1", true]);
});

test("parts of a line are told apart", () => {
  const parts = inline("a **b** *c* `d*e*` ~~f~~ [g](https://x.org/y) https://z.org. snake_case_word \\*");
  assert.deepEqual(
    parts.filter(({ kind }) => kind !== "text").map(({ kind, text, href }) => [kind, text ?? href]),
    [["strong", undefined], ["em", undefined], ["code", "d*e*"], ["gone", undefined], ["link", "https://x.org/y"], ["link", "https://z.org"]],
  );
  assert.ok(parts.at(-1).text.endsWith(". snake_case_word *"));
});

test("a link leads to http alone, and markup is text", () => {
  for (const text of ["[x](javascript:alert(1))", "<a href=x>", "![i](data:image/png,x)", "[x](//evil)"]) {
    assert.deepEqual(inline(text), [{ kind: "text", text }]);
  }
});

test("no text is lost, of any shape and cut anywhere", () => {
  const next = drawn(20260101);
  for (let round = 0; round < 400; round += 1) {
    const text = Array.from({ length: 1 + next(40) }, () => ALPHABET[next(ALPHABET.length)]).join("");
    const letters = (of) => [...of].filter((one) => /[aüb]/.test(one)).join("");
    const plain = text.replaceAll("](http://x)", "");
    const found = blocks(text);
    const fences = found.some(({ kind }) => kind === "code" || kind === "table") || text.includes("```") || text.includes("|");
    if (!fences) assert.equal(letters(words(found).replaceAll("http://x", "")), letters(plain), JSON.stringify(text));
  }
});

test("a text of any depth and length is read in time", () => {
  for (const unit of [">", "- ", "*", "**a", "_a ", "`", "[a](", "|", "# ", "1. ", "\\", "~~a", "a\n", "```\n", "__"]) {
    const before = process.cpuUsage().user;
    for (const { text } of blocks(unit.repeat(5000))) inline(text ?? "");
    assert.ok(process.cpuUsage().user - before < 5e6, unit);
  }
});

test("blocks that do not change keep their source while a text grows", () => {
  const text = "# T\n\nfirst *one*\n\n```js\nlet x = 1;\n```\n\n- a\n- b\n\nlast";
  const whole = blocks(text);
  for (let size = 1; size < text.length; size += 1) {
    const found = blocks(text.slice(0, size));
    found.slice(0, -1).forEach(({ source }, index) => assert.ok(whole[index].source.startsWith(source)));
  }
});

/** A storage that holds so many characters. */
function storage(room) {
  const kept = new Map();
  return {
    getItem: (name) => kept.get(name) ?? null,
    setItem: (name, value) => {
      if (value.length > room) throw new Error("full");
      kept.set(name, value);
    },
  };
}

const talk = (id, asked = "hello") => ({ id, title: asked, at: "2026-01-01", turns: [{ asked, kind: "chat", answers: [{ text: "fine" }] }] });

test("conversations are kept, the latest first, and replaced by id", () => {
  const store = new Store(storage(1e6));
  for (const id of ["a", "b", "a"]) assert.ok(store.keep(talk(id)));
  assert.deepEqual(store.all().map(({ id }) => id), ["a", "b"]);
  store.drop("a");
  assert.deepEqual(store.all().map(({ id }) => id), ["b"]);
});

test("the oldest go where there is no room, and a storage that is forbidden keeps nothing", () => {
  const store = new Store(storage(300));
  for (const id of ["a", "b", "c"]) assert.ok(store.keep(talk(id)));
  assert.equal(store.all()[0].id, "c");
  assert.ok(store.all().length < 3);
  assert.equal(new Store(storage(10)).keep(talk("a")), false);
  assert.equal(new Store(null).keep(talk("a")), false);
  assert.deepEqual(new Store({ getItem: () => "{" }).all(), []);
  assert.deepEqual(new Store({ getItem: () => '[{"id": 3}, null]' }).all(), []);
});

test("only answered turns of a chat are sent again", () => {
  const turns = [...talk("a").turns, { asked: "x", kind: "chat", answers: [{ text: "" }] }, { asked: "y", kind: "text", answers: [{ text: "z" }] }];
  assert.deepEqual(messagesOf(turns), [{ role: "user", content: "hello" }, { role: "assistant", content: "fine" }]);
  assert.equal(titleOf([{ asked: `${"long ".repeat(40)}` }]).length, 60);
  assert.equal(JSON.parse(exported({ ...talk("a"), turns })).messages.length, 6);
});

const pace = (perSecond, tokens = 96) => ({ perSecond, tokens });

test("texts are compared only when both are whole", () => {
  assert.equal(compared({ whole: true, text: "ab" }, { whole: true, text: "ab" }), "The texts are equal.");
  assert.equal(compared({ whole: true, text: "ab" }, { whole: true, text: "ac" }), "The texts differ from character 2 on.");
  assert.equal(compared({ whole: false, text: "a" }, { whole: true, text: "a" }), "");
});

test("a ratio is claimed only where repeated runs agree", () => {
  const run = (on, off) => ({ on: pace(on), off: pace(off) });
  assert.match(faster([run(200, 100), run(220, 110)]), /210 tokens per second with speculation, 105 without, so it was 2\.00 times as fast\.$/);
  assert.match(faster([run(57, 100), run(60, 100)]), /so it was slower here, 0\.58 times the speed\.$/);
  assert.match(faster([run(100, 100), run(101, 100)]), /so it made no difference\.$/);
  assert.match(faster([run(200, 100), run(90, 100)]), /they disagree, 0\.90 and 2\.00 times/);
  for (const few of [[run(200, 100)], [run(200, 100), { on: pace(9, 5), off: pace(9, 5) }], [run(0, 1), run(1, 1)]]) {
    assert.equal(faster(few), "The answer is too short to compare speeds.");
  }
});
