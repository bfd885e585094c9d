// Scrolling by touch, which xterm.js leaves to its host: a drag is told as a wheel, so that programs with mouse support scroll too.

export function scrollByTouch(element: HTMLElement): void {
  let last: number | null = null;
  element.addEventListener("touchstart", (event) => {
    last = event.touches.length === 1 ? (event.touches[0]?.clientY ?? null) : null;
  }, { passive: true });
  element.addEventListener("touchmove", (event) => {
    const touch = event.touches[0];
    if (last === null || touch === undefined || event.touches.length > 1) return;
    const deltaY = last - touch.clientY;
    last = touch.clientY;
    const { clientX, clientY } = touch;
    event.target?.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX, clientY, bubbles: true, cancelable: true }));
    event.preventDefault();
  }, { passive: false });
}
