// The buttons at the top, and the help.

import { element } from "./dom";
import { FONT_LEAST, FONT_MOST, save, type Appearance, type Preferences } from "./preferences";

export interface Effects {
  appearance(value: Appearance): void;
  fontSize(value: number): void; // px
  screenReader(value: boolean): void;
  /** Back to the terminal. */
  back(): void;
}

/** `chosen` is kept up to date, and saved. */
export function takeControls(chosen: Preferences, effects: Effects): { focus(): void } {
  const bar = element("controls", HTMLElement);
  const smaller = element("smaller", HTMLButtonElement);
  const larger = element("larger", HTMLButtonElement);
  const reader = element("reader", HTMLButtonElement);
  const help = element("help", HTMLDialogElement);

  const show = (): void => {
    smaller.disabled = chosen.fontSize <= FONT_LEAST;
    larger.disabled = chosen.fontSize >= FONT_MOST;
    reader.setAttribute("aria-pressed", String(chosen.screenReader));
  };
  const choose = (changes: Partial<Preferences>): void => {
    Object.assign(chosen, changes);
    save(chosen);
    show();
  };
  const scale = (step: number): void => {
    choose({ fontSize: Math.min(FONT_MOST, Math.max(FONT_LEAST, chosen.fontSize + step)) });
    effects.fontSize(chosen.fontSize);
  };

  smaller.addEventListener("click", () => scale(-1));
  larger.addEventListener("click", () => scale(1));
  element("appearance", HTMLButtonElement).addEventListener("click", () => {
    choose({ appearance: document.documentElement.dataset["appearance"] === "dark" ? "light" : "dark" });
    effects.appearance(chosen.appearance);
  });
  reader.addEventListener("click", () => {
    choose({ screenReader: !chosen.screenReader });
    effects.screenReader(chosen.screenReader);
  });
  element("show-help", HTMLButtonElement).addEventListener("click", () => help.showModal());
  element("help-close", HTMLButtonElement).addEventListener("click", () => help.close());
  help.addEventListener("close", () => effects.back());
  bar.addEventListener("mousedown", (event) => event.preventDefault()); // the focus, and with it a phone's keyboard, stays where it is
  bar.addEventListener("keydown", (event) => {
    if (event.key === "Escape") effects.back();
  });
  show();
  return { focus: () => bar.querySelector("button")?.focus() };
}
