// Elements whose content is text, never markup.

/** An element with attributes and children; strings become text nodes. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Shows named figures as the terms of a list, in the elements that are there already. */
export function showFigures(list, figures) {
  const names = Object.keys(figures);
  const shown = [...list.querySelectorAll("dt")].map((term) => term.textContent);
  if (shown.join() !== names.join()) {
    list.replaceChildren(...names.map((name) => element("div", {}, element("dt", {}, name), element("dd"))));
  }
  list.querySelectorAll("dd").forEach((cell, index) => setText(cell, figures[names[index]]));
}

/** Changes a text only where it differs. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
