// Links in the output. It is not to be trusted: only web addresses open, on purpose, apart from this page, and the real address is shown.

import { WebLinksAddon } from "@xterm/addon-web-links";
import type { ILinkHandler, Terminal } from "@xterm/xterm";

/** The address in its normal form, or null when it is none of the web. */
export function webAddress(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url && (url.protocol === "https:" || url.protocol === "http:") ? url.href : null;
}

const byTouch = matchMedia("(pointer: coarse)").matches;
const onMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** `hint` shows the address below the pointer, and null that there is none. */
export function openLinks(terminal: Terminal, hint: (text: string | null) => void): void {
  const activate = (event: MouseEvent, text: string): void => {
    const target = webAddress(text);
    if (target && (byTouch || event.ctrlKey || event.metaKey)) window.open(target, "_blank", "noopener,noreferrer");
  };
  const hover = (_: MouseEvent, text: string): void => {
    const target = webAddress(text);
    hint(target && `${onMac ? "⌘" : "Ctrl"}-click opens ${target}`);
  };
  const leave = (): void => hint(null);
  const handler: ILinkHandler = { activate, hover, leave, allowNonHttpProtocols: false };
  terminal.options.linkHandler = handler; // OSC 8
  terminal.loadAddon(new WebLinksAddon(activate, { hover, leave }));
}
