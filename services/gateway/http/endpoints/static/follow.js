// Keeps the end of what grows in sight.

const NEAR_PX = 80;

/** While the reader is near the end of an element it stays in sight; who scrolled back is left alone. */
export function followEnd(growing) {
  const below = () => growing.getBoundingClientRect().bottom - window.innerHeight;
  let following = true;
  window.addEventListener("scroll", () => (following = below() < NEAR_PX), { passive: true });
  new ResizeObserver(() => following && below() > 0 && window.scrollBy(0, below())).observe(growing);
}
