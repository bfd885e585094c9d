// Draws with WebGL where hardware does it; otherwise, and when the browser takes the context away, with the DOM.

import { WebglAddon } from "@xterm/addon-webgl";
import type { Terminal } from "@xterm/xterm";

/** Not every browser owns up to failIfMajorPerformanceCaveat: some renderers are known by name. */
function hasFastWebgl(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (gl === null) return false;
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer: unknown = info && gl.getParameter(info.UNMASKED_RENDERER_WEBGL);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return !/swiftshader|llvmpipe|software/i.test(String(renderer));
}

export function drawFast(terminal: Terminal): void {
  if (!hasFastWebgl()) return;
  const addon = new WebglAddon();
  addon.onContextLoss(() => addon.dispose());
  terminal.loadAddon(addon);
}
