// What a user chose, kept in this browser where it lets the page keep anything.

export type Appearance = "auto" | "light" | "dark";

export interface Preferences {
  appearance: Appearance;
  fontSize: number; // px
  screenReader: boolean;
}

export const FONT_LEAST = 8;
export const FONT_MOST = 40;
const KEY = "sandboxhub-terminal";
const DEFAULTS: Preferences = { appearance: "auto", fontSize: 14, screenReader: false };

export function load(): Preferences {
  const preferences = { ...DEFAULTS };
  let kept: unknown;
  try {
    kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return preferences; // no storage in a sandboxed frame, or something else wrote there
  }
  if (typeof kept !== "object" || kept === null) return preferences;
  const { appearance, fontSize, screenReader } = kept as Record<string, unknown>;
  if (appearance === "light" || appearance === "dark") preferences.appearance = appearance;
  if (typeof fontSize === "number") preferences.fontSize = Math.min(FONT_MOST, Math.max(FONT_LEAST, Math.round(fontSize)));
  if (typeof screenReader === "boolean") preferences.screenReader = screenReader;
  return preferences;
}

export function save(preferences: Preferences): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // Then they last as long as the page.
  }
}
