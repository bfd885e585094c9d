// The terminal itself: xterm.js with what this product asks of it.

import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { Terminal } from "@xterm/xterm";
import { fromOsc52 } from "./clipboard";
import { openLinks } from "./links";
import { drawFast } from "./renderer";
import { usable, type Size } from "./sizer";
import { scrollByTouch } from "./touch";

export interface Options {
  fontSize: number;
  screenReader: boolean;
  /** A program wants `text` in the clipboard. */
  copies(text: string): void;
  hint(text: string | null): void;
  titled(title: string): void;
}

export interface Screen {
  terminal: Terminal;
  /** The size that fills the page; null while the page is hidden or not laid out. */
  measure(): Size | null;
}

const FONTS = "ui-monospace, 'SF Mono', SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', 'Liberation Mono', monospace";

export function makeScreen(container: HTMLElement, options: Options): Screen {
  const terminal = new Terminal({
    allowProposedApi: true, // for the widths of Unicode 11
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: FONTS,
    fontSize: options.fontSize,
    minimumContrastRatio: 4.5,
    screenReaderMode: options.screenReader,
    scrollback: 10_000,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = "11";
  openLinks(terminal, options.hint);
  terminal.parser.registerOscHandler(52, (data) => {
    const text = fromOsc52(data);
    if (text !== null) options.copies(text);
    return true;
  });
  terminal.onTitleChange((title) => options.titled(title));
  terminal.open(container);
  drawFast(terminal);
  scrollByTouch(terminal, container);
  terminal.textarea?.setAttribute("aria-label", "Terminal input. Press Alt+F10 to leave the terminal.");
  terminal.textarea?.setAttribute("autocomplete", "off");

  const measure = (): Size | null => {
    if (document.hidden || container.offsetWidth === 0 || container.offsetHeight === 0) return null;
    return usable(fit.proposeDimensions());
  };
  return { terminal, measure };
}
