// What is pasted, made harmless (a pasted ESC [201~ would end a bracketed paste early, and what follows would run).

const encoder = new TextEncoder();
const START = "\x1b[200~";
const END = "\x1b[201~";

// All control characters but tab, line feed and carriage return.
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

/** Text as a keyboard could have typed it: no control characters, and lines that end with Enter. */
export const cleaned = (text: string): string => text.replace(CONTROLS, "").replace(/\r?\n/g, "\r");

export interface Paste {
  bytes: Uint8Array;
  /** What closes the paste if it is given up half-way. */
  ending: Uint8Array | null;
}

/** `bracketed` is whether the program asked to be told where a paste begins and ends. */
export function prepare(text: string, bracketed: boolean): Paste {
  const clean = cleaned(text);
  if (!bracketed) return { bytes: encoder.encode(clean), ending: null };
  return { bytes: encoder.encode(START + clean + END), ending: encoder.encode(END) };
}
