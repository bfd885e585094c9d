// From the user to the socket: keys, pastes, text that is dropped, and the row of keys that a phone's keyboard lacks.

import type { Terminal } from "@xterm/xterm";
import type { InputQueue } from "./flow";
import { tellsNoKey, typeWithoutKeys } from "./ime";
import { prepare } from "./paste";

const encoder = new TextEncoder();
const INTERRUPT = "\x03";

export interface Actions {
  /** Where typed bytes go; null when there is no connection. */
  queue(): InputQueue | null;
  copy(text: string): void;
  leave(): void;
  /** The browser does not let the page read the clipboard. */
  refused(): void;
}

/** A modifier key of the row on the screen, which holds for the next key. */
interface Sticky {
  ctrl: boolean;
  alt: boolean;
  released(): void;
}

export function takeInput(terminal: Terminal, container: HTMLElement, row: HTMLElement, actions: Actions): void {
  const paste = (text: string): void => {
    if (!text) return;
    const { bytes, ending } = prepare(text, terminal.modes.bracketedPasteMode);
    actions.queue()?.push(bytes, ending);
    terminal.scrollToBottom();
    terminal.focus();
  };
  const sticky = takeKeyRow(row, terminal, () => void readClipboard().then(paste, () => actions.refused()));
  terminal.onData((data) => {
    const queue = actions.queue();
    if (data === INTERRUPT) queue?.giveUp(); // it ends a paste too, of which the rest would reach whatever comes next
    queue?.push(encoder.encode(modified(data, sticky)));
  });
  // Reports of the mouse in its old encoding, which is not UTF-8.
  terminal.onBinary((data) => actions.queue()?.push(Uint8Array.from(data, (character) => character.charCodeAt(0) & 0xff)));
  terminal.attachCustomKeyEventHandler((event) => event.type !== "keydown" || !(tellsNoKey(event) || isOurs(event, terminal, actions)));
  if (terminal.textarea) typeWithoutKeys(terminal, terminal.textarea);

  container.addEventListener("paste", (event) => {
    event.preventDefault();
    event.stopPropagation(); // xterm.js would paste control characters too
    paste(event.clipboardData?.getData("text/plain") ?? "");
  }, { capture: true });
  container.addEventListener("drop", (event) => {
    if (event.dataTransfer?.files.length) return;
    event.preventDefault();
    paste(event.dataTransfer?.getData("text/plain") ?? "");
  });
}

function modified(data: string, sticky: Sticky): string {
  const { ctrl, alt } = sticky;
  if (!ctrl && !alt) return data;
  sticky.released();
  const code = data.length === 1 ? data.toUpperCase().charCodeAt(0) : 0;
  const key = ctrl && code >= 0x40 && code <= 0x5f ? String.fromCharCode(code & 0x1f) : data;
  return alt ? `\x1b${key}` : key;
}

/** Whether a key is for the page; then it has been handled. */
function isOurs(event: KeyboardEvent, terminal: Terminal, actions: Actions): boolean {
  if (event.altKey && !event.ctrlKey && event.key === "F10") {
    event.preventDefault();
    actions.leave();
    return true;
  }
  if (!event.ctrlKey || event.altKey || event.metaKey) return false;
  const key = event.key.toLowerCase();
  if (key === "c" && (event.shiftKey || terminal.hasSelection())) {
    event.preventDefault();
    if (terminal.hasSelection()) {
      actions.copy(terminal.getSelection());
      terminal.clearSelection(); // the next Ctrl-C interrupts
    }
    return true;
  }
  return key === "v" && event.shiftKey; // the browser makes a paste of it
}

const ARROWS: Record<string, string> = { up: "A", down: "B", right: "C", left: "D" };

// Where there is no such thing, as on a page that came without TLS, that is an error like any other.
const readClipboard = async (): Promise<string> => navigator.clipboard.readText();

/** The row of keys: each button names its key in data-key. Pressing one leaves the focus, and with it the phone's keyboard, where it is. */
function takeKeyRow(row: HTMLElement, terminal: Terminal, paste: () => void): Sticky {
  const buttons = [...row.querySelectorAll<HTMLButtonElement>("button[data-key]")];
  const show = (): void => {
    for (const button of buttons) {
      const { key } = button.dataset;
      if (key === "ctrl" || key === "alt") button.setAttribute("aria-pressed", String(sticky[key]));
    }
  };
  const sticky: Sticky = {
    ctrl: false,
    alt: false,
    released() {
      sticky.ctrl = sticky.alt = false;
      show();
    },
  };
  for (const button of buttons) {
    button.addEventListener("mousedown", (event) => event.preventDefault());
    button.addEventListener("click", () => {
      const key = button.dataset["key"] ?? "";
      const arrow = ARROWS[key];
      if (key === "ctrl" || key === "alt") {
        sticky[key] = !sticky[key];
        show();
      } else if (key === "paste") paste();
      else if (arrow) terminal.input(`\x1b${terminal.modes.applicationCursorKeysMode ? "O" : "["}${arrow}`);
      else terminal.input(key === "tab" ? "\t" : "\x1b");
    });
  }
  return sticky;
}
