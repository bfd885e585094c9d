// When the terminal's size changes, and whom that is told.

export interface Size {
  cols: number;
  rows: number;
}

export const SETTLE = 80; // ms that a change waits, for more of them
export const SPACING = 250; // ms at least between two changes
const MOST = 1000; // columns or rows that the server knows

/** A size as the server takes it; null when there is none to speak of, as of an element that is not laid out. */
export function usable(size: Partial<Size> | undefined): Size | null {
  const { cols, rows } = size ?? {};
  if (!Number.isFinite(cols) || !Number.isFinite(rows) || !cols || !rows || cols < 1 || rows < 1) return null;
  return { cols: Math.min(Math.floor(cols), MOST), rows: Math.min(Math.floor(rows), MOST) };
}

/** Turns a storm of changes into few: it measures again when they settle, and passes on a size that is new. */
export class Sizer {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private changedAt = -Infinity;
  private current: Size;

  /** `measure` gives null while the page is hidden or has no size; then nothing changes. */
  constructor(
    initial: Size,
    private readonly measure: () => Size | null,
    private readonly apply: (size: Size) => void,
  ) {
    this.current = initial;
  }

  /** Something may have changed the size. */
  changed(): void {
    if (this.timer !== undefined) return;
    const rest = this.changedAt + SPACING - Date.now();
    this.timer = setTimeout(() => this.settle(), Math.min(SPACING, Math.max(SETTLE, rest)));
  }

  private settle(): void {
    this.timer = undefined;
    const size = this.measure();
    if (size === null || (size.cols === this.current.cols && size.rows === this.current.rows)) return;
    this.current = size;
    this.changedAt = Date.now();
    this.apply(size);
  }
}
