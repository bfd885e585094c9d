// The terminal's colours. Each has enough contrast on its background; what a program mixes itself is corrected by minimumContrastRatio.

import type { ITheme } from "@xterm/xterm";
import type { Appearance } from "./preferences";

const dark: ITheme = {
  background: "#14171c",
  foreground: "#e3e7ed",
  cursor: "#f2b84b",
  cursorAccent: "#14171c",
  selectionBackground: "#3b5b86",
  selectionInactiveBackground: "#35404f",
  scrollbarSliderBackground: "#8792a244",
  scrollbarSliderHoverBackground: "#8792a288",
  scrollbarSliderActiveBackground: "#8792a2bb",
  black: "#2a3039",
  red: "#ff7b72",
  green: "#6cc070",
  yellow: "#dfb142",
  blue: "#6cabff",
  magenta: "#d693f5",
  cyan: "#4fc4cf",
  white: "#c9d1db",
  brightBlack: "#8792a2",
  brightRed: "#ffa39c",
  brightGreen: "#95da97",
  brightYellow: "#f3cf72",
  brightBlue: "#9cc8ff",
  brightMagenta: "#e6b9fb",
  brightCyan: "#85dde5",
  brightWhite: "#ffffff",
};

const light: ITheme = {
  background: "#fdfdfc",
  foreground: "#20252c",
  cursor: "#a15c00",
  cursorAccent: "#fdfdfc",
  selectionBackground: "#b5d2f7",
  selectionInactiveBackground: "#d9dfe6",
  scrollbarSliderBackground: "#56606e44",
  scrollbarSliderHoverBackground: "#56606e88",
  scrollbarSliderActiveBackground: "#56606ebb",
  black: "#20252c",
  red: "#b42318",
  green: "#1f7a34",
  yellow: "#8a5a00",
  blue: "#1c5fc0",
  magenta: "#8b35b5",
  cyan: "#0b7285",
  white: "#68717e",
  brightBlack: "#5b6573",
  brightRed: "#c8372b",
  brightGreen: "#1d7f36",
  brightYellow: "#946200",
  brightBlue: "#2a6bd0",
  brightMagenta: "#9a45c4",
  brightCyan: "#0e7a8d",
  brightWhite: "#3a424d",
};

const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** Calls `apply` now, whenever `choose` is called, and when the system turns light or dark. */
export function followAppearance(chosen: Appearance, apply: (theme: ITheme) => void): { choose(appearance: Appearance): void } {
  const show = (): void => {
    const isDark = chosen === "dark" || (chosen === "auto" && systemDark.matches);
    document.documentElement.dataset["appearance"] = isDark ? "dark" : "light";
    apply(isDark ? dark : light);
  };
  systemDark.addEventListener("change", show);
  show();
  return {
    choose(appearance) {
      chosen = appearance;
      show();
    },
  };
}
