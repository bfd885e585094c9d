// Writing to the clipboard: for a user's key, and for a program by OSC 52. Nothing in the sandbox may read it.

const OSC_52_MOST = 1 << 20; // characters of Base64

/** Copies, or returns false where the browser asks for a user's gesture and there was none. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text); // only in a secure context, and in a frame only with its host's leave
    return true;
  } catch {
    return copyByCommand(text);
  }
}

function copyByCommand(text: string): boolean {
  const focused = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "off-screen";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}

/** The text that an OSC 52 sequence asks to copy; null for a question, which is never answered, and for what is no Base64 of UTF-8. */
export function fromOsc52(data: string): string | null {
  const base64 = data.slice(data.indexOf(";") + 1);
  if (base64 === "?" || base64.length > OSC_52_MOST || !data.includes(";")) return null;
  try {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes) || null;
  } catch {
    return null;
  }
}
