// Scrolling by touch, which xterm.js leaves to its host.

import type { Terminal } from "@xterm/xterm";

export function scrollByTouch(terminal: Terminal, container: HTMLElement): void {
  let last: number | null = null; // where the finger was, px
  let rest = 0; // px that made no line yet
  container.addEventListener("touchstart", ({ touches }) => {
    last = touches.length === 1 ? (touches[0]?.clientY ?? null) : null;
    rest = 0;
  }, { passive: true });
  container.addEventListener("touchmove", (event) => {
    const [touch, other] = event.touches;
    if (last === null || !touch || other) return;
    event.preventDefault();
    const deltaY = last - touch.clientY;
    last = touch.clientY;
    if (terminal.modes.mouseTrackingMode !== "none" || terminal.buffer.active.type === "alternate") {
      // A program that takes the mouse, or fills the screen, is told a wheel: xterm.js knows how.
      const { clientX, clientY } = touch;
      event.target?.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX, clientY, bubbles: true, cancelable: true }));
      return;
    }
    const height = container.offsetHeight / terminal.rows;
    rest += deltaY;
    const lines = Math.trunc(rest / height);
    rest -= lines * height;
    if (lines !== 0) terminal.scrollLines(lines);
  }, { passive: false });
}
