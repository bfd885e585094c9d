// The terminal's WebSocket: what is typed goes out as binary frames only, so that no pasted text is taken for a control.

import { InputQueue, OutputAcks } from "./flow";
import type { Size } from "./sizer";

export interface Handlers {
  opened(): void;
  /** The path that files may be posted to while this socket is open. */
  uploadsTo(path: string): void;
  /** `shown` must be called when the text is on the screen. */
  output(text: string, shown: () => void): void;
  /** `opened` is false when the server refused, or could not be reached. */
  closed(code: number, reason: string, opened: boolean): void;
}

/** The socket of the page at `page`: its own path and query, and how this client wants to be served. */
export function address(page: Location, size: Size | null): string {
  const query = new URLSearchParams(page.search);
  query.set("flow", "1");
  if (size) {
    query.set("cols", String(size.cols));
    query.set("rows", String(size.rows));
  }
  return `${page.protocol === "https:" ? "wss:" : "ws:"}//${page.host}${page.pathname}/ws?${query}`;
}

export class Socket {
  readonly input: InputQueue;
  private readonly socket: WebSocket;
  private readonly acks: OutputAcks;
  // A character may begin in one frame and end in the next. A byte order mark is output like any other.
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private opened = false;

  constructor(
    url: string,
    private readonly handlers: Handlers,
  ) {
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.input = new InputQueue((chunk) => this.whenOpen(() => this.socket.send(chunk)));
    this.acks = new OutputAcks(
      (bytes) => this.tell({ ack: bytes }),
      () => document.hidden,
    );
    this.socket.addEventListener("open", () => {
      this.opened = true;
      handlers.opened();
    });
    this.socket.addEventListener("message", (event: MessageEvent<ArrayBuffer | string>) => {
      if (typeof event.data === "string") this.control(event.data);
      else this.output(event.data);
    });
    this.socket.addEventListener("close", (event) => {
      handlers.output(this.decoder.decode(), () => handlers.closed(event.code, event.reason, this.opened));
    });
  }

  get open(): boolean {
    return this.socket.readyState === WebSocket.OPEN;
  }

  resize(size: Size): void {
    this.tell({ resize: { cols: size.cols, rows: size.rows } });
  }

  private output(data: ArrayBuffer): void {
    this.handlers.output(this.decoder.decode(data, { stream: true }), () => this.acks.shown(data.byteLength));
  }

  private control(text: string): void {
    const message: unknown = JSON.parse(text);
    if (typeof message !== "object" || message === null) return;
    if ("ack" in message && typeof message.ack === "number") this.input.acknowledged(message.ack);
    if ("upload" in message && typeof message.upload === "string") this.handlers.uploadsTo(message.upload);
  }

  private tell(message: object): void {
    this.whenOpen(() => this.socket.send(JSON.stringify(message)));
  }

  private whenOpen(act: () => void): void {
    if (this.open) act();
  }
}
