// Keyboards that tell no key (they say 229) and change the text field instead: phones', and input methods' outside of a composition.
//
// xterm.js compares the field before and a moment after such a key, and loses or doubles what comes later than that moment. Here the field
// is compared when it has changed. Compositions are left to xterm.js.

import type { Terminal } from "@xterm/xterm";

const NO_KEY = 229;
const DELETE = "\x7f";

/** Whether a key is to be kept from xterm.js. */
export const tellsNoKey = (event: KeyboardEvent): boolean => event.keyCode === NO_KEY;

/** What must be typed to make `after` of `before`. */
export function typed(before: string, after: string): string {
  const old = [...before];
  const now = [...after];
  let same = 0;
  while (same < old.length && old[same] === now[same]) same++;
  return DELETE.repeat(old.length - same) + now.slice(same).join("").replaceAll("\n", "\r");
}

export function typeWithoutKeys(terminal: Terminal, field: HTMLTextAreaElement): void {
  let before = "";
  let told = false; // the key that is down told nothing
  let ending = false; // a composition has ended, and xterm.js sends it and what follows it in a moment
  const remember = (): void => {
    before = field.value;
  };
  field.addEventListener("keydown", (event) => {
    told = tellsNoKey(event);
    remember();
  });
  field.addEventListener("keyup", () => {
    told = false; // xterm.js takes what changes without a key
  });
  field.addEventListener("compositionend", () => {
    ending = true;
    setTimeout(() => {
      ending = false;
      remember();
    });
  });
  field.addEventListener("input", (event) => {
    if (!told || ending || !(event instanceof InputEvent) || event.isComposing) return;
    const data = typed(before, field.value);
    remember();
    if (data) terminal.input(data);
  });
}
