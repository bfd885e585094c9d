// What the page itself says: its state, short notices, and how the terminal ended.

import { element } from "./dom";
import type { Ending } from "./endings";

const state = element("state", HTMLElement);

export function showState(kind: "connecting" | "open" | "ended", text: string): void {
  document.documentElement.dataset["state"] = kind;
  state.textContent = text;
}

/** Shows the address below the pointer. */
export function hint(text: string | null): void {
  const line = element("hint", HTMLElement);
  line.textContent = text ?? "";
  line.hidden = text === null;
}

/** A program wants something copied that the browser lets only a user copy. */
export function offerCopy(length: number, copy: () => void): void {
  const notice = element("offer", HTMLElement);
  element("offer-text", HTMLElement).textContent = `A program wants to copy ${length.toLocaleString("en")} characters.`;
  const close = (): void => {
    notice.hidden = true;
  };
  element("offer-copy", HTMLButtonElement).onclick = () => {
    close();
    copy();
  };
  element("offer-close", HTMLButtonElement).onclick = close;
  notice.hidden = false;
}

/** `again` is what asks for a new terminal; null when the page can't. */
export function showEnding({ title, why, next }: Ending, again: { label: string; act(): void } | null): void {
  showState("ended", "Ended");
  const panel = element("ended", HTMLElement);
  const button = element("again", HTMLButtonElement);
  panel.hidden = false;
  element("ended-title", HTMLElement).textContent = title;
  element("ended-why", HTMLElement).textContent = why;
  element("ended-next", HTMLElement).textContent = next;
  button.hidden = again === null;
  if (again) {
    button.textContent = again.label;
    button.onclick = () => {
      button.disabled = true;
      again.act();
    };
    button.focus();
  } else panel.focus();
}
