// Flow control, both ways. The server leaves at most 512 KiB of output unacknowledged; the page, at most OUTSTANDING_MOST of what is typed.

export const ACK_AT = 64 * 1024; // bytes
export const ACK_IDLE = 50; // ms
export const OUTSTANDING_MOST = 128 * 1024; // bytes
export const CHUNK_MOST = 32 * 1024; // bytes in one frame

/** Tells the server how many bytes the terminal has shown: soon, yet not for each of many small ones. */
export class OutputAcks {
  private pending = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `atOnce` says that a timer would be late: in a hidden tab they run once a minute. */
  constructor(
    private readonly send: (bytes: number) => void,
    private readonly atOnce: () => boolean,
  ) {}

  shown(bytes: number): void {
    this.pending += bytes;
    if (this.pending >= ACK_AT || this.atOnce()) this.flush();
    else this.timer ??= setTimeout(() => this.flush(), ACK_IDLE);
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const bytes = this.pending;
    this.pending = 0;
    if (bytes > 0) this.send(bytes);
  }
}

interface Item {
  bytes: Uint8Array;
  sent: number;
  /** What must follow even when the rest is given up. */
  ending: Uint8Array | null;
}

/** What was typed and pasted, on its way to the server in order, no faster than the sandbox takes it. */
export class InputQueue {
  private readonly items: Item[] = [];
  private outstanding = 0;

  constructor(private readonly send: (chunk: Uint8Array<ArrayBuffer>) => void) {}

  push(bytes: Uint8Array, ending: Uint8Array | null = null): void {
    this.items.push({ bytes, sent: 0, ending });
    this.pump();
  }

  /** The server has passed on `bytes` more. */
  acknowledged(bytes: number): void {
    this.outstanding = Math.max(0, this.outstanding - bytes);
    this.pump();
  }

  /** Bytes that wait here. */
  get waiting(): number {
    return this.items.reduce((sum, item) => sum + item.bytes.length - item.sent, 0);
  }

  /** Give up what has not been sent, but leave no paste open: the shell would take all that follows for a part of it. */
  giveUp(): void {
    const [head] = this.items;
    this.items.length = 0;
    if (head?.ending && head.sent > 0) this.push(head.ending);
  }

  private pump(): void {
    for (let [item] = this.items; item; [item] = this.items) {
      while (item.sent < item.bytes.length) {
        const room = OUTSTANDING_MOST - this.outstanding;
        if (room <= 0) return;
        const chunk = item.bytes.slice(item.sent, item.sent + Math.min(CHUNK_MOST, room));
        item.sent += chunk.length;
        this.outstanding += chunk.length;
        this.send(chunk);
      }
      this.items.shift();
    }
  }
}
